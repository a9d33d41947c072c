//! Sentence about two kinds of steps.

use profiler_core::leaf::Cause;
use profiler_core::steps::{KindsDifference, StepKind};

use crate::text_format::duration;

/// A wait counts as absent in the steps with less of it if it is at most 1/50 of the wait in the others.
const NOTHING: u64 = 50;
/// `60 of 90 steps wait 27 ms for data; the others do not (38 and 11 ms in the median).`
///
/// `None` unless there are two kinds.
pub(super) fn kinds_sentence(kinds: &[StepKind]) -> Option<String> {
    let ([first @ StepKind { name: "long" | "more", .. }, second], Some(apart)) = (kinds, KindsDifference::of(kinds))
    else {
        return None;
    };
    let more = duration(apart.more_ns);
    let (each, all, rest) = match apart.cause {
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
    let verb = if first.count == 1 { each } else { all };
    let waits = !matches!(apart.cause, Cause::GpuCompute | Cause::Copy | Cause::Communication);
    let others = match apart.less_ns {
        few if few <= apart.more_ns / NOTHING && waits => {
            if apart.cause == Cause::Sync { "are not" } else { "do not" }.to_owned()
        }
        some => format!("only {}", duration(some)),
    };
    let [long, short] = [first, second].map(|kind| duration(kind.median_ns));
    let lasting = if long == short { String::new() } else { format!(" ({long} and {short} a step in the median)") };
    let all = first.count + second.count;
    Some(format!("{} of {all} steps {verb} {more}{rest}; the others {others}{lasting}.", first.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::leaf::{LEAF_COUNT, Leaf};

    /// Kinds of so many steps of 38 and 11 ms, with so many nanoseconds of `leaf` in each.
    fn kinds(counts: [u64; 2], leaf: Leaf, of_leaf: [u64; 2]) -> [StepKind; 2] {
        [0, 1].map(|at| {
            let (count, median_ns) = (counts[at], [38_000_000, 11_000_000][at]);
            let mut leaves = [0; LEAF_COUNT];
            leaves[leaf as usize] = count * of_leaf[at];
            leaves[Leaf::Compute as usize] = count * (median_ns - of_leaf[at]).min(11_000_000);
            let name = ["long", "short"][at];
            let total_ns = leaves.iter().sum();
            StepKind { name, count, total_ns, median_ns, p99_ns: median_ns, leaves, sequences: None, tokens: None }
        })
    }

    #[test]
    fn kinds_are_described() {
        let waits = [27_000_000, 0];
        assert_eq!(
            kinds_sentence(&kinds([60, 30], Leaf::DataLoading, waits)).unwrap(),
            "60 of 90 steps wait 27.0 ms for data; the others do not (38.0 ms and 11.0 ms a step in the median)."
        );
        let idle = kinds_sentence(&kinds([1, 60], Leaf::SyncDrain, waits)).unwrap();
        assert!(idle.starts_with("1 of 61 steps is idle for 27.0 ms after"), "{idle}");
        let some = kinds_sentence(&kinds([50, 51], Leaf::CopyH2dPinned, [27_000_000, 9_000_000])).unwrap();
        assert!(some.starts_with("50 of 101 steps copy memory for 27.0 ms; the others only 9.0 ms ("), "{some}");
        assert_eq!(kinds_sentence(&[]), None);
    }
}
