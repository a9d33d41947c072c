//! Limits of a device's computation, from its hardware counters.

use gpuwhy_trace::counters::{CounterLoss, Metric, MetricSet};
use profiler_core::counters::estimate::SampleUse;
use profiler_core::counters::roofs::{Division, KernelLimits, Limit};
use profiler_core::sorting::SortRows as _;

use crate::kernels::KernelGains;
use crate::words::refusal;

/// Computation of a device by limit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ComputeLimits {
    /// Sampled metrics.
    pub set: MetricSet,
    /// Use and loss of the samples.
    pub samples: SampleUse,
    /// Computation after start-up, nanoseconds by limit. Sums to that leaf exactly.
    pub steady: Division,
    /// The same for the mean typical step; `None` without typical steps.
    pub step: Option<Division>,
    /// Means of the metrics over all samples, in their units.
    pub means: Vec<(Metric, f64)>,
    /// Mean use of the tensor pipes as a fraction of their throughput at the highest clock, 0 to 1: model
    /// FLOPs utilization as measured by the hardware, for work of any precision. Over typical steps, or over
    /// all samples without these.
    pub tensor_of_peak: Option<f64>,
    /// Its standard error, from the variation between intervals of the run.
    pub tensor_of_peak_error: Option<f64>,
    /// Bytes that a typical step reads from and writes to device memory.
    pub step_bytes: Option<(u64, u64)>,
    /// Standard errors of `step_bytes`.
    pub step_bytes_error: Option<(u64, u64)>,
    /// Share of multiprocessors busy while this process ran nothing, 0 to 1: work of another process.
    pub busy_while_idle: Option<f64>,
    /// Mean core clock while kernels ran, Hz.
    pub kernel_clock_hz: Option<f64>,
}

impl ComputeLimits {
    /// The division that shares refer to: of a step if available, else of all steady time.
    pub fn division(&self) -> &Division {
        self.step.as_ref().unwrap_or(&self.steady)
    }

    /// Share of the computation due to `limit`, 0 to 1.
    pub fn share(&self, limit: Limit) -> f64 {
        let times = &self.division().times;
        times[limit as usize] as f64 / times.iter().sum::<u64>().max(1) as f64
    }

    /// Limits by share, the largest first; the unresolved part is omitted.
    pub fn ranked(&self) -> Vec<(Limit, f64)> {
        let mut rows: Vec<_> = Limit::ALL.into_iter().map(|limit| (limit, self.share(limit))).collect();
        rows.retain(|&(limit, share)| limit != Limit::Unresolved && share > 0.0);
        rows.sort_rows_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        rows
    }

    /// True if the samples resolve enough of the computation for a sentence.
    pub fn tells(&self) -> bool {
        self.share(Limit::Unresolved) < 0.5
    }
}

/// Limits of the kernels with one name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NamedLimits {
    /// Means over launch configurations, weighted by time; roofline and clock are those of the configuration
    /// with the most time.
    pub limits: KernelLimits,
    /// Speedup of a typical step if these kernels used 80 % and 90 % of their roofline: simulated for those
    /// that lose most, by subtraction for the others. `None` without steps or without a roofline.
    pub gains: Option<KernelGains>,
}

/// Sentence about the lost counter samples of a device; `None` if none were lost.
pub(crate) fn loss_sentence(loss: &CounterLoss) -> Option<String> {
    let device = loss.device;
    if let Some(refused) = loss.refused {
        return Some(format!("Hardware counters of GPU {device} were not sampled: {}.", refusal(refused)));
    }
    let count = loss.lost + loss.incomplete;
    (count > 0).then(|| format!("{count} samples of the counters of GPU {device} were lost or incomplete."))
}
