//! Obstacles to a fair comparison of two reports: damage, loss, different machines, different software.
//!
//! No obstacle prevents the comparison. Each is a sentence that names the affected run.

use gpuwhy_trace::process_info::End;
use profiler_core::leaf::Cause;

use super::Side;
use super::rows::has_whole_graphs;
use gpuwhy_report::run::Report;

/// Sentences for both runs, those about one run first.
pub(super) fn caveats(a: &Report, b: &Report) -> Vec<String> {
    let mut sentences = Vec::new();
    for (side, report) in [(Side::A, a), (Side::B, b)] {
        of_one(&mut sentences, side, report);
    }
    let names = |report: &Report| report.devices.iter().map(|device| device.device.name.clone()).collect::<Vec<_>>();
    let (a_names, b_names) = (names(a), names(b));
    if a_names.len() != b_names.len() {
        let (first, second) = (a_names.len(), b_names.len());
        sentences.push(format!("A used {first} and B {second} devices; they are paired in the order of ordinals."));
    }
    for (first, second) in a_names.iter().zip(&b_names).filter(|(first, second)| first != second) {
        sentences.push(format!("The devices differ: {} in A, {} in B.", known(first), known(second)));
    }
    let whole = |report: &Report| report.devices.iter().any(has_whole_graphs);
    if whole(a) != whole(b) {
        let (side, other) = if whole(a) { (Side::A, Side::B) } else { (Side::B, Side::A) };
        sentences.push(format!(
            "{side} recorded CUDA graphs as a whole and {other} node by node: steps and causes compare, kernels inside graphs \
             and counts of operations do not."
        ));
    }
    let sampled = |side: Side, other: Side| {
        format!(
            "{side} has no host samples and {other} has: how the CPU spent its time outside CUDA does not compare, and its \
             causes are shown in sum."
        )
    };
    match (a.host.is_some(), b.host.is_some()) {
        (true, false) => sentences.push(sampled(Side::B, Side::A)),
        (false, true) => sentences.push(sampled(Side::A, Side::B)),
        _ => {}
    }
    let (first, second) = (&a.process, &b.process);
    for (what, in_a, in_b) in [
        (
            "CUDA versions of the drivers",
            cuda_version(first.driver_cuda_version),
            cuda_version(second.driver_cuda_version),
        ),
        ("drivers", first.driver_version.clone(), second.driver_version.clone()),
        ("versions of CUPTI", number(first.cupti_version), number(second.cupti_version)),
        ("versions of gpuwhy", first.gpuwhy_version.clone(), second.gpuwhy_version.clone()),
    ] {
        if in_a != in_b {
            sentences.push(format!("The {what} differ: {} in A, {} in B.", known(&in_a), known(&in_b)));
        }
    }
    sentences
}

fn of_one(sentences: &mut Vec<String>, side: Side, report: &Report) {
    let completeness = &report.completeness;
    let loss = &completeness.loss;
    if let Some(first) = completeness.damage.first() {
        sentences.push(format!("{side} is damaged: {first}."));
    }
    let lost = loss.dropped().saturating_add(completeness.launches_without_activity);
    if lost > 0 {
        sentences
            .push(format!("{side} lacks {lost} records, so some of its idle time may be work that was not recorded."));
    }
    let buffers = loss.broken_buffers.saturating_add(loss.undelivered_buffers);
    if buffers > 0 {
        sentences.push(format!("{side} lacks {buffers} buffers of records."));
    }
    match completeness.end {
        End::Clean => {}
        End::Abrupt => sentences.push(format!("{side} has no end: the process was killed or still runs.")),
        End::TimedOut => sentences.push(format!("{side} may lack its last records: the wait at exit timed out.")),
    }
    if completeness.kernel_table_overflow > 0 {
        let count = completeness.kernel_table_overflow;
        sentences
            .push(format!("{count} kernels of {side} did not fit into the kernel table and are summed in one row."));
    }
    if report.bottleneck.cause == Cause::CannotTell {
        let reason = report.bottleneck.evidence.first().map_or("", String::as_str);
        sentences.push(format!("{side} gives no bottleneck: {reason}"));
    }
}

fn known(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

fn number(version: u32) -> String {
    if version == 0 { String::new() } else { version.to_string() }
}

/// Formats `1000 * major + 10 * minor` as a version.
fn cuda_version(version: u32) -> String {
    if version == 0 { String::new() } else { format!("{}.{}", version / 1000, version % 1000 / 10) }
}
