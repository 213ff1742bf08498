//! A page of metrics, read as text.

/// The samples of one scrape.
#[derive(Debug, Clone)]
pub struct Metrics {
    samples: Vec<Sample>,
    /// Name and kind of each family, whether or not it has samples.
    families: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    /// What stands between the braces.
    labels: String,
    value: f64,
}

impl Metrics {
    pub fn parse(page: &str) -> Self {
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            Sample {
                name: name.to_owned(),
                labels: labels.trim_end_matches('}').to_owned(),
                value: value.parse().expect("a value is a number"),
            }
        });
        let families = page.lines().filter_map(|line| {
            let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            Some((name.to_owned(), kind.to_owned()))
        });
        Self { samples: samples.collect(), families: families.collect() }
    }

    /// Whether series of this name belong to a family of the page.
    pub fn declares(&self, name: &str) -> bool {
        self.families.iter().any(|(family, kind)| match name.strip_prefix(family.as_str()) {
            Some("") => true,
            Some("_bucket" | "_sum" | "_count") => kind == "histogram",
            _ => false,
        })
    }

    /// Sum over all series of a name.
    pub fn sum(&self, name: &str) -> f64 {
        self.sum_of(name, "")
    }

    /// Sum over the series of a name whose labels contain `label`, such as `worker="http://..."`.
    pub fn sum_of(&self, name: &str, label: &str) -> f64 {
        let series = self.samples.iter().filter(|sample| sample.name == name);
        series.filter(|sample| sample.labels.contains(label)).map(|sample| sample.value).sum()
    }

    /// Whether a gauge is there and every series of it is 0.
    pub fn is_zero(&self, name: &str) -> bool {
        let mut series = self.samples.iter().filter(|sample| sample.name == name).peekable();
        assert!(series.peek().is_some(), "there is no {name}");
        series.all(|sample| sample.value == 0.0)
    }

    /// Labels of every series of a name.
    pub fn labels(&self, name: &str) -> Vec<&str> {
        let series = self.samples.iter().filter(|sample| sample.name == name);
        series.map(|sample| sample.labels.as_str()).collect()
    }
}
