//! Synthetic jobs of up to 10,000 ranks with known lateness, causes, waiting, and clock differences.

use gpuwhy_compare::ranks::{ExcessEvidence, RankRow, RankSummary, RanksReport};
use profiler_core::leaf::Leaf;

use crate::job::{GROUP, Job};

fn compared(job: &Job) -> RanksReport {
    let Ok(report) = RanksReport::compare(&job.summaries(), &mut { *job });
    report
}

/// Compares a job with its truth.
fn check(job: &Job) -> RanksReport {
    let (report, truth) = (compared(job), job.truth());
    assert_eq!((report.collectives, report.missing), (truth.collectives, 0), "{:?}", report.doubts);
    for (row, &wanted) in report.rows.iter().zip(&truth.waited) {
        // One percent, plus the scatter of the ends of collectives: a microsecond each.
        let slack = wanted / 100 + 2_000 * job.steps * (job.layers + 1);
        assert!(row.waited_ns.abs_diff(wanted) <= slack, "rank {} waited {}, not {wanted}", row.rank, row.waited_ns);
    }
    for clock in &report.clocks[1..] {
        let host: u32 = clock.host.trim_start_matches("node").parse().unwrap();
        let (ahead, drift) = job.clock(host);
        let error = clock.error_ns.unwrap() as i64;
        let off = clock.offset_ns.unwrap() + ahead;
        assert!(off.abs() <= error && error < 20_000, "off by {off}: {clock:?}");
        // At most a microsecond from one end of the run to the other.
        let wrong = (clock.drift_ppb as f64 * 1e-9 + drift).abs() * job.length() as f64;
        assert!(wrong <= 1_000.0, "{drift}, wrong by {wrong} ns: {clock:?}");
    }
    let straggler = report.straggler.as_ref().expect("somebody is late");
    assert_eq!(report.rows[straggler.row].rank, job.late, "{straggler:?}");
    assert!(straggler.share > 0.99, "{straggler:?}");
    let (leaf, more) = straggler.excess.unwrap();
    assert_eq!(leaf, job.leaf);
    let wanted = job.excess.unsigned_abs() * job.steps;
    assert!(more.abs_diff(wanted) <= wanted / 100 + job.excess.unsigned_abs(), "{more}, not {wanted}");
    let path = report.critical_path.as_ref().unwrap();
    assert_eq!(path.leaves.iter().sum::<u64>(), path.total_ns, "the path sums");
    let on_path = path.leaves[job.leaf as usize];
    assert!(on_path >= wanted / 10 * 9 - job.excess.unsigned_abs(), "{on_path} of {wanted}: {path:?}");
    assert!(report.text().lines().all(|line| line.chars().count() <= 100), "{}", report.text());
    report
}

fn job(ranks: u32) -> Job {
    let late = ranks / 3;
    let (compute, excess) = (400_000, 2_000_000);
    Job { ranks, steps: 40, layers: 4, compute, late, leaf: Leaf::Compute, excess, clocks: true }
}

#[test]
fn of_64_ranks_the_late_one_is_found_over_communicators() {
    let report = check(&job(64));
    assert_eq!(report.waits.len(), 64);
    // The ranks of its group are last in their data parallel groups because of this rank.
    let late = report.straggler.as_ref().unwrap().row;
    let group = late / GROUP as usize * GROUP as usize;
    let last: Vec<u64> = report.rows[group..][..GROUP as usize].iter().map(|row| row.last).collect();
    assert!(last.iter().all(|&last| last >= 40), "each is last in its data parallel group: {last:?}");
    let awaited: Vec<&RankRow> = report.rows.iter().filter(|row| row.awaited_ns > 10_000_000).collect();
    assert_eq!(awaited.len(), 1, "only one is late");
    let Some(ExcessEvidence::Kernel { name, counts, .. }) = &report.straggler.as_ref().unwrap().evidence else {
        panic!("{:?}", report.straggler);
    };
    assert_eq!((name.as_str(), *counts), ("gemm", (240, 200)));
    let path = report.critical_path.unwrap();
    assert!(path.without_excess_ns.unwrap() < path.total_ns * 2 / 3, "{path:?}");
    assert_eq!(path.ranks[0].0 as usize, late, "{path:?}");
}

#[test]
fn a_thousand_ranks_have_each_cause_that_is_planted() {
    for leaf in [Leaf::DataLoading, Leaf::HostBlocked] {
        let report = check(&Job { leaf, steps: 20, layers: 2, ..job(1_000) });
        let text = report.text();
        let first = text.lines().nth(2).unwrap();
        assert!(first.trim_start().starts_with("333 ") && text.contains("... 968 more"), "{text}");
        assert!(report.waits.is_empty() && report.rows.iter().all(|row| row.waited_for.len() <= 16));
    }
}

#[test]
fn ten_thousand_ranks_are_compared() {
    check(&Job { steps: 12, layers: 2, ..job(10_000) });
}

#[test]
fn lateness_below_the_error_of_the_clocks_is_not_reported() {
    let report = compared(&Job { excess: 100, ..job(64) });
    assert_eq!(report.straggler, None);
    assert!(report.too_close > 0 && report.doubts.iter().any(|doubt| doubt.contains("too close")), "{report:?}");
}

#[test]
fn ranks_without_a_trace_are_missing_and_not_guessed() {
    let job = job(64);
    let mut summaries = job.summaries();
    // One rank of the last group has no trace: its group is incomplete, and so is one data parallel group.
    summaries.pop();
    let Ok(report) = RanksReport::compare(&summaries, &mut { job });
    assert_eq!(report.missing, job.layers * job.steps + job.steps, "{:?}", report.doubts);
    assert!(report.doubts.iter().any(|doubt| doubt.contains("lack ranks")), "{:?}", report.doubts);
    assert!(report.doubts.iter().any(|doubt| doubt.contains("64 ranks and here are 63")), "{:?}", report.doubts);
    assert_eq!(report.rows[report.straggler.as_ref().unwrap().row].rank, job.late);
}

#[test]
fn traces_of_other_jobs_are_doubted() {
    let doubted = |change: &dyn Fn(&mut RankSummary)| {
        let mut job = job(64);
        let mut summaries = job.summaries();
        summaries.iter_mut().for_each(|rank| (rank.ran, rank.gpu) = ((10, 20), "H200".to_owned()));
        change(&mut summaries[7]);
        let Ok(report) = RanksReport::compare(&summaries, &mut job);
        report.doubts.iter().find(|doubt| doubt.contains("may not be of one job")).cloned()
    };
    assert_eq!(doubted(&|_| ()), None);
    // Traces without a start, or with a clock that is a little off.
    assert_eq!(doubted(&|rank| rank.ran = (0, 0)), None);
    assert_eq!(doubted(&|rank| rank.ran = (19, 29)), None);
    let why = |change: &dyn Fn(&mut RankSummary)| doubted(change).unwrap();
    assert!(why(&|rank| rank.ran = (30, 40)).contains("rank 7 ran at another time"));
    assert!(why(&|rank| rank.kernels[0].name = "conv".to_owned()).contains("kernels of rank 7 is one of another"));
    assert!(why(&|rank| rank.gpu = "V100".to_owned()).contains("the GPUs differ (H200, V100)"));
}

#[test]
fn only_steady_time_of_all_ranks_is_compared() {
    let job = Job { clocks: false, ..job(64) };
    let mut summaries = job.summaries();
    for summary in &mut summaries {
        // Steps 10 to 29, without 20, which is unusual.
        summary.steady = vec![job.steps_at(10, 20), job.steps_at(21, 30)];
        summary.steps = 19;
    }
    let Ok(report) = RanksReport::compare(&summaries, &mut { job });
    let straggler = report.straggler.unwrap();
    let (leaf, more) = straggler.excess.unwrap();
    assert_eq!((leaf, straggler.steps), (Leaf::Compute, 19));
    assert!(more.abs_diff(19 * job.excess.unsigned_abs()) < 50_000, "{more}");
    let path = report.critical_path.unwrap();
    let (from, to) = (job.steps_at(10, 11).0, job.steps_at(29, 30).1);
    assert!(path.total_ns <= (to - from).unsigned_abs() && path.total_ns > (to - from).unsigned_abs() / 10 * 9);
}
