//! How it was measured, and what that cannot say.

use super::super::CompareReport;
use super::super::plot::escape;
use super::add;

const BOTH: [&str; 3] = [
    "All arms were measured in one run on one machine, in rounds: every round has each arm once, and the arm \
     that begins moves on from round to round. What disturbs a machine for longer than a run then disturbs all \
     arms.",
    "CPU time is that of all threads and children of the gateway's process, from the kernel's scheduler \
     statistics, read from outside at both ends of the measured time. Memory is resident memory, from outside too.",
    "Latency counts from when a request was due, not from when the client got round to sending it. Warm-up is \
     left out.",
];

const ROUTING: [&str; 4] = [
    "Routing: engines are simulated: a prefix cache in blocks of 16 tokens with LRU order and hits counted as vLLM counts \
     them, a batch limit, step times from the datasheets' arithmetic of the profile named above. Caches are far \
     smaller than real ones, so that seconds fill them as hours fill real ones.",
    "Routing: chats arrive at random times at a fixed rate whatever the gateway does, each turn with everything said \
     before. In one round all arms get the same chats at the same times; the next round has others.",
    "Routing: every run has a gateway of its own, started in front of empty caches. The hit share is counted by the \
     engines, not by gateways.",
    "Routing: direct means that the client itself takes the engines in turn, on a new connection for each request.",
];

const COST: [&str; 2] = [
    "Cost: engines answer at once with prepared bytes. All gateways run during the whole measurement, each with the \
     load to itself in its turn; the others idle but for their health checks. Ratios are medians of the ratios \
     within each round.",
    "Cost: direct means that the client talks to one engine.",
];

const LIMITS: [&str; 6] = [
    "Nothing here has a GPU. Simulated engines have no jitter, no speculative decoding, no memory pressure of a \
     real server; absolute times to first token are the profile's, differences between arms are the routing's.",
    "The gain of routing by prefix depends on how much of the load is shared and how much of it fits the caches. \
     Without shared prefixes all arms are alike; with caches for everything in every engine too. Measure with \
     your own trace (smg-loadtest replay, simulate) before you rely on a number.",
    "One gateway on one core over loopback: no network latency, no TLS, no scaling over cores.",
    "Engines and client share a core that is not the gateway's, as far as the machine has two. Requests per \
     second and 99th percentiles of the closed loops also measure them.",
    "A few hundred to a few thousand requests per arm: a 99th percentile rests on its slowest few.",
    "Peers run with the settings shown below, which are sensible ones, not tuned ones. Each has more policies \
     and options than were tried.",
];

pub(super) fn section(page: &mut String, report: &CompareReport) {
    page.push_str("<h2>How it was measured</h2>\n<ul>\n");
    let routing = report.routing.iter().flat_map(|_| ROUTING);
    let cost = report.scenarios.first().into_iter().flat_map(|_| COST);
    items(page, BOTH.into_iter().chain(routing).chain(cost));
    let machine = &report.machine;
    let cpus = format!(
        "Gateways ran on CPU {:?}, engines and client on CPU {:?} of {} ({} CPUs, {}). Load average before \
         the start: {:.2}.",
        report.gateway_cpus,
        report.load_cpus,
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load_before
    );
    items(page, std::iter::once(cpus.as_str()));
    page.push_str("</ul>\n<h2>What it cannot say</h2>\n<ul>\n");
    items(page, LIMITS.into_iter());
    page.push_str("</ul>\n");
}

fn items<'a>(page: &mut String, texts: impl Iterator<Item = &'a str>) {
    texts.for_each(|text| add(page, &format!("<li>{}</li>\n", escape(text))));
}
