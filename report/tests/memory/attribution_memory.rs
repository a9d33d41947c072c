//! Upper bound of the engine's memory, for a program that does everything that could increase it.
//!
//! The value stated in docs/design/attribution.md is measured here, not computed: an allocator counts the
//! live bytes. It counts for the complete binary, so this is its only test.

use std::sync::atomic::Ordering::Relaxed;

use crate::counting::{LIVE, PEAK};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;

/// The value in docs/design/attribution.md for a program like this one: the tables, three devices, 4,096
/// threads, and waiting records.
const MAX_BYTES: usize = 96 << 20;
/// Maximum growth in the last quarter: by then every table of this program is full.
const GROWTH: usize = 8 << 20;

const FLUSHES: u64 = 200;
const FLUSH: u64 = 100_000_000;
const LAUNCHES: u64 = 1_500;
const START: u64 = 1_790_000_000_000_000_000;
const THREADS: u64 = 48;
const STREAMS: u64 = 80;
const NAMES: u64 = 17_000;
const CONFIGS: u64 = 80_000;
const STACKS: u64 = 80_000;

/// A worst-case program: launches whose record never arrives, records whose launch never arrived, damaged
/// times, correlation ids far apart, graphs, short-lived threads, a device that is used once, and no
/// repetition.
struct Program {
    random: u64,
    correlation: u32,
    launches: u64,
    busy_until: Vec<u64>,
    functions: Vec<ApiFunctionId>,
    configs: Vec<LaunchConfigId>,
    stacks: Vec<StackId>,
    /// Records that arrive ten flushes late, with the flush.
    delayed: Vec<(u64, Record)>,
}

impl Program {
    fn new(dictionary: &mut Dictionary) -> Self {
        let names = [
            "cudaLaunchKernel_v7000",
            "cudaGraphLaunch_v10000",
            "cudaMemcpyAsync_v3020",
            "cudaDeviceSynchronize_v3020",
        ];
        let functions = names.into_iter().zip(0..).map(|(name, callback_id)| {
            let name = dictionary.intern_name(name);
            dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name })
        });
        let functions = functions.collect();
        let configs = (0..CONFIGS).map(|index| {
            let name = dictionary.intern_name(&format!("kernel_{}", index % NAMES));
            let grid = [1 + index as u32, 1, 1];
            dictionary.intern_launch_config(LaunchConfig { name, grid, ..LaunchConfig::default() })
        });
        let configs = configs.collect();
        let function = dictionary.intern_name("forward");
        let file = dictionary.intern_name("/home/u/train.py");
        let stacks = (0..STACKS as u32)
            .map(|line| dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: line + 1 }));
        let stacks = stacks.collect();
        let busy_until = vec![START; STREAMS as usize];
        Self {
            random: 1,
            correlation: 0,
            launches: 0,
            busy_until,
            functions,
            configs,
            stacks,
            delayed: Vec::with_capacity(1 << 16),
        }
    }

    /// A number below `limit` from an xorshift generator.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) % limit
    }

    fn flush(&mut self, flush: u64, records: &mut Vec<Record>) {
        let begin = START + flush * FLUSH;
        for index in 0..LAUNCHES {
            let at = begin + index * (FLUSH / LAUNCHES);
            self.launch(at, flush, records);
        }
        let due = self.delayed.iter().filter(|(due, _)| *due <= flush).map(|(_, record)| *record);
        records.extend(due);
        self.delayed.retain(|(due, _)| *due > flush);
    }

    fn launch(&mut self, at: u64, flush: u64, records: &mut Vec<Record>) {
        self.launches += 1;
        let strange = self.below(100);
        self.correlation = self.correlation.wrapping_add(if strange == 0 { 65_536 } else { 1 });
        let correlation = CorrelationId(self.correlation);
        // One in ten calls is the only one of its thread.
        let thread = if self.below(10) == 0 { 1_000 + self.launches } else { self.below(THREADS) };
        let what = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3][self.below(11) as usize];
        let end = if strange == 1 { u64::MAX / 2 } else { at + 2_000 + self.below(10_000) };
        if strange != 2 {
            records.push(Record::Api(ApiCall {
                start: Timestamp::from_nanos(at),
                end: Timestamp::from_nanos(end),
                thread: ThreadId(thread as u32 + 1),
                correlation,
                function: self.functions[what],
                return_value: 0,
            }));
        }
        if self.below(10) == 0 {
            let stack = self.below(STACKS) as usize;
            records.push(Record::Sample(HostSample {
                since: Timestamp::from_nanos(at),
                at: Timestamp::from_nanos(at + 1_000),
                thread: ThreadId(thread as u32 + 1),
                stack: self.stacks[stack],
                ..HostSample::default()
            }));
        }
        if strange == 3 || what == 3 {
            return; // Its record is lost.
        }
        let place = self.below(STREAMS) as usize;
        // Device 2 runs one operation and stays idle afterwards.
        let device = DeviceId(if self.launches == 1_000 { 2 } else { u32::from(place.is_multiple_of(4)) });
        for node in 0..if what == 1 { 20 } else { 1 } {
            let start = (at + 6_000).max(self.busy_until[place] + 500);
            let lasts = if strange == 4 { 3_000_000_000 } else { 10_000 + self.below(5_000) };
            let config = self.below(if device == DeviceId(0) { CONFIGS } else { 60 }) as usize;
            let kernel = Kernel {
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(start + lasts),
                device,
                stream: StreamId(place as u32),
                correlation,
                config: self.configs[config],
                graph_id: if what == 1 { 1 + self.launches as u32 % 100 } else { 0 },
                graph_node_id: node,
                ..Kernel::default()
            };
            // Later than any record is awaited.
            let due = flush + if strange == 5 { 30 } else { u64::from(strange < 10) * 10 };
            if strange != 4 {
                self.busy_until[place] = start + lasts;
            }
            if due > flush && self.delayed.len() < self.delayed.capacity() {
                self.delayed.push((due, Record::Kernel(kernel)));
            } else {
                records.push(Record::Kernel(kernel));
            }
        }
    }
}

#[test]
fn memory_stays_below_the_stated_limit() {
    let _alone = crate::counting::alone();
    let mut dictionary = Dictionary::new();
    let mut program = Program::new(&mut dictionary);
    let mut records = Vec::with_capacity(1 << 17);
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let held = || PEAK.load(Relaxed) - before;

    let mut attributor = Attributor::new();
    let (mut count, mut early) = (0, 0);
    for flush in 0..FLUSHES {
        records.clear();
        program.flush(flush, &mut records);
        assert!(records.len() < records.capacity(), "the test's own memory must not be counted");
        for record in &records {
            attributor.push(record, &dictionary);
        }
        attributor.step_mark(ThreadId(1), Timestamp::from_nanos(START + flush * FLUSH));
        attributor.flushed(Timestamp::from_nanos(START + (flush + 1) * FLUSH), &dictionary);
        count += records.len();
        if flush == FLUSHES * 3 / 4 {
            early = held();
        }
    }
    let run = held();
    attributor.finish(Timestamp::from_nanos(START + (FLUSHES + 40) * FLUSH), &dictionary);
    let whole = held();
    println!(
        "{count} records, at most {:.1} MiB held, {:.1} MiB of it in the first three quarters",
        mib(whole),
        mib(early)
    );

    let completeness = attributor.completeness();
    assert!(completeness.launches_without_activity > 1_000, "launches that never joined");
    assert!(completeness.activities_without_launch > 1_000, "records that never joined");
    assert!(completeness.bad_timestamps > 1_000, "damaged calls");
    assert!(completeness.late_ns > 0 && completeness.kernel_table_overflow > 0);
    assert!(attributor.launch_sample_counts().overflow > 1_000, "places beyond the table");
    assert!(count > 1_000_000 && attributor.devices().count() == 3);
    assert!(whole < MAX_BYTES, "{:.1} MiB", mib(whole));
    assert!(run < early + GROWTH, "{:.1} MiB after {:.1} MiB", mib(run), mib(early));
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
