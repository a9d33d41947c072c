//! Sentence about two kinds of steps.

use profiler_core::leaf::Cause;
use profiler_core::steps::StepKinds;

use crate::text_format::duration;

/// A wait counts as absent in the steps with less of it if it is at most 1/50 of the wait in the others.
const NOTHING: u64 = 50;
/// `60 of 90 steps wait 27 ms for data; the others do not (38 and 11 ms in the median).`
pub(super) fn kinds_sentence(kinds: StepKinds) -> String {
    let more = duration(kinds.more_of_cause_ns);
    let (each, all, rest) = match kinds.cause {
        Cause::DataLoading => ("waits", "wait", " for data"),
        Cause::HostCpu => ("waits", "wait", " for CPU work"),
        Cause::Copy => ("copies memory for", "copy memory for", ""),
        Cause::Launch => ("waits", "wait", " for launches"),
        Cause::GpuCompute => ("computes for", "compute for", ""),
        Cause::Sync => ("is idle for", "are idle for", " after synchronization"),
        Cause::Communication => ("communicates for", "communicate for", ""),
        Cause::Allocator => ("waits", "wait", " for memory allocation"),
        Cause::KernelBuild => ("waits", "wait", " for kernels to be built or loaded"),
        Cause::OtherProcess => ("waits", "wait", " for another process on the GPU"),
        Cause::NoWork => ("has no work for", "have no work for", ""),
        Cause::CannotTell => ("waits", "wait", " for something that was not recorded"),
    };
    let verb = if kinds.more == 1 { each } else { all };
    let waits = !matches!(kinds.cause, Cause::GpuCompute | Cause::Copy | Cause::Communication);
    let others = match kinds.less_of_cause_ns {
        few if few <= kinds.more_of_cause_ns / NOTHING && waits => {
            if kinds.cause == Cause::Sync { "are not" } else { "do not" }.to_owned()
        }
        some => format!("only {}", duration(some)),
    };
    let [long, short] = [kinds.more_ns, kinds.less_ns].map(duration);
    let lasting = if long == short { String::new() } else { format!(" ({long} and {short} a step in the median)") };
    format!("{} of {} steps {verb} {more}{rest}; the others {others}{lasting}.", kinds.more, kinds.more + kinds.less)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(more: u64, less: u64, cause: Cause, of_cause: (u64, u64)) -> StepKinds {
        StepKinds {
            more,
            less,
            more_ns: 38_000_000,
            less_ns: 11_000_000,
            cause,
            more_of_cause_ns: of_cause.0,
            less_of_cause_ns: of_cause.1,
            by_duration: true,
        }
    }

    #[test]
    fn kinds_are_described() {
        let waits = (27_000_000, 0);
        assert_eq!(
            kinds_sentence(kinds(60, 30, Cause::DataLoading, waits)),
            "60 of 90 steps wait 27.0 ms for data; the others do not (38.0 ms and 11.0 ms a step in the median)."
        );
        assert!(
            kinds_sentence(kinds(1, 60, Cause::Sync, waits)).starts_with("1 of 61 steps is idle for 27.0 ms after")
        );
        let some = kinds_sentence(kinds(50, 51, Cause::Copy, (27_000_000, 9_000_000)));
        assert!(some.starts_with("50 of 101 steps copy memory for 27.0 ms; the others only 9.0 ms ("), "{some}");
    }
}
