//! Summary of the recorded data, with a sentence per kind of missing or doubtful data.

use gpuwhy_trace::process_info::End;

use crate::run::{Report, loss_sentence};
use crate::text_format::{Page, counted, duration, wrapped};
use crate::words::losses;

/// Kinds of damage named in the text; the JSON lists all.
const DAMAGE_SHOWN: usize = 3;

/// Appends the section; a complete trace takes one line.
pub(super) fn write(out: &mut Page, report: &Report) {
    let completeness = &report.completeness;
    let records = monitored(report).unwrap_or_else(|| {
        let mut kernels = counted(completeness.kernels, "kernel");
        if completeness.graphs > 0 {
            kernels = format!("{kernels}, {} as a whole", counted(completeness.graphs, "CUDA graph"));
        }
        let (copies, calls) = (counted(completeness.copies, "copy"), counted(completeness.api_calls, "CUDA call"));
        format!("Recorded {kernels}, {copies}, {calls}")
    });
    let missing = missing(report);
    if missing.is_empty() {
        let complete = match report.is_watched() {
            true => ".",
            // Not a loss: recording them has a cost that the user may not want.
            false if completeness.graphs > 0 => "; nothing is missing but the kernels inside the graphs.",
            false => "; nothing is missing.",
        };
        wrapped(out, "", &format!("{records}{complete}"));
    } else {
        wrapped(out, "", &format!("{records}. {}", missing.join(" ")));
    }
    for damage in completeness.damage.iter().take(DAMAGE_SHOWN) {
        wrapped(out, "Damaged: ", damage);
    }
}

/// What a run that was monitored recorded, without a period.
pub(in crate::run) fn monitored(report: &Report) -> Option<String> {
    let bursts = report.cost.filter(|cost| report.bursts.is_some() && cost.bursts > 0 && cost.mode.monitors());
    if let Some(cost) = bursts {
        return Some(format!("Monitored: GPU work was recorded in {} alone", counted(cost.bursts.into(), "burst")));
    }
    report.is_watched().then(|| "Monitored only: no GPU work was recorded".to_owned())
}

/// One sentence per kind of missing or doubtful data.
pub(in crate::run) fn missing(report: &Report) -> Vec<String> {
    let completeness = &report.completeness;
    let mut sentences: Vec<String> = losses(&completeness.loss).collect();
    sentences.extend(report.counter_losses.iter().filter_map(loss_sentence));
    for (count, what, before, after) in [
        (completeness.bad_timestamps, "record", "Not on the timeline:", "without usable times"),
        (completeness.launches_without_activity, "launch", "No kernel was recorded for", ""),
        (completeness.activities_without_launch, "GPU operation", "No launch was recorded for", ""),
        (completeness.shared_ids, "launch", "Not told apart, because CUPTI gave them one id:", ""),
        (completeness.ordered_launches, "launch", "Joined in order, because CUPTI gave them one id:", ""),
        (completeness.clamped_clocks, "GPU operation", "Corrected the start or the end of", ""),
        (completeness.kernel_table_overflow, "kernel", "Too many kernels: counted in one row", ""),
    ] {
        if count > 0 {
            sentences.push(format!("{}.", format!("{before} {} {after}", counted(count, what)).trim_end()));
        }
    }
    if completeness.late_ns > 0 {
        let (late, corrected) = (duration(completeness.late_ns), duration(completeness.late_corrected_ns));
        sentences.push(format!("Records of {late} of GPU time came late; {corrected} of that was corrected."));
    }
    if completeness.end == End::TimedOut {
        sentences.push("The wait for the last records at exit timed out; some of them may be missing.".to_owned());
    }
    sentences.extend(missing_end(report));
    sentences
}

/// Sentence about a trace without an end. It names the time up to which the trace is complete, and the possible loss
/// after that. A flush guarantees the records that were complete at the previous flush. If flushes are on schedule, a
/// killed program loses less than two intervals. On a busy machine flushes can be late without bound, and a file
/// does not show that its end was cut off.
pub fn missing_end(report: &Report) -> Option<String> {
    const WHY: &str = "The trace has no end: the program still runs or was killed, or the file was cut off.";
    if report.completeness.end != End::Abrupt {
        return None;
    }
    let Some((until, interval)) = report.completeness.complete_until else { return Some(WHY.to_owned()) };
    let whole = duration(until.nanos().saturating_sub(report.process.start.nanos()));
    let lost = duration(interval.saturating_mul(2));
    Some(format!(
        "{WHY} Everything up to {whole} is here. A kill loses about two flush intervals after that ({lost} by the last \
         one); how much of a cut file is missing is unknown."
    ))
}
