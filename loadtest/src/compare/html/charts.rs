//! The plots of the page.

use super::super::plot::{
    Axis, Bar, BarChart, Caption, ColumnChart, LineChart, Scale, Series, escape,
};
use super::super::report::OURS;
use super::super::routing::{RoutingArm, RoutingResult};
use super::super::{ArmResult, ScenarioResult};
use super::add;

/// Arms that always look the same; what their name starts with and their class in the style sheet.
const KNOWN: [(&str, &str); 6] = [
    ("direct", "direct"),
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("envoy", "envoy"),
    ("vllm-router", "vllm"),
    ("smg", "smg"),
];

/// Looks there are for ours and for others.
const SPARE_LOOKS: usize = 3;

/// The class of each arm, in their order.
pub(super) fn looks<'a>(arms: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut ours, mut others) = (0, 0);
    let turn = |prefix: &str, count: &mut usize| {
        *count += 1;
        format!("{prefix}{}", (*count - 1) % SPARE_LOOKS)
    };
    arms.map(|arm| {
        let peer = arm.split(' ').next().unwrap_or(arm);
        if peer == OURS {
            return turn("ours", &mut ours);
        }
        let known = KNOWN.iter().find(|(name, _)| *name == peer);
        known.map_or_else(|| turn("other", &mut others), |(_, class)| (*class).to_owned())
    })
    .collect()
}

pub(super) fn routing(page: &mut String, routing: &RoutingResult) {
    let looks = looks(routing.arms.iter().map(|arm| arm.arm.as_str()));
    let arms: Vec<_> = routing.arms.iter().zip(&looks).collect();
    distribution(
        page,
        &arms,
        ("ttft", "Time to the first token", "answers that began within this time"),
        |arm| &arm.ttft_cdf,
    );
    distribution(
        page,
        &arms,
        ("whole", "Time to the whole answer", "answers that were complete within this time"),
        |arm| &arm.latency_cdf,
    );
    hits_over_time(page, &arms);
    load_per_worker(page, &arms);
    let bars = arms.iter().filter_map(|(arm, look)| {
        Some(Bar {
            name: arm.arm.clone(),
            class: (*look).clone(),
            value: arm.cpu_us?,
            range: spread(&arm.cpu_us_runs),
            text: format!("{:.0} µs", arm.cpu_us?),
        })
    });
    let chart = BarChart {
        caption: Caption {
            id: "routing-cpu",
            title: "CPU time per request under the routing load",
            description: "One bar per gateway; the whiskers reach from the cheapest to the dearest round.",
        },
        label: "CPU time of the gateway per request (µs); whiskers: all rounds",
        bars: bars.collect(),
    };
    let about = "At a light load, streams of about 34 events each, health checks and load reports included. \
                 Not to be compared with the closed loops below.";
    figure(page, chart.caption.title, about, &chart.svg());
}

/// A cumulative distribution per arm.
fn distribution(
    page: &mut String,
    arms: &[(&RoutingArm, &String)],
    (id, title, about): (&str, &str, &str),
    points: fn(&RoutingArm) -> &Vec<(f64, f64)>,
) {
    let series: Vec<_> = arms
        .iter()
        .filter(|(arm, _)| !points(arm).is_empty())
        .map(|(arm, look)| Series {
            name: arm.arm.clone(),
            class: (*look).clone(),
            points: points(arm).clone(),
        })
        .collect();
    let times = series.iter().flat_map(|series| &series.points).map(|(ms, _)| *ms);
    let scale = Scale::logarithmic(times);
    let chart = LineChart {
        caption: Caption {
            id,
            title,
            description: &format!(
                "Cumulative distribution: share of {about}, one line per arm; further left is quicker. \
                 The table has the 50th and 99th percentiles."
            ),
        },
        x: Axis { label: "milliseconds, logarithmic", scale, format: short_number },
        y: Axis { label: "% of answers", scale: Scale::linear(0.0, 1.0), format: as_percent },
        series,
    };
    let drawing = legend(arms) + &chart.svg();
    figure(page, title, &format!("Share of {about}. Further left is quicker."), &drawing);
}

fn hits_over_time(page: &mut String, arms: &[(&RoutingArm, &String)]) {
    let series: Vec<_> = arms
        .iter()
        .map(|(arm, look)| Series {
            name: arm.arm.clone(),
            class: (*look).clone(),
            // A second is shown at its middle.
            points: (arm.hit_share_by_second.iter().enumerate())
                .filter_map(|(second, share)| Some((second as f64 + 0.5, (*share)?)))
                .collect(),
        })
        .collect();
    let seconds = arms.iter().map(|(arm, _)| arm.hit_share_by_second.len()).max().unwrap_or(0);
    let title = "Hit share over time";
    let chart = LineChart {
        caption: Caption {
            id: "hits",
            title,
            description: "Share of the prompt tokens of each second that engines found in their caches, \
                          one line per arm, from empty caches on.",
        },
        x: Axis {
            label: "seconds since the start, warm-up included",
            scale: Scale::linear(0.0, seconds as f64),
            format: short_number,
        },
        y: Axis {
            label: "% of prompt tokens found in caches",
            scale: Scale::linear(0.0, 1.0),
            format: as_percent,
        },
        series,
    };
    let about = "Prompt tokens found in the engines' caches, by the engines' own count, second by second from \
                 empty caches on.";
    figure(page, title, about, &(legend(arms) + &chart.svg()));
}

fn load_per_worker(page: &mut String, arms: &[(&RoutingArm, &String)]) {
    let highest = arms.iter().flat_map(|(arm, _)| &arm.engine_requests).copied().max().unwrap_or(0);
    let mut grid = String::from("<div class=\"grid-of\">\n");
    for (index, (arm, look)) in arms.iter().enumerate() {
        let title = format!("Requests per engine behind {}", arm.arm);
        let counts: Vec<_> = arm.engine_requests.iter().map(u64::to_string).collect();
        let chart = ColumnChart {
            caption: Caption {
                id: &format!("load-{index}"),
                title: &title,
                description: &format!("Requests, busiest engine first: {}.", counts.join(", ")),
            },
            class: look,
            values: &arm.engine_requests,
            highest,
        };
        add(
            &mut grid,
            &format!(
                "<div><h4>{} <span>{:.2} × mean</span></h4>{}</div>\n",
                escape(&arm.arm),
                arm.max_over_mean,
                chart.svg()
            ),
        );
    }
    grid.push_str("</div>");
    let about = "Requests each engine got in the measured time of one round, the one nearest to the median; the \
                 dashed line is the mean.";
    figure(page, "Load per worker", about, &grid);
}

/// CPU per request, or per event, of one scenario.
pub(super) fn cost(page: &mut String, result: &ScenarioResult) {
    let looks = looks(result.arms.iter().map(|arm| arm.arm.as_str()));
    let bar = |(arm, look): (&ArmResult, &String)| {
        let value = arm.cpu_us?;
        Some(Bar {
            name: arm.arm.clone(),
            class: look.clone(),
            value,
            range: spread(&arm.cpu_us_runs),
            text: format!("{value:.1} µs"),
        })
    };
    let bars: Vec<_> = result.arms.iter().zip(&looks).filter_map(bar).collect();
    if bars.is_empty() {
        return;
    }
    let unit = if result.scenario.is_stream() { "event" } else { "request" };
    let title = format!("CPU time per {unit}: {}", result.scenario.about());
    let chart = BarChart {
        caption: Caption {
            id: &format!("cost-{}", result.scenario.name()),
            title: &title,
            description: "One bar per gateway; the whiskers reach from the cheapest to the dearest round.",
        },
        label: &format!("CPU time of the gateway per {unit} (µs); whiskers: all rounds"),
        bars,
    };
    figure(page, &title, "Shorter is cheaper.", &chart.svg());
}

fn figure(page: &mut String, title: &str, about: &str, drawing: &str) {
    let (title, about) = (escape(title), escape(about));
    add(
        page,
        &format!(
            "<figure><figcaption>{title}<span>{about}</span></figcaption>\n{drawing}</figure>\n"
        ),
    );
}

fn legend(arms: &[(&RoutingArm, &String)]) -> String {
    let items = arms.iter().map(|(arm, look)| {
        let name = escape(&arm.arm);
        format!(
            "<li><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><path class=\"line {look}\" d=\"M1 5L29 5\"/>\
             </svg>{name}</li>\n"
        )
    });
    format!("<ul class=\"legend\">\n{}</ul>\n", items.collect::<String>())
}

fn spread(runs: &[Option<f64>]) -> Option<(f64, f64)> {
    let runs = || runs.iter().copied().flatten();
    runs().reduce(f64::min).zip(runs().reduce(f64::max))
}

fn as_percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A tick of an axis with as few decimals as tell it from its neighbours: ticks are round.
fn short_number(value: f64) -> String {
    let is_exact = |decimals: &i32| {
        let units = value * 10f64.powi(*decimals);
        (units - units.round()).abs() < 1e-6
    };
    let decimals = (0..4).find(is_exact).unwrap_or(4) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ticks_read_alike() {
        let read: Vec<String> =
            Scale::linear(0.0, 3.0).ticks(12).into_iter().map(short_number).collect();
        assert_eq!(read, ["0", "0.5", "1", "1.5", "2", "2.5", "3"]);
        assert_eq!([0.3, 0.05, 20.0, 0.1 + 0.2].map(short_number), ["0.3", "0.05", "20", "0.3"]);
    }

    #[test]
    fn every_peer_keeps_its_look_and_the_rest_take_turns() {
        let arms =
            ["direct", "new", "smg cache_aware", "ours a", "ours b", "newer", "vllm-router x"];
        let looks = looks(arms.into_iter());
        assert_eq!(looks, ["direct", "other0", "smg", "ours0", "ours1", "other1", "vllm"]);
    }

    #[test]
    fn numbers_at_ticks_are_short() {
        assert_eq!(
            [short_number(0.0), short_number(0.5), short_number(200.0), as_percent(0.2)],
            ["0", "0.5", "200", "20 %"]
        );
    }
}
