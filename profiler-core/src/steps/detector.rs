//! Online detection of the steps of one device, based only on the order of its launches.
//!
//! Each epoch ends with a finding: a period, else an anchor, else nothing. A period that fits badly gives way
//! to an anchor that occurs less frequently, because with inserted launches the layers of a model still
//! repeat while its steps do not. Steps are published after two findings that agree, since the first epoch
//! frequently contains layers but not yet a step, and dropped after two epochs without a finding. The work is
//! O(1) amortized per launch and the memory is bounded. Time is used only as the pause before a launch, and
//! only to choose the point in the cycle at which a step starts.

use rustc_hash::FxHashMap;

use super::beats::{Exchanges, GraphBeat, LONGEST_UNIT, WaitBeats, repeats_exactly};
use super::epoch::{Anchor, Lags, find_anchor};
use super::inside::Inside;
use super::sequence::{CAPACITY, Sequence, SequenceItem};
use super::{Boundary, Cut, LaunchKind, PeriodFacts, StepSource};

/// Launches of the first epoch, and minimum length.
const SHORTEST_EPOCH: u64 = 512;
/// Points at which an epoch is checked before its end...
const EARLY: [u64; 3] = [64, 128, 256];
/// ...and where it ends if a period occurred this many times at its end, and for three quarters of it,
/// without exception. A step of three launches need not wait for a hundred others, and the launches before
/// the first step must not delay detection. No layer of a model that is this short repeats this many times in
/// a row.
const EARLY_REPEATS: u64 = 32;
/// Epochs of a known period have this many periods...
const EPOCH_PERIODS: u64 = 4;
/// ...and of an anchor, whose regularity needs more data.
const EPOCH_ANCHORS: u64 = 8;
/// A period with a lower score may be that of a layer. Two percent of different launches leave 0.96, one
/// percent of inserted ones leaves 0.88 for a layer of twelve.
const SURE_SCORE: f64 = 0.95;
/// Longest epoch in which the detector searches for the steps around such a period, or around an anchor.
const UNSURE_EPOCH: u64 = 16_384;
/// Periods with remembered inner repetition: as many as there are series of steps.
const PERIODS: usize = 6;
/// Maximum number of launches known to identify a step.
const TELLING: usize = 64;
/// Two anchors agree if their distances differ by at most this fraction.
const ANCHOR_PART: u32 = 10;

#[derive(Clone, Copy, Debug)]
enum DetectedPeriod {
    Period(u32),
    Anchor(Anchor),
    Nothing,
}

impl DetectedPeriod {
    fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Period(a), Self::Period(b)) => a == b,
            (Self::Anchor(a), Self::Anchor(b)) => a.distance.abs_diff(b.distance) <= a.distance / ANCHOR_PART,
            (Self::Nothing, Self::Nothing) => true,
            _ => false,
        }
    }
}

/// Online step detection for one device.
#[derive(Debug)]
pub struct StepDetector {
    sequence: Sequence,
    lags: Lags,
    /// Number of the first launch of the epoch.
    epoch: u64,
    length: u64,
    previous: DetectedPeriod,
    tracker: Option<Tracker>,
    graphs: GraphBeat,
    exchanges: Exchanges,
    waits: WaitBeats,
    /// Function in which the host waited since the newest launch.
    waited: Option<u32>,
    /// Launches that distinguish a step from a part of one; true for those of an optimizer.
    telling: Vec<(u32, bool)>,
    /// Published periods with their inner repetition, newest last.
    insides: Vec<(u32, Option<Inside>)>,
}

impl Default for StepDetector {
    fn default() -> Self {
        Self {
            sequence: Sequence::default(),
            lags: Lags::default(),
            epoch: 0,
            length: SHORTEST_EPOCH,
            previous: DetectedPeriod::Nothing,
            tracker: None,
            graphs: GraphBeat::default(),
            exchanges: Exchanges::default(),
            waits: WaitBeats::default(),
            waited: None,
            telling: Vec::new(),
            insides: Vec::new(),
        }
    }
}

impl StepDetector {
    /// The host waits for the device in `function` before the next launch.
    pub fn waited(&mut self, function: u32) {
        self.waited = Some(function);
    }

    /// Processes the next launch in host order. `symbol` is equal for equivalent launches; `pause` is the
    /// time since the previous launch returned, nanoseconds. Returns the cut if a step starts with it or
    /// breaks off.
    pub fn push(&mut self, symbol: u32, pause: u32, kind: LaunchKind) -> Option<Cut> {
        let number = self.sequence.push(SequenceItem { symbol, pause });
        self.lags.observe(&self.sequence, number, symbol, self.epoch);
        let waited = self.waited.take();
        let mut cut = self.tracker.as_mut().and_then(|tracker| tracker.next(&self.sequence, number, symbol, waited));
        let untracked = self.tracker.as_ref().is_none_or(Tracker::is_lost);
        match kind {
            LaunchKind::Graph => {
                if let Some(period) = self.graphs.launched(symbol, number, &self.sequence)
                    && untracked
                {
                    self.follow(period);
                }
                self.tells(symbol, false);
            }
            LaunchKind::HostCopy | LaunchKind::Input => {
                if kind == LaunchKind::Input {
                    self.tells(symbol, false);
                }
                self.exchanges.copied(symbol, number);
                if untracked && let Some(period) = self.exchanges.period(&self.sequence) {
                    cut = self.begin_with(period, number, symbol);
                }
            }
            LaunchKind::Optimizer => self.tells(symbol, true),
            LaunchKind::Other => {}
        }
        if let Some(function) = waited
            && let Some(distance) = self.waits.waited(function, number)
        {
            cut = self.begin_around(distance, function, number, symbol).or(cut);
        }
        let since = self.sequence.count() - self.epoch;
        let lost = (since >= self.length || self.repeats_early(since)) && self.close_epoch();
        if lost { Some(Cut::Lost) } else { cut }
    }

    /// Published result: how steps are found, and the launches per step (approximate for an anchor).
    pub fn published(&self) -> Option<(StepSource, u32)> {
        self.tracker.as_ref().map(|tracker| (tracker.source(), tracker.period))
    }

    /// Known facts about steps of `period` launches.
    pub fn facts(&self, period: u32) -> PeriodFacts {
        let inside = self.insides.iter().rev().find(|(of, _)| *of == period).and_then(|(_, inside)| *inside);
        PeriodFacts { period, waits: self.waits.comes_each(period, self.sequence.count()), inside }
    }

    /// A repeated sequence that contains `symbol` is a step and not a layer.
    fn tells(&mut self, symbol: u32, optimizer: bool) {
        if self.telling.len() < TELLING && self.telling.iter().all(|telling| telling.0 != symbol) {
            self.telling.push((symbol, optimizer));
        }
    }

    /// Newest launches, as symbols.
    fn newest(&self, count: u32) -> Vec<u32> {
        let from = self.sequence.count().saturating_sub(count.into());
        self.sequence.since(from).map(|launched| launched.symbol).collect()
    }

    /// Step within `period`. A program that reads its loss every tenth step repeats ten steps and one copy:
    /// if an optimizer's kernel is in each of the units that make up nearly all of a period, those are the
    /// steps.
    fn step_within(&self, period: u32) -> u32 {
        let optimizers = || self.telling.iter().filter(|telling| telling.1);
        if optimizers().next().is_none() {
            return period;
        }
        let launches = self.newest(period);
        let Some(inside) = Inside::of(&launches).filter(|unit| 10 * unit.all() >= 9 * period) else { return period };
        let count = |symbol: u32| launches.iter().filter(|launch| **launch == symbol).count() as u32;
        if optimizers().any(|&(symbol, _)| count(symbol) >= inside.times) { inside.launches } else { period }
    }

    fn follow(&mut self, period: u32) {
        self.tracker = Some(Tracker::of_period(period, &self.sequence));
        self.remember_inside(period);
    }

    fn remember_inside(&mut self, period: u32) {
        let step = self.newest(period);
        self.insides.retain(|(of, _)| *of != period);
        if self.insides.len() == PERIODS {
            self.insides.remove(0);
        }
        self.insides.push((period, Inside::of(&step)));
    }

    /// Publishes steps of `distance` if they enclose the unit that is followed now. Launch `number`, before
    /// which the host waited in `function`, starts the first.
    #[cold]
    fn begin_around(&mut self, distance: u32, function: u32, number: u64, symbol: u32) -> Option<Cut> {
        let unit = self.tracker.as_ref().filter(|tracker| tracker.source() == StepSource::Period)?.period;
        let is_unit = unit <= LONGEST_UNIT && 2 * unit <= distance;
        let is_step = || {
            let launches = self.newest(unit);
            self.telling.iter().any(|(symbol, _)| launches.contains(symbol))
        };
        if !is_unit || is_step() || !repeats_exactly(distance, &self.sequence) {
            return None;
        }
        self.remember_inside(distance);
        let tracker = self.tracker.insert(Tracker::of_wait(distance, function));
        tracker.next(&self.sequence, number, symbol, Some(function))
    }

    /// Publishes `period` without waiting for epochs; the next epoch is the same as after an epoch that found
    /// it. Launch `number`, the newest, may start the first step.
    fn begin_with(&mut self, period: u32, number: u64, symbol: u32) -> Option<Cut> {
        self.lags.close_epoch(self.sequence.count() - self.epoch, &self.sequence);
        self.previous = DetectedPeriod::Period(period);
        self.epoch = self.sequence.count();
        self.length = (EPOCH_PERIODS * u64::from(period)).clamp(SHORTEST_EPOCH, u64::from(CAPACITY));
        self.follow(period);
        self.tracker.as_mut().and_then(|tracker| tracker.next(&self.sequence, number, symbol, None))
    }

    /// True if the first `since` launches of the epoch are enough.
    fn repeats_early(&self, since: u64) -> bool {
        self.tracker.is_none() && EARLY.contains(&since) && self.lags.has_perfect(EARLY_REPEATS, since, &self.sequence)
    }

    /// Ends the epoch. Returns true if the published steps are dropped.
    fn close_epoch(&mut self) -> bool {
        let (found, sure) = self.find();
        let finding = match found {
            DetectedPeriod::Period(period) => DetectedPeriod::Period(self.step_within(period)),
            other => other,
        };
        let agreed = finding.agrees_with(self.previous);
        self.previous = finding;
        self.epoch = self.sequence.count();
        let longer = 2 * self.length;
        self.length = match found {
            DetectedPeriod::Period(period) if sure => EPOCH_PERIODS * u64::from(period),
            DetectedPeriod::Period(period) => (EPOCH_PERIODS * u64::from(period)).max(longer.min(UNSURE_EPOCH)),
            DetectedPeriod::Anchor(anchor) => {
                (EPOCH_ANCHORS * u64::from(anchor.distance)).max(longer.min(UNSURE_EPOCH))
            }
            DetectedPeriod::Nothing => longer,
        }
        .clamp(SHORTEST_EPOCH, u64::from(CAPACITY));
        let published = self.tracker.as_ref().map(|tracker| (tracker.source(), tracker.period, tracker.marker));
        match (finding, published) {
            _ if !agreed => return false,
            (DetectedPeriod::Nothing, _) => self.tracker = None,
            (DetectedPeriod::Period(period), Some((StepSource::Period, same, _))) if period == same => return false,
            (DetectedPeriod::Period(period), _)
                if self.tracker.as_ref().is_some_and(|tracker| tracker.is_around(period)) =>
            {
                return false;
            }
            (DetectedPeriod::Anchor(anchor), Some((StepSource::Anchor, _, Some(symbol))))
                if symbol == anchor.symbol =>
            {
                return false;
            }
            (DetectedPeriod::Period(period), _) => self.follow(period),
            (DetectedPeriod::Anchor(anchor), _) => {
                self.tracker = Some(Tracker::of_anchor(anchor.symbol, anchor.distance))
            }
        }
        published.is_some()
    }

    /// Result of the epoch, and true if it leaves no doubt.
    fn find(&mut self) -> (DetectedPeriod, bool) {
        let length = self.sequence.count() - self.epoch;
        let period = self.lags.close_epoch(length, &self.sequence);
        if let Some((period, score)) = period
            && score >= SURE_SCORE
        {
            return (DetectedPeriod::Period(period), true);
        }
        let current = match (&self.tracker, self.previous) {
            (Some(tracker), _) if tracker.source() == StepSource::Anchor => tracker.marker,
            (_, DetectedPeriod::Anchor(anchor)) => Some(anchor.symbol),
            _ => None,
        };
        let symbols: Vec<u32> = self.sequence.since(self.epoch).map(|launched| launched.symbol).collect();
        let finding = match (period, find_anchor(&symbols, current)) {
            (Some((period, _)), Some(anchor)) if anchor.distance < 2 * period => DetectedPeriod::Period(period),
            (_, Some(anchor)) => DetectedPeriod::Anchor(anchor),
            (Some((period, _)), None) => DetectedPeriod::Period(period),
            (None, None) => DetectedPeriod::Nothing,
        };
        (finding, false)
    }
}

/// Launches before an expected boundary that are compared with those one period earlier.
const CONTEXT: u32 = 8;
const CONTEXT_EQUAL: u32 = 6;

/// Follows the known steps: determines for each launch if a step starts with it.
///
/// Counting alone would lose track at the first launch that is inserted or left out, so a step starts with a
/// launch that occurs once in it. Counting takes over for one step if only that launch differs and its
/// surroundings do not. The decision is made when the launch arrives and never changes, so that it does not
/// depend on later data.
#[derive(Debug)]
struct Tracker {
    source: StepSource,
    /// Launches per step; approximate for an anchor.
    period: u32,
    /// The launch that starts a step. Without one, steps are counted while the launches repeat: else a step of
    /// one launch more would be cut at a different place each time.
    marker: Option<u32>,
    /// Function in which the host waits before a step; a step starts with the next launch.
    wait: Option<u32>,
    /// Launches since the step started; `None` before the first one and after losing track.
    since: Option<u32>,
    /// Launches since it started waiting for the first step; more than two periods after losing track.
    waiting: u32,
    matched: u32,
}

impl Tracker {
    /// Follows `period`. Of the launches that occur once in the newest period, and in the same position in
    /// the two before, the one after the longest pause starts a step: programs fetch input and evaluate
    /// between steps.
    fn of_period(period: u32, sequence: &Sequence) -> Self {
        let first = sequence.count().saturating_sub(u64::from(period));
        let newest: Vec<(u64, SequenceItem)> = (first..).zip(sequence.since(first)).collect();
        let mut appearances: FxHashMap<u32, u32> = FxHashMap::default();
        for (_, launched) in &newest {
            *appearances.entry(launched.symbol).or_default() += 1;
        }
        // A launch that occurred only at that moment must not become the marker.
        let steady = |number| (1..=2).all(|times| sequence.repeats(number, times * period) != Some(false));
        let once =
            newest.iter().rev().filter(|(number, launched)| appearances[&launched.symbol] == 1 && steady(*number));
        let marker = once.max_by_key(|(_, launched)| launched.pause).map(|(_, launched)| launched.symbol);
        Self { marker, ..Self::new(StepSource::Period, period) }
    }

    /// Follows an anchor.
    fn of_anchor(symbol: u32, distance: u32) -> Self {
        Self { marker: Some(symbol), ..Self::new(StepSource::Anchor, distance) }
    }

    /// Follows `period`, before which the host waits in `function`.
    fn of_wait(period: u32, function: u32) -> Self {
        Self { wait: Some(function), ..Self::new(StepSource::Period, period) }
    }

    fn new(source: StepSource, period: u32) -> Self {
        Self { source, period, marker: None, wait: None, since: None, waiting: 0, matched: 0 }
    }

    /// True if it follows steps that the host's waits delimit and that contain a period of `unit` launches.
    fn is_around(&self, unit: u32) -> bool {
        self.wait.is_some() && self.since.is_some() && unit < self.period
    }

    fn source(&self) -> StepSource {
        self.source
    }

    /// True if no step has started for more than two periods.
    fn is_lost(&self) -> bool {
        self.since.is_none() && self.waiting > self.period.saturating_mul(2)
    }

    /// Processes launch `number`, the newest, before which the host waited in the function `waited`.
    #[inline]
    fn next(&mut self, sequence: &Sequence, number: u64, symbol: u32, waited: Option<u32>) -> Option<Cut> {
        let expected = match self.wait {
            None => self.marker == Some(symbol),
            wait => waited == wait,
        };
        let Some(since) = &mut self.since else {
            self.waiting = self.waiting.saturating_add(1);
            let begins = expected || (self.counts() && self.undisturbed(sequence, number));
            return begins.then(|| self.begin(0, sequence));
        };
        *since = since.saturating_add(1);
        let since = *since;
        let begins = if self.source == StepSource::Period && since == self.period {
            expected || self.undisturbed(sequence, number)
        } else {
            expected && since >= self.period.div_ceil(2)
        };
        if begins {
            return Some(self.begin(since, sequence));
        }
        if since > self.period.saturating_mul(2) {
            // Matches counted in it belong to no step.
            (self.since, self.waiting, self.matched) = (None, since, 0);
            return Some(Cut::Lost);
        }
        self.matched += u32::from(sequence.newest_repeats(self.period));
        None
    }

    /// Ends a step of `launches` and starts another.
    #[inline(never)]
    fn begin(&mut self, launches: u32, sequence: &Sequence) -> Cut {
        let first = u32::from(sequence.newest_repeats(self.period));
        let matched = std::mem::replace(&mut self.matched, first);
        self.since = Some(0);
        let period = if self.source == StepSource::Period { self.period } else { 0 };
        Cut::Begin(Boundary { source: self.source, period, launches, matched })
    }

    /// True if nothing but the number of launches shows where a step starts.
    fn counts(&self) -> bool {
        self.marker.is_none() && self.wait.is_none()
    }

    /// True if most of the launches before `number` repeat those one period earlier.
    fn undisturbed(&self, sequence: &Sequence, number: u64) -> bool {
        let equal = (1..=u64::from(CONTEXT))
            .filter(|&back| number.checked_sub(back).and_then(|n| sequence.repeats(n, self.period)) == Some(true));
        equal.count() as u32 >= CONTEXT_EQUAL
    }
}
