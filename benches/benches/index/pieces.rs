//! The least an index of turns has to compare: prompts kept as they arrive, a head once for all
//! conversations that share it and then a piece per turn.

use crate::arms::Kind;

/// Conversations of one corpus.
pub struct Pieces<K: Kind> {
    heads: Vec<K::Owned>,
    conversations: Vec<Conversation<K>>,
}

struct Conversation<K: Kind> {
    head: usize,
    units: usize,
    turns: Vec<K::Owned>,
}

impl<K: Kind> Pieces<K> {
    /// Conversations whose first `head_units` are shared by some; no turn yet.
    pub fn new(prompts: &[K::Owned], head_units: usize) -> Self {
        let mut heads: Vec<K::Owned> = Vec::new();
        let conversations = prompts.iter().map(|prompt| {
            let head = K::head(K::borrow(prompt), head_units);
            let known = heads.iter().position(|known| K::is_equal(K::borrow(known), head));
            let head = known.unwrap_or_else(|| {
                heads.push(K::copy(head));
                heads.len() - 1
            });
            Conversation { head, units: head_units, turns: Vec::new() }
        });
        let conversations = conversations.collect();
        Self { heads, conversations }
    }

    /// Adds what `prompt` has beyond what is kept of the conversation.
    pub fn grow(&mut self, conversation: usize, prompt: &K::Prompt, units: usize) {
        let conversation = &mut self.conversations[conversation];
        if units > conversation.units {
            conversation.turns.push(K::copy(K::part(prompt, conversation.units..units)));
            conversation.units = units;
        }
    }

    /// Whether `prompt` begins with all that is kept of the conversation.
    pub fn is_prefix(&self, conversation: usize, prompt: &K::Prompt) -> bool {
        let Conversation { head, turns, .. } = &self.conversations[conversation];
        let mut from = 0;
        [&self.heads[*head]].into_iter().chain(turns).all(|piece| {
            let to = from + K::units(K::borrow(piece));
            let is_equal = K::is_equal(K::borrow(piece), K::part(prompt, from..to));
            from = to;
            is_equal
        })
    }
}
