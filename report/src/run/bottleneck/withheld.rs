//! Conclusions without a ranking: the reasons for which no bottleneck is named.

use gpuwhy_trace::completeness::Completeness;
use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Cause, Leaf, Leaves};
use profiler_core::sorting::SortRows as _;

use super::{evidence, graphs, other_process};
use crate::run::framework::Framework;
use crate::run::remedies::{self, CallFacts, Facts, GraphFacts, Program};
use crate::run::waits::awaited_sentence;
use crate::run::{Bottleneck, DeviceReport, HostReport};
use crate::text_format::{counted, duration};
use crate::words;

/// Maximum share of steady time without a known cause for which a bottleneck is named.
const UNKNOWN_SHARE: f64 = 0.20;
/// Maximum share of lost records for which a bottleneck is named.
const LOSS_SHARE: f64 = 0.05;
/// Minimum number of device operations.
const FEWEST_OPERATIONS: u64 = 20;
/// Minimum window, nanoseconds.
const SHORTEST_WINDOW: u64 = 10_000_000;

/// A conclusion without a ranking.
pub(super) struct Withheld {
    cause: Cause,
    /// Share of steady time of that cause, 0 to 1.
    share: f64,
    reason: String,
    /// How the rest of the time divides, if that is known.
    rest: Option<String>,
    /// `None` if a remedy of the catalogue says it.
    advice: Option<&'static str>,
}

impl Withheld {
    /// `None` if the records support a ranking.
    pub(super) fn of(attributor: &Attributor, devices: &[DeviceReport], completeness: &Completeness) -> Option<Self> {
        let received = completeness.kernels
            + completeness.graphs
            + completeness.copies
            + completeness.memsets
            + completeness.api_calls;
        let lost = completeness.loss.dropped();
        let operations: u64 = attributor.devices().map(|account| account.operations()).sum();
        if operations == 0 && completeness.bad_timestamps == 0 && lost == 0 {
            return Some(Self {
                cause: Cause::NoWork,
                share: 1.0,
                reason: match completeness.api_calls {
                    0 => "No kernel, copy, memset or CUDA call was recorded.".to_owned(),
                    calls => {
                        format!("No kernel, copy or memset was recorded, only {}.", counted(calls, "CUDA call"))
                    }
                },
                rest: None,
                advice: Some(
                    "Check that the traced process is the one that uses the GPU, and that it reached its first kernel.",
                ),
            });
        }
        let steady = evidence::sum(devices.iter().map(|device| &device.steady_leaves));
        let share = Cause::CannotTell.total(&steady) as f64 / steady.iter().sum::<u64>().max(1) as f64;
        let unknown =
            |reason, advice| Some(Self { cause: Cause::CannotTell, share, reason, rest: None, advice: Some(advice) });
        let all = received.saturating_add(lost) as f64;
        if lost as f64 > LOSS_SHARE * all {
            let percent = lost as f64 / all * 100.0;
            return unknown(
                format!("{lost} records ({percent:.1} %) were lost, so what looks like idle time may be work."),
                "Give gpuwhy more memory (--buffer-memory) or a free CPU core, and record again.",
            );
        }
        if completeness.shared_ids as f64 > LOSS_SHARE * completeness.api_calls as f64 {
            let launches = counted(completeness.shared_ids, "launch");
            return unknown(
                format!("CUPTI gave one id to {launches}, so it is not known which call started which operation."),
                "CUPTI does so after recording was switched off in the running program: record all of the run, without \
                 captures, mode auto or a limit of the overhead.",
            );
        }
        let window = devices.iter().map(|device| device.window_ns).max().unwrap_or(0);
        if window < SHORTEST_WINDOW || operations < FEWEST_OPERATIONS && !is_long_work(devices) {
            let (millis, operations) = (window as f64 / 1e6, counted(operations, "GPU operation"));
            return unknown(
                format!("Too little data: {operations} in {millis:.1} ms."),
                "Record a longer part of the program: at least a few steps after its start-up.",
            );
        }
        if share <= UNKNOWN_SHARE {
            return None;
        }
        if let Some((share, reason)) = other_process::by_utilization(devices) {
            let rest = other_process::rest(&steady);
            return Some(Self { cause: Cause::OtherProcess, share, reason, rest, advice: None });
        }
        Some(without_cause(devices, share, &steady))
    }

    /// The conclusion.
    pub(super) fn concluded(
        self,
        devices: &[DeviceReport],
        host: Option<&HostReport>,
        calls: CallFacts<'_>,
        graphs: GraphFacts,
    ) -> Bottleneck {
        let Self { cause, share, reason, rest, advice } = self;
        let limited = other_process::limited_by(cause, devices, host, calls.api);
        let framework = Framework::of(devices, host, calls.command);
        let program = Program { cause: Some(limited), share, framework, graphs, ..Program::default() };
        let known = (advice.is_none() || limited != cause)
            .then(|| remedies::choose(&Facts::new(program, devices, host, calls)));
        let remedies: Vec<_> = known.into_iter().flatten().take(1).collect();
        let advice = match (advice, remedies.first()) {
            (Some(probably), Some(first)) => {
                format!("{probably} That gains little here. What gains more: {}", first.text)
            }
            (advice, first) => advice.or(first.map(|remedy| remedy.text.as_str())).unwrap_or_default().to_owned(),
        };
        let alone = (cause == Cause::OtherProcess).then(|| other_process::alone(share, devices, host, calls.api));
        let evidence = std::iter::once(reason).chain(alone).chain(rest).collect();
        Bottleneck { remedies, ..Bottleneck::unranked(cause, share, evidence, advice) }
    }
}

/// The conclusion where too much of the time after start-up, `share`, has no known cause.
fn without_cause(devices: &[DeviceReport], share: f64, steady: &Leaves) -> Withheld {
    let time = |leaf: Leaf| devices.iter().map(|device| device.steady_leaves[leaf as usize]).sum::<u64>();
    let leaves = Leaf::ALL.into_iter().filter(|leaf| leaf.cause() == Cause::CannotTell);
    let mut causes: Vec<_> = leaves.map(|leaf| (time(leaf), leaf)).filter(|&(nanos, _)| nanos > 0).collect();
    causes.sort_rows_by_key(|&(nanos, leaf)| (std::cmp::Reverse(nanos), leaf));
    let events: Vec<_> = devices.iter().flat_map(|device| &device.awaited).map(awaited_sentence).collect();
    let largest = causes.first().map(|&(_, leaf)| leaf);
    let probably =
        other_process::by_power(devices).filter(|_| largest == Some(Leaf::DependencyWait) && events.is_empty());
    let advice = match &probably {
        Some(_) => other_process::PROBABLY,
        None => graphs::without_cause(largest, !events.is_empty()),
    };
    let probably = probably.map(|reason| reason + " ").unwrap_or_default();
    let causes = causes.iter().map(|&(nanos, leaf)| format!("{} {}", words::cause(leaf), duration(nanos)));
    let causes = causes.collect::<Vec<_>>().join(", ");
    let events = if events.is_empty() { String::new() } else { format!(" Waits for events: {}.", events.join(", ")) };
    let unknown = share * 100.0;
    let cause = if probably.is_empty() { Cause::CannotTell } else { Cause::OtherProcess };
    let rest = other_process::rest(steady).filter(|_| cause == Cause::OtherProcess);
    let reason = format!("{probably}The cause of {unknown:.1} % of the time is not in the records: {causes}.{events}");
    Withheld { cause, share, reason, rest, advice: Some(advice) }
}

/// True if kernels run in more than a tenth of the time of a device: few operations that long show where time goes as
/// well as many.
fn is_long_work(devices: &[DeviceReport]) -> bool {
    let busy = |device: &DeviceReport| device.leaves[Leaf::Compute as usize] > device.window_ns / 10;
    devices.iter().any(busy)
}
