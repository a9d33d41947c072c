//! Sentence about two kinds of steps.

use profiler_core::leaf::Cause;
use profiler_core::steps::StepKinds;

use crate::text_format::{duration, percent};

/// A wait counts as absent in the steps with less of it if it is at most 1/50 of the wait in the others.
const NOTHING: u64 = 50;
/// Largest denominator of a fraction in words.
const LARGEST_DENOMINATOR: u64 = 10;
/// Maximum distance of such a fraction from the true share.
const NEAR: f64 = 0.008;

/// `Two of three steps wait 27 ms for data; the others do not (38 and 11 ms in the median).`
pub(super) fn kinds_sentence(kinds: StepKinds) -> String {
    let (which, one) = which(kinds.more, kinds.less);
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
        Cause::KernelBuild => ("waits", "wait", " for kernels to be built"),
        Cause::OtherProcess => ("waits", "wait", " for another process on the GPU"),
        Cause::NoWork => ("has no work for", "have no work for", ""),
        Cause::CannotTell => ("waits", "wait", " for something that was not recorded"),
    };
    let verb = if one { each } else { all };
    let waits = !matches!(kinds.cause, Cause::GpuCompute | Cause::Copy | Cause::Communication);
    let others = match kinds.less_of_cause_ns {
        few if few <= kinds.more_of_cause_ns / NOTHING && waits => {
            if kinds.cause == Cause::Sync { "are not" } else { "do not" }.to_owned()
        }
        some => format!("only {}", duration(some)),
    };
    let [long, short] = [kinds.more_ns, kinds.less_ns].map(duration);
    let lasting = if long == short { String::new() } else { format!(" ({long} and {short} a step in the median)") };
    format!("{which} {verb} {more}{rest}; the others {others}{lasting}.")
}

/// Phrase for the fraction `more / (more + less)` of the steps, and true if it needs a singular verb.
fn which(more: u64, less: u64) -> (String, bool) {
    const NUMBERS: [&str; 11] = ["None", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"];
    let share = more as f64 / (more + less).max(1) as f64;
    let near = (2..=LARGEST_DENOMINATOR).find_map(|of| {
        let part = (share * of as f64).round() as u64;
        (part > 0 && part < of && (part as f64 / of as f64 - share).abs() <= NEAR).then_some((part, of))
    });
    match near {
        Some((1, 2)) => ("Half of the steps".to_owned(), false),
        Some((part, of)) => {
            (format!("{} of {} steps", NUMBERS[part as usize], NUMBERS[of as usize].to_lowercase()), part == 1)
        }
        None => (format!("{} of the steps", percent(share)), false),
    }
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
            "Two of three steps wait 27.0 ms for data; the others do not (38.0 ms and 11.0 ms a step in the median)."
        );
        assert!(
            kinds_sentence(kinds(20, 60, Cause::Sync, waits))
                .starts_with("One of four steps is idle for 27.0 ms after")
        );
        let some = kinds_sentence(kinds(50, 51, Cause::Copy, (27_000_000, 9_000_000)));
        assert!(some.starts_with("Half of the steps copy memory for 27.0 ms; the others only 9.0 ms ("), "{some}");
        assert_eq!(which(46, 54), ("46 % of the steps".to_owned(), false));
        assert_eq!(which(8, 1), ("Eight of nine steps".to_owned(), false));
        assert_eq!(which(1, 4), ("One of five steps".to_owned(), true));
    }
}
