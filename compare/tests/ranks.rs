//! Comparison of ranks: programs with known, synthetic waiting.

use gpuwhy_compare::ranks::{Collectives, ExcessEvidence, RanksReport};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::collective::Function;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Kernel, LaunchConfig, Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::collective::{Basis, Collective};
use profiler_core::leaf::Leaf;

use crate::kept_rows;

const BEGIN: u64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;
const ALL_REDUCE: &str = "_Z52ncclDevKernel_AllReduce_Sum_f32_RING_LL_simulatedi";

/// Records of one rank.
struct Rank {
    session: ProcessInfo,
    dictionary: Dictionary,
    kernels: Vec<Kernel>,
}

impl Rank {
    fn new(host: &str) -> Self {
        let session = ProcessInfo { host: host.to_owned(), ..ProcessInfo::default() };
        Self { session, dictionary: Dictionary::new(), kernels: Vec::new() }
    }

    fn run(&mut self, name: &str, start: u64, end: u64) {
        let name = self.dictionary.intern_name(name);
        let config = self.dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
        let [start, end] = [start, end].map(Timestamp::from_nanos);
        self.kernels.push(Kernel { start, end, config, ..Kernel::default() });
    }

    fn name_of(&self, kernel: &Kernel) -> &str {
        self.dictionary.name(self.dictionary.launch_config(kernel.config).name)
    }

    fn traced(&self) -> (Report, Collectives) {
        let (mut captures, mut collectives) = (Captures::new(None), Collectives::default());
        captures.options.segments = true;
        for kernel in &self.kernels {
            captures.event(&Event::Record(Record::Kernel(*kernel)), &self.session, &self.dictionary);
            collectives.push(kernel, &self.dictionary);
        }
        let at = self.kernels.last().map_or(Timestamp::ZERO, |kernel| kernel.end);
        captures.finish(at, &self.session, &self.dictionary);
        collectives.segments(&captures.take(Attributor::take_segments));
        (captures.report(&self.session, &self.dictionary, End::Clean, Vec::new()), collectives)
    }
}

fn compared(ranks: &[Rank]) -> RanksReport {
    let traced: Vec<_> = ranks.iter().map(Rank::traced).collect();
    kept_rows::compared(traced.iter().map(|(report, collectives)| (report, collectives)))
}

/// A step of a job: each rank computes for its time in `compute`, all reduce together for 0.2 ms, then all
/// continue at once. The clock of a rank is ahead by `clocks`.
fn job(ranks: &mut [Rank], compute: &[u64], clocks: &[u64], steps: u64) {
    let longest = compute.iter().max().unwrap();
    for step in 0..steps {
        let begin = BEGIN + step * (longest + MS / 5 + MS / 10);
        for (place, (rank, &compute)) in ranks.iter_mut().zip(compute).enumerate() {
            // Ranks do not leave a collective in the same nanosecond.
            let jitter = (step * 7 + place as u64 * 3) % 5 * 400;
            let ready = begin + compute + clocks[place];
            rank.run("compute", begin + clocks[place], ready);
            rank.run(ALL_REDUCE, ready, begin + longest + MS / 5 + clocks[place] + jitter);
        }
    }
}

#[test]
fn the_slow_rank_is_the_straggler_and_its_excess_is_what_it_did() {
    let mut ranks = [Rank::new("a"), Rank::new("a"), Rank::new("a")];
    job(&mut ranks, &[MS, 3 * MS / 2, MS], &[0; 3], 100);
    let report = compared(&ranks);
    assert_eq!(report.collectives, 100);
    let waited: Vec<u64> = report.rows.iter().map(|row| row.waited_ns).collect();
    assert_eq!(waited, [50 * MS, 0, 50 * MS]);
    assert_eq!(report.waits[0], [0, 50 * MS, 0]);
    let gone: Vec<u64> = report.rows.iter().map(|row| row.window_ns - row.without_waiting_ns()).collect();
    assert_eq!(gone, waited, "nothing else ran meanwhile");
    assert!(
        report.text().contains("up to about 1.38x faster if it never waited"),
        "180 ms become 130 ms: {}",
        report.text()
    );
    let straggler = report.straggler.clone().unwrap();
    assert_eq!((straggler.row, straggler.share), (1, 1.0));
    let (leaf, more) = straggler.excess.unwrap();
    assert_eq!(
        (leaf, more),
        (Leaf::Compute, 99 * MS / 2),
        "half a millisecond in each step after the first collective"
    );
    assert_eq!(straggler.role, 2, "{straggler:?}");
    let path = report.critical_path.clone().unwrap();
    assert_eq!(path.leaves.iter().sum::<u64>(), path.total_ns);
    assert!(path.leaves[Leaf::Compute as usize] > path.total_ns / 2 && path.ranks[0].0 == 1, "{path:?}");
    assert_eq!((report.rows[1].last, report.rows[1].late_ns), (100, MS / 2));
    assert!(report.doubts.is_empty(), "{:?}", report.doubts);
    assert!(report.text().lines().all(|line| line.chars().count() <= 100), "{}", report.text());
}

#[test]
fn the_clock_of_another_host_is_found_from_the_ends() {
    const AHEAD: u64 = 3_200_000;
    let mut ranks = [Rank::new("a"), Rank::new("b")];
    job(&mut ranks, &[2 * MS, MS], &[0, AHEAD], 200);
    let report = compared(&ranks);
    let clock = &report.clocks[1];
    let offset = clock.offset_ns.unwrap();
    assert!((offset + AHEAD as i64).abs() <= 2_000, "{offset}");
    assert!(clock.scatter_ns.unwrap()[1] <= 4_000, "{clock:?}");
    assert_eq!(report.shifts(), [0, offset]);
    let straggler = report.straggler.clone().unwrap();
    assert_eq!((straggler.row, report.rows[1].last), (0, 0));
    assert!(report.rows[1].waited_ns.abs_diff(200 * MS) < MS, "{}", report.rows[1].waited_ns);
}

#[test]
fn groups_of_ranks_are_not_taken_for_all() {
    let mut ranks = ["a"; 4].map(Rank::new);
    let (first, second) = ranks.split_at_mut(2);
    job(first, &[MS, 2 * MS], &[0; 2], 100);
    // The other group reduces equally often, among its own ranks, at other times.
    job(second, &[5 * MS, 6 * MS], &[MS / 2; 2], 100);
    let report = compared(&ranks);
    assert_eq!((report.collectives, report.straggler), (0, None));
    assert!(report.rows.iter().all(|row| row.waited_ns == 0));
    assert!(report.doubts.iter().any(|doubt| doubt.contains("100 collectives do not overlap")), "{:?}", report.doubts);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let mut ranks = [Rank::new("a"), Rank::new("b")];
    job(&mut ranks, &[MS, MS], &[0; 2], 20);
    ranks[0].run(ALL_REDUCE, BEGIN + 100 * MS, BEGIN + 101 * MS);
    ranks[1].run("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", BEGIN + 100 * MS, BEGIN + 101 * MS);
    ranks[0].session.rank_variables =
        vec![("RANK".to_owned(), "0".to_owned()), ("WORLD_SIZE".to_owned(), "8".to_owned())];
    let report = compared(&ranks);
    assert_eq!((report.collectives, report.clocks[1].offset_ns, report.world_size), (0, None, Some(8)));
    for wanted in ["different hosts", "8 ranks and here are 2", "42 kernels that communicate", "no collective"] {
        assert!(report.doubts.iter().any(|doubt| doubt.contains(wanted)), "{wanted}: {:?}", report.doubts);
    }
}

#[test]
fn ranks_that_come_together_have_no_straggler() {
    let mut ranks = ["a"; 4].map(Rank::new);
    job(&mut ranks, &[MS, MS + 10_000, MS, MS], &[0; 4], 100);
    let report = compared(&ranks);
    assert_eq!((report.collectives, report.straggler), (100, None), "0.01 ms of 0.2 ms: {:?}", report.rows);
}

#[test]
fn one_host_without_a_name_has_one_clock() {
    let mut ranks = [Rank::new(""), Rank::new("")];
    job(&mut ranks, &[MS, MS], &[0; 2], 20);
    let text = compared(&ranks).text();
    assert!(text.contains("\nclock: one clock for all"), "{text}");
}

/// Two ranks; one multiplies one more matrix in each step, and did other work once, long before. The work at
/// its start is not the reason why the other one waits.
#[test]
fn more_work_in_each_step_is_reported_as_computation_whatever_happened_at_the_start() {
    let mut ranks = [Rank::new("a"), Rank::new("a")];
    for rank in &mut ranks {
        rank.run("warm_up", BEGIN - 4_000 * MS, BEGIN - 3_999 * MS);
    }
    // Rank 1 does something for three seconds while rank 0 computes.
    for step in 0..1_500 {
        ranks[0].run("prepare", BEGIN - 3_900 * MS + step * 2 * MS, BEGIN - 3_900 * MS + step * 2 * MS + 2 * MS);
    }
    for step in 0..200 {
        let begin = BEGIN + step * 4 * MS;
        for (place, rank) in ranks.iter_mut().enumerate() {
            let mut at = begin;
            for _ in 0..3 + place as u64 {
                rank.run("ampere_sgemm", at, at + MS / 2);
                at += MS / 2;
            }
            rank.run(ALL_REDUCE, at, begin + 3 * MS);
            rank.run("optimizer", begin + 3 * MS, begin + 4 * MS - 3_000);
        }
    }
    let report = compared(&ranks);
    let whole = |leaf: Leaf| report.rows[1].leaves[leaf as usize] - report.rows[0].leaves[leaf as usize];
    assert!(whole(Leaf::Unobserved) > 2_900 * MS, "the whole window says something else: {:?}", report.rows);
    let straggler = report.straggler.as_ref().unwrap();
    assert_eq!((straggler.row, straggler.tenths), (1, (10, 10)));
    let (leaf, more) = straggler.excess.unwrap();
    assert_eq!((leaf, more), (Leaf::Compute, 199 * MS / 2), "{straggler:?}");
    let Some(ExcessEvidence::Kernel { name, counts, .. }) = &straggler.evidence else { panic!("{straggler:?}") };
    assert_eq!((name.as_str(), *counts), ("ampere_sgemm", (800, 600)));
    let text = report.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("More work: ampere_sgemm ran 800 times against 600"), "{text}");
    assert!(text.contains("100 % of all waiting (1.0 % of the ranks' time) is for it"), "{text}");
}

/// Groups named by the communication library are not treated as all ranks, and each is assessed separately.
#[test]
fn named_groups_are_compared_by_themselves() {
    let mut ranks = ["a"; 4].map(Rank::new);
    let (first, second) = ranks.split_at_mut(2);
    job(first, &[MS, 2 * MS], &[0; 2], 100);
    job(second, &[5 * MS, 6 * MS], &[MS / 2; 2], 100);
    let traced: Vec<_> = (0..)
        .zip(&ranks)
        .map(|(place, rank): (u64, _)| {
            let (report, mut collectives) = rank.traced();
            let kernels = rank.kernels.iter().filter(|kernel| rank.name_of(kernel) == ALL_REDUCE);
            for (ordinal, kernel) in (0..).zip(kernels) {
                collectives.operation(&Collective {
                    communicator: 70 + place / 2,
                    ranks: 2,
                    function: Function::AllReduce,
                    sequence: Some(ordinal),
                    ordinal,
                    start: kernel.start,
                    end: kernel.end,
                    basis: Basis::Plugin,
                    ..Collective::default()
                });
            }
            (report, collectives)
        })
        .collect();
    let report = kept_rows::compared(traced.iter().map(|(report, collectives)| (report, collectives)));
    assert_eq!((report.basis, report.collectives, report.missing), (Basis::Plugin, 200, 0), "{:?}", report.doubts);
    let waited: Vec<u64> = report.rows.iter().map(|row| row.waited_ns).collect();
    assert_eq!(waited, [100 * MS, 0, 100 * MS, 0]);
    assert_eq!(report.straggler, None, "each causes a half");
    assert!(report.doubts.is_empty(), "{:?}", report.doubts);
}
