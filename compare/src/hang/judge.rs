//! Diagnosis of a hang from the reports of the ranks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CommunicatorState, Culprit, HangKind, HangReport, Outstanding, RankReport, RunAnswers, WaitingCommunicator,
};

/// Minimum age of a suspicious operation, nanoseconds: checkpoints and evaluations of one rank take this
/// long. PyTorch's own watchdog waits 600 s.
pub const SUSPECT_NANOS: u64 = 30_000_000_000;
const CULPRITS: usize = 64;
/// Maximum number of ranks of a job; a rank's reply is not trusted to be valid.
const LARGEST_JOB: u32 = 1 << 20;

/// A rank's view of a communicator.
struct View<'a> {
    rank_report: &'a RankReport,
    state: &'a CommunicatorState,
}

impl View<'_> {
    fn operation(&self, number: u64) -> Option<&Outstanding> {
        self.state.outstanding.iter().find(|operation| operation.number == number)
    }

    fn has_queued(&self, number: u64) -> bool {
        self.state.queued > number || self.operation(number).is_some()
    }
}

/// Finds the causes of a hang from the ranks' reports.
pub fn judge(rank_reports: &[RankReport]) -> HangReport {
    let mut runs: BTreeMap<&str, Vec<&RankReport>> = BTreeMap::new();
    for rank_report in rank_reports {
        runs.entry(&rank_report.run).or_default().push(rank_report);
    }
    let mut report = HangReport::default();
    for (run, rank_reports) in runs {
        judge_run(run, &rank_reports, &mut report);
    }
    report.findings.sort_by_key(|finding| (finding.is_passed_on, finding.kind, std::cmp::Reverse(finding.age_ns)));
    let young = |finding: &WaitingCommunicator| finding.age_ns.is_some_and(|age| age < SUSPECT_NANOS);
    if !report.findings.is_empty() && report.findings.iter().all(young) {
        report.doubts.push(
            "No operation is older than 30 s: the job may go on by itself. Ask again, and compare the numbers."
                .to_owned(),
        );
    }
    if report.findings.iter().any(|finding| finding.age_ns.is_none()) {
        report.doubts.push("Not all responses contain the age of waiting operations.".to_owned());
    }
    report
}

fn judge_run(run: &str, rank_reports: &[&RankReport], report: &mut HangReport) {
    let mut communicators: BTreeMap<&str, Vec<View<'_>>> = BTreeMap::new();
    for &rank_report in rank_reports {
        for state in &rank_report.communicators {
            communicators.entry(&state.id).or_default().push(View { rank_report, state });
        }
    }
    let ranks: BTreeSet<u32> = rank_reports.iter().map(|rank_report| rank_report.rank).collect();
    if ranks.len() < rank_reports.len() {
        let of_run = if run.is_empty() { String::new() } else { format!(" of run {run}") };
        report.doubts.push(format!(
            "Several responses{of_run} have the same rank: they may belong to several jobs or attempts. Pass the responses of one job."
        ));
    }
    let absent = absent(rank_reports, &ranks);
    let mut findings: Vec<WaitingCommunicator> =
        communicators.iter().filter_map(|(id, views)| finding(run, id, views, &absent)).collect();
    pass_on(&mut findings);
    findings.iter_mut().for_each(|finding| finding.culprits.truncate(CULPRITS));
    report.findings.append(&mut findings);
    let is_without = |of: &&&RankReport| of.communicators.is_empty() && of.world_size != 1;
    let without = rank_reports.iter().filter(is_without);
    let without_collectives: BTreeSet<u32> = without.map(|rank_report| rank_report.rank).collect();
    report.runs.push(RunAnswers {
        run: run.to_owned(),
        ranks: ranks.len() as u32,
        silent: absent,
        without_collectives: without_collectives.into_iter().collect(),
    });
}

/// Ranks of the job without a report. If the job's size is unknown, those that must exist because there are
/// higher ranks or larger communicators.
fn absent(rank_reports: &[&RankReport], ranks: &BTreeSet<u32>) -> Vec<u32> {
    let of_communicators =
        rank_reports.iter().flat_map(|rank_report| &rank_report.communicators).map(|state| state.size);
    let said = rank_reports.iter().map(|rank_report| rank_report.world_size).chain(of_communicators).max().unwrap_or(0);
    let highest = ranks.last().map_or(0, |rank| rank.saturating_add(1));
    (0..said.max(highest).min(LARGEST_JOB)).filter(|rank| !ranks.contains(rank)).collect()
}

/// Problem of a communicator; `None` when no rank waits in it. `absent`: ranks of the job without a report.
fn finding(run: &str, id: &str, views: &[View<'_>], absent: &[u32]) -> Option<WaitingCommunicator> {
    let number = first_mismatch(views).or_else(|| never_queued(views)).or_else(|| first_outstanding(views))?;
    let of_number: Vec<(&View<'_>, &Outstanding)> =
        views.iter().filter_map(|view| Some((view, view.operation(number)?))).collect();
    // Replies list only the oldest operations; a later one is as young as the last in the list, or younger.
    let waiting = views.iter().filter(|view| !view.state.outstanding.is_empty() && view.has_queued(number));
    let near = |view: &View<'_>| view.operation(number).or(view.state.outstanding.last()).and_then(|near| near.age_ns);
    let age_ns = waiting.clone().filter_map(near).max();
    let function = most(of_number.iter().map(|(_, operation)| operation.function.as_str()));
    let (kind, culprits) = reason(number, views, &of_number, absent);
    let late: BTreeSet<u32> = culprits.iter().map(|culprit| culprit.rank).collect();
    let ranks = waiting.map(|view| view.rank_report.rank);
    Some(WaitingCommunicator {
        run: run.to_owned(),
        communicator: id.to_owned(),
        name: views.iter().map(|view| view.state.name.as_str()).find(|name| !name.is_empty()).unwrap_or("").to_owned(),
        number,
        function,
        age_ns,
        waiting: ranks.filter(|rank| kind != HangKind::NeverCame || !late.contains(rank)).collect(),
        kind,
        culprits,
        is_passed_on: false,
    })
}

/// First operation that some rank has not finished.
fn first_outstanding(views: &[View<'_>]) -> Option<u64> {
    views.iter().filter_map(|view| view.state.outstanding.first()).map(|first| first.number).min()
}

/// First operation that some rank waits in and another rank, which waits for no operation here, has not
/// queued.
fn never_queued(views: &[View<'_>]) -> Option<u64> {
    let (idle, waiting): (Vec<_>, Vec<_>) = views.iter().partition(|view| view.state.outstanding.is_empty());
    let number = idle.iter().map(|view| view.state.queued).min()?;
    waiting.iter().any(|view| view.has_queued(number)).then_some(number)
}

/// First operation that ranks queued differently.
fn first_mismatch(views: &[View<'_>]) -> Option<u64> {
    let mut known: BTreeMap<u64, &Outstanding> = BTreeMap::new();
    let mut first = None;
    for operation in views.iter().flat_map(|view| &view.state.outstanding) {
        let other = known.entry(operation.number).or_insert(operation);
        if differs(other, operation) && first.is_none_or(|first| operation.number < first) {
            first = Some(operation.number);
        }
    }
    first
}

fn reason(
    number: u64,
    views: &[View<'_>],
    of_number: &[(&View<'_>, &Outstanding)],
    absent: &[u32],
) -> (HangKind, Vec<Culprit>) {
    // A rank that waits for an earlier operation here is not absent from the communicator.
    let away = views.iter().filter(|view| !view.has_queued(number) && view.state.outstanding.is_empty());
    let away: Vec<Culprit> = away.map(|view| culprit(view, None)).collect();
    let common = most(of_number.iter().map(|(_, operation)| described(operation)));
    // Values that one rank does not know are not a difference.
    let differ = of_number.iter().filter(|(_, operation)| {
        of_number.iter().any(|(_, other)| differs(operation, other)) && described(operation) != common
    });
    let differ: Vec<Culprit> = differ.map(|(view, operation)| culprit(view, Some(operation))).collect();
    if !differ.is_empty() {
        return (HangKind::Mismatch, differ);
    }
    if !away.is_empty() {
        return (HangKind::NeverCame, away);
    }
    let silent = silent(views, absent);
    let size = views.iter().map(|view| view.state.size).max().unwrap_or(0) as usize;
    if !silent.is_empty() || size > views.len() {
        return (HangKind::Silent, silent);
    }
    let idle = of_number.iter().filter(|(_, operation)| operation.runs == Some(false));
    let idle: Vec<Culprit> = idle.map(|(view, operation)| culprit(view, Some(operation))).collect();
    if idle.is_empty() { (HangKind::Running, Vec::new()) } else { (HangKind::NotRunning, idle) }
}

/// Ranks of the communicator without a report. If its members are unknown, those of the job, if as many are
/// missing here as in the job.
fn silent(views: &[View<'_>], absent: &[u32]) -> Vec<Culprit> {
    let known: BTreeSet<u32> = views.iter().map(|view| view.rank_report.rank).collect();
    let mut members: BTreeSet<u32> = views.iter().flat_map(|view| &view.state.ranks).copied().collect();
    let size = views.iter().map(|view| view.state.size).max().unwrap_or(0) as usize;
    if members.is_empty() && size.checked_sub(known.len()) == Some(absent.len()) {
        members.extend(absent);
    }
    members.difference(&known).map(|&rank| Culprit { rank, ..Culprit::default() }).collect()
}

fn culprit(view: &View<'_>, operation: Option<&Outstanding>) -> Culprit {
    Culprit {
        rank: view.rank_report.rank,
        place: view.rank_report.place.clone(),
        line: operation.and_then(|operation| operation.line.clone()).or_else(|| view.rank_report.line.clone()),
        queued: operation.map(described),
        waits_in: None,
    }
}

fn described(operation: &Outstanding) -> String {
    let parts = [&operation.function, &operation.elements, &operation.data_type];
    let known: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    known.join(" ")
}

fn differs(a: &Outstanding, b: &Outstanding) -> bool {
    let unequal = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
    // All-to-all and similar functions may differ in size between ranks.
    let same_size =
        ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"].contains(&a.function.as_str());
    unequal(&a.function, &b.function)
        || unequal(&a.data_type, &b.data_type)
        || (same_size && unequal(&a.elements, &b.elements))
}

/// The most frequent text; the first of several.
fn most<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text.as_ref().to_owned()).or_default() += 1);
    let most =
        counts.into_iter().max_by_key(|(text, count)| (*count, !text.is_empty(), std::cmp::Reverse(text.clone())));
    most.map(|(text, _)| text).unwrap_or_default()
}

/// Finds culprits that wait in another communicator themselves, and sorts them after those that do not.
fn pass_on(findings: &mut [WaitingCommunicator]) {
    let mut waits: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, finding) in findings.iter().enumerate() {
        for &rank in &finding.waiting {
            waits.entry(rank).or_default().push(place);
        }
    }
    let late: Vec<BTreeSet<u32>> =
        findings.iter().map(|finding| finding.culprits.iter().map(|culprit| culprit.rank).collect()).collect();
    let names: Vec<String> = findings
        .iter()
        .map(|finding| if finding.name.is_empty() { finding.communicator.clone() } else { finding.name.clone() })
        .collect();
    for (place, finding) in findings.iter_mut().enumerate().filter(|(_, finding)| finding.kind == HangKind::NeverCame) {
        let mut others: BTreeSet<usize> = BTreeSet::new();
        for culprit in &mut finding.culprits {
            let other = waits.get(&culprit.rank).and_then(|places| places.iter().find(|&&other| other != place));
            culprit.waits_in = other.map(|&other| names[other].clone());
            others.extend(other);
        }
        let is_explained =
            |culprit: &Culprit| culprit.waits_in.is_some() || others.iter().any(|&of| late[of].contains(&culprit.rank));
        finding.is_passed_on = !others.is_empty() && finding.culprits.iter().all(is_explained);
        finding.culprits.sort_by_key(|culprit| culprit.waits_in.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(number: u64, function: &str, elements: &str, runs: Option<bool>) -> Outstanding {
        Outstanding {
            number,
            function: function.to_owned(),
            elements: elements.to_owned(),
            data_type: "float32".to_owned(),
            runs,
            age_ns: Some(60_000_000_000),
            line: None,
        }
    }

    fn state(id: &str, ranks: &[u32], queued: u64, outstanding: Vec<Outstanding>) -> CommunicatorState {
        let finished = outstanding.first().map_or(queued, |first| first.number);
        let size = ranks.len() as u32;
        let (id, name, ranks) = (id.to_owned(), format!("group {id}"), ranks.to_vec());
        CommunicatorState { id, name, ranks, size, queued, finished, outstanding }
    }

    fn rank_report(rank: u32, communicators: Vec<CommunicatorState>) -> RankReport {
        let (place, line) = (format!("node{rank}"), Some(format!("train.py:{} step", rank + 10)));
        RankReport { rank, place, line, communicators, ..RankReport::default() }
    }

    const ALL: &[u32] = &[0, 1, 2, 3];

    #[test]
    fn ranks_without_communicators_are_not_called_healthy() {
        let report =
            judge(&[RankReport { rank: 0, ..RankReport::default() }, RankReport { rank: 1, ..RankReport::default() }]);
        assert_eq!(report.runs[0].without_collectives, [0, 1]);
        assert!(report.runs[0].has_no_collective());
        let text = report.text();
        assert!(text.contains("no collective of these is known") && text.contains("gpuwhy run --nccl"), "{text}");
        // One process has no collectives to wait in.
        let alone = judge(&[RankReport { world_size: 1, ..RankReport::default() }]);
        assert!(!alone.runs[0].has_no_collective() && !alone.text().contains("not known"), "{}", alone.text());
    }

    #[test]
    fn the_rank_that_never_came_is_named_with_its_line() {
        let waits =
            |rank| rank_report(rank, vec![state("a", ALL, 8, vec![operation(7, "all_reduce", "100", Some(true))])]);
        let report = judge(&[waits(0), waits(1), rank_report(2, vec![state("a", ALL, 7, Vec::new())]), waits(3)]);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((finding.kind, finding.number, &finding.waiting[..]), (HangKind::NeverCame, 7, &[0, 1, 3][..]));
        assert_eq!(finding.culprits.len(), 1);
        assert_eq!((finding.culprits[0].rank, finding.culprits[0].line.as_deref()), (2, Some("train.py:12 step")));
        assert!(!finding.is_passed_on && report.doubts.is_empty(), "{report:?}");
        let text = report.text();
        assert!(text.contains("rank 2") && text.contains("train.py:12 step"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn records_that_come_late_do_not_hide_the_rank_that_never_came() {
        // Kernels 4 to 6 are done, and CUPTI holds back their records because of the running one.
        let waits = |rank| {
            let queued = (4..9).map(|number| operation(number, "all_reduce", "100", None)).collect();
            rank_report(rank, vec![state("a", ALL, 9, queued)])
        };
        let report = judge(&[waits(0), waits(1), rank_report(2, vec![state("a", ALL, 7, Vec::new())]), waits(3)]);
        assert_eq!((report.findings[0].kind, report.findings[0].number), (HangKind::NeverCame, 7));
        // A rank that has queued fewer operations and waits itself is not absent.
        let behind = rank_report(2, vec![state("a", ALL, 7, vec![operation(6, "all_reduce", "100", None)])]);
        let report = judge(&[waits(0), waits(1), behind, waits(3)]);
        assert_eq!((report.findings[0].kind, report.findings[0].number), (HangKind::Running, 4));
    }

    #[test]
    fn a_rank_that_waits_elsewhere_is_not_the_reason() {
        // 0 and 1 wait for 2, which waits in another communicator for 3, which has no report.
        let a = |rank| rank_report(rank, vec![state("a", &[0, 1, 2], 5, vec![operation(4, "all_reduce", "8", None)])]);
        let two = vec![
            state("a", &[0, 1, 2], 4, Vec::new()),
            state("b", &[2, 3], 2, vec![operation(1, "all_gather", "8", None)]),
        ];
        let report =
            judge(&[a(0), a(1), rank_report(2, two), rank_report(3, vec![state("b", &[2, 3], 1, Vec::new())])]);
        let ids: Vec<_> =
            report.findings.iter().map(|finding| (&finding.communicator[..], finding.is_passed_on)).collect();
        assert_eq!(ids, [("b", false), ("a", true)]);
        assert_eq!(report.findings[0].culprits[0].rank, 3);
        assert_eq!(report.findings[1].culprits[0].waits_in.as_deref(), Some("group b"));
    }

    /// Groups of 8 for tensor parallelism, one group of all for gradients.
    fn in_groups(rank: u32, tensors: u64, gradients: u64) -> RankReport {
        let group = rank / 8;
        let of = |id: &str, size, queued, waits| {
            let outstanding = if waits { vec![operation(9, "all_reduce", "8", None)] } else { Vec::new() };
            CommunicatorState { size, ..state(id, &[], queued, outstanding) }
        };
        let dp = of("dp", 64, gradients, gradients == 10);
        // Ranks report the size of a communicator, not its members.
        let tp = of(&format!("tp{group}"), 8, tensors, group == 2 && tensors == 10);
        RankReport { world_size: 64, ..rank_report(rank, vec![dp, tp]) }
    }

    fn ranks(finding: &WaitingCommunicator) -> Vec<u32> {
        finding.culprits.iter().map(|culprit| culprit.rank).collect()
    }

    #[test]
    fn with_tensor_and_data_parallelism_the_true_culprit_comes_first() {
        let all = (0..64).map(|rank| match rank {
            21 => in_groups(rank, 9, 9),
            16..24 => in_groups(rank, 10, 9),
            _ => in_groups(rank, 10, 10),
        });
        let report = judge(&all.collect::<Vec<_>>());
        let [first, second] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((&first.communicator[..], first.is_passed_on, &ranks(first)[..]), ("tp2", false, &[21][..]));
        assert_eq!((&second.communicator[..], second.is_passed_on), ("dp", true));
        assert_eq!(ranks(second), [21, 16, 17, 18, 19, 20, 22, 23]);
        let text = report.text();
        assert!(text.find("hang: communicator group tp2") < text.find("follows: communicator group dp"), "{text}");
    }

    #[test]
    fn a_rank_that_is_gone_is_named_though_nobody_says_who_the_members_are() {
        let all = (0..64).filter(|&rank| rank != 21).map(|rank| match rank {
            16..24 => in_groups(rank, 10, 9),
            _ => in_groups(rank, 10, 10),
        });
        let report = judge(&all.collect::<Vec<_>>());
        let [first, second] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((&first.communicator[..], first.kind, &ranks(first)[..]), ("tp2", HangKind::Silent, &[21][..]));
        assert_eq!((&second.communicator[..], second.is_passed_on), ("dp", true));
        assert_eq!(report.runs[0].silent, [21]);
        assert!(report.text().contains("ranks: 63 of 64, no response from 21;"), "{}", report.text());
        // Any size of the job that a reply may contain.
        let odd = RankReport { rank: u32::MAX, world_size: u32::MAX, ..rank_report(0, Vec::new()) };
        assert_eq!(judge(&[odd]).runs[0].silent.len(), LARGEST_JOB as usize);
    }

    #[test]
    fn runs_are_judged_apart() {
        let of = |run: &str, rank, waits: bool| {
            let outstanding = if waits { vec![operation(7, "all_reduce", "8", None)] } else { Vec::new() };
            let (queued, run) = (if waits { 8 } else { 7 }, run.to_owned());
            RankReport { run, ..rank_report(rank, vec![state("0", &[0, 1], queued, outstanding)]) }
        };
        let report = judge(&[of("a", 0, false), of("a", 1, false), of("b", 0, true), of("b", 1, false)]);
        assert!(report.doubts.is_empty(), "{report:?}");
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((&finding.run[..], &ranks(finding)[..]), ("b", &[1][..]));
        let text = report.text();
        assert!(text.contains("run a, ranks: 2; none waits") && text.contains("hang: run b: communicator"), "{text}");
    }

    #[test]
    fn other_functions_sizes_and_types_are_a_mismatch() {
        let of = |rank, what: Outstanding| rank_report(rank, vec![state("a", ALL, 8, vec![what])]);
        let usual = || operation(7, "all_reduce", "100", Some(true));
        let byte = Outstanding { data_type: "int8".to_owned(), ..usual() };
        for odd in [operation(7, "all_gather", "100", None), operation(7, "all_reduce", "99", None), byte] {
            let report = judge(&[of(0, usual()), of(1, odd.clone()), of(2, usual()), of(3, usual())]);
            assert_eq!(report.findings[0].kind, HangKind::Mismatch, "{odd:?}");
            assert_eq!(report.findings[0].culprits.iter().map(|one| one.rank).collect::<Vec<_>>(), [1], "{odd:?}");
        }
        // Missing values are not a difference, and sizes of all-to-all may differ.
        let unsaid = Outstanding { elements: String::new(), data_type: String::new(), ..usual() };
        let report = judge(&[of(0, usual()), of(1, unsaid), of(2, usual()), of(3, usual())]);
        assert_eq!(report.findings[0].kind, HangKind::Running);
        let part = |elements| operation(7, "all_to_all", elements, Some(true));
        let report = judge(&[of(0, part("1")), of(1, part("2")), of(2, part("3")), of(3, part("4"))]);
        assert_eq!(report.findings[0].kind, HangKind::Running);
    }

    #[test]
    fn kernels_that_do_not_run_and_ranks_that_say_nothing_are_distinguished() {
        let of = |rank, runs| rank_report(rank, vec![state("a", ALL, 8, vec![operation(7, "all_reduce", "1", runs)])]);
        let report = judge(&[of(0, Some(true)), of(1, Some(false)), of(2, Some(true)), of(3, None)]);
        assert_eq!((report.findings[0].kind, report.findings[0].culprits[0].rank), (HangKind::NotRunning, 1));
        let report = judge(&[of(0, Some(true)), of(2, Some(true)), of(3, Some(true))]);
        assert_eq!((report.findings[0].kind, report.findings[0].culprits[0].rank), (HangKind::Silent, 1));
        let report = judge(&[of(0, Some(true)), of(1, Some(true)), of(2, Some(true)), of(3, Some(true))]);
        assert_eq!((report.findings[0].kind, report.findings[0].culprits.len()), (HangKind::Running, 0));
    }

    #[test]
    fn who_waits_for_nothing_does_not_hang_and_young_operations_are_no_proof() {
        let idle = |rank| rank_report(rank, vec![state("a", ALL, 8, Vec::new())]);
        assert_eq!(judge(&[idle(0), idle(1)]).findings, []);
        assert!(judge(&[]).text().contains("no rank"), "{}", judge(&[]).text());
        let young = Outstanding { age_ns: Some(1_000_000_000), ..operation(7, "all_reduce", "1", None) };
        let report = judge(&[rank_report(0, vec![state("a", &[0, 1], 8, vec![young])]), idle(0)]);
        assert!(report.doubts.iter().any(|doubt| doubt.contains("30 s")), "{report:?}");
        assert!(report.doubts.iter().any(|doubt| doubt.contains("same rank")), "{report:?}");
    }
}
