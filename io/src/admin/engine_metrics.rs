//! `/engine_metrics`: the Prometheus pages of all workers as one, each series with its worker.

use std::collections::BTreeMap;
use std::fmt::Write;

/// One family of the merged page.
#[derive(Default)]
struct Family {
    /// `# HELP` and `# TYPE`, from the first page that has them.
    comments: Vec<String>,
    samples: Vec<String>,
}

/// Merges pages of (worker, text). `:` in names becomes `_`, and every sample gets the label
/// `worker_addr`. Lines that are not Prometheus text are left out.
pub fn merged(pages: &[(String, String)]) -> String {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for (worker, page) in pages {
        let mut declared = String::new();
        for line in page.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix('#') {
                Some(comment) => {
                    let mut words = comment.split_whitespace();
                    if let (Some("HELP" | "TYPE"), Some(name)) = (words.next(), words.next()) {
                        declared = plain(name);
                        let line = line.replacen(name, &declared, 1);
                        let family = families.entry(declared.clone()).or_default();
                        let kind = line.split_whitespace().nth(1).map(str::to_owned);
                        let known = family
                            .comments
                            .iter()
                            .any(|known| known.split_whitespace().nth(1) == kind.as_deref());
                        if !known {
                            family.comments.push(line);
                        }
                    }
                }
                None => {
                    if let Some((name, sample)) = labelled(line, worker) {
                        // `x_bucket`, `x_sum` and `x_count` belong to the declared `x`.
                        let belongs = !declared.is_empty() && name.starts_with(&declared);
                        let family = if belongs { declared.clone() } else { name };
                        families.entry(family).or_default().samples.push(sample);
                    }
                }
            }
        }
    }
    let mut out = String::new();
    for family in families.values().filter(|family| !family.samples.is_empty()) {
        for line in family.comments.iter().chain(&family.samples) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// A sample's name, and the sample with the worker's label.
fn labelled(line: &str, worker: &str) -> Option<(String, String)> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let name = plain(name);
    let valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !valid || name.is_empty() {
        return None;
    }
    let worker = worker.replace('\\', "\\\\").replace('"', "\\\"");
    let sample = match rest.strip_prefix('{') {
        Some(labels) => {
            let comma = if labels.trim_start().starts_with('}') { "" } else { "," };
            format!("{name}{{worker_addr=\"{worker}\"{comma}{labels}")
        }
        None => format!("{name}{{worker_addr=\"{worker}\"}}{rest}"),
    };
    Some((name, sample))
}

fn plain(name: &str) -> String {
    name.replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_one_with_a_label_per_worker() {
        let page = "# HELP vllm:x X.\n# TYPE vllm:x gauge\nvllm:x{model=\"m\"} 1\nup 1\n{broken\n";
        let pages =
            [("http://a".to_owned(), page.to_owned()), ("http://b".to_owned(), page.to_owned())];
        assert_eq!(
            merged(&pages),
            "up{worker_addr=\"http://a\"} 1\nup{worker_addr=\"http://b\"} 1\n\
             # HELP vllm_x X.\n# TYPE vllm_x gauge\n\
             vllm_x{worker_addr=\"http://a\",model=\"m\"} 1\n\
             vllm_x{worker_addr=\"http://b\",model=\"m\"} 1\n"
        );
    }

    #[test]
    fn a_histogram_stays_together() {
        let page = "# TYPE t histogram\nt_bucket{le=\"1\"} 1\nt_sum 2\nt_count 1\n";
        let merged = merged(&[("w".to_owned(), page.to_owned())]);
        assert_eq!(
            merged,
            "# TYPE t histogram\nt_bucket{worker_addr=\"w\",le=\"1\"} 1\n\
             t_sum{worker_addr=\"w\"} 2\nt_count{worker_addr=\"w\"} 1\n"
        );
    }
}
