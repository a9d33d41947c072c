//! What limits the computation of a device, by its hardware counters.

use gpuwhy_trace::counters::{CounterLoss, Metric, MetricSet};
use profiler_core::counters::estimate::SampleUse;
use profiler_core::counters::roofs::{Division, KernelLimits, Limit};

use crate::kernels::KernelGains;
use crate::words::refusal;

/// The computation of a device by what limits it.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeLimits {
    /// What was sampled.
    pub set: MetricSet,
    /// What became of the samples.
    pub samples: SampleUse,
    /// Computation after start-up, nanoseconds by limit. Sums to that leaf exactly.
    pub steady: Division,
    /// The same of the mean typical step; `None` without typical steps.
    pub step: Option<Division>,
    /// Means of the metrics over all samples, in their units.
    pub means: Vec<(Metric, f64)>,
    /// Mean use of the tensor pipes as a part of what they do at the highest clock, 0 to 1: the model FLOPs utilization
    /// that the hardware saw, of work of any precision. Over typical steps; without these over all samples.
    pub tensor_of_peak: Option<f64>,
    /// Its standard error, from how stretches of the run differ.
    pub tensor_of_peak_error: Option<f64>,
    /// Bytes that a typical step reads from device memory and writes to it.
    pub step_bytes: Option<(u64, u64)>,
    /// The standard errors of these.
    pub step_bytes_error: Option<(u64, u64)>,
    /// Multiprocessors that were busy while nothing of this process ran, 0 to 1: another process's work.
    pub busy_while_idle: Option<f64>,
    /// Mean core clock while kernels ran, Hz.
    pub kernel_clock_hz: Option<f64>,
}

impl ComputeLimits {
    /// The division that shares are said of: of a step, else of all steady time.
    pub fn division(&self) -> &Division {
        self.step.as_ref().unwrap_or(&self.steady)
    }

    /// Part of the computation that `limit` takes, 0 to 1.
    pub fn share(&self, limit: Limit) -> f64 {
        let times = &self.division().times;
        times[limit as usize] as f64 / times.iter().sum::<u64>().max(1) as f64
    }

    /// Limits by share, the largest first; what is not told apart is left out.
    pub fn ranked(&self) -> Vec<(Limit, f64)> {
        let mut rows: Vec<_> = Limit::ALL.into_iter().map(|limit| (limit, self.share(limit))).collect();
        rows.retain(|&(limit, share)| limit != Limit::NotToldApart && share > 0.0);
        rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        rows
    }

    /// Whether the samples tell enough of the computation for a sentence.
    pub fn tells(&self) -> bool {
        self.share(Limit::NotToldApart) < 0.5
    }
}

/// What limits the kernels of one name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedLimits {
    /// Means over launch configurations, weighted by time; roof and clock are those of the one with the most time.
    pub limits: KernelLimits,
    /// How many times as fast a typical step would be if they used 80 % and 90 % of their roof: simulated for those
    /// that lose most, else by subtraction. `None` without steps or without a roof.
    pub gains: Option<KernelGains>,
}

/// What was lost of a device's samples, with its sentence.
pub(crate) fn loss_sentence(loss: &CounterLoss) -> Option<String> {
    let device = loss.device;
    if let Some(refused) = loss.refused {
        return Some(format!("Hardware counters of GPU {device} were not sampled: {}.", refusal(refused)));
    }
    let count = loss.lost + loss.incomplete;
    (count > 0).then(|| format!("{count} samples of the counters of GPU {device} were lost or incomplete."))
}
