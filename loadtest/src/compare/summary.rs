//! The results in plain sentences, for readers of the first lines only.

use super::report::{NGINX, OURS, SMG};
use super::routing::{RoutingArm, RoutingResult};
use super::{CompareReport, Scenario, ScenarioResult};

/// Load averages from here on are worth a warning.
const BUSY: f64 = 0.5;

/// Shares that differ by less are called the same.
const SAME_SHARE: f64 = 0.01;

pub(super) fn sentences(report: &CompareReport) -> Vec<String> {
    let mut sentences = Vec::new();
    if report.interrupted {
        sentences.push(
            "The comparison was broken off; these are the runs that were complete by then.".into(),
        );
    }
    if let Some(routing) = &report.routing {
        about_routing(routing, &mut sentences);
    }
    if let Some(short) = cheapest_load(report) {
        about_cost(short, &mut sentences);
    }
    sentences.push(about_failures(report));
    if !report.missing.is_empty() {
        let names: Vec<_> = report.missing.iter().map(|missing| &*missing.arm).collect();
        sentences.push(format!("Not compared, or not to the end: {}.", list(&names)));
    }
    if report.void_runs > 0 {
        sentences.push(format!(
            "The machine stood still during {} runs, which were repeated or left out.",
            report.void_runs
        ));
    }
    let load = report.machine.load_before;
    if load >= BUSY {
        sentences.push(format!(
            "The machine was not idle when it began (load average {load:.1}): expect noise, above all \
             in the 99th percentiles."
        ));
    }
    sentences
}

/// The short chats, or else the first load there is.
fn cheapest_load(report: &CompareReport) -> Option<&ScenarioResult> {
    let short = report.scenarios.iter().find(|result| result.scenario == Scenario::Short);
    short.or(report.scenarios.first())
}

/// Arms that take the engines in turn, the first of which the best one is compared with.
const PLAIN: [&str; 4] = [NGINX, "haproxy", "envoy", "direct"];

/// An arm is called slow when its tail is so many times that of the one compared with.
const SLOW: f64 = 2.0;

fn about_routing(routing: &RoutingResult, sentences: &mut Vec<String>) {
    let by_hits = |a: &&RoutingArm, b: &&RoutingArm| a.hit_share.total_cmp(&b.hit_share);
    let arms = || routing.arms.iter();
    let Some((best, worst)) = arms().rev().max_by(by_hits).zip(arms().min_by(by_hits)) else {
        return;
    };
    if routing.arms.len() == 1 {
        sentences.push(format!(
            "Engines found {} of the prompt in their caches behind {}.",
            percent(best.hit_share),
            best.arm
        ));
        return;
    }
    if best.hit_share - worst.hit_share < SAME_SHARE {
        sentences.push(format!(
            "Routing made no difference to the caches here: {} of the prompt tokens were found in them \
             behind every arm.",
            percent(best.hit_share)
        ));
        return;
    }
    let plain = PLAIN.iter().find_map(|name| arms().find(|arm| arm.arm == *name));
    let plain =
        plain.filter(|plain| plain.hit_share < best.hit_share - SAME_SHARE).unwrap_or(worst);
    let as_good: Vec<_> =
        arms().filter(|arm| best.hit_share - arm.hit_share < SAME_SHARE).collect();
    let names: Vec<_> = as_good.iter().map(|arm| &*arm.arm).collect();
    sentences.push(format!(
        "Engines found most of the prompt in their caches behind {}: {} of its tokens, against {} behind \
         {}. They had {:.1} times fewer prompt tokens to compute.",
        list(&names),
        percent(best.hit_share),
        percent(plain.hit_share),
        plain.arm,
        (1.0 - plain.hit_share) / (1.0 - best.hit_share).max(1e-3),
    ));
    // Of those as good, ours speaks for itself; the table has the others.
    let ours = as_good.iter().find(|arm| arm.arm.starts_with(OURS));
    let shown = ours.copied().unwrap_or(best);
    about_times(shown, plain, sentences);
    about_slow_ones(routing, plain, sentences);
    sentences.push(format!(
        "The busiest engine got {:.2} times its fair share of requests behind {} and {:.2} times behind {}.",
        shown.max_over_mean, shown.arm, plain.max_over_mean, plain.arm
    ));
}

fn about_times(shown: &RoutingArm, plain: &RoutingArm, sentences: &mut Vec<String>) {
    if shown.ttft_ms.count == 0 || plain.ttft_ms.count == 0 {
        return;
    }
    sentences.push(format!(
        "Half of the answers began within {} behind {} and within {} behind {}; 99 of 100 within {} and \
         {}.",
        milliseconds(shown.ttft_ms.p50),
        shown.arm,
        milliseconds(plain.ttft_ms.p50),
        plain.arm,
        milliseconds(shown.ttft_ms.p99),
        milliseconds(plain.ttft_ms.p99),
    ));
}

fn about_slow_ones(routing: &RoutingResult, plain: &RoutingArm, sentences: &mut Vec<String>) {
    let limit = SLOW * plain.ttft_ms.p99;
    for slow in routing.arms.iter().filter(|arm| limit > 0.0 && arm.ttft_ms.p99 > limit) {
        sentences.push(format!(
            "Behind {} answers were late: 1 of 100 began after {} or more.",
            slow.arm,
            milliseconds(slow.ttft_ms.p99)
        ));
    }
}

fn about_cost(result: &ScenarioResult, sentences: &mut Vec<String>) {
    let mut arms: Vec<_> =
        result.arms.iter().filter_map(|arm| Some((&*arm.arm, arm.cpu_us?))).collect();
    arms.sort_by(|a, b| a.1.total_cmp(&b.1));
    if arms.is_empty() {
        return;
    }
    let (what, unit) = match result.scenario.is_stream() {
        true => ("passing on one event of a stream", "event"),
        false => ("passing on one chat", "chat"),
    };
    let costs: Vec<_> = arms.iter().map(|(arm, us)| format!("{arm} {us:.0}")).collect();
    sentences.push(format!(
        "CPU time for {what} ({}), in microseconds from least to most: {}.",
        result.scenario.about(),
        costs.join(", ")
    ));
    let ratios: Vec<_> = [(NGINX, "nginx"), (SMG, "SMG")]
        .into_iter()
        .filter_map(|(of, name)| Some((result.cpu_ratio(OURS, of)?, name)))
        .map(|(ratio, name)| format!("{ratio:.2} times what {name} costs"))
        .collect();
    if !ratios.is_empty() {
        let ratios: Vec<_> = ratios.iter().map(String::as_str).collect();
        sentences.push(format!("Ours costs {} per {unit}.", list(&ratios)));
    }
}

fn about_failures(report: &CompareReport) -> String {
    let mut failed: Vec<(String, u64)> = Vec::new();
    let costs = report.scenarios.iter().flat_map(|result| &result.arms);
    let costs = costs.map(|arm| (&arm.arm, arm.failed));
    let routing = report.routing.iter().flat_map(|routing| &routing.arms);
    for (arm, count) in costs.chain(routing.map(|arm| (&arm.arm, arm.failed))) {
        if count == 0 {
            continue;
        }
        match failed.iter_mut().find(|(name, _)| name == arm) {
            Some((_, sum)) => *sum += count,
            None => failed.push((arm.clone(), count)),
        }
    }
    if failed.is_empty() {
        return "No request failed.".into();
    }
    let failed: Vec<_> =
        failed.iter().map(|(arm, count)| format!("{count} behind {arm}")).collect();
    format!("Requests failed: {}.", failed.join(", "))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// `a, b and c`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::html::tests::report;
    use super::*;

    #[test]
    fn the_first_lines_say_who_and_by_how_much() {
        let mut report = report();
        assert_eq!(
            sentences(&report)[..4],
            [
                "Engines found most of the prompt in their caches behind ours cache_aware: 90.0 % of \
                 its tokens, against 40.0 % behind <peer>. They had 6.0 times fewer prompt tokens to \
                 compute.",
                "Half of the answers began within 8.0 ms behind ours cache_aware and within 80 ms \
                 behind <peer>; 99 of 100 within 40 ms and 400 ms.",
                "The busiest engine got 1.25 times its fair share of requests behind ours cache_aware \
                 and 1.25 times behind <peer>.",
                "CPU time for passing on one chat (chats of ~600 bytes, 32 connections), in \
                 microseconds from least to most: nginx 20, ours 25, smg 200.",
            ]
        );
        assert_eq!(
            sentences(&report)[4..],
            [
                "Ours costs 1.25 times what nginx costs and 0.12 times what SMG costs per chat.",
                "Requests failed: 3 behind <peer>.",
                "Not compared, or not to the end: haproxy.",
            ]
        );
        report.interrupted = true;
        report.machine.load_before = 3.0;
        report.void_runs = 2;
        let sentences = sentences(&report);
        assert!(sentences[0].contains("broken off"));
        assert!(sentences.iter().any(|sentence| sentence.contains("during 2 runs")));
        assert!(sentences.last().unwrap().contains("load average 3.0"));
    }

    #[test]
    fn the_best_is_compared_with_a_plain_proxy_and_the_slow_are_named() {
        let mut report = report();
        let arms = &mut report.routing.as_mut().unwrap().arms;
        let plain = RoutingArm { arm: "haproxy".into(), hit_share: 0.5, ..arms[0].clone() };
        arms[0].ttft_ms.p99 = 801.0;
        arms.push(plain);
        let sentences = sentences(&report);
        assert!(sentences[0].contains("against 50.0 % behind haproxy"), "{sentences:?}");
        assert!(sentences[2].contains("Behind <peer> answers were late"), "{sentences:?}");
        assert!(sentences[2].contains("after 801 ms"), "{sentences:?}");
    }

    #[test]
    fn no_difference_is_called_none() {
        let mut report = report();
        let routing = report.routing.as_mut().unwrap();
        routing.arms.iter_mut().for_each(|arm| arm.hit_share = 0.5);
        assert!(sentences(&report)[0].contains("made no difference"));
        report.routing.as_mut().unwrap().arms.pop();
        let alone = "Engines found 50.0 % of the prompt in their caches behind <peer>.";
        assert_eq!(sentences(&report)[0], alone);
        report.routing = None;
        report.scenarios.clear();
        assert_eq!(sentences(&report)[0], "No request failed.");
    }

    #[test]
    fn lists_read_well() {
        assert_eq!([list(&[]), list(&["a"]), list(&["a", "b", "c"])], ["", "a", "a, b and c"]);
    }
}
