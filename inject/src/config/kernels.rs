//! Settings for measuring kernels.

use cupti_sys::counters::names::Catalog;
use gpuwhy_report::kernels::sets::{self, Section};
use gpuwhy_report::text_format::edits;
use regex_lite::{Regex, RegexBuilder};

use crate::config::value::or_off;

/// Maximum size of a compiled regular expression, bytes: it is held and executed in the measured program.
const LARGEST_REGEX: usize = 256 << 10;

fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(LARGEST_REGEX).build()
}

/// Parses [`KernelRequest`], or `off`.
pub fn parse_chosen(text: &str) -> Option<Option<KernelRequest>> {
    or_off(text, |text| {
        let (most, names) = text.split_once(':').map_or((text, None), |(most, names)| (most, Some(names)));
        let most = most.parse().ok().filter(|most| (1..=64).contains(most))?;
        Some(KernelRequest { most, names: names.map(regex).transpose().ok()?, metrics: Vec::new() })
    })
}

/// Parses metrics, or `off`.
pub fn parse_metrics(text: &str) -> Option<Vec<WantedMetrics>> {
    let parsed = or_off(text, |text| items(text).map(|item| WantedMetrics::parse(item.trim())).collect());
    parsed.map(Option::unwrap_or_default)
}

/// The items of a list. A comma within brackets is of a regular expression.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_class, mut is_escaped) = (0_usize, false, false);
    text.split(move |c| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match c {
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' | '{' if !in_class => depth += 1,
            ')' | '}' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0 && !in_class
    })
}

/// Measurements of kernels that are requested.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// Maximum number of kernels.
    pub most: usize,
    /// Pattern of the kernels' names.
    pub names: Option<Regex>,
    /// Metrics to measure; empty: those of all pages.
    pub metrics: Vec<WantedMetrics>,
}

/// An item of a list of metrics.
#[derive(Clone, Debug)]
pub enum WantedMetrics {
    /// A name with or without rollup and submetric.
    Named(String),
    /// A regular expression.
    Matching(Regex),
    /// A section.
    Section(&'static Section),
}

/// What a list of metrics stands for on a chip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChipMetrics {
    /// Complete names, without repetitions, the duration first.
    pub names: Vec<String>,
    /// Items of the list that the chip does not have, each with the nearest names.
    pub unknown: Vec<(String, Vec<String>)>,
    /// Items of the list that only a replay of the kernel can count.
    pub uncounted: Vec<String>,
}

/// Maximum number of metrics that are measured. CUPTI 13.0 takes half a minute of CPU time to plan the launches
/// for all metrics of a chip.
const MOST_METRICS: usize = 500;
/// Maximum number of launches of a kernel that are measured.
pub const MOST_LAUNCHES: u32 = 100;
/// Duration of a launch, which is always measured.
const DURATION: &str = "gpu__time_duration.sum";
/// Part of the names of metrics that are counted in changed code. Without a replay of the kernel they are 0
/// (H200, CUPTI 13.0).
const IN_CHANGED_CODE: &str = "__sass_";
/// Maximum number of names that are suggested for an unknown one.
pub const SUGGESTED: usize = 3;

impl WantedMetrics {
    /// A section after `section:`, a name, or a regular expression: text with other characters than a name, or
    /// text after `regex:`, as in Nsight Compute.
    fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("section:") {
            return sets::section(name).map(Self::Section);
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        match text.strip_prefix("regex:") {
            None if text.is_empty() => None,
            None if text.chars().all(is_name) => Some(Self::Named(text.to_owned())),
            pattern => Self::matching(pattern.unwrap_or(text)),
        }
    }

    /// The metrics that a regular expression matches; `None` if it is invalid.
    pub fn matching(pattern: &str) -> Option<Self> {
        regex(pattern).ok().map(Self::Matching)
    }

    /// The name or regular expression.
    pub fn text(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Matching(pattern) => pattern.as_str(),
            Self::Section(section) => section.name,
        }
    }

    /// True if it stands for this metric, which a chip has.
    pub fn accepts(&self, metric: &str) -> bool {
        match self {
            Self::Named(name) => metric.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
            Self::Matching(pattern) => {
                let base = |(at, _)| pattern.is_match(&metric[..at]);
                pattern.is_match(metric) || metric.match_indices('.').any(base)
            }
            Self::Section(section) => section.metrics.contains(&metric),
        }
    }

    /// Metrics of a chip that need counters. A section lists metrics of all chips, so what it has in addition is
    /// not unknown.
    pub fn on_chip(wanted: &[Self], catalog: &Catalog) -> ChipMetrics {
        let mut found = ChipMetrics { names: vec![DURATION.to_owned()], ..ChipMetrics::default() };
        for item in wanted {
            let text = item.text();
            let names = match item {
                Self::Named(name) => catalog.named(name),
                Self::Matching(pattern) => catalog.matching(|name| pattern.is_match(name)),
                Self::Section(section) => section.metrics.iter().flat_map(|of| catalog.named(of)).collect(),
            };
            let is_counted = |name: &String| !name.contains(IN_CHANGED_CODE);
            match item {
                Self::Named(_) | Self::Matching(_) if !names.is_empty() && !names.iter().any(is_counted) => {
                    found.uncounted.push(text.to_owned());
                }
                Self::Named(name) if names.is_empty() && !sets::is_of_launch(name) => {
                    found.unknown.push((text.to_owned(), catalog.nearest(name, SUGGESTED, edits)));
                }
                Self::Matching(_) if names.is_empty() => found.unknown.push((text.to_owned(), Vec::new())),
                _ => found.names.extend(names),
            }
        }
        let mut seen = rustc_hash::FxHashSet::default();
        found.names.retain(|name| !name.contains(IN_CHANGED_CODE) && seen.insert(name.clone()));
        found
    }
}

impl ChipMetrics {
    /// True if more metrics are chosen than are measured.
    pub const fn are_too_many(&self) -> bool {
        self.names.len() > MOST_METRICS
    }

    /// A sentence for each item of the list that cannot be measured on this chip, and for too many metrics.
    pub fn refusals(&self, chip: &str) -> Vec<String> {
        let unknown = self.unknown.iter().map(|(item, nearest)| match nearest.as_slice() {
            [] => format!("{chip} has no metric {item}; `gpuwhy kernels --query-metrics` lists them"),
            nearest => format!("{chip} has no metric {item}; the nearest are {}", nearest.join(", ")),
        });
        let uncounted =
            |item| format!("{item} is counted in changed code, which needs a replay of the kernel, as by ncu");
        let count = self.names.len();
        let too_many = self.are_too_many().then(|| {
            format!("{count} metrics of {chip} are chosen, {MOST_METRICS} are measured at most: choose fewer metrics")
        });
        unknown.chain(self.uncounted.iter().map(uncounted)).chain(too_many).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_matched_by_a_regular_expression() {
        let parse = |names: &str| parse_chosen(&format!("5:{names}"));
        for (pattern, yes, no) in [
            ("gemm", "sm90_gemm_bf16", "gem"),
            ("^(flash|soft)_[a-z]+$", "soft_bwd", "soft_1"),
            ("void f\\(int\\*\\)", "void f(int*)", "void f(int)"),
            ("vector<float>", "f<vector<float>>", "f<vector<int>>"),
        ] {
            let pattern = parse(pattern).unwrap().unwrap().names.unwrap();
            assert!(pattern.is_match(yes) && !pattern.is_match(no), "{pattern}");
        }
        for bad in ["a(b", "*a", "[z-a]", "a\\", "(a{1000}){1000}", &"(".repeat(60)] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    fn catalog() -> Catalog {
        use cupti_sys::counters::host::MetricKind;
        let names = [DURATION.trim_end_matches(".sum"), "dram__bytes_read", "dram__bytes_write", "sm__cycles_active"];
        Catalog(names.map(|name| (name.to_owned(), MetricKind::Counter)).into())
    }

    #[test]
    fn metrics_are_names_patterns_and_sections() {
        let on_chip = |text: &str| WantedMetrics::on_chip(&parse_metrics(text).unwrap(), &catalog());
        let all = on_chip("dram__bytes_read.sum, regex:^dram__bytes.*te$,sm__cycles_active.avg,dram__bytes_read.sum");
        let writes = [".avg", ".max", ".min", ".sum"].map(|rollup| format!("dram__bytes_write{rollup}"));
        assert_eq!(
            (&all.names[..2], &all.names[2..6]),
            (&[DURATION, "dram__bytes_read.sum"].map(str::to_owned)[..], &writes[..])
        );
        assert_eq!((all.names.len(), all.unknown.len()), (7, 0));
        let section = on_chip("section:speedoflight,launch__grid_size");
        assert_eq!(section.names, [DURATION, "sm__cycles_active.avg"], "what this chip has of it");
        assert!(section.unknown.is_empty(), "{section:?}");
        let slips = on_chip("dram__bytes_reads.sum,dram__bytes_read.summ,regex:nvlink").unknown;
        let nearest: Vec<_> = slips.iter().map(|(_, near)| near.first().map_or("", String::as_str)).collect();
        assert_eq!(nearest, ["dram__bytes_read", "dram__bytes_read.sum", ""], "{slips:?}");
        let mut with_sass = catalog();
        with_sass.0.insert("sm__sass_inst".to_owned(), cupti_sys::counters::host::MetricKind::Counter);
        let wanted = parse_metrics("sm__sass_inst.sum,regex:^sm__").unwrap();
        let found = WantedMetrics::on_chip(&wanted, &with_sass);
        assert_eq!(found.uncounted, ["sm__sass_inst.sum"], "the other stands for more");
        assert!(found.names.len() == 5 && found.refusals("X")[0].contains("needs a replay"), "{found:?}");
        for bad in ["", ",", "a,,b", "section:None", "regex:a(b", "a(b"] {
            assert!(parse_metrics(bad).is_none(), "{bad}");
        }
        assert!(parse_metrics("off").unwrap().is_empty());
    }

    #[test]
    fn a_comma_within_brackets_does_not_end_a_regular_expression() {
        let text = r"regex:a{1,3},b[,\]({]c,(d,(e)),\(f,dram__bytes";
        assert_eq!(items(text).collect::<Vec<_>>(), ["regex:a{1,3}", r"b[,\]({]c", "(d,(e))", r"\(f", "dram__bytes"]);
        assert!(parse_metrics("regex:^dram__by{1,2}tes,sm__cycles_active").unwrap()[0].accepts("dram__bytes.sum"));
    }

    #[test]
    fn too_many_metrics_are_refused() {
        use cupti_sys::counters::host::MetricKind;
        let many = (0..125).map(|number| (format!("sm__x{number}"), MetricKind::Counter));
        let chosen =
            |text: &str| WantedMetrics::on_chip(&parse_metrics(text).unwrap(), &Catalog(many.clone().collect()));
        let refused = chosen("regex:.").refusals("GH100");
        assert_eq!(refused, ["501 metrics of GH100 are chosen, 500 are measured at most: choose fewer metrics"]);
        assert!(chosen("regex:x[^9]*$").refusals("GH100").is_empty());
    }

    #[test]
    fn an_item_accepts_what_it_stands_for() {
        let accepts = |item: &str, metric: &str| WantedMetrics::parse(item).unwrap().accepts(metric);
        for (item, yes, no) in [
            ("dram__bytes", "dram__bytes.sum", "dram__bytes_read.sum"),
            ("dram__bytes.sum", "dram__bytes.sum", "dram__bytes.max"),
            ("regex:bytes$", "dram__bytes.sum", "dram__bytes_read.sum"),
            ("dram.*(read|write)", "dram__bytes_read.sum", "dram__bytes.sum"),
            ("section:InstructionStats", "smsp__inst_issued.sum", "dram__bytes.sum"),
        ] {
            assert!(accepts(item, yes) && !accepts(item, no), "{item}");
        }
    }
}
