//! Paragraph about the memory of a device.

use gpuwhy_trace::record::Timestamp;

use crate::run::memory_owners;
use crate::run::{GrowthPerStep, JumpOfMemory, MemoryOfDevice, MemoryReport, Report};
use crate::state::MemoryState;
use crate::text_format::{Page, bytes, counted, duration, percent, printable, shortened, wrapped};
use crate::words;

use super::memory_blocks;
use super::serving::two_digits;

/// A jump is told if it is at least this part of the peak.
const LARGE_JUMP: f64 = 0.5;
/// Least part of the memory for a percentage.
const MUCH: f64 = 0.5;
/// Least part of the run that allocating calls take to be told.
const SLOW_CALLS: f64 = 0.01;
/// Ten readings: the remainder is then called unchanged.
const UNCHANGED_NANOS: u64 = 1_000_000_000;

/// Appends a paragraph for each of the first `most` devices, the fullest first.
pub(super) fn write(out: &mut Page, report: &Report, most: usize) {
    let Some(memory) = &report.memory else { return };
    let mut devices: Vec<_> = memory.devices.iter().collect();
    devices.sort_by_key(|of| std::cmp::Reverse(of.peak_used_bytes.max(of.held_peak_bytes)));
    for (index, of) in devices.into_iter().take(most).enumerate() {
        let device = report.devices.iter().find(|device| device.device.id == of.device);
        let noun = device.map_or("step", |device| device.step_meaning.noun());
        let mut sentences = of.sentences(report.process.start, report.observed_ns, noun);
        let looks = memory.pytorch.as_ref();
        sentences.extend(memory_blocks::sentences(of.blocks.as_ref(), looks.filter(|_| index == 0)));
        if index == 0 {
            sentences.extend(memory.sentences(report.observed_ns));
        }
        let several = memory.devices.len() > 1;
        let device = if several { format!("GPU {}: ", of.device) } else { String::new() };
        wrapped(out, "Memory: ", &(device + &sentences.join(" ")));
    }
}

impl MemoryState {
    /// `mem 61/80 GB +3.1 MB/step`.
    pub fn text(&self) -> String {
        let [used, total] = [Some(self.used_bytes), self.total_bytes].map(|bytes| bytes.unwrap_or(0) as f64 / 1e9);
        let total = if total > 0.0 { format!("/{total:.0}") } else { String::new() };
        let growth = self.growth_bytes.map(|each| format!(" +{}/step", bytes(each as u64))).unwrap_or_default();
        format!("mem {used:.0}{total} GB{growth}")
    }
}

impl MemoryReport {
    /// Sentences about the process.
    fn sentences(&self, observed_ns: u64) -> Vec<String> {
        let mut all = Vec::new();
        let failed = self.calls.iter().filter(|row| row.failed > 0);
        let failed: Vec<_> =
            failed.map(|row| counted(row.failed, &format!("{} call", printable(&row.function)))).collect();
        if !failed.is_empty() {
            let retried: u64 = self.devices.iter().filter_map(|of| of.retried).fold(0, u64::saturating_add);
            let retried = match retried {
                0 => String::new(),
                count => format!("; {count} succeeded when repeated, as after emptying a cache"),
            };
            all.push(format!("{} failed for lack of memory{retried}.", failed.join(", ")));
        }
        if self.calls_ns as f64 >= SLOW_CALLS * observed_ns as f64 && self.calls_ns > 0 {
            let rows = self.calls.iter().filter(|row| row.total_ns > 0).take(2);
            let calls: Vec<_> = rows.map(|row| format!("{} {}", row.calls, printable(&row.function))).collect();
            let none = if failed.is_empty() { "; none failed" } else { "" };
            all.push(format!("{} took {}{none}.", calls.join(", "), duration(self.calls_ns)));
        }
        if self.unknown_releases > 0 {
            let releases = counted(self.unknown_releases, "release");
            all.push(format!("{releases} of memory that was allocated before recording."));
        }
        if self.table_overflow > 0 {
            all.push(format!("{} not tracked: too many at once.", counted(self.table_overflow, "allocation")));
        }
        all
    }
}

impl MemoryOfDevice {
    /// Sentences about this device.
    fn sentences(&self, start: Timestamp, observed_ns: u64, noun: &str) -> Vec<String> {
        let mut all = Vec::new();
        let until = start.nanos().saturating_add(observed_ns);
        all.extend(self.peak_sentence(start, until, noun));
        let peak = self.peak_used_bytes.unwrap_or_default() as f64;
        let jump = self.jump.as_ref().filter(|jump| jump.bytes as f64 >= LARGE_JUMP * peak);
        all.extend(jump.map(|jump| jump.sentence(start, self.allocations.is_some_and(|count| count > 0))));
        let parts: Vec<_> = [self.held_part(), self.remainder_part(start, until)].into_iter().flatten().collect();
        if !parts.is_empty() {
            all.push(words::capitalized(&parts.join("; ")) + ".");
        }
        all.extend(memory_owners::sentence(&self.owners));
        match self.growth_per_step {
            // PyTorch's is told, with its line.
            _ if self.blocks.as_ref().is_some_and(|blocks| blocks.growth.is_some()) => {}
            Some(growth) => all.push(growth.sentence(noun)),
            None if self.growth_judged => {
                let noun = noun.trim_start_matches("repeating ");
                all.push(format!("This program's memory does not grow with its {noun}s."));
            }
            None => {}
        }
        all
    }

    /// `until`: end of the run, nanoseconds.
    fn peak_sentence(&self, start: Timestamp, until: u64, noun: &str) -> Option<String> {
        let peak = self.peak_used_bytes?;
        let of = self.total_bytes.map_or_else(
            || amount(peak),
            |total| {
                let share = match peak as f64 / total as f64 {
                    // NVML counts what the driver reserves, which the device's size lacks.
                    all if all > 1.0 => return format!("{}, all of the device,", amount(peak)),
                    much if much >= MUCH => format!(" ({})", percent(much)),
                    _ => String::new(),
                };
                format!("{} of {}{share}", amount(peak).trim_end_matches(" GB"), amount(total))
            },
        );
        let at = after(self.peak_unix_ns?, start);
        let is_last = self.peak_unix_ns.is_some_and(|at| at.nanos().saturating_add(UNCHANGED_NANOS) > until);
        let when = match (self.peak_until_end, self.peak_step) {
            (Some(true), _) if is_last => "at the end".to_owned(),
            (Some(true), _) => format!("from {at} after the start to the end"),
            (_, Some(step)) => format!("{at} after the start, in {noun} {step}"),
            _ => format!("{at} after the start"),
        };
        let others = self.other_processes_bytes.filter(|&bytes| bytes > 0);
        let others = others.map(|bytes| format!("; other processes hold {}", amount(bytes))).unwrap_or_default();
        Some(format!("{of} at the peak, {when}{others}."))
    }

    fn held_part(&self) -> Option<String> {
        let (count, held, peak) = (self.allocations?, self.held_bytes?, self.held_peak_bytes?);
        let released = self.releases?;
        let peak = if peak > held { format!(", at most {}", amount(peak)) } else { String::new() };
        let pools = self.pool_peak_bytes.filter(|&bytes| bytes > 0);
        let pools = pools.map(|bytes| format!("; pools hold at most {}", amount(bytes))).unwrap_or_default();
        let live = count.saturating_sub(released);
        let verb = if live == 1 { "holds" } else { "hold" };
        let released = match released {
            0 => "none was released".to_owned(),
            1 => "1 other was released".to_owned(),
            count => format!("{count} others were released"),
        };
        Some(format!("{} {verb} {}{peak} ({released}){pools}", counted(live, "allocation"), amount(held)))
    }

    fn remainder_part(&self, start: Timestamp, until: u64) -> Option<String> {
        let bytes = amount(self.remainder_bytes.filter(|_| self.owners.is_empty())?);
        let others = self.other_processes_bytes.is_some_and(|bytes| bytes > 0);
        let what = if others { "driver, context, code and other processes" } else { "driver, context and code" };
        let since = self.remainder_since_unix_ns.filter(|since| since.nanos().saturating_add(UNCHANGED_NANOS) <= until);
        let since = since.map(|since| format!(", unchanged since {}", after(since, start))).unwrap_or_default();
        Some(format!("{what} {bytes}{since}"))
    }
}

impl JumpOfMemory {
    /// `allocated`: calls that allocate were recorded.
    fn sentence(&self, start: Timestamp, allocated: bool) -> String {
        let bytes = amount(self.bytes);
        let near = self.near.as_ref().map(|near| {
            // Its allocator takes most of the device at the first operation.
            let pool = ["/jax/", "jaxlib"].iter().any(|part| near.file.contains(part));
            let pool = if pool { ", as XLA's pool does (XLA_CLIENT_MEM_FRACTION)" } else { "" };
            let file = near.file.rsplit('/').next().unwrap_or_default();
            format!(" near {file}:{} ({}){pool}", near.line, shortened(&near.function, 40))
        });
        let near = near.unwrap_or_default();
        if let Some(longest) = &self.longest {
            let at = after(longest.unix_ns, start);
            return format!("{bytes} came {at} after the start, with one {}{near}.", printable(&longest.function));
        }
        let [from, to] = [self.from_unix_ns, self.to_unix_ns].map(|at| after(at, start));
        let from = from.trim_end_matches(" s");
        let mut calls: Vec<_> = self.calls.iter().map(|(function, &calls)| (calls, function)).collect();
        calls.sort_unstable_by(|a, b| b.cmp(a));
        let calls =
            calls.iter().take(2).map(|(calls, function)| counted(*calls, &format!("{} call", printable(function))));
        let how = match calls.collect::<Vec<_>>().join(" and ") {
            none if none.is_empty() && allocated => ", without a call of this program: another process took it, or \
                                                     the driver, for code or local memory of kernels"
                .to_owned(),
            none if none.is_empty() => none,
            calls => format!(", with {calls}{near}"),
        };
        let when = if from == to.trim_end_matches(" s") { to } else { format!("{from} to {to}") };
        format!("{bytes} came {when} after the start{how}.")
    }
}

impl GrowthPerStep {
    fn sentence(&self, noun: &str) -> String {
        let [each, low, high] = [self.bytes, self.low, self.high].map(|value| bytes(value as u64));
        let low = match (low.split_once(' '), high.split_once(' ')) {
            (Some((number, unit)), Some((_, other))) if unit == other => number.to_owned(),
            _ => low,
        };
        let full = self
            .steps_until_full
            .map(|steps| format!(": full in about {} {noun}s", two_digits(steps as f64)))
            .unwrap_or_default();
        format!("Memory grows by {each} a {noun} ({low} to {high}){full}.")
    }
}

/// Bytes with three or four significant digits.
pub(super) fn amount(count: u64) -> String {
    match count as f64 / 1e9 {
        little if little < 0.999_95 => bytes(count),
        gigabytes if gigabytes < 9.995 => format!("{gigabytes:.2} GB"),
        gigabytes => format!("{gigabytes:.1} GB"),
    }
}

/// A time after the start, as exact as readings are: ten a second.
fn after(at: Timestamp, start: Timestamp) -> String {
    match at.since(start) as f64 / 1e9 {
        early if early < 0.995 => format!("{early:.2} s"),
        late => format!("{late:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::DeviceId;

    use super::*;
    use crate::run::{LineNear, LongestCall, MemoryCallRow};

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(START.nanos() + millis * 1_000_000)
    }

    fn read(peak: u64, millis: u64, until_end: bool) -> MemoryOfDevice {
        MemoryOfDevice {
            device: DeviceId(0),
            total_bytes: Some(150_109_880_320),
            peak_used_bytes: Some(peak),
            peak_unix_ns: Some(at(millis)),
            peak_until_end: Some(until_end),
            ..MemoryOfDevice::default()
        }
    }

    fn text(of: &MemoryOfDevice) -> String {
        of.sentences(START, 6_000_000_000, "step").join(" ")
    }

    #[test]
    fn the_peak_is_told_with_its_time_and_what_others_hold() {
        let mut of = read(2_665_349_120, 2_640, true);
        assert_eq!(text(&of), "2.67 of 150.1 GB at the peak, from 2.6 s after the start to the end.");
        (of.peak_until_end, of.peak_step, of.other_processes_bytes) = (Some(false), Some(7), Some(400_000_000));
        let expected = "2.67 of 150.1 GB at the peak, 2.6 s after the start, in step 7; other processes hold 400.0 MB.";
        assert_eq!(text(&of), expected);
        (of.total_bytes, of.peak_step, of.other_processes_bytes) = (None, None, Some(0));
        assert_eq!(text(&of), "2.67 GB at the peak, 2.6 s after the start.");
        let much = [132_659_412_992, 150_200_000_000].map(|bytes| text(&read(bytes, 510, false)));
        assert_eq!(much[0], "132.7 of 150.1 GB (88 %) at the peak, 0.51 s after the start.");
        assert_eq!(much[1], "150.2 GB, all of the device, at the peak, 0.51 s after the start.");
        assert_eq!(text(&MemoryOfDevice::default()), "", "what is unknown is left out");
    }

    #[test]
    fn only_a_large_jump_is_told_with_its_calls_and_the_line_near_them() {
        let line = |file: &str, function: &str| {
            Some(LineNear { file: file.to_owned(), function: function.to_owned(), line: 258 })
        };
        let mut jump = JumpOfMemory {
            bytes: 129_400_569_856,
            from_unix_ns: at(403),
            to_unix_ns: at(511),
            calls: [("cudaMalloc".to_owned(), 38)].into(),
            longest: None,
            near: line("/site-packages/transformers/cache.py", "PagedAttentionCache.__init__"),
        };
        let mut of = MemoryOfDevice { jump: Some(jump.clone()), ..read(132_659_412_992, 5_200, false) };
        let expected = "129.4 GB came 0.40 to 0.51 s after the start, with 38 cudaMalloc calls near cache.py:258 \
                        (PagedAttentionCache.__init__).";
        assert!(text(&of).ends_with(expected), "{}", text(&of));
        jump.calls = [("cuMemCreate".to_owned(), 1), ("cudaMalloc".to_owned(), 4)].into();
        jump.longest = Some(LongestCall { function: "cuMemCreate".to_owned(), unix_ns: at(711) });
        jump.near = line("/site-packages/jax/_src/interpreters/pxla.py", "batched_device_put");
        of.jump = Some(jump.clone());
        let expected = "came 0.71 s after the start, with one cuMemCreate near pxla.py:258 (batched_device_put), as XLA's pool does \
                        (XLA_CLIENT_MEM_FRACTION).";
        assert!(text(&of).ends_with(expected), "{}", text(&of));
        of.jump = Some(JumpOfMemory { bytes: 66_000_000_000, ..jump.clone() });
        assert!(!text(&of).contains("came"), "less than half");
        of.jump = Some(JumpOfMemory { calls: [].into(), longest: None, near: None, ..jump });
        assert!(text(&of).ends_with(" after the start."), "no calls were recorded: {}", text(&of));
        of.allocations = Some(7);
        let expected = "after the start, without a call of this program: another process took it, or the driver, \
                        for code or local memory of kernels.";
        assert!(text(&of).ends_with(expected), "{}", text(&of));
    }

    #[test]
    fn recorded_allocations_and_the_remainder_are_told_if_they_are_known() {
        let mut of = MemoryOfDevice {
            allocations: Some(76),
            releases: Some(0),
            held_bytes: Some(1_338_297_864),
            held_peak_bytes: Some(1_338_297_864),
            remainder_bytes: Some(1_327_051_256),
            remainder_since_unix_ns: Some(at(1_624)),
            ..MemoryOfDevice::default()
        };
        let expected = "76 allocations hold 1.34 GB (none was released); driver, context and code 1.33 GB, unchanged \
                        since 1.6 s.";
        assert_eq!(text(&of), expected);
        (of.allocations, of.releases, of.held_bytes) = (Some(1), Some(1), Some(0));
        (of.remainder_since_unix_ns, of.other_processes_bytes) = (Some(at(5_500)), Some(1));
        of.pool_peak_bytes = Some(50_331_648);
        let expected = "0 allocations hold 0 B, at most 1.34 GB (1 other was released); pools hold at most 50.3 MB; driver, \
                        context, code and other processes 1.33 GB.";
        assert_eq!(text(&of), expected);
        of.held_bytes = None;
        assert_eq!(text(&of), "Driver, context, code and other processes 1.33 GB.", "calls have no size");
    }

    #[test]
    fn growth_is_told_with_its_interval_and_none_only_if_that_was_judged() {
        let growth = GrowthPerStep { bytes: 3.1e6, low: 2.9e6, high: 3.4e6, steps_until_full: Some(1_913) };
        let mut of = MemoryOfDevice { growth_per_step: Some(growth), growth_judged: true, ..MemoryOfDevice::default() };
        assert_eq!(text(&of), "Memory grows by 3.1 MB a step (2.9 to 3.4 MB): full in about 1900 steps.");
        of.growth_per_step = Some(GrowthPerStep { low: 0.9e6, steps_until_full: None, ..growth });
        assert_eq!(text(&of), "Memory grows by 3.1 MB a step (900.0 kB to 3.4 MB).");
        of.growth_per_step = None;
        assert_eq!(text(&of), "This program's memory does not grow with its steps.");
        of.growth_judged = false;
        assert_eq!(text(&of), "");
    }

    #[test]
    fn failed_calls_and_slow_ones_are_told() {
        let row = |function: &str, calls, failed, total_ns| MemoryCallRow {
            function: function.to_owned(),
            calls,
            failed,
            total_ns,
        };
        let retried = |retried| vec![MemoryOfDevice { retried, ..MemoryOfDevice::default() }];
        let calls = vec![row("cudaMalloc", 113, 0, 50_000_000), row("cudaFree", 76, 0, 30_000_000)];
        let mut memory =
            MemoryReport { calls_ns: 80_000_000, calls, devices: retried(Some(0)), ..MemoryReport::default() };
        let told = |memory: &MemoryReport, observed_ns| memory.sentences(observed_ns).join(" ");
        assert_eq!(told(&memory, 5_000_000_000), "113 cudaMalloc, 76 cudaFree took 80.0 ms; none failed.");
        assert_eq!(told(&memory, 9_000_000_000), "", "less than 1 % of the run");
        (memory.calls[0].failed, memory.devices) = (2, retried(Some(1)));
        let expected = "2 cudaMalloc calls failed for lack of memory; 1 succeeded when repeated, \
                        as after emptying a cache.";
        assert_eq!(told(&memory, 9_000_000_000), expected);
        memory.devices = retried(None);
        assert_eq!(told(&memory, 9_000_000_000), "2 cudaMalloc calls failed for lack of memory.");
    }

    #[test]
    fn a_display_has_room_for_what_is_in_use_and_growth() {
        let mut of =
            MemoryState { used_bytes: 61_200_000_000, total_bytes: Some(80_000_000_000), ..MemoryState::default() };
        assert_eq!(of.text(), "mem 61/80 GB");
        (of.total_bytes, of.growth_bytes) = (None, Some(3.1e6));
        assert_eq!(of.text(), "mem 61 GB +3.1 MB/step");
    }
}
