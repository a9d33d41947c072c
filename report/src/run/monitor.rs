//! Bottleneck of a run that deliberately recorded no device work, and the utilization of its devices.
//!
//! Where hardware counters are sampled, [`profiler_core::monitoring`] divides the time, and a cause is named
//! if its intervals leave only one. Without them, device time cannot be divided: utilization shows how much
//! was used, and host samples show what the launching thread did. Only if both agree is a cause named, as
//! likely. A launching thread that spins in a synchronization looks the same in samples as one that computes,
//! and one that waits for a lock may wait for the device, so neither counts as a cause here. The share of the
//! bottleneck is 0 because none was measured. The utilization rate counts copies as well as kernels, and is
//! coarse; the hardware counter counts only kernels, so it takes precedence where the device has it
//! (docs/design/overhead.md).

use std::fmt::Write;

use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::Timestamp;
use gpuwhy_trace::utilization::{Absence, Counter, DeviceUtilization, Utilization};
use profiler_core::attribution::SampleTotals;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;
use profiler_core::monitoring::{MonitoredPart, MonitoredTime};
use profiler_core::sorting::SortRows as _;
use profiler_core::thresholds::WORTH_SHARE;

use super::bottleneck::advice_on_lines;
use super::{Bottleneck, BurstTable, HostReport, LineRow, Remedy, Report, bursts};
use crate::text_format::{counted, duration, percent};
use crate::words::{self, capitalized};

/// Minimum fraction of the device's idle time that a thread activity must cover to be its likely cause; the
/// same fraction as where idle time itself is examined (`bottleneck::host`).
const REPRESENTATIVE_SHARE: f64 = 0.5;
/// Minimum share of busy multiprocessors for a device that is never idle to count as computing (at least half are at
/// work), and of the bandwidth of its memory to count as moving data.
const FILLED_SHARE: f64 = 0.5;
/// Minimum traffic with the host, 10^9 bytes per second, for a device that is busy without kernels to count
/// as copying. A loop of empty launches moves 0.5 on an H200, a copy from pinned memory 55
/// (docs/design/overhead.md).
const COPYING: f64 = 1.0;
/// Minimum duration of host samples and readings for a conclusion, nanoseconds: ten of each at their longest
/// intervals.
const SHORTEST: u64 = 2_500_000_000;

/// Waits that are not for the device and are clear without a stack.
const CLEAR_WAITS: [(HostCause, &str); 4] = [
    (HostCause::Io, "waiting for input or output"),
    (HostCause::Disk, "waiting for storage"),
    (HostCause::Sleep, "asleep"),
    (HostCause::Child, "waiting for a child process"),
];

/// Least traffic of a link for a mention, 10^9 bytes per second.
const LEAST_TRAFFIC: f64 = 0.1;

const MEASURE: &str = "Record the GPU work to see the cause and what it costs: gpuwhy run --mode light";

const SEE_BURST: &str = "Open the report of a burst (a short recording of GPU work) for its causes, kernels and best cases: \
                         gpuwhy report --capture 1 TRACE";

/// How to learn more about a run of `run_ns` nanoseconds with this many bursts.
fn advice(bursts: usize, run_ns: u64) -> String {
    match bursts {
        0 => format!("{MEASURE}{}.", words::part_of_a_run(run_ns, ", or a part of the run")),
        1 => format!("{SEE_BURST}."),
        _ => format!("{SEE_BURST} (--capture 2 for the second burst)."),
    }
}

/// A run whose device work was not recorded on purpose.
pub(super) struct Watched<'a> {
    pub(super) process: &'a ProcessInfo,
    /// Its duration, nanoseconds.
    pub(super) run_ns: u64,
    /// Division of its time; `None` without hardware samples.
    pub(super) time: Option<&'a MonitoredTime>,
    pub(super) utilization: &'a Utilization,
    pub(super) bursts: Option<&'a BurstTable>,
}

/// Least share of a thread's time for a line to be named, and most lines.
const NAMED_SHARE: f64 = 0.1;
const NAMED_LINES: usize = 2;

/// The line with most of these samples, and its share of them.
fn most_at(host: &HostReport, wanted: fn(&LineRow) -> bool) -> Option<(f64, String)> {
    let rows = || host.lines.iter().filter(|row| wanted(row));
    let first = rows().find(|row| row.is_evident() && row.line > 0)?;
    let at_line = rows().filter(|row| (&row.file, row.line) == (&first.file, first.line));
    Some((at_line.map(|row| row.share).sum(), LineRow { within: None, ..first.clone() }.at_place()))
}

/// Advice about the line at which the launching threads sleep, if that takes much of their time.
fn slept(host: &HostReport) -> Option<String> {
    let (share, place) = most_at(host, |row| row.cause == HostCause::Sleep)?;
    (share >= 2.0 * NAMED_SHARE).then(|| format!("Remove the sleep {place}, unless it limits a rate on purpose. "))
}

/// Advice about the line at which they are most of the time, where the GPU uses this share of its memory's bandwidth.
fn moved(host: &HostReport, memory: f64) -> Option<String> {
    let (share, place) = most_at(host, |_| true).filter(|_| memory >= FILLED_SHARE)?;
    let used = format!("{} of the bandwidth of the GPU's memory is used", percent(memory));
    (share >= REPRESENTATIVE_SHARE)
        .then(|| format!("Look for copies and elementwise operations that are not needed {place}: {used}. "))
}

/// Sentences about what the launching threads did most, and where.
fn line_sentences(host: Option<&HostReport>) -> Vec<String> {
    let rows = || host.into_iter().flat_map(|host| &host.lines);
    let place = |row: &LineRow| (row.cause, row.file.clone(), row.line, row.function.clone());
    let mut lines: Vec<LineRow> = Vec::new();
    for row in rows().filter(|row| row.is_evident() && row.has_place()) {
        // What the line calls is part of it.
        let whole = |other: &LineRow| place(other) == place(row);
        if !lines.iter().any(whole) {
            let parts: Vec<_> = rows().filter(|other| whole(other)).collect();
            let within = if parts.len() == 1 { row.within.clone() } else { None };
            lines.push(LineRow { share: parts.iter().map(|part| part.share).sum(), within, ..row.clone() });
        }
    }
    lines.sort_rows_by(|a, b| b.share.total_cmp(&a.share));
    let sentence = |row: &LineRow| {
        let doing = words::activity(row.cause).replace(" on the launching thread", "");
        let share = percent(row.share.min(1.0));
        format!("The launching thread was {doing} {} {share} of the time after start-up.", row.at_place())
    };
    lines.iter().filter(|row| row.share >= NAMED_SHARE).take(NAMED_LINES).map(sentence).collect()
}

impl Watched<'_> {
    /// End of start-up; if that is unknown, the middle of the run.
    pub(super) fn steady_start(&self) -> Timestamp {
        let devices = self.utilization.devices.len().max(1) as u64;
        let steady_ns = self.time.map_or(self.run_ns / 2, |time| time.window_ns / devices);
        Timestamp::from_nanos(self.process.start.nanos() + self.run_ns.saturating_sub(steady_ns))
    }

    /// Determines the bottleneck from hardware samples, or without them from utilization and host samples. `host` has
    /// the lines since the end of start-up, and `recent` is the division of the newest part.
    pub(super) fn bottleneck(
        &self,
        host: Option<&HostReport>,
        samples: &SampleTotals,
        recent: Option<&MonitoredTime>,
    ) -> Bottleneck {
        let found = match self.time {
            Some(time) => divided(time, self.process.world_size().unwrap_or(1) > 1),
            None => {
                let (cause, because) = judged(self.utilization, samples);
                (cause, 0.0, because)
            }
        };
        let (cause, share, because) = match self.bursts.filter(|_| found.0 == Cause::CannotTell) {
            Some(bursts) => self.recorded(bursts).unwrap_or(found),
            None => found,
        };
        let changes = self.bursts.and_then(|table| bursts::changes(table, self.process.start));
        let division = self.time.map(division);
        let mut measured = changes.into_iter().chain(division).chain(evidence(self.utilization, samples));
        let first = measured.next();
        // What a line says is more than the rates of links.
        let evidence = std::iter::once(because).chain(first).chain(line_sentences(host)).chain(measured).collect();
        let bursts = self.bursts.map_or(0, |bursts| bursts.rows.len());
        let live = match (self.bursts, recent) {
            (Some(bursts), _) => bursts.live(),
            (None, Some(recent)) => (recent.bottleneck, recent.part(recent.bottleneck).map_or(0.0, |part| part.low)),
            (None, None) => (cause, share),
        };
        let remedies = host.map(|host| advice_on_lines(cause, host, &self.process.command)).unwrap_or_default();
        // A busy GPU may be what a sleep waits for.
        let memory = self.utilization.counter(Counter::DeviceMemory).unwrap_or(0.0);
        let of_line = host.and_then(|host| if cause == Cause::GpuCompute { moved(host, memory) } else { slept(host) });
        let first = remedies.first().map(|remedy: &Remedy| format!("{} ", remedy.text));
        let advice = first.or(of_line).unwrap_or_default() + &advice(bursts, self.run_ns);
        Bottleneck { live, remedies, ..Bottleneck::unranked(cause, share, evidence, advice) }
    }

    /// The bottleneck that bursts and the samples during bursts named for most of the run, for use if the samples
    /// of the complete run are inconclusive; with its share and the reason.
    fn recorded(&self, bursts: &BurstTable) -> Option<(Cause, f64, String)> {
        let end = Timestamp::from_nanos(self.process.start.nanos().saturating_add(self.run_ns));
        let (change, held) = bursts.longest(end)?;
        let by = match change.burst {
            Some(number) => format!("{} of burst {number}", percent(change.share)),
            None => format!("at least {} of 20 s, by samples", percent(change.share)),
        };
        let why = format!(
            "The GPU {} {by}; this was the bottleneck for {}. Samples of the whole run leave the bottleneck open.",
            words::what_the_gpu_does(change.cause),
            duration(held)
        );
        Some((change.cause, change.share, why))
    }
}

/// Cause, smallest share and reason according to the division of the time.
fn divided(time: &MonitoredTime, several: bool) -> (Cause, f64, String) {
    let from = match time.bottleneck {
        Cause::GpuCompute => {
            "Inferred from hardware and CPU samples, which show kernels and copies within the GPU alike: mode monitor \
             records no GPU work"
        }
        _ => "Inferred from hardware and CPU samples: mode monitor records no GPU work",
    };
    let range = |part: &MonitoredPart| format!("{} {}", words::bottleneck(part.cause), between(part.low, part.high));
    if time.bottleneck == Cause::GpuCompute && several {
        let why =
            "kernels ran nearly all the time, but whether they compute or communicate is not known without records";
        return (Cause::CannotTell, 0.0, format!("{}. {from}.", capitalized(why)));
    }
    if let Some(part) = time.part(time.bottleneck) {
        let (does, share) = (words::what_the_gpu_does(part.cause), between(part.low, part.high));
        let does = if part.cause == Cause::GpuCompute { "runs kernels, or copies within it," } else { does };
        let of = duration(time.window_ns);
        let why = format!("The GPU {does} {share} (95 % confidence) of the {of} after start-up. {from}.");
        return (time.bottleneck, part.low, why);
    }
    let possible: Vec<String> = time.possible().into_iter().take(4).map(range).collect();
    let why = match possible.is_empty() {
        true => "too little time was sampled, or no cause takes a large part of it".to_owned(),
        false => format!("samples cannot separate the candidates (95 % confidence): {}", possible.join("; ")),
    };
    (Cause::CannotTell, 0.0, format!("The run was only monitored (mode monitor records no GPU work), and {why}."))
}

/// Sentence about how the time divides.
fn division(time: &MonitoredTime) -> String {
    let reported = time.parts.iter().filter(|part| part.nanos * 200 >= time.window_ns);
    let share = |nanos: u64| format!("{:.0} %", nanos as f64 / time.window_ns.max(1) as f64 * 100.0);
    let mut parts: Vec<String> =
        reported.map(|part| format!("{} {}", words::spent(part.cause), share(part.nanos))).collect();
    let (devices, hosts) = time.samples;
    let sampled = format!("{}, {}", counted(devices, "GPU sample"), counted(hosts, "CPU sample"));
    let any = if time.unresolved_ns * 200 >= time.window_ns { ", of these or others" } else { "" };
    parts.push(format!("unresolved {}{any}", share(time.unresolved_ns)));
    let start_up = duration(time.start_up_ns);
    let after = if time.start_up_ns > 0 { format!(", after {start_up} of start-up") } else { String::new() };
    format!("The time divides into {} ({sampled}){after}.", parts.join(", "))
}

/// `12 to 15 %`.
fn between(low: f64, high: f64) -> String {
    format!("{:.0} to {:.0} %", low * 100.0, high * 100.0)
}

fn judged(utilization: &Utilization, samples: &SampleTotals) -> (Cause, String) {
    const WATCHED: &str = "The run was only monitored (mode monitor records no GPU work), and";
    let cannot = |why: &str| (Cause::CannotTell, format!("{WATCHED} {why}."));
    let likely = |cause: Cause, why: String| {
        let from = "Inferred from utilization and CPU samples: mode monitor records no GPU work";
        (cause, format!("{}. {from}.", capitalized(&why)))
    };
    let Some(busy) = utilization.busy() else { return cannot("it is unknown how busy the GPU was") };
    let covered = utilization.devices.iter().map(|device| device.busy.over_ns).max().unwrap_or(0);
    if covered < SHORTEST {
        return cannot(&format!("its utilization was read over {} only", duration(covered)));
    }
    let computing = utilization.counter(Counter::Active).unwrap_or(busy);
    let idle = 1.0 - computing;
    if idle < WORTH_SHARE {
        return match utilization.counter(Counter::Multiprocessors) {
            Some(filled) if filled >= FILLED_SHARE => likely(
                Cause::GpuCompute,
                format!(
                    "kernels ran {:.0} % of the time, on {:.0} % of the multiprocessors",
                    computing * 100.0,
                    filled * 100.0
                ),
            ),
            Some(filled) => cannot(&format!(
                "kernels ran nearly all the time, on {:.0} % of the multiprocessors: they may be small, or many and short with \
                 gaps that utilization does not show",
                filled * 100.0
            )),
            None => cannot("kernels ran nearly all the time, but it is unknown how much of the GPU they used"),
        };
    }
    let host_traffic =
        [Counter::PcieSent, Counter::PcieReceived].into_iter().filter_map(|way| utilization.counter(way)).sum::<f64>();
    if busy - computing >= REPRESENTATIVE_SHARE * idle && host_traffic >= COPYING {
        let (busy, computing) = (busy * 100.0, computing * 100.0);
        let why = format!(
            "the GPU was busy {busy:.0} % of the time, running kernels {computing:.0} %, and moved {host_traffic:.1} GB/s over PCI \
             Express"
        );
        return likely(Cause::Copy, why);
    }
    if samples.covered_ns < SHORTEST {
        return cannot("the GPU was idle, but the launching thread was not sampled");
    }
    let share = |nanos: u64| nanos as f64 / samples.covered_ns as f64;
    let loading = share(samples.data_loading_ns);
    if loading >= REPRESENTATIVE_SHARE * idle {
        let why = format!("the launching thread was in its data loader {:.0} % of the time", loading * 100.0);
        return likely(Cause::DataLoading, format!("the GPU was idle {:.0} % of the time, and {why}", idle * 100.0));
    }
    let waits = CLEAR_WAITS.map(|(cause, words)| (share(samples.off_cpu_ns[cause as usize]), words));
    let longest = waits.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((share, words)) = longest.filter(|(share, _)| *share >= REPRESENTATIVE_SHARE * idle) {
        let why = format!("the launching thread was {words} {:.0} % of the time", share * 100.0);
        return likely(Cause::HostCpu, format!("the GPU was idle {:.0} % of the time, and {why}", idle * 100.0));
    }
    cannot("the launching thread was neither in a data loader nor in a wait of its own for most of the GPU's idle time")
}

/// Measured values: one sentence for each device and one for the thread.
fn evidence(utilization: &Utilization, samples: &SampleTotals) -> Vec<String> {
    let mut sentences: Vec<String> = utilization.devices.iter().take(4).map(device_sentence).collect();
    if let Some(absence) = utilization.absence {
        sentences.push(format!("The GPU's utilization was not read: {}.", absence.words()));
    }
    if samples.covered_ns > 0 {
        let percent = |nanos: u64| nanos as f64 / samples.covered_ns as f64 * 100.0;
        sentences.push(format!(
            "The launching thread was running {:.0} % of the time{} ({}).",
            percent(samples.on_cpu_ns),
            if samples.data_loading_ns > 0 {
                format!(", and in its data loader {:.0} %", percent(samples.data_loading_ns))
            } else {
                String::new()
            },
            counted(samples.samples, "sample")
        ));
    }
    sentences
}

pub(super) fn device_sentence(device: &DeviceUtilization) -> String {
    format!("GPU {}: {}.", device.device, gauge_words(device).join(", "))
}

/// Rates and counters in words, with the reason if one is absent.
fn gauge_words(device: &DeviceUtilization) -> Vec<String> {
    let mut words = Vec::new();
    let percent = |share: f64| share * 100.0;
    match device.busy.mean() {
        Some(busy) => words.push(format!("busy {:.0} % of {} (NVML)", percent(busy), duration(device.busy.over_ns))),
        None => words.push(format!("no utilization: {}", device.no_rates.unwrap_or(Absence::Unknown).words())),
    }
    if let Some(why) = device.no_counters {
        words.push(format!("no hardware counters: {}", why.words()));
        return words;
    }
    for (counter, name) in [
        (Counter::Active, "running kernels"),
        (Counter::Multiprocessors, "multiprocessors active"),
        (Counter::Occupancy, "warps resident"),
        (Counter::Tensor, "tensor pipes"),
        (Counter::DeviceMemory, "memory bandwidth"),
    ] {
        if let Some(share) = device.counter(counter) {
            words.push(format!("{name} {:.0} %", percent(share)));
        }
    }
    for (sent, received, name) in [
        (Counter::PcieSent, Counter::PcieReceived, "PCI Express"),
        (Counter::NvlinkSent, Counter::NvlinkReceived, "NVLink"),
    ] {
        let rates = device.counter(sent).zip(device.counter(received));
        if let Some((sent, received)) = rates.filter(|(sent, received)| sent.max(*received) >= LEAST_TRAFFIC) {
            words.push(format!("{name} {sent:.2} GB/s out, {received:.2} GB/s in"));
        }
    }
    words
}

/// The part of the live line about how device time divides.
pub(super) fn live_part(report: &Report) -> Option<String> {
    if let Some(time) = &report.monitored {
        let (low, high) = time.busy;
        return Some(format!(
            "GPU busy {}",
            if high - low < 0.03 { format!("{:.0} %", low.midpoint(high) * 100.0) } else { between(low, high) }
        ));
    }
    let utilization = &report.utilization;
    let mut part = format!("GPU busy {:.0} % (NVML)", utilization.busy()? * 100.0);
    if let Some(filled) = utilization.counter(Counter::Multiprocessors) {
        let _ = write!(part, ", multiprocessors {:.0} %", filled * 100.0);
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::DeviceId;
    use gpuwhy_trace::utilization::UtilizationReading;

    const RUN: u64 = 10_000_000_000;

    fn utilization(busy: f64, filled: Option<f64>) -> Utilization {
        let mut device = DeviceUtilization { device: DeviceId(0), ..DeviceUtilization::default() };
        device.busy.add(RUN, busy);
        match filled {
            Some(share) => device.counters[Counter::Multiprocessors as usize].add(RUN, share),
            None => device.no_counters = Some(Absence::NotSupported),
        }
        let mut utilization = Utilization::default();
        utilization.take(UtilizationReading::Device(device));
        utilization
    }

    fn samples(loading: f64, asleep: f64) -> SampleTotals {
        let part = |share: f64| (RUN as f64 * share) as u64;
        let mut off_cpu_ns = [0; HostCause::ALL.len()];
        off_cpu_ns[HostCause::Sleep as usize] = part(asleep);
        SampleTotals {
            samples: 1_000,
            covered_ns: RUN,
            data_loading_ns: part(loading),
            off_cpu_ns,
            ..SampleTotals::default()
        }
    }

    #[test]
    fn a_cause_is_named_only_where_utilization_and_looks_agree() {
        let cause = |utilization: &Utilization, samples: &SampleTotals| judged(utilization, samples).0;
        assert_eq!(cause(&utilization(0.34, Some(0.12)), &samples(0.61, 0.0)), Cause::DataLoading);
        assert_eq!(cause(&utilization(0.34, None), &samples(0.1, 0.5)), Cause::HostCpu);
        assert_eq!(
            cause(&utilization(0.34, None), &samples(0.1, 0.1)),
            Cause::CannotTell,
            "a busy thread may launch or wait"
        );
        assert_eq!(
            cause(&utilization(0.97, Some(0.8)), &samples(0.9, 0.0)),
            Cause::GpuCompute,
            "loading that costs nothing"
        );
        assert_eq!(cause(&utilization(0.97, Some(0.05)), &samples(0.0, 0.0)), Cause::CannotTell, "small kernels");
        assert_eq!(cause(&utilization(0.97, None), &samples(0.0, 0.0)), Cause::CannotTell);
        assert_eq!(
            cause(&Utilization::default(), &samples(0.9, 0.0)),
            Cause::CannotTell,
            "an idle device was not seen"
        );
        assert_eq!(cause(&utilization(0.2, None), &SampleTotals::default()), Cause::CannotTell, "nobody looked");
    }

    #[test]
    fn only_what_exists_is_to_be_opened() {
        let [none, one, two] = [0, 1, 2].map(|bursts| advice(bursts, RUN));
        assert_eq!(none, "Record the GPU work to see the cause and what it costs: gpuwhy run --mode light.");
        assert!(one.ends_with("gpuwhy report --capture 1 TRACE.") && two.contains("--capture 2"), "{one} {two}");
        assert!(advice(0, 60 * RUN).contains("--delay 60 --duration 10"));
    }

    #[test]
    fn copies_keep_a_device_busy_without_kernels() {
        let mut copying = utilization(1.0, Some(0.0));
        copying.devices[0].counters[Counter::Active as usize].add(RUN, 0.01);
        assert_eq!(
            judged(&copying, &samples(0.0, 0.0)).0,
            Cause::CannotTell,
            "the rate is coarse: launches may be short"
        );
        copying.devices[0].counters[Counter::PcieReceived as usize].add(RUN, 55.0);
        let (found, why) = judged(&copying, &samples(0.0, 0.0));
        assert_eq!(found, Cause::Copy, "{why}");
        assert!(why.contains("55.0 GB/s over PCI Express"), "{why}");
    }

    #[test]
    fn every_reason_is_said() {
        let (_, why) = judged(&utilization(0.34, None), &samples(0.61, 0.0));
        let text = [vec![why], evidence(&utilization(0.34, None), &samples(0.61, 0.0))].concat().join(" ");
        for wanted in [
            "Inferred from utilization",
            "idle 66 %",
            "61 %",
            "busy 34 % of 10.00 s (NVML)",
            "this device does not have it",
        ] {
            assert!(text.contains(wanted), "no {wanted:?} in {text}");
        }
    }

    #[test]
    fn readings_over_a_moment_are_no_evidence() {
        let mut short = utilization(0.1, None);
        short.devices[0].busy.over_ns = SHORTEST - 1;
        let (found, why) = judged(&short, &samples(0.9, 0.0));
        assert_eq!(found, Cause::CannotTell);
        assert!(why.contains("read over 2.50 s only"), "{why}");
    }
}
