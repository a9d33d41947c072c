//! Time of a GPU by cause, in percent.

use profiler_core::leaf::{Cause, Leaves};
use profiler_core::sorting::SortRows as _;

use crate::run::untraced::WithoutTracing;
use crate::run::{DeviceReport, Report, TypicalSteps};
use crate::text_format::{Page, Paint, counted, duration, listed, percent};
use crate::words;

/// Appends one line for the time after start-up, in whole percent that sum to 100.
pub(super) fn share_line(out: &mut Page, report: &Report, device: &DeviceReport) {
    let name = if device.device.name.is_empty() { String::new() } else { format!(" ({})", device.device.name) };
    let (of, shares) = shares(report, device);
    let items: Vec<_> = whole_percent(&shares, report.bottleneck.cause)
        .into_iter()
        .map(|(cause, percent)| (paint(cause), format!("{} {percent} %", words::spent(cause))))
        .collect();
    listed(out, &format!("GPU {}{name}, {of}: ", device.device.id), &items);
}

/// Label of the time that the shares refer to, and that time by leaf.
pub(in crate::run) fn judged(report: &Report, device: &DeviceReport) -> (&'static str, Leaves) {
    let steps = device.typical.filter(|_| report.bottleneck.basis.is_some()).map(|typical| typical.leaves);
    match steps {
        Some(leaves) => match device.step_meaning.noun() {
            "iteration" => ("each iteration", leaves),
            _ if device.step_meaning.recognized_by.is_some() => ("each step", leaves),
            _ => ("each repeating unit", leaves),
        },
        None if device.begun_midway => ("recorded time", device.leaves),
        None if device.steady_leaves.iter().any(|&nanos| nanos > 0) => ("after start-up", device.steady_leaves),
        None => ("whole run", device.leaves),
    }
}

/// Label of the time that the shares refer to, and the share of each cause with any time, 0 to 1.
pub(in crate::run) fn shares(report: &Report, device: &DeviceReport) -> (&'static str, Vec<(Cause, f64)>) {
    let (of, leaves) = judged(report, device);
    let total = leaves.iter().sum::<u64>().max(1) as f64;
    let without = WithoutTracing::of(device, &leaves);
    let share = |cause: Cause| (cause, without.share(cause, cause.total(&leaves) as f64 / total));
    let mut shares: Vec<_> = Cause::ALL.into_iter().map(share).filter(|(_, share)| *share > 0.0).collect();
    shares.sort_rows_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    (of, shares)
}

/// Minimum share of a run that the bottleneck leaves out for this to be said; half of it for what is said beside it.
const LEFT_OUT: f64 = 0.1;

/// Sentence about the parts of the longest window, if they are large, that are not in the shares and the
/// bottleneck.
pub(in crate::run) fn left_out(report: &Report) -> Option<String> {
    let device = report.devices.iter().max_by_key(|device| device.window_ns)?;
    let steady: u64 = device.steady_leaves.iter().sum();
    let start_up = device.window_ns.saturating_sub(steady);
    // As in the first line.
    let run = device.window_ns.max(report.shown_ns()).max(1) as f64;
    let of_run = |nanos: u64| nanos as f64 / run;
    let typical = device.typical.filter(|_| report.bottleneck.basis.is_some());
    let steps =
        |typical: TypicalSteps| typical.mean_ns.saturating_mul(typical.steps).saturating_add(typical.forgotten_ns);
    let rest = typical.map_or(0, |typical| steady.saturating_sub(steps(typical)));
    let outside = report.shown_ns().saturating_sub(device.window_ns);
    if of_run(start_up.max(rest).max(outside)) <= LEFT_OUT {
        return None;
    }
    let mut parts = Vec::new();
    let mut part = |lead: &str, nanos: u64, what: String| {
        if of_run(nanos) > LEFT_OUT / 2.0 {
            let of = if parts.is_empty() { " of the run" } else { "" };
            parts.push(format!("{lead}{} ({}{of}){what}", duration(nanos), percent(of_run(nanos))));
        }
    };
    let time = |cause: Cause| cause.total(&device.leaves).saturating_sub(cause.total(&device.steady_leaves));
    let largest = Cause::ALL.into_iter().max_by_key(|&cause| time(cause)).unwrap_or(Cause::CannotTell);
    if steady > 0 {
        part("start-up, ", start_up, format!(", mostly {}", words::spent(largest)));
    }
    let noun = device.step_meaning.noun();
    let of = match report.bottleneck.basis.map_or(0, |basis| basis.set_aside) {
        _ if report.completeness.loss.own_kernels > 0 => format!("of {noun}s in which gpuwhy measured kernels, and "),
        0 => String::new(),
        count => format!("of {}, and ", counted(count, &format!("unusual {noun}"))),
    };
    part("", rest, format!(" {of}without repeated work"));
    part("", outside, " before the first GPU operation and after the last".to_owned());
    (!parts.is_empty()).then(|| format!("Left out: {}.", parts.join("; ")))
}

/// Share of the time in which the GPU worked, over all GPUs.
pub(in crate::run) fn busy_share(report: &Report) -> f64 {
    let sum: f64 = report.devices.iter().map(|device| report.busy_of(device)).sum();
    sum / report.devices.len().max(1) as f64
}

/// Converts shares to whole percent that sum to 100. `first` is rounded as elsewhere; the others are rounded
/// down, and the remainder goes to those with the largest fractions. Values below 1 are omitted.
fn whole_percent(shares: &[(Cause, f64)], first: Cause) -> Vec<(Cause, u32)> {
    let total: f64 = shares.iter().map(|(_, share)| share).sum();
    let alone = shares.len() == 1;
    let whole = |&(cause, share): &(Cause, f64)| {
        let exact = share / total.max(f64::MIN_POSITIVE) * 100.0;
        let fixed = cause == first && !alone;
        if fixed { (cause, exact.round() as u32, -1.0) } else { (cause, exact.floor() as u32, exact.fract()) }
    };
    let mut rows: Vec<(Cause, u32, f64)> = shares.iter().map(whole).collect();
    let missing = 100_u32.saturating_sub(rows.iter().map(|(_, whole, _)| whole).sum());
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_rows_by(|&a, &b| rows[b].2.total_cmp(&rows[a].2));
    for &index in order.iter().take(missing as usize) {
        rows[index].1 += 1;
    }
    rows.into_iter().filter(|(_, whole, _)| *whole > 0).map(|(cause, whole, _)| (cause, whole)).collect()
}

const fn paint(cause: Cause) -> Paint {
    match cause {
        Cause::GpuCompute => Paint::Green,
        Cause::NoWork | Cause::CannotTell => Paint::Plain,
        _ => Paint::Yellow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_sum_to_a_hundred_and_none_is_0() {
        let of = |shares: &[f64]| -> Vec<u32> {
            let causes = Cause::ALL.into_iter().zip(shares).map(|(cause, &share)| (cause, share)).collect::<Vec<_>>();
            whole_percent(&causes, Cause::Copy).into_iter().map(|(_, percent)| percent).collect()
        };
        assert_eq!(of(&[0.617, 0.139, 0.244]), [62, 14, 24]);
        assert_eq!(of(&[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]), [34, 33, 33]);
        assert_eq!(of(&[0.9999, 0.0001]), [100]);
        assert_eq!(of(&[0.164, 0.153, 0.616, 0.067]), [16, 15, 62, 7], "the third is the bottleneck");
        assert_eq!(of(&[0.169, 0.156, 0.604, 0.071]), [17, 16, 60, 7], "no more than it rounds to");
        assert_eq!(of(&[0.994, 0.003, 0.003]).iter().sum::<u32>(), 100);
        assert!(of(&[]).is_empty());
    }
}
