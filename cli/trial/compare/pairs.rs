//! Tries the remedies one after another, interleaved with runs of the unchanged program, and keeps what helps.

use std::time::Duration;

use anyhow::Result;
use gpuwhy_report::run::Results;

use super::gain::Gain;
use super::output::{Compared, compare};
use crate::trial::change::Change;
use crate::trial::change::candidates::Candidate;
use crate::trial::change::edits::Edit;
use crate::trial::runs::measured::{Ended, Measured, Program};
use crate::trial::runs::recorded::{Kind, are_alike};
use crate::trial::runs::steps::{median, of_same_steps, trend};

/// Pairs of runs after which a remedy that does nothing is given up, and fewest for one that helps. An interval that is
/// narrow enough ends it then, otherwise the largest number or the time.
const FIRST_PAIRS: usize = 3;
const FEWEST_PAIRS: usize = 5;

/// Width of the interval of what recording costs when no more pairs are needed: a hundredth of the time.
const NARROW_COST: f64 = 0.01;
/// Relative difference of the times of later and of earlier steps from which on a step takes longer and longer.
const GROWING: f64 = 0.05;
/// Why two runs are not compared.
const OTHER_STEPS: &str = "the engine finds other steps with it (--step RANGE names one of the program's ranges)";
const NO_STEPS: &str = "one of both has no such steps, and not all runs came to their end (--budget)";
const BEHIND: &str = "the GPU was far behind at the end of a run, and not all runs came to their end (--budget)";

/// What the gain is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// A step; all runs did the same number of them, or the change leaves what a step does as it is.
    Step,
    /// A step, of runs that did not do the same number: a gain if a step does the same work with the change.
    StepOfPart,
    /// A step, from the end of the first one to the end of the program: the GPU was far behind the last one.
    ToEnd,
    /// All of the work, in this number of steps without the change and with it.
    All(usize, usize),
    /// Whole runs with their start-up: with the change or without, the program has no such steps.
    Run,
}

/// What to try, and how much.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most pairs of runs for each remedy.
    pub pairs: usize,
    /// Time for everything.
    pub budget: Duration,
    /// What a remedy may do to the results.
    pub allowed: Vec<Results>,
}

/// What came of a remedy.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It helps; later ones build on it.
    Helps,
    /// No difference can be seen.
    NoDifference,
    /// Steps take longer.
    Slower,
    /// It helps, but changes the results more than allowed.
    ChangesResults,
    /// It found nothing to change, for this reason.
    NotApplicable(String),
    /// The program fails with it: the last line on stderr.
    Fails(String),
    /// Its runs have no time, for this reason.
    Unmeasured(String),
    /// Its kind was not allowed.
    NotAllowed,
    /// There was no time for it, for this reason.
    NoTime(String),
}

/// A remedy with what was measured.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The remedy.
    pub candidate: Candidate,
    /// What came of it.
    pub outcome: Outcome,
    /// Time without and with it, seconds, of what `basis` says.
    pub seconds: Option<(f64, f64)>,
    /// What the gain is of.
    pub basis: Basis,
    /// Its gain, on top of those before it.
    pub gain: Option<Gain>,
    /// Number of pairs of runs.
    pub pairs: usize,
    /// Gain of all that helped up to it.
    pub in_all: f64,
    /// Comparison of the output.
    pub compared: Option<Compared>,
    /// What keeps it in the user's code.
    pub edits: Vec<Edit>,
    /// Why the times say nothing; there is no gain then.
    pub doubt: Option<&'static str>,
    /// What is to be known of a gain.
    pub note: Option<&'static str>,
}

impl Limits {
    /// Pairs of runs without which a remedy is not tried.
    pub fn first_pairs(&self) -> usize {
        self.pairs.min(FIRST_PAIRS)
    }

    /// True if these pairs are enough, as far as the gain is concerned.
    fn are_enough(&self, pairs: usize, gain: Gain, is_recording: bool) -> bool {
        let is_narrow = if is_recording { gain.high - gain.low <= NARROW_COST } else { gain.is_narrow() };
        pairs >= self.pairs.min(FEWEST_PAIRS) && is_narrow
            || !is_recording && pairs >= self.first_pairs() && gain.is_hopeless()
    }
}

impl Tried {
    /// True if it was tried: the program ran with it, and it found something to change.
    pub fn has_run(&self) -> bool {
        !matches!(self.outcome, Outcome::NotAllowed | Outcome::NoTime(_) | Outcome::NotApplicable(_))
    }

    /// True if its runs have a time, or the program fails with it.
    pub fn is_measured(&self) -> bool {
        self.has_run() && !matches!(self.outcome, Outcome::Unmeasured(_))
    }

    pub fn without_runs(candidate: &Candidate, outcome: Outcome, in_all: f64) -> Self {
        let (candidate, basis, edits) = (candidate.clone(), Basis::Step, Vec::new());
        let (seconds, gain, compared, doubt, note) = Default::default();
        Self { candidate, outcome, seconds, basis, gain, pairs: 0, in_all, compared, edits, doubt, note }
    }
}

/// Tries `candidates` in their order, and calls `told` after each, with the unchanged runs of the first one.
///
/// # Errors
/// As [`Program::run`], when the unchanged program gives no time, and when `told` fails.
pub fn try_all<P: Program>(
    program: &mut P,
    candidates: &[Candidate],
    limits: &Limits,
    mut told: impl FnMut(&P, &[Measured], &Tried) -> Result<()>,
) -> Result<Vec<Tried>> {
    let (allowed, others) = candidates.iter().partition::<Vec<_>, _>(|one| one.is_tried(&limits.allowed));
    let mut all = Vec::new();
    // A run of the present state that no pair has used.
    let mut spare = None;
    if !allowed.is_empty() {
        match program.run(&[])? {
            Ended::Measured(first) => spare = Some(*first),
            other => return Err(program.refused(other).into()),
        }
    }
    let mut kept = Vec::<Change>::new();
    let (mut in_all, mut longest) = (1.0, spare.as_ref().map_or(Duration::ZERO, |first| first.wall));
    let mut is_first = true;
    for (at, candidate) in allowed.iter().chain(&others).enumerate() {
        let runs = u32::try_from(2 * limits.first_pairs() - usize::from(spare.is_some())).unwrap_or(u32::MAX);
        let without_runs = if at >= allowed.len() {
            Some(Outcome::NotAllowed)
        } else if !program.can_apply(&candidate.change) {
            Some(not_applicable(candidate))
        } else {
            (program.elapsed() + longest.saturating_mul(runs) > limits.budget).then(|| {
                let took = longest.as_secs_f64();
                Outcome::NoTime(format!("a run takes {took:.0} s, and there is no time for {runs} more (--budget)"))
            })
        };
        let mut unchanged = Vec::new();
        let tried = if let Some(outcome) = without_runs {
            Tried::without_runs(candidate, outcome, in_all)
        } else {
            let left = u32::try_from(allowed.len() - at).unwrap_or(u32::MAX);
            let until = program.elapsed() + limits.budget.saturating_sub(program.elapsed()) / left;
            let pairs = Pairs::take(program, candidate, &kept, &mut spare, limits, until)?;
            longest = pairs.longest().max(longest);
            let tried = pairs.judged(candidate, in_all, limits);
            if std::mem::take(&mut is_first) {
                unchanged = pairs.unchanged;
            }
            tried
        };
        if tried.outcome == Outcome::Helps && candidate.change.recording().is_none() {
            kept.push(candidate.change.clone());
            in_all = tried.in_all;
            spare = None;
        }
        let tried = Tried { in_all, ..tried };
        told(program, &unchanged, &tried)?;
        all.push(tried);
    }
    Ok(all)
}

fn not_applicable(candidate: &Candidate) -> Outcome {
    let why = match &candidate.change {
        Change::Remedy(trial) => trial.needs,
        Change::Own(_) => "the environment has these values already",
        Change::Recording(_) => "nothing was recorded, so that it has no cost",
    };
    Outcome::NotApplicable(why.to_owned())
}

/// Runs of one remedy.
#[derive(Default)]
struct Pairs {
    /// True if a step may do other work with the change.
    is_own: bool,
    unchanged: Vec<Measured>,
    changed: Vec<Measured>,
    ended: Option<Outcome>,
}

impl Pairs {
    /// Runs pairs until their gain is known. Those beyond [`FEWEST_PAIRS`] must end before `until`, those beyond the
    /// first within the budget.
    fn take(
        program: &mut impl Program,
        candidate: &Candidate,
        kept: &[Change],
        spare: &mut Option<Measured>,
        limits: &Limits,
        until: Duration,
    ) -> Result<Self> {
        let with: Vec<_> = kept.iter().chain([&candidate.change]).cloned().collect();
        let is_own = candidate.change.own().is_some();
        let is_recording = candidate.change.recording().is_some();
        let mut pairs = Self { is_own, ..Self::default() };
        'pairs: for pair in 0..limits.pairs {
            let end = if pair < FEWEST_PAIRS { limits.budget } else { until };
            if pair >= limits.first_pairs() && program.elapsed() + 2 * pairs.longest() > end {
                break;
            }
            // A host that becomes slower or faster meanwhile does so for both: without, with, with, without.
            for is_changed in [pair % 2 == 1, pair % 2 == 0] {
                let run = match spare.take() {
                    Some(run) => Ended::Measured(Box::new(run)),
                    None => program.run(if is_changed { &with } else { kept })?,
                };
                if is_changed
                    && let Ended::Measured(run) = &run
                    && !run.applied.iter().any(|id| id == candidate.change.id())
                {
                    pairs.ended = Some(not_applicable(candidate));
                    break 'pairs;
                }
                if !pairs.add(run, is_changed) {
                    break 'pairs;
                }
            }
            let is_pointless = pairs.doubt().is_some() && pair + 1 >= limits.first_pairs();
            if is_pointless || pairs.gain().is_some_and(|gain| limits.are_enough(pair + 1, gain, is_recording)) {
                break;
            }
        }
        // Time that ends amid a further pair leaves those before it.
        if matches!(pairs.ended, Some(Outcome::NoTime(_))) && pairs.complete() >= limits.first_pairs() {
            pairs.ended = None;
        }
        if pairs.ended.is_some() && pairs.changed.is_empty() {
            // Nothing was compared with this run.
            *spare = pairs.unchanged.last().cloned();
        }
        Ok(pairs)
    }

    /// Adds a run; false if it gave no time.
    fn add(&mut self, ended: Ended, is_changed: bool) -> bool {
        let outcome = match ended {
            Ended::Measured(run) => {
                if is_changed { &mut self.changed } else { &mut self.unchanged }.push(*run);
                return true;
            }
            Ended::OutOfTime(_) => {
                let which = if is_changed { "with" } else { "without" };
                Outcome::NoTime(format!("the time was up in a run {which} it (--budget)"))
            }
            Ended::NotApplicable(why) => Outcome::NotApplicable(why),
            Ended::Failed(code, words) => {
                let words = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
                let words = if words.is_empty() { format!("exit code {code}") } else { words };
                Outcome::Fails(if is_changed { words } else { format!("it failed without it now: {words}") })
            }
            Ended::TooFewSteps(steps, _) => {
                let with = if is_changed { "with it" } else { "without it now" };
                Outcome::Unmeasured(format!("a run {with} made {steps} such steps, too few to measure"))
            }
        };
        self.ended = Some(outcome);
        false
    }

    /// Time of the longest run.
    fn longest(&self) -> Duration {
        self.unchanged.iter().chain(&self.changed).map(|run| run.wall).max().unwrap_or_default()
    }

    /// Number of pairs that are complete.
    fn complete(&self) -> usize {
        self.unchanged.len().min(self.changed.len())
    }

    /// The runs of complete pairs.
    fn runs(&self) -> [&[Measured]; 2] {
        [&self.unchanged, &self.changed].map(|runs| &runs[..self.complete()])
    }

    /// What their times are compared by. Fails with the reason if steps differ and not all of the work is known.
    fn basis(&self) -> Result<Basis, &'static str> {
        let basis = self.basis_of_steps()?;
        let is_step = matches!(basis, Basis::Step | Basis::StepOfPart);
        let mut both = self.runs().into_iter().flatten();
        // The GPU worked long after the last step.
        if is_step && both.clone().any(|run| run.is_behind) {
            return both.all(|run| run.to_end.is_some()).then_some(Basis::ToEnd).ok_or(BEHIND);
        }
        let is_part = is_step && self.is_growing() && self.pairs().any(|pair| same_steps(pair).is_none());
        Ok(if is_part { Basis::StepOfPart } else { basis })
    }

    /// True if a step takes longer and longer, or the opposite, in most runs without or with the change.
    fn is_growing(&self) -> bool {
        self.runs().into_iter().any(|runs| {
            let trends = runs.iter().filter_map(|run| trend(run.times.get(run.from..)?));
            median(&trends.collect::<Vec<_>>()).is_some_and(|trend| (trend - 1.0).abs() > GROWING)
        })
    }

    fn pairs(&self) -> impl Iterator<Item = [&Measured; 2]> {
        self.unchanged.iter().zip(&self.changed).map(|(before, after)| [before, after])
    }

    fn basis_of_steps(&self) -> Result<Basis, &'static str> {
        let [unchanged, changed] = self.runs();
        let (Some(before), Some(after)) = (unchanged.first(), changed.first()) else { return Ok(Basis::Step) };
        let both = || unchanged.iter().chain(changed);
        if both().any(|run| run.is_whole) {
            return both().all(|run| run.all.is_some()).then_some(Basis::Run).ok_or(NO_STEPS);
        }
        let all = |same: fn(Kind, Kind) -> bool| {
            both().all(|run| match (run.kind, before.kind) {
                (Some(kind), Some(other)) => same(kind, other),
                (kind, other) => kind == other,
            })
        };
        let is_found = both().any(|run| run.kind.is_some());
        let of_part = if self.is_own { Basis::StepOfPart } else { Basis::Step };
        let of_part = Some(of_part).filter(|_| all(Kind::is_same)).ok_or(OTHER_STEPS);
        let totals: Option<Vec<f64>> = both().map(|run| run.all).collect();
        let Some(totals) = totals.filter(|_| self.is_own || is_found) else { return of_part };
        let counts = |run: &Measured| are_alike(run.made as f64, before.made as f64);
        if all(Kind::is_like) && both().all(|run| run.made == before.made || is_found && counts(run)) {
            return Ok(Basis::Step);
        }
        // A program that runs for a fixed time makes more steps in it when they are faster.
        let is_timed = after.made > before.made && totals.iter().all(|total| are_alike(*total, totals[0]));
        if is_timed { of_part } else { Ok(Basis::All(before.made, after.made)) }
    }

    /// Times of complete pairs.
    fn times(&self) -> [Vec<f64>; 2] {
        let basis = self.basis();
        let time = |run: &Measured| match basis {
            Ok(Basis::All(..)) => run.all.unwrap_or(run.seconds),
            Ok(Basis::Run) => run.wall.as_secs_f64(),
            Ok(Basis::ToEnd) => run.to_end.unwrap_or(run.seconds),
            _ => run.seconds,
        };
        if matches!(basis, Ok(Basis::Step | Basis::StepOfPart)) && self.is_growing() {
            let times: Vec<_> = self.pairs().map(|pair| same_steps(pair).unwrap_or(pair.map(time))).collect();
            return [0, 1].map(|side| times.iter().map(|pair| pair[side]).collect());
        }
        self.runs().map(|runs| runs.iter().map(time).collect())
    }

    fn gain(&self) -> Option<Gain> {
        let [unchanged, changed] = self.times();
        Gain::of(&unchanged, &changed)
    }

    /// Why the times say nothing, as far as the last runs show.
    fn doubt(&self) -> Option<&'static str> {
        let of_runs = [self.unchanged.last(), self.changed.last()].into_iter().find_map(|run| run?.doubt);
        of_runs.or(self.basis().err())
    }

    fn judged(&self, candidate: &Candidate, before: f64, limits: &Limits) -> Tried {
        let none = || {
            let why = || Outcome::Unmeasured(self.doubt().unwrap_or("no pair of runs is complete").to_owned());
            Tried::without_runs(candidate, self.ended.clone().unwrap_or_else(why), before)
        };
        let [unchanged, changed] = self.times();
        // What recording takes may be more or less with the change.
        let [most, most_with] = self.runs().map(|runs| runs.iter().filter_map(|run| run.cost).fold(0.0, f64::max));
        let gain = self.gain().filter(|_| self.ended.is_none()).map(|gain| gain.without(most, most_with));
        let (Some(gain), Some(seconds)) = (gain, median(&unchanged).zip(median(&changed))) else { return none() };
        let outputs: Vec<_> = self.unchanged.iter().map(|run| run.output.as_str()).collect();
        let is_complete = self.unchanged.iter().chain(&self.changed).all(|run| run.all.is_some());
        let with: Vec<_> = self.changed.iter().map(|run| run.output.as_str()).collect();
        let is_compared = candidate.change.recording().is_none() && !with.is_empty();
        let compared = is_compared.then(|| compare(&outputs, &with, is_complete));
        let changes_more = matches!(
            compared,
            Some(Compared::Differs { is_rounding: false, .. } | Compared::Lacks { is_all: true, .. })
        );
        let doubt = self.doubt();
        let outcome = match doubt {
            None if gain.is_slower() => Outcome::Slower,
            None if !gain.helps() => Outcome::NoDifference,
            None if changes_more && !limits.allowed.contains(&Results::Behavior) => Outcome::ChangesResults,
            None => Outcome::Helps,
            Some(_) => Outcome::NoDifference,
        };
        let (in_all, pairs, basis) = (before * gain.middle, self.complete(), self.basis().unwrap_or(Basis::Step));
        // Of other results, no gain is claimed.
        let gain = Some(gain).filter(|_| doubt.is_none() && outcome != Outcome::ChangesResults);
        let note = self.runs().into_iter().flatten().find_map(|run| run.note);
        let edits = self.changed.first().map_or_else(Vec::new, |run| Edit::all(&run.edits[candidate.change.id()]));
        let (candidate, seconds) = (candidate.clone(), Some(seconds));
        Tried { candidate, outcome, seconds, basis, gain, pairs, in_all, compared, edits, doubt, note }
    }
}

/// Times per step over the steps that both runs made.
fn same_steps(pair: [&Measured; 2]) -> Option<[f64; 2]> {
    of_same_steps(pair.map(|run| (run.times.as_slice(), run.from)))
}

#[cfg(test)]
mod tests {
    use gpuwhy_report::run::remedies::Trial;
    use profiler_core::steps::StepSource;

    use super::*;
    use crate::trial::refused::Refused;
    use crate::trial::runs::steps::per_step;

    /// A program whose time per step is a product of factors, and whose clock only runs say.
    struct Scripted {
        factors: &'static [(&'static str, f64)],
        scatter: f64,
        run_time: Duration,
        runs: Vec<Vec<&'static str>>,
    }

    impl Program for Scripted {
        fn run(&mut self, changes: &[Change]) -> Result<Ended> {
            let ids: Vec<_> = changes.iter().filter_map(|change| Some(change.trial()?.id)).collect();
            self.runs.push(ids.clone());
            let factor = |id: &&str| self.factors.iter().find(|(other, _)| other == id).map(|(_, factor)| *factor);
            if ids.contains(&"compile") {
                return Ok(Ended::Failed(1, "Traceback\nRuntimeError: no compiler\n\n".to_owned()));
            }
            // Alike, but not the same.
            let noise = 1.0 + self.scatter * (self.runs.len() % 3) as f64;
            let seconds = 0.1 * noise * ids.iter().filter_map(factor).product::<f64>();
            let applied = ids.iter().filter(|id| factor(id).is_some()).map(|id| (*id).to_owned()).collect();
            let loss = if ids.contains(&"gc") { "loss 9.0" } else { "loss 2.0" };
            let (output, wall) = (loss.to_owned(), self.run_time);
            let run = Measured { seconds, steps: 60, applied, output, wall, ..Measured::default() };
            Ok(Ended::Measured(Box::new(run)))
        }

        fn can_apply(&self, change: &Change) -> bool {
            change.id() != "launch_blocking"
        }

        fn elapsed(&self) -> Duration {
            self.run_time * u32::try_from(self.runs.len()).unwrap()
        }

        fn refused(&self, ended: Ended) -> Refused {
            ended.refused(None, None, false)
        }
    }

    #[test]
    fn an_own_change_is_measured_by_all_of_its_work_where_the_steps_differ() {
        let run = |seconds, made, all| Measured { seconds, made, all, ..Measured::default() };
        let basis = |is_own, before: &Measured, after: &Measured| {
            let (unchanged, changed) = (vec![before.clone(); 3], vec![after.clone(); 3]);
            let pairs = Pairs { is_own, unchanged, changed, ..Pairs::default() };
            (pairs.basis().unwrap(), pairs.gain().unwrap().middle)
        };
        let before = run(0.1, 100, Some(10.0));
        assert_eq!(basis(true, &before, &run(0.05, 100, Some(5.0))), (Basis::Step, 2.0));
        // Twice the batch: half as many steps, each as long.
        assert_eq!(basis(true, &before, &run(0.1, 50, Some(5.0))), (Basis::All(100, 50), 2.0));
        assert_eq!(basis(false, &before, &run(0.1, 50, Some(5.0))), (Basis::Step, 1.0));
        assert_eq!(basis(true, &before, &run(0.05, 60, None)), (Basis::StepOfPart, 2.0));
        // Another program, without such steps.
        let wall = |wall, is_whole, run| Measured { wall: Duration::from_secs(wall), is_whole, ..run };
        let other = wall(4, true, run(4.0, 0, Some(4.0)));
        assert_eq!(basis(true, &wall(12, false, before.clone()), &other), (Basis::Run, 3.0));
        // Twice the batch, at no gain.
        assert_eq!(basis(true, &before, &run(0.2, 50, Some(10.0))), (Basis::All(100, 50), 1.0));
        // It runs for ten seconds, whatever a step takes.
        assert_eq!(basis(true, &before, &run(0.05, 200, Some(10.1))), (Basis::StepOfPart, 2.0));
    }

    #[test]
    fn a_gpu_that_is_behind_at_the_end_is_measured_to_the_end() {
        let run = |seconds, to_end, is_behind| Measured { seconds, to_end, is_behind, ..Measured::default() };
        let basis = |before: &Measured, after: &Measured| {
            let (unchanged, changed) = (vec![before.clone(); 3], vec![after.clone(); 3]);
            let pairs = Pairs { is_own: false, unchanged, changed, ..Pairs::default() };
            (pairs.basis(), pairs.gain().unwrap().middle)
        };
        // The CPU launches in a third of the time, and the GPU works as long as before.
        let (before, after) = (run(0.003, Some(0.02), true), run(0.001, Some(0.02), true));
        assert_eq!(basis(&before, &after), (Ok(Basis::ToEnd), 1.0));
        assert_eq!(basis(&before, &run(0.003, Some(0.01), true)), (Ok(Basis::ToEnd), 2.0));
        // With half of the work, the GPU is no longer behind.
        assert_eq!(basis(&before, &run(0.01, Some(0.01), false)), (Ok(Basis::ToEnd), 2.0));
        assert_eq!(basis(&before, &run(0.001, None, false)).0, Err(BEHIND));
    }

    #[test]
    fn steps_that_grow_are_compared_with_the_same_ones() {
        let run = |steps: u32, scale: f64, from| {
            let times = (0..steps).map(|at| scale * f64::from(at * at)).collect::<Vec<_>>();
            Measured { seconds: per_step(&times[from..]).unwrap(), times, from, ..Measured::default() }
        };
        let (unchanged, changed) = (vec![run(400, 1e-4, 280); 3], vec![run(560, 5e-5, 400); 3]);
        let pairs = Pairs { is_own: true, unchanged, changed, ..Pairs::default() };
        assert_eq!(pairs.basis(), Ok(Basis::StepOfPart));
        assert!((pairs.gain().unwrap().middle - 2.0).abs() < 1e-9);
    }

    #[test]
    fn steps_that_the_engine_found_are_compared_with_their_like() {
        let run = |seconds, made, all, period| {
            let kind = Some(Kind { source: StepSource::Period, is_step: true, period: Some(period) });
            Measured { seconds, made, all, kind, cost: Some(0.1), ..Measured::default() }
        };
        let judged = |before: &Measured, after: &Measured| {
            let (unchanged, changed) = (vec![before.clone(); 5], vec![after.clone(); 5]);
            let pairs = Pairs { is_own: false, unchanged, changed, ..Pairs::default() };
            let tried =
                pairs.judged(&Candidate::of(Trial::named("pinned").unwrap()), 1.0, &limits(40, &[Results::Same]));
            (tried.basis, tried.outcome, tried.gain.map(|gain| (gain.middle * 100.0).round()))
        };
        let before = run(0.1, 100, Some(10.0), 300);
        let step = (Basis::Step, Outcome::Helps, Some(200.0));
        assert_eq!(judged(&before, &run(0.05, 99, Some(5.0), 200)), step);
        assert_eq!(judged(&before, &run(0.1, 50, Some(5.0), 300)), (Basis::All(100, 50), Outcome::Helps, Some(200.0)));
        // Runs that were cut: steps of as many operations.
        let before = run(0.1, 100, None, 300);
        assert_eq!(judged(&before, &run(0.05, 180, None, 302)), step);
        assert_eq!(judged(&before, &run(0.05, 180, None, 150)), (Basis::Step, Outcome::NoDifference, None));
        // Recording may take a tenth of either.
        assert_eq!(judged(&before, &run(0.095, 100, None, 300)), (Basis::Step, Outcome::NoDifference, Some(105.0)));
    }

    fn tried(ids: &[&str], limits: &Limits) -> (Vec<Tried>, Scripted) {
        let mut program = Scripted {
            factors: &[
                ("fused_optimizer", 0.5),
                ("tf32", 0.8),
                ("pinned", 1.001),
                ("empty_cache", 1.25),
                ("anomaly", 0.5),
            ],
            scatter: 0.002,
            run_time: Duration::from_secs(5),
            runs: Vec::new(),
        };
        let candidates: Vec<_> = ids.iter().map(|id| Candidate::of(Trial::named(id).unwrap())).collect();
        let all = try_all(&mut program, &candidates, limits, |_, _, _| Ok(())).unwrap();
        (all, program)
    }

    fn limits(seconds: u64, allowed: &[Results]) -> Limits {
        Limits { pairs: 3, budget: Duration::from_secs(seconds), allowed: allowed.to_vec() }
    }

    fn outcomes(all: &[Tried]) -> Vec<Outcome> {
        all.iter().map(|tried| tried.outcome.clone()).collect()
    }

    #[test]
    fn what_helps_is_kept_and_later_ones_build_on_it() {
        let all = [Results::Same, Results::Rounding];
        let (tried, program) = tried(&["fused_optimizer", "pinned", "tf32", "empty_cache"], &limits(600, &all));
        assert_eq!(outcomes(&tried), [Outcome::Helps, Outcome::NoDifference, Outcome::Helps, Outcome::Slower]);
        assert!((tried[0].gain.unwrap().middle - 2.0).abs() < 0.01);
        assert!((tried[2].gain.unwrap().middle - 1.25).abs() < 0.01);
        assert!((tried[2].in_all - 2.5).abs() < 0.02 && (tried[3].in_all - 2.5).abs() < 0.02);
        assert_eq!(tried[0].compared, Some(Compared::Equal));
        assert_eq!(program.runs.len(), 24);
        assert_eq!(program.runs[..4], [vec![], vec!["fused_optimizer"], vec!["fused_optimizer"], vec![]]);
        assert_eq!(program.runs[6..8], [vec!["fused_optimizer"], vec!["fused_optimizer", "pinned"]]);
        assert_eq!(program.runs[23], ["fused_optimizer", "tf32", "empty_cache"]);
    }

    #[test]
    fn what_does_not_apply_or_fails_takes_one_run() {
        let all = [Results::Same, Results::Rounding];
        let (tried, program) =
            tried(&["launch_blocking", "fragmentation", "compile", "fused_optimizer"], &limits(600, &all));
        let not_applicable = |at: usize| not_applicable(&tried[at].candidate);
        assert_eq!(
            outcomes(&tried),
            [
                not_applicable(0),
                not_applicable(1),
                Outcome::Fails("RuntimeError: no compiler".to_owned()),
                Outcome::Helps
            ]
        );
        // The first unchanged run serves the last remedy.
        assert_eq!(program.runs.len(), 8);
        assert_eq!(program.runs[..4], [vec![], vec!["fragmentation"], vec!["compile"], vec!["fused_optimizer"]]);
    }

    #[test]
    fn the_budget_and_the_kind_decide_what_is_tried() {
        let (tried, program) = tried(&["anomaly", "tf32", "pinned"], &limits(40, &[Results::Same]));
        let no_time = Outcome::NoTime("a run takes 5 s, and there is no time for 6 more (--budget)".to_owned());
        assert_eq!(outcomes(&tried), [Outcome::Helps, no_time, Outcome::NotAllowed]);
        assert_eq!(tried[1].candidate.change.id(), "pinned");
        assert_eq!(program.runs.len(), 6);
    }

    #[test]
    fn pairs_go_on_until_the_gain_is_known_or_the_time_is_up() {
        let pairs = |ids: &[&str], scatter, seconds| {
            let mut program = Scripted {
                factors: &[("anomaly", 0.5), ("pinned", 1.0), ("empty_cache", 1.3)],
                scatter,
                run_time: Duration::from_secs(5),
                runs: Vec::new(),
            };
            let candidates: Vec<_> = ids.iter().map(|id| Candidate::of(Trial::named(id).unwrap())).collect();
            let limits = Limits { pairs: 12, ..limits(seconds, &[Results::Same]) };
            let all = try_all(&mut program, &candidates, &limits, |_, _, _| Ok(())).unwrap();
            all.iter().map(|tried| tried.pairs).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&["anomaly", "pinned", "empty_cache"], 0.002, 10_000), [5, 3, 3]);
        assert_eq!(pairs(&["anomaly"], 0.2, 10_000), [12]);
        // The first of two gets half of the time, and the second what is left.
        assert_eq!(pairs(&["anomaly", "pinned"], 0.2, 170), [8, 9]);
        assert_eq!(pairs(&["anomaly"], 0.2, 42), [4]);
    }

    #[test]
    fn nothing_runs_if_nothing_is_allowed() {
        let (tried, program) = tried(&["tf32"], &limits(40, &[Results::Same]));
        assert_eq!((outcomes(&tried), program.runs.len()), (vec![Outcome::NotAllowed], 0));
    }

    #[test]
    fn other_results_are_not_kept_unless_allowed() {
        let mut candidate = Candidate::of(Trial::named("gc").unwrap());
        candidate.results = Results::Same;
        for (allowed, wanted) in
            [(vec![Results::Same], Outcome::ChangesResults), (vec![Results::Same, Results::Behavior], Outcome::Helps)]
        {
            let mut program = Scripted {
                factors: &[("gc", 0.5)],
                scatter: 0.002,
                run_time: Duration::from_secs(5),
                runs: Vec::new(),
            };
            let one = std::slice::from_ref(&candidate);
            let all = try_all(&mut program, one, &limits(600, &allowed), |_, _, _| Ok(())).unwrap();
            assert_eq!(all[0].outcome, wanted);
        }
    }
}
