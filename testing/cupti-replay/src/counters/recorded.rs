//! Samples of hardware counters that are played with the recording: a text file.
//!
//! One statement per line; `#` starts a comment.
//!
//! ```text
//! chip GH100
//! interval 5000000
//! metrics gpc__cycles_elapsed.avg.per_second sm__cycles_active.avg.pct_of_peak_sustained_elapsed
//! silent nvlrx__bytes.sum.per_second
//! sample 0 5000000 1.98e9 75
//! metrics_in_a_pass 8
//! kernel _Z4copyPf gpu__time_duration.sum 80000
//! ```
//! Times are nanoseconds after the start of the recording, values are in the order of `metrics`. `kernel`
//! sets the value of a metric of a kernel for ranges; a range has no value for other metrics. A `silent`
//! metric is known to the chip and delivers no values, so that no sample with it completes.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::Path;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Start, in nanoseconds after the start of the recording.
    pub begin: u64,
    /// End, in nanoseconds after the start of the recording.
    pub end: u64,
    /// Values in the order of the metrics.
    pub values: Vec<f64>,
}

/// Recorded counters of a chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Name of the chip.
    pub chip: CString,
    /// Time between two samples in nanoseconds.
    pub interval: u64,
    /// Names of the sampled metrics.
    pub metrics: Vec<String>,
    /// Names of metrics that never complete.
    pub silent: Vec<String>,
    /// Samples in order of time.
    pub rows: Vec<Row>,
    /// Number of metrics of a range that one launch counts; 0: all of its metrics.
    pub metrics_in_a_pass: usize,
    /// Kernel, metric and value.
    pub kernels: Vec<(String, String, f64)>,
}

/// Loads the samples in a file.
///
/// # Errors
/// The file and line that are not understood, and why.
pub fn load(path: &Path) -> Result<Recorded, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
}

fn parse(text: &str) -> Result<Recorded, (usize, String)> {
    let mut recorded = Recorded::default();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(statement) = words.next() else { continue };
        let rest: Vec<&str> = words.collect();
        let fail = |why: &str| (number, why.to_owned());
        match (statement, rest.as_slice()) {
            ("chip", [name]) => recorded.chip = CString::new(*name).map_err(|_| fail("a NUL in the name"))?,
            ("interval", [nanos]) => {
                recorded.interval = nanos.parse().ok().filter(|&nanos| nanos > 0).ok_or_else(|| fail("no interval"))?;
            }
            ("metrics", names) => recorded.metrics = names.iter().map(ToString::to_string).collect(),
            ("silent", names) => recorded.silent = names.iter().map(ToString::to_string).collect(),
            ("sample", [begin, end, values @ ..]) => {
                let time = |text: &str| text.parse::<u64>().map_err(|_| fail("a time is no whole number"));
                let values: Result<Vec<f64>, _> = values.iter().map(|value| value.parse()).collect();
                let row = Row {
                    begin: time(begin)?,
                    end: time(end)?,
                    values: values.map_err(|_| fail("a value is no number"))?,
                };
                if row.values.len() != recorded.metrics.len() {
                    return Err(fail("a sample has one value for each metric"));
                }
                if row.end <= row.begin || recorded.rows.last().is_some_and(|last| last.end > row.begin) {
                    return Err(fail("samples follow each other in time"));
                }
                recorded.rows.push(row);
            }
            ("metrics_in_a_pass", [count]) => {
                recorded.metrics_in_a_pass = count.parse().map_err(|_| fail("no number"))?;
            }
            ("kernel", [kernel, metric, value]) => {
                let value = value.parse().map_err(|_| fail("a value is no number"))?;
                recorded.kernels.push(((*kernel).to_owned(), (*metric).to_owned(), value));
            }
            _ => {
                return Err(fail(
                    "expected chip, interval, metrics, silent, sample, metrics_in_a_pass or kernel with its values",
                ));
            }
        }
    }
    if recorded.chip.is_empty() || recorded.interval == 0 || recorded.metrics.is_empty() {
        return Err((0, "a chip, an interval and metrics are needed".to_owned()));
    }
    Ok(recorded)
}

impl Recorded {
    /// True if the chip knows this metric.
    #[must_use]
    pub fn knows(&self, metric: &str) -> bool {
        let of_kernels = self.kernels.iter().map(|(_, metric, _)| metric);
        self.metrics.iter().chain(&self.silent).chain(of_kernels).any(|known| known == metric)
    }

    /// Names without their suffixes of the metrics of a kind: 0 counters, 1 ratios.
    #[must_use]
    pub fn base_metrics(&self, kind: u32) -> BTreeSet<CString> {
        let of_kernels = self.kernels.iter().map(|(_, metric, _)| metric);
        let all = self.metrics.iter().chain(&self.silent).chain(of_kernels).filter_map(|metric| metric.split_once('.'));
        let of_kind = all.filter(|(_, suffix)| u32::from(matches!(*suffix, "pct" | "ratio" | "max_rate")) == kind);
        of_kind.filter_map(|(base, _)| CString::new(base).ok()).collect()
    }

    /// Value of a metric of a kernel; NaN if the file has none.
    #[must_use]
    pub fn kernel_value(&self, kernel: &str, metric: &str) -> f64 {
        let found = self.kernels.iter().find(|(name, of, _)| name == kernel && of == metric);
        found.map_or(f64::NAN, |&(_, _, value)| value)
    }

    /// Number of passes for this many metrics of a range.
    #[must_use]
    pub fn passes(&self, metrics: usize) -> u8 {
        let in_a_pass = if self.metrics_in_a_pass == 0 { metrics.max(1) } else { self.metrics_in_a_pass };
        u8::try_from(metrics.div_ceil(in_a_pass)).unwrap_or(u8::MAX)
    }

    /// Value of a metric in a row; NaN if the row has none.
    #[must_use]
    pub fn value(&self, row: &Row, metric: &str) -> f64 {
        let place = self.metrics.iter().position(|known| known == metric);
        place.and_then(|place| row.values.get(place)).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_what_is_wrong_is_said_with_its_line() {
        let good =
            "chip GH100\ninterval 100 # ns\nmetrics a b\nsilent c\n\nsample 0 100 1 2.5e3\nsample 100 200 0 nan\n";
        let recorded = parse(good).unwrap();
        assert_eq!(recorded.value(&recorded.rows[0], "b"), 2500.0);
        assert!(recorded.value(&recorded.rows[0], "c").is_nan() && recorded.knows("c") && !recorded.knows("d"));
        for (bad, line) in [
            (good.replace("1 2.5e3", "1"), 6),
            (good.replace("sample 100", "sample 99"), 7),
            (good.replace("interval 100", "interval 0"), 2),
            (good.replace("silent", "quiet"), 4),
            ("chip GH100\n".to_owned(), 0),
        ] {
            assert_eq!(parse(&bad).unwrap_err().0, line, "{bad}");
        }
    }
}
