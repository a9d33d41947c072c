//! Iterations of a server of language models: their kinds, tokens per second, and the bound of these.

use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::{IterationKind, Step, StepKind, StepSource};
use profiler_core::whatif::ScenarioKind;

use super::{BetweenIterations, DeviceReport, Report};
use crate::state::IterationsOfKind;

/// Fewest iterations of which a tenth is examined: five.
const FEWEST: usize = 50;

/// Iterations of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// True if device work was not recorded, so that times are those of the host.
    pub on_host: bool,
    /// Number of all iterations.
    pub iterations: u64,
    /// Those that are remembered, and that medians and percentiles are of.
    pub remembered: u64,
    /// Their kinds.
    pub kinds: Vec<ServingKind>,
    /// Generated tokens per second of the iterations' time; `None` if their sequences are unknown.
    pub tokens_per_second: Option<f64>,
    /// Share of the time after start-up in which the server waited for requests, 0 to 1: an estimate from host samples.
    /// `None` without samples in functions of a server.
    pub no_requests_share: Option<f64>,
    /// Name of the server, and the time between iterations by meaning.
    pub between: BetweenIterations,
    /// Steady time of all devices, which `between` is a part of, nanoseconds.
    pub steady_ns: u64,
    /// Generated tokens per second with the same batches if the GPU never waited; `None` unless the simulation
    /// reproduces the run.
    pub bound: Option<TokenBound>,
}

/// Iterations of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingKind {
    /// Their number, times and tokens.
    pub kind: StepKind,
    /// Generated tokens per second of their time: one for each sequence; `None` if the sequences are unknown.
    pub tokens_per_second: Option<f64>,
    /// Share of their time in which the GPU worked, 0 to 1; `None` if device work was not recorded.
    pub busy: Option<f64>,
    /// Cause with most of their time, and its share, 0 to 1; `None` if device work was not recorded.
    pub largest: Option<(Cause, f64)>,
    /// Cause with most of the time by which a mean iteration of the slowest tenth is longer than one of the others, and
    /// its part of that time, 0 to 1. `None` for fewer than 50 iterations, or if device work was not recorded.
    pub slow_by: Option<(Cause, f64)>,
}

/// Tokens per second that the GPU allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBound {
    /// Generated tokens per second of the typical iterations.
    pub now: f64,
    /// Estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Report {
    /// The iterations of the device with the longest window, or those that were monitored; `None` unless they are those
    /// of a server.
    pub fn serving(&self) -> Option<Serving> {
        let device = self.devices.iter().max_by_key(|device| device.window_ns);
        let monitored = self.monitored_iterations.as_ref();
        let (steps, kinds) = match monitored {
            Some(of) => (&of.steps, of.kinds.iter().map(|kind| ServingKind::of(*kind, &of.steps.rows)).collect()),
            None => (device?.steps.as_ref()?, device?.serving_kinds()),
        };
        if kinds.is_empty() {
            return None;
        }
        let between = self.host.as_ref().map(|host| host.between.clone()).unwrap_or_default();
        let steady_ns: u64 = self.devices.iter().flat_map(|device| device.steady_leaves).sum();
        let sum = |of: fn(&ServingKind) -> Option<f64>| kinds.iter().map(of).sum::<Option<f64>>();
        let generated = sum(|of| Some(of.tokens_per_second? * of.kind.total_ns as f64));
        let all_ns = sum(|of| Some(of.kind.total_ns as f64));
        Some(Serving {
            on_host: monitored.is_some(),
            iterations: steps.seen,
            remembered: steps.rows.len() as u64,
            tokens_per_second: generated.zip(all_ns).map(|(all, nanos)| all / nanos.max(1.0)),
            no_requests_share: (!between.rows.is_empty()).then(|| between.idle_ns() as f64 / steady_ns.max(1) as f64),
            between,
            steady_ns,
            bound: device.and_then(|device| TokenBound::of(device, &steps.rows)),
            kinds,
        })
    }
}

impl DeviceReport {
    /// True if its steps are the iterations of a server.
    pub(super) fn serves(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.source == StepSource::Iteration)
    }

    /// Iterations by kind; empty unless its steps are those of a server.
    pub fn serving_kinds(&self) -> Vec<ServingKind> {
        let steps = self.steps.iter().filter(|steps| steps.source == StepSource::Iteration);
        steps.flat_map(|steps| self.step_kinds.iter().map(|kind| ServingKind::of(*kind, &steps.rows))).collect()
    }
}

impl ServingKind {
    /// `rows`: the remembered iterations of all kinds.
    fn of(kind: StepKind, rows: &[Step]) -> Self {
        let all = kind.leaves.iter().sum::<u64>() - kind.leaves[Leaf::NoWork as usize];
        let share = |nanos: u64| (all > 0).then(|| nanos as f64 / all as f64);
        let rows = rows.iter().filter(|row| row.iteration.is_some_and(|of| of.kind.name() == kind.name));
        let slow_by = slow_by(rows.clone().collect());
        let (tokens, nanos) = match kind.tokens.filter(|_| kind.name == IterationKind::Decode.name()) {
            Some(tokens) => (tokens, kind.total_ns),
            None => (sampled(rows.clone()), rows.map(Step::duration).sum()),
        };
        let busy: u64 =
            Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy()).map(|leaf| kind.leaves[leaf as usize]).sum();
        // What the device waits for limits an iteration, unless it works most of the time.
        let limits = |cause: &Cause| match cause {
            Cause::NoWork => false,
            Cause::GpuCompute => 2 * busy >= all,
            _ => true,
        };
        let largest = Cause::ALL.into_iter().filter(limits).max_by_key(|cause| cause.total(&kind.leaves));
        Self {
            kind,
            tokens_per_second: (tokens > 0).then(|| tokens as f64 * 1e9 / nanos.max(1) as f64),
            busy: share(busy),
            largest: largest.and_then(|cause| Some((cause, share(cause.total(&kind.leaves))?))),
            slow_by,
        }
    }

    /// The same for a display.
    pub(crate) fn state(&self) -> IterationsOfKind {
        let &Self { ref kind, tokens_per_second, .. } = self;
        IterationsOfKind {
            kind: kind.name.to_owned(),
            count: kind.count,
            median_ns: kind.median_ns,
            p99_ns: kind.p99_ns,
            sequences: kind.sequences.map(u64::from),
            tokens_per_second,
        }
    }

    /// True if each sequence gets one token.
    pub fn decodes(&self) -> bool {
        self.kind.name == IterationKind::Decode.name()
    }
}

impl TokenBound {
    fn of(device: &DeviceReport, rows: &[Step]) -> Option<Self> {
        let what_if = device.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
        let best_case = what_if.best_case(ScenarioKind::DeviceOnly).filter(|best_case| best_case.step_ns > 0)?;
        let (low, high) = best_case.interval?;
        let steps = device.typical?.steps as usize;
        let typical = &rows[rows.len().saturating_sub(steps)..];
        let tokens = sampled(typical.iter()) as f64 / typical.len().max(1) as f64;
        let value = tokens * 1e9 / best_case.step_ns as f64;
        let end = |speedup: f64| value * speedup / best_case.speedup;
        let now = tokens * 1e9 / device.typical?.mean_ns.max(1) as f64;
        (tokens > 0.0).then(|| Self { now, value, low: end(low), high: end(high) })
    }
}

/// What makes the slowest tenth of these iterations longer.
fn slow_by(mut rows: Vec<&Step>) -> Option<(Cause, f64)> {
    if rows.len() < FEWEST {
        return None;
    }
    rows.sort_by_key(|row| (row.duration(), row.start));
    let (others, slow) = rows.split_at(rows.len() - rows.len() / 10);
    let mean = |rows: &[&Step], cause: Cause| {
        rows.iter().map(|row| cause.total(&row.leaves) as f64).sum::<f64>() / rows.len() as f64
    };
    let more = Cause::ALL.map(|cause| (cause, (mean(slow, cause) - mean(others, cause)).max(0.0)));
    let all: f64 = more.iter().map(|(_, nanos)| nanos).sum();
    let (cause, nanos) = more.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (all > 0.0).then_some((cause, nanos / all))
}

/// Tokens that these iterations generated.
fn sampled<'a>(rows: impl Iterator<Item = &'a Step>) -> u64 {
    rows.filter_map(|row| row.iteration).map(|of| u64::from(of.sequences)).sum()
}

#[cfg(feature = "serde")]
gpuwhy_trace::document::document! {
    from: Serving {
        server: from.between.server,
        on_host: from.on_host,
        kinds: from.kinds,
        tokens_per_second: from.tokens_per_second,
        no_requests_share: from.no_requests_share,
        between: from.between.rows,
        tokens_per_second_bound: from.bound,
    }
    from: ServingKind {
        name: from.kind.name,
        count: from.kind.count,
        median_ns: from.kind.median_ns,
        p99_ns: from.kind.p99_ns,
        sequences: from.kind.sequences,
        tokens: from.kind.tokens,
        tokens_per_second: from.tokens_per_second,
        busy: from.busy,
        cause: from.largest.map(|(cause, _)| cause),
        share: from.largest.map(|(_, share)| share),
        slow_by: from.slow_by.map(|(cause, _)| cause),
        slow_by_share: from.slow_by.map(|(_, share)| share),
    }
    from: TokenBound {
        now: from.now,
        value: from.value,
        low: from.low,
        high: from.high,
    }
    from: super::MeaningRow {
        meaning: from.meaning,
        sampled_ns: from.sampled_ns,
        total_ns: from.total_ns,
    }
}
