//! Families of what is measured while answers are relayed.

use smg_core::prompt::Endpoint;

use super::families::Page;
use super::{Family, Text};
use crate::metrics::streams::GAP_BOUNDS;
use crate::metrics::{Histogram, StreamCells};

type HistogramOf = fn(&StreamCells) -> &Histogram;

/// Writes them.
pub(super) fn write(text: &mut Text, page: &Page<'_>) {
    let bounds = &page.shared.config.prometheus.duration_buckets;
    let families: [(&str, &str, &[f64], HistogramOf); 4] = [
        (
            "smg_router_ttft_seconds",
            "Time from a request's first byte to the first event of its stream.",
            bounds,
            StreamCells::first,
        ),
        (
            "smg_router_tpot_seconds",
            "Time per token after the first, mean of each stream; per event where the engine does \
             not count tokens.",
            bounds,
            StreamCells::per_token,
        ),
        (
            "smg_router_inter_chunk_seconds",
            "Time between two reads from a stream, to the tick of the coarse clock.",
            &GAP_BOUNDS,
            StreamCells::gaps,
        ),
        (
            "smg_router_generation_duration_seconds",
            "Time from a request's first byte to the end of its stream.",
            bounds,
            StreamCells::whole,
        ),
    ];
    for (name, help, bounds, histogram) in families {
        text.family(name, Family::Histogram, help);
        for (model, label) in page.model_labels() {
            for endpoint in Endpoint::ALL {
                let total = page.total(|view| view.stream(model, endpoint as usize).map(histogram));
                text.histogram(name, &labels(label, endpoint), bounds, &total);
            }
        }
    }
    let name = "smg_router_tokens_total";
    text.family(name, Family::Counter, "Tokens of prompts and answers, as engines count them.");
    for (model, label) in page.model_labels() {
        for endpoint in Endpoint::ALL {
            for (at, kind) in ["input", "output"].into_iter().enumerate() {
                let count = page.sum(|cells| cells.read().tokens(model, endpoint as usize)[at]);
                if count > 0 {
                    let labels = [&labels(label, endpoint)[..], &[("token_type", kind)]].concat();
                    text.sample(name, &labels, count as f64);
                }
            }
        }
    }
}

fn labels(model: &str, endpoint: Endpoint) -> [(&'static str, &str); 4] {
    [
        ("router_type", "http"),
        ("backend_type", "regular"),
        ("model", model),
        ("endpoint", endpoint.label()),
    ]
}
