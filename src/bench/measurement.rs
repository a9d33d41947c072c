//! What a benchmark found, and what follows from it by arithmetic: quantiles, rates, shares of the device's peaks.
//!
//! Plain data; nothing is measured here.

use std::fmt;

use profiler_core::record::Device;
use profiler_core::text_format::duration;
use serde::Serialize;

use super::Roofline;
use crate::baseline::{Baseline, Limit};
use crate::expectations::Failures;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub(super) name: String,
    pub(super) device: Device,
    /// Of each repetition, ascending; at least one.
    pub(super) times_ns: Vec<u64>,
    pub(super) operations: u64,
    pub(super) missing: u32,
    pub(super) bytes: Option<u64>,
    pub(super) flops: Option<f64>,
    pub(super) flops_peak: Option<f64>,
    pub(super) bytes_peak: Option<f64>,
}

impl Measurement {
    /// The name that the benchmark was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Time of each repetition, nanoseconds, ascending.
    #[must_use]
    pub fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    /// The time that this part of the repetitions needed at most (nearest rank), nanoseconds; `part` is 0 to 1.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let rank = (part.clamp(0.0, 1.0) * self.times_ns.len() as f64).ceil() as usize;
        self.times_ns[rank.clamp(1, self.times_ns.len()) - 1]
    }

    /// The median, nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> u64 {
        self.quantile_ns(0.5)
    }

    /// Half the width of the middle half of the repetitions, as a part of the median: the spread.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.quantile_ns(0.75) - self.quantile_ns(0.25)) as f64 / 2.0 / self.median_ns().max(1) as f64
    }

    /// Kernels, copies and memsets of all repetitions.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Repetitions of which no operation was seen; they are in no statistic.
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The author's bytes over the median, 10^9 bytes per second.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        Some(self.bytes? as f64 / self.median_ns().max(1) as f64)
    }

    /// The author's operations over the median, 10^12 per second.
    #[must_use]
    pub fn teraflops(&self) -> Option<f64> {
        Some(self.flops? / self.median_ns().max(1) as f64 / 1e3)
    }

    /// Where the work stands under the roof of its device; `None` unless bytes and operations were given.
    #[must_use]
    pub fn roofline(&self) -> Option<Roofline> {
        Some(Roofline::new(self.bytes?, self.flops?, self.median_ns(), self.bytes_peak, self.flops_peak))
    }

    /// Rate of memory over the device's peak, 0 to 1, where both are known.
    #[must_use]
    pub fn memory_share(&self) -> Option<f64> {
        Some(self.gigabytes_per_second()? * 1e9 / self.bytes_peak?)
    }

    /// Rate of computation over the peak that was chosen or given, 0 to 1, where both are known.
    #[must_use]
    pub fn compute_share(&self) -> Option<f64> {
        Some(self.teraflops()? * 1e12 / self.flops_peak?)
    }

    /// Whether the median is at most `ratio` times that which `baseline` has for this name on such a device. With
    /// `GPUWHY_BLESS=1` the baseline is renewed instead.
    ///
    /// # Errors
    /// What was measured and what was expected, or why there is nothing to compare with.
    pub fn within(&self, ratio: f64, baseline: &Baseline) -> Result<(), Failures> {
        if self.missing > 0 {
            return Err(Failures(vec![format!("{self}: that cannot be judged")]));
        }
        let (median, count) = (self.median_ns(), self.times_ns.len() as u64);
        let limit = baseline.limit(&self.name, &self.device.name, median, count, ratio);
        match limit.map_err(|error| Failures(vec![error]))? {
            Some(Limit { nanos, basis, .. }) if median > nanos => {
                Err(Failures(vec![format!("{self}, at most {}{basis} expected", duration(nanos))]))
            }
            _ => Ok(()),
        }
    }

    /// As [`within`](Self::within), for a test.
    ///
    /// # Panics
    /// When the benchmark is slower, with both times.
    #[track_caller]
    pub fn assert_within(&self, ratio: f64, baseline: &Baseline) {
        if let Err(failures) = self.within(ratio, baseline) {
            panic!("the benchmark is not as expected:\n{failures}");
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        write!(
            f,
            "{}: median {:.2} us (p25 {:.2} .. p75 {:.2}, least {:.2}, {} repetitions)",
            self.name,
            micros(self.median_ns()),
            micros(self.quantile_ns(0.25)),
            micros(self.quantile_ns(0.75)),
            micros(self.quantile_ns(0.0)),
            self.times_ns.len(),
        )?;
        let share =
            |share: Option<f64>| share.map_or_else(String::new, |share| format!(" ({:.1} % of peak)", share * 1e2));
        if let Some(rate) = self.gigabytes_per_second() {
            write!(f, ", {rate:.1} GB/s{}", share(self.memory_share()))?;
        }
        if let Some(rate) = self.teraflops() {
            write!(f, ", {rate:.2} TFLOP/s{}", share(self.compute_share()))?;
        }
        if let Some(roofline) = self.roofline() {
            write!(f, ", {roofline}")?;
        }
        if self.missing > 0 {
            write!(f, "; {} repetitions ran nothing", self.missing)?;
        }
        Ok(())
    }
}

/// As JSON: times in nanoseconds, rates and shares where they are known.
impl Serialize for Measurement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            name: &'a str,
            device: &'a str,
            repetitions: usize,
            missing: u32,
            operations: u64,
            median_ns: u64,
            p25_ns: u64,
            p75_ns: u64,
            min_ns: u64,
            max_ns: u64,
            gigabytes_per_second: Option<f64>,
            memory_share: Option<f64>,
            teraflops: Option<f64>,
            compute_share: Option<f64>,
            roofline: Option<Roofline>,
        }
        Document {
            name: &self.name,
            device: &self.device.name,
            repetitions: self.times_ns.len(),
            missing: self.missing,
            operations: self.operations,
            median_ns: self.median_ns(),
            p25_ns: self.quantile_ns(0.25),
            p75_ns: self.quantile_ns(0.75),
            min_ns: self.quantile_ns(0.0),
            max_ns: self.quantile_ns(1.0),
            gigabytes_per_second: self.gigabytes_per_second(),
            memory_share: self.memory_share(),
            teraflops: self.teraflops(),
            compute_share: self.compute_share(),
            roofline: self.roofline(),
        }
        .serialize(serializer)
    }
}
