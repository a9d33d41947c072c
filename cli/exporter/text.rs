//! Metrics of all processes in Prometheus's text format.

use std::fmt::Write;

use super::families::{
    ANSWER_SECONDS, BUILD_INFO, FAMILIES, Family, LEAF_SECONDS, LEFT_OUT, PROCESSES, REFUSED, START_TIME, STATE,
    Sample, UNREACHABLE,
};
use super::node::{Known, ProcessState, Summary};
use super::numbers::LABEL;

/// Content type of Prometheus's text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text with the metrics of all processes and of the exporter itself.
pub fn text<'a>(processes: impl Iterator<Item = &'a Known> + Clone, summary: &Summary, with_leaves: bool) -> String {
    let mut page = MetricsText::default();
    for family in FAMILIES.iter().filter(|family| with_leaves || **family != LEAF_SECONDS) {
        for known in processes.clone() {
            let samples = known.numbers.samples.iter().filter(|sample| sample.family == family);
            samples.for_each(|sample| page.of_process(known, sample));
            for state in ProcessState::ALL.into_iter().filter(|_| *family == STATE) {
                let value = f64::from(u8::from(known.state == state));
                page.of_process(known, &Sample::new(&STATE, &[("state", state.name())], value));
            }
        }
    }
    for (state, count) in &summary.states {
        page.line(&PROCESSES, &[("state", state.name())], *count as f64);
    }
    page.line(&LEFT_OUT, &[], summary.left_out as f64);
    page.line(&REFUSED, &[], summary.refused as f64);
    page.line(&UNREACHABLE, &[("user", "own")], summary.unreachable.own as f64);
    page.line(&UNREACHABLE, &[("user", "other")], summary.unreachable.others as f64);
    page.line(&ANSWER_SECONDS, &[], summary.answered_in.as_secs_f64());
    page.line(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    if let Some(start) = summary.start_unix {
        page.line(&START_TIME, &[], start.as_secs_f64());
    }
    page.text
}

/// Text being written. The lines of a family must be contiguous.
#[derive(Default)]
struct MetricsText {
    text: String,
    family: &'static str,
}

impl MetricsText {
    /// Adds a metric with the labels common to all metrics of its process.
    fn of_process(&mut self, known: &Known, sample: &Sample) {
        let (host, run, rank) = known.numbers.place();
        let rank = rank.map(|rank| rank.to_string()).unwrap_or_default();
        let mut labels = vec![("run", run.as_str()), ("rank", &rank), ("Hostname", &host)];
        // Distinguishes processes with the same run and rank, such as the children of a rank.
        let number = Some(known.number.to_string()).filter(|_| known.number > 1);
        labels.extend(number.as_deref().map(|number| ("process", number)));
        labels.extend(sample.labels.iter().map(|(name, value)| (*name, value.as_str())));
        self.line(sample.family, &labels, sample.value);
    }

    fn line(&mut self, family: &Family, labels: &[(&str, &str)], value: f64) {
        let Family { name, kind, help } = family;
        let out = &mut self.text;
        if self.family != *name {
            let _ = write!(out, "# HELP gpuwhy_{name} {help}\n# TYPE gpuwhy_{name} {kind}\n");
            self.family = name;
        }
        let _ = write!(out, "gpuwhy_{name}");
        for (index, (label, value)) in labels.iter().enumerate() {
            let _ = write!(out, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for letter in value.chars().take(LABEL) {
                match letter {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    letter => out.push(letter),
                }
            }
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}
