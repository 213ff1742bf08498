//! Requests that are made as they are sent, so that no two are alike and memory stays the same however
//! long a run is: prompts that share prefixes in the ways real ones do.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use smg_core::rng::Rng;

use super::bodies::{Messages, Request, RequestOptions, Script, chat_body};
use crate::engine::Nanos;

/// What prompts have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nothing.
    Nothing,
    /// Each begins with one of a number of prefixes, all equally likely.
    Groups,
    /// The same, but a prefix lives for a while and then another takes its place.
    Churn,
    /// All begin with one system prompt, go on with [`DOCUMENTS`] documents that a search found for the
    /// question, popular ones more often, and end with the question.
    Documents,
}

/// A workload of independent chats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeOptions {
    pub sharing: Sharing,
    pub script: Script,
    /// Prefixes or documents; at least one.
    pub groups: usize,
    /// Length of a prefix, or of all documents of a prompt together.
    pub prefix_chars: usize,
    /// Length of what no other prompt has.
    pub question_chars: usize,
    /// Of a prefix that does not stay; not zero.
    pub lifetime: Duration,
}

/// Documents of a prompt.
pub const DOCUMENTS: usize = 4;

/// Makes the requests of one run.
pub(super) struct Maker {
    options: MadeOptions,
    request: RequestOptions,
    seed: u64,
    system: String,
    /// By group: which prefix it has now, and its text.
    shared: RefCell<Vec<(u64, String)>>,
    count: Cell<u64>,
    bytes: Cell<u64>,
}

impl Maker {
    /// Requests numbered from `first_number` on.
    pub fn new(
        options: MadeOptions,
        request: RequestOptions,
        first_number: u64,
        seed: u64,
    ) -> Self {
        let length = if options.sharing == Sharing::Documents {
            options.prefix_chars / DOCUMENTS
        } else {
            options.prefix_chars
        };
        let shares = options.sharing != Sharing::Nothing;
        let groups = if shares { options.groups.max(1) } else { 0 };
        let shared = (0..groups).map(|group| (0, options.shared_text(seed, group, 0, length)));
        Self {
            system: options.script.text(&mut Rng::new(seed), 400),
            shared: RefCell::new(shared.collect()),
            request,
            seed,
            count: Cell::new(first_number),
            bytes: Cell::new(0),
            options,
        }
    }

    /// The next request, `age` after the run's start.
    pub fn next(&self, age: Nanos) -> Request {
        let number = self.count.get();
        self.count.set(number + 1);
        let body = self.body(number, age);
        self.bytes.set(self.bytes.get() + body.len() as u64);
        Request::fixed(self.request.request(&body).bytes)
    }

    /// Bytes of the bodies of `count` requests so far.
    pub fn mean_body_bytes(&self, count: u64) -> usize {
        (self.bytes.get() / count.max(1)) as usize
    }

    /// Number of requests made or skipped so far.
    pub fn number(&self) -> u64 {
        self.count.get()
    }

    fn body(&self, number: u64, age: Nanos) -> String {
        let mut rng =
            Rng::new(self.seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let MadeOptions { sharing, script, question_chars, .. } = &self.options;
        let mut messages = Messages::default();
        let mut question = String::new();
        match sharing {
            Sharing::Nothing => {}
            Sharing::Groups | Sharing::Churn => {
                let group = rng.below(self.shared.borrow().len());
                self.renew(group, age);
                messages.push("system", &self.shared.borrow()[group].1);
            }
            Sharing::Documents => {
                messages.push("system", &self.system);
                for document in self.found(&mut rng) {
                    question.push_str(&self.shared.borrow()[document].1);
                    question.push_str("\n\n");
                }
            }
        }
        question.push_str(&script.text(&mut rng, *question_chars));
        messages.push("user", &question);
        chat_body(&self.request, &messages)
    }

    /// Gives a group the prefix that it has at `age`: groups change one after the other.
    fn renew(&self, group: usize, age: Nanos) {
        if self.options.sharing != Sharing::Churn {
            return;
        }
        let mut shared = self.shared.borrow_mut();
        let lifetime = (self.options.lifetime.as_nanos() as u64).max(1);
        let phase = (u128::from(lifetime) * group as u128 / shared.len() as u128) as u64;
        let generation = (age + phase) / lifetime;
        if shared[group].0 != generation {
            let length = self.options.prefix_chars;
            let text = self.options.shared_text(self.seed, group, generation, length);
            shared[group] = (generation, text);
        }
    }

    /// Documents for one question, each once, in no order; the first of all are the popular ones.
    fn found(&self, rng: &mut Rng) -> Vec<usize> {
        let all = self.shared.borrow().len();
        let mut found: Vec<usize> = Vec::with_capacity(DOCUMENTS);
        while found.len() < DOCUMENTS.min(all) {
            let document = ((rng.unit().powi(2) * all as f64) as usize).min(all - 1);
            if !found.contains(&document) {
                found.push(document);
            }
        }
        found
    }
}

impl MadeOptions {
    fn shared_text(&self, seed: u64, group: usize, generation: u64, chars: usize) -> String {
        let name = seed ^ (generation << 32 | group as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.script.text(&mut Rng::new(name.rotate_left(17)), chars)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn maker(sharing: Sharing, script: Script) -> Maker {
        let options = MadeOptions {
            sharing,
            script,
            groups: 6,
            prefix_chars: 400,
            question_chars: 50,
            lifetime: Duration::from_secs(6),
        };
        let request = RequestOptions {
            authority: "h:1".into(),
            path: "/v1/chat/completions".into(),
            model: "m".into(),
            stream: false,
            max_tokens: 16,
            headers: Vec::new(),
        };
        Maker::new(options, request, 0, 7)
    }

    /// Contents of the messages of `count` requests.
    fn prompts(maker: &Maker, count: usize, age: Nanos) -> Vec<Vec<String>> {
        let contents = |_| {
            let request = maker.next(age).bytes;
            let body = request.split(|byte| *byte == b'\n').skip_while(|line| *line != b"\r");
            let body = body.skip(1).collect::<Vec<_>>().join(&b'\n');
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let messages = body["messages"].as_array().unwrap().clone();
            messages.iter().map(|m| m["content"].as_str().unwrap().to_owned()).collect()
        };
        (0..count).map(contents).collect()
    }

    #[test]
    fn unique_prompts_share_nothing() {
        let prompts = prompts(&maker(Sharing::Nothing, Script::English), 200, 0);
        assert!(prompts.iter().all(|prompt| prompt.len() == 1 && prompt[0].len() == 50));
        assert_eq!(prompts.iter().collect::<HashSet<_>>().len(), 200);
    }

    #[test]
    fn groups_share_their_prefix_and_nothing_else() {
        let made = prompts(&maker(Sharing::Groups, Script::English), 600, 0);
        let mut counts = HashMap::new();
        made.iter().for_each(|prompt| *counts.entry(&prompt[0]).or_insert(0) += 1);
        assert_eq!(counts.len(), 6);
        assert!(counts.iter().all(|(text, count)| text.len() == 400 && (60..140).contains(count)));
        let questions: HashSet<_> = made.iter().map(|prompt| &prompt[1]).collect();
        assert_eq!(questions.len(), 600);
        // The same seed asks the same questions.
        assert_eq!(prompts(&maker(Sharing::Groups, Script::English), 600, 0), made);
    }

    #[test]
    fn prefixes_that_do_not_stay_go_one_after_the_other() {
        let maker = maker(Sharing::Churn, Script::English);
        let prefixes = |seconds: u64| -> HashSet<String> {
            let made = prompts(&maker, 300, seconds * 1_000_000_000);
            made.into_iter().map(|mut prompt| prompt.swap_remove(0)).collect()
        };
        let (start, second, third, later) = (prefixes(0), prefixes(1), prefixes(2), prefixes(9));
        assert_eq!([&start, &second, &third, &later].map(HashSet::len), [6; 4]);
        // Six groups that live for six seconds each: one of them changes every second.
        assert_eq!(start.intersection(&second).count(), 5);
        assert_eq!(start.intersection(&third).count(), 4);
        assert_eq!(start.intersection(&later).count(), 0);
    }

    #[test]
    fn documents_come_in_every_order_and_popular_ones_more_often() {
        let maker = maker(Sharing::Documents, Script::English);
        let documents: Vec<String> = maker.shared.borrow().iter().map(|d| d.1.clone()).collect();
        let made = prompts(&maker, 400, 0);
        let mut counts = [0; 6];
        let mut orders = HashSet::new();
        for prompt in &made {
            assert_eq!(prompt[0], made[0][0], "one system prompt");
            let mut parts: Vec<&str> = prompt[1].split("\n\n").collect();
            assert_eq!(parts.pop().unwrap().len(), 50);
            let place = |part: &&str| documents.iter().position(|d| d == part).unwrap();
            let order: Vec<usize> = parts.iter().map(place).collect();
            assert_eq!(order.iter().collect::<HashSet<_>>().len(), DOCUMENTS);
            order.iter().for_each(|&document| counts[document] += 1);
            orders.insert(order);
        }
        assert!(orders.len() > 50 && counts[0] > counts[5] + 50, "{} {counts:?}", orders.len());
    }

    #[test]
    fn lengths_are_in_characters_whatever_the_script() {
        let made = prompts(&maker(Sharing::Groups, Script::Cjk), 3, 0);
        for prompt in made {
            assert_eq!(prompt.iter().map(|text| text.chars().count()).sum::<usize>(), 450);
            assert_eq!(prompt[0].len(), 1_200, "three bytes each");
        }
    }
}
