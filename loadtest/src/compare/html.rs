//! The comparison as one HTML file that needs nothing else: no script, no font, no other file.

mod charts;
mod method;

use std::fmt::Write;

use super::arms::Started;
use super::plot::escape;
use super::report::OURS;
use super::routing::RoutingResult;
use super::table::{ROUTING, cost_cells, cost_headings};
use super::{CompareReport, ScenarioResult};

const STYLE: &str = include_str!("html/style.css");

/// The page. Its numbers are those of the report's text and JSON.
pub fn html(report: &CompareReport) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Gateways side by side</title><style>\n{STYLE}</style></head>\n<body><main>\n"
    );
    heading(&mut page, report);
    if let Some(routing) = &report.routing {
        routing_section(&mut page, routing);
    }
    cost_section(&mut page, report);
    verdicts(&mut page, report);
    method::section(&mut page, report);
    arms_section(&mut page, report);
    page.push_str("</main></body></html>\n");
    page
}

fn heading(page: &mut String, report: &CompareReport) {
    let machine = &report.machine;
    page.push_str("<h1>Gateways side by side</h1>\n");
    let about = format!(
        "{}; {} ({} CPUs), {}; {} rounds",
        machine.date, machine.cpu, machine.cpus, machine.kernel, report.runs
    );
    add(page, &format!("<p class=\"soft\">{}</p>\n", escape(&about)));
    page.push_str("<section class=\"short\"><h2>In short</h2><ul>\n");
    for sentence in &report.summary {
        add(page, &format!("<li>{}</li>\n", escape(sentence)));
    }
    page.push_str("</ul></section>\n");
}

/// What the columns of the routing table mean, in their order.
const ROUTING_HEADINGS: [&str; ROUTING.len()] = [
    "Found in caches, %",
    "Range of rounds",
    "Busiest engine / mean",
    "First token p50, ms",
    "p99, ms",
    "Whole answer p50, ms",
    "p99, ms",
    "Gateway CPU, µs per request",
    "Gateway memory, MiB",
    "Failed",
];

fn routing_section(page: &mut String, routing: &RoutingResult) {
    page.push_str("<h2>Routing: what the choice of engine is worth</h2>\n");
    let workload = &routing.workload;
    let about = format!(
        "Chats of {} turns that share {} system prompts of {} tokens, {} new chats per second, in front \
         of {} simulated engines ({}) whose prefix caches hold {} tokens each. All system prompts are {} \
         tokens: {}. Caches are empty and gateways new at the start of every run.",
        workload.turns,
        workload.system_prompts,
        workload.system_prompt_tokens,
        workload.conversations_per_s,
        workload.engines,
        workload.profile,
        workload.cache_tokens_per_engine,
        workload.system_prompts * workload.system_prompt_tokens,
        workload.what_fits(),
    );
    add(page, &format!("<p>{}</p>\n", escape(&about)));
    let headings = std::iter::once("").chain(ROUTING_HEADINGS);
    let rows = routing.arms.iter().map(|arm| {
        let cells = ROUTING.iter().map(|column| (column.key, (column.cell)(arm)));
        (arm.arm.as_str(), cells.collect())
    });
    table(
        page,
        "routing",
        "Latencies: answers of all rounds. The rest: medians of rounds.",
        headings,
        rows,
    );
    charts::routing(page, routing);
}

fn cost_section(page: &mut String, report: &CompareReport) {
    if report.scenarios.is_empty() {
        return;
    }
    page.push_str("<h2>Cost: what passing a request on takes</h2>\n");
    add(
        page,
        &format!(
            "<p>Instant engines, one CPU for the gateway, closed loops as fast as they go; medians of {} \
             rounds of {} s. CPU time is the number to compare: it repeats far better than requests per \
             second, which on a small machine also measure the client.</p>\n",
            report.runs, report.seconds
        ),
    );
    for result in &report.scenarios {
        cost_table(page, result);
        charts::cost(page, result);
    }
    let resident = report.resident_mib.iter();
    let resident: Vec<_> =
        resident.filter_map(|(arm, mib)| Some((arm.as_str(), (*mib)?))).collect();
    if !resident.is_empty() {
        let rows =
            resident.iter().map(|(arm, mib)| (*arm, vec![("resident_mib", format!("{mib:.1}"))]));
        page.push_str("<h3>Memory at start</h3>\n");
        let about = "Resident, once ready and before any request.";
        table(page, "memory", about, ["", "MiB"].into_iter(), rows);
    }
}

fn cost_table(page: &mut String, result: &ScenarioResult) {
    let name = result.scenario.name();
    add(page, &format!("<h3>{}: {}</h3>\n", escape(name), escape(result.scenario.about())));
    let headings = cost_headings(result.scenario.is_stream()).into_iter();
    let rows = result.arms.iter().map(|arm| {
        let [_, cells @ ..] = cost_cells(result, arm);
        (arm.arm.as_str(), cells.to_vec())
    });
    let about =
        "p50 and p99: of whole answers, or of the delay of events. us/…: CPU time of the gateway.";
    table(page, name, about, headings, rows);
}

/// A table of arms; every cell says which number of the JSON it is.
fn table<'a>(
    page: &mut String,
    of: &str,
    about: &str,
    headings: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = (&'a str, Vec<(&'static str, String)>)>,
) {
    let (of, about) = (escape(of), escape(about));
    add(page, &format!("<div class=\"wide\"><table id=\"{of}\"><caption>{about}</caption><tr>"));
    for heading in headings {
        add(page, &format!("<th scope=\"col\">{}</th>", escape(heading)));
    }
    page.push_str("</tr>\n");
    for (arm, cells) in rows {
        let ours = if arm.starts_with(OURS) { " class=\"ours\"" } else { "" };
        let arm = escape(arm);
        add(page, &format!("<tr{ours}><th scope=\"row\">{arm}</th>"));
        for (key, cell) in cells {
            let cell = escape(&cell);
            add(page, &format!("<td data-of=\"{of}/{arm}/{key}\">{cell}</td>"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn verdicts(page: &mut String, report: &CompareReport) {
    if report.verdicts.is_empty() {
        return;
    }
    page.push_str(
        "<h2>The project's own bars</h2>\n<div class=\"wide\"><table>\
         <caption>Ratios are medians of the ratios within each round.</caption><tr>\
         <th scope=\"col\">Bar</th><th scope=\"col\">Measured</th><th scope=\"col\">Limit</th>\
         <th scope=\"col\"></th></tr>\n",
    );
    for verdict in &report.verdicts {
        let (class, word) = if verdict.holds { ("holds", "holds") } else { ("missed", "missed") };
        add(
            page,
            &format!(
                "<tr><th scope=\"row\">{}</th><td>{:.2}</td><td>{:.2}</td><td class=\"{class}\">{word}\
                 </td></tr>\n",
                escape(&verdict.bar),
                verdict.measured,
                verdict.limit
            ),
        );
    }
    page.push_str("</table></div>\n");
}

fn arms_section(page: &mut String, report: &CompareReport) {
    page.push_str("<h2>What was run</h2>\n");
    for started in &report.started {
        started_arm(page, started);
    }
    for missing in &report.missing {
        add(
            page,
            &format!(
                "<h3>Without {}</h3><pre>{}</pre>\n",
                escape(&missing.arm),
                escape(&missing.reason)
            ),
        );
    }
}

fn started_arm(page: &mut String, started: &Started) {
    let version = started.version.as_deref().map(|version| format!(" ({version})"));
    let version = version.unwrap_or_default();
    add(page, &format!("<h3>{}{}</h3>\n", escape(&started.arm), escape(&version)));
    let cost = started.cost_command.iter().map(|command| ("Cost", command));
    let routing = started.routing_commands.values().map(|command| ("Routing", command));
    for (what, command) in cost.chain(routing) {
        add(page, &format!("<pre>{what}: {}</pre>\n", escape(command)));
    }
    if let Some(configuration) = &started.configuration {
        let text = escape(configuration);
        add(
            page,
            &format!("<details><summary>Its configuration</summary><pre>{text}</pre></details>\n"),
        );
    }
}

/// Appends text that is HTML already.
fn add(page: &mut String, html: &str) {
    // Writing to a string cannot fail.
    let _ = write!(page, "{html}");
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::plot::xml::assert_well_formed;
    use super::super::{Machine, Missing, RoutingArm, RoutingOptions, Scenario};
    use super::*;
    use crate::load::Quantiles;

    fn routing_arm(arm: &str, hit_share: f64, ttft_p50: f64) -> RoutingArm {
        RoutingArm {
            arm: arm.into(),
            rounds: 1,
            answered: 100,
            failed: 0,
            errors: Default::default(),
            requests_per_s: 96.0,
            hit_share,
            hit_share_runs: vec![hit_share],
            max_over_mean: 1.25,
            max_over_mean_runs: vec![1.25],
            engine_requests: vec![50, 30],
            ttft_ms: Quantiles {
                count: 100,
                p50: ttft_p50,
                p99: 5.0 * ttft_p50,
                ..Default::default()
            },
            latency_ms: Quantiles { count: 100, p50: 500.0, p99: 900.0, ..Default::default() },
            cpu_us: Some(300.0),
            cpu_us_runs: vec![Some(300.0)],
            resident_mib: Some(20.0),
            ttft_cdf: vec![(1.0, 0.0), (ttft_p50, 0.5), (9.0 * ttft_p50, 1.0)],
            latency_cdf: vec![(300.0, 0.0), (900.0, 1.0)],
            hit_share_by_second: vec![None, Some(0.1), Some(hit_share)],
        }
    }

    fn cost_arm(arm: &str, cpu_us: f64) -> super::super::ArmResult {
        super::super::ArmResult {
            arm: arm.into(),
            requests_per_s: 1_000.0,
            events_per_s: 0.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
            cpu_us: Some(cpu_us),
            cpu_us_runs: vec![Some(cpu_us)],
            event_delay_p50_ms: 0.0,
            event_delay_p99_ms: 0.0,
            event_delay_p99_ms_runs: vec![0.0],
            failed: 0,
        }
    }

    /// A small comparison with a peer whose name would be markup.
    pub(in super::super) fn report() -> CompareReport {
        let mut peer = routing_arm("<peer>", 0.4, 80.0);
        peer.failed = 3;
        let arms = vec![peer, routing_arm("ours cache_aware", 0.9, 8.0)];
        CompareReport {
            summary: vec!["Ours < theirs & \"fine\".".into()],
            interrupted: false,
            machine: Machine { load_before: 0.0, ..Machine::here() },
            void_runs: 0,
            runs: 1,
            seconds: 2.0,
            gateway_cpus: vec![0],
            load_cpus: vec![1],
            scenarios: vec![ScenarioResult {
                scenario: Scenario::Short,
                arms: vec![cost_arm("nginx", 20.0), cost_arm("smg", 200.0), cost_arm("ours", 25.0)],
            }],
            resident_mib: [("ours".to_owned(), Some(20.0)), ("direct".to_owned(), None)].into(),
            routing: Some(RoutingResult { workload: RoutingOptions::default().workload(), arms }),
            started: vec![Started {
                arm: "<peer>".into(),
                version: Some("1.0 <beta>".into()),
                cost_command: Some("peer --urls 'a' && echo".into()),
                routing_commands: [("".into(), "peer".into())].into(),
                configuration: Some("<config a=\"b\"/>".into()),
            }],
            missing: vec![Missing {
                arm: "haproxy".into(),
                reason: "apt-get install haproxy".into(),
            }],
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn the_page_is_well_formed_and_stands_alone() {
        let page = html(&report());
        assert_well_formed(&page, &["meta"]);
        for outside in ["<script", "<link", "src=", "url(", "@import", "href="] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Names of namespaces are no addresses anyone opens.
        assert_eq!(
            page.matches("http").count(),
            page.matches("http://www.w3.org/2000/svg").count()
        );
        // Two distributions, hits, the load of two arms, CPU twice, and three legends of two lines.
        assert_eq!(page.matches("<svg").count(), 7 + 6);
        for words in
            ["&lt;peer&gt;", "Ours &lt; theirs &amp;", "apt-get install haproxy", "1.25 × mean"]
        {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn cells_are_those_of_the_text() {
        let report = report();
        let (page, text) = (html(&report), report.to_string());
        for (of, value) in [
            ("routing/ours cache_aware/hit_share", "90.0"),
            ("routing/&lt;peer&gt;/failed", "3"),
            ("short/ours/cpu_us", "25.00"),
            ("short/ours/x_smg", "0.12"),
            ("memory/ours/resident_mib", "20.0"),
        ] {
            assert!(page.contains(&format!("<td data-of=\"{of}\">{value}</td>")), "{of}");
            assert!(text.contains(value), "{value}");
        }
    }

    #[test]
    fn a_page_about_little_is_still_one() {
        let mut report = report();
        report.routing = None;
        report.started.clear();
        let page = html(&report);
        assert_well_formed(&page, &["meta"]);
        assert!(!page.contains("Hit share over time") && page.contains("Cost:"));
        report.scenarios.clear();
        report.resident_mib.clear();
        assert_well_formed(&html(&report), &["meta"]);
    }
}
