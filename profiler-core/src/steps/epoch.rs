//! Analysis of an epoch of launches: the distance at which they repeat, or a launch that occurs once per
//! step.
//!
//! **Lags.** The distance between two equal symbols is a vote for that lag. A few lags with the most votes
//! are scored: the fraction of launches that equal the one that far before. All are scored over the same
//! epoch, because with a separate phase for each, an inner loop that repeats perfectly for a while would win
//! over the step around it. Launches are scored in chunks, which costs a fraction of scoring each one
//! separately.
//!
//! **Anchors** are for programs whose steps differ in length: one search over an epoch. An inserted launch
//! shifts all later ones, so no lag matches any more, but an operation that a step performs once is still
//! performed once. A symbol is an anchor if it occurs at approximately regular distances, throughout, and the
//! launches between two occurrences are nearly the same as those before. The longest such distance wins: a
//! symbol that occurs once per layer is regular too.

use rustc_hash::FxHashMap;

use super::sequence::{CAPACITY, Sequence};
use crate::collections::correlation_map::Correlated;

/// Number of lags scored at a time. Steps of ten public training and inference traces were found with 24.
const CANDIDATES: usize = 24;
/// A shorter lag wins over a longer one if its score is lower by at most this: multiples of a period have
/// similar scores, while the layers within a step of a 32-layer decoder score 0.056 less than the step.
const TOLERANCE: f64 = 0.015;
/// Scores below this do not count as repetition.
pub(super) const LEAST_SCORE: f64 = 0.80;
/// Fewest launches for a valid score.
const LEAST_TRIALS: u32 = 64;
/// Lags whose votes are counted; beyond that, the quarter with the most votes is kept.
const VOTE_LIMIT: usize = 4_096;
/// Launches scored per chunk.
const CHUNK: u32 = 64;
/// Maximum lag, exclusive, so that the launches that a chunk is compared with are still remembered.
const LONGEST: u32 = CAPACITY - CHUNK;
/// Past launches that scoring a new candidate may use, earned per launch: bounds the work per launch.
const CREDIT: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct EpochCandidate {
    lag: u32,
    votes: u32,
    hits: u32,
    trials: u32,
}

impl EpochCandidate {
    /// Approximate number of launches that the votes cover, if each is for a symbol that occurs once per
    /// period.
    fn weight(&self) -> u64 {
        u64::from(self.lag) * u64::from(self.votes)
    }
}

/// Votes and candidates of one device.
#[derive(Debug, Default)]
pub(super) struct Lags {
    /// Number of the newest launch of each symbol. There are few symbols.
    last_seen: Correlated<u64>,
    votes: FxHashMap<u32, u32>,
    candidates: Vec<EpochCandidate>,
    /// Candidate with the newest vote.
    voted: usize,
    /// Number of the first unscored launch.
    scored: u64,
    credit: u64,
}

impl Lags {
    /// Processes launch `number`, the newest of `sequence`. The epoch started with launch `epoch`.
    pub(super) fn observe(&mut self, sequence: &Sequence, number: u64, symbol: u32, epoch: u64) {
        self.credit = (self.credit + CREDIT).min(CREDIT * u64::from(CAPACITY));
        let before = self.last_seen.insert(symbol, number);
        if number.is_multiple_of(u64::from(CAPACITY)) {
            self.last_seen.retain(|&seen| seen >= sequence.oldest());
        }
        if let Some(gap) = before.and_then(|before| u32::try_from(number - before).ok())
            && gap < LONGEST
        {
            self.vote(gap, sequence, number, epoch);
        }
        if number + 1 - self.scored >= u64::from(CHUNK) {
            self.score(sequence, number + 1);
        }
    }

    /// Scores the candidates on the unscored launches before `to`.
    fn score(&mut self, sequence: &Sequence, to: u64) {
        for candidate in &mut self.candidates {
            let from = self.scored.max(candidate.lag.into());
            candidate.trials += to.saturating_sub(from) as u32;
            candidate.hits += sequence.repeats_within(from..to, candidate.lag);
        }
        self.scored = to;
    }

    fn vote(&mut self, gap: u32, sequence: &Sequence, number: u64, epoch: u64) {
        if self.candidates.get(self.voted).is_none_or(|candidate| candidate.lag != gap) {
            self.voted = self.candidates.iter().position(|candidate| candidate.lag == gap).unwrap_or(usize::MAX);
        }
        if let Some(candidate) = self.candidates.get_mut(self.voted) {
            candidate.votes = candidate.votes.saturating_add(1);
            return;
        }
        let votes = self.votes.entry(gap).or_default();
        *votes = votes.saturating_add(1);
        if *votes < 2 {
            return;
        }
        let mut candidate = EpochCandidate { lag: gap, votes: *votes, hits: 0, trials: 0 };
        let lightest = (0..self.candidates.len()).min_by_key(|&index| self.candidates[index].weight());
        let evicted = lightest.filter(|_| self.candidates.len() >= CANDIDATES);
        if evicted.is_some_and(|index| self.candidates[index].weight() >= candidate.weight()) {
            return;
        }
        self.score(sequence, number);
        // Score that it would have had from the start of the epoch.
        let from = epoch.max(sequence.oldest() + u64::from(gap)).max(u64::from(gap));
        let Some(credit) = self.credit.checked_sub(number.saturating_sub(from)) else { return };
        self.credit = credit;
        candidate.trials = number.saturating_sub(from) as u32;
        candidate.hits = sequence.repeats_within(from..number, gap);
        self.votes.remove(&gap);
        match evicted {
            Some(index) => {
                let old = std::mem::replace(&mut self.candidates[index], candidate);
                self.votes.insert(old.lag, old.votes);
            }
            None => self.candidates.push(candidate),
        }
    }

    /// True if a period that fits `repeats` times into the `length` launches of the epoch has occurred that
    /// many times at its end, and for three quarters of it, without exception; a program starts with other
    /// launches. That ends the epoch. A period is found only if it scores [`LEAST_SCORE`] over all of the
    /// epoch; otherwise the next epoch starts after those launches. Launches that are all equal do not count:
    /// their repetition need not be a step.
    pub(super) fn has_perfect(&self, repeats: u64, length: u64, sequence: &Sequence) -> bool {
        let (newest, longest) = (sequence.count(), length / repeats);
        let perfect = |candidate: &&EpochCandidate| {
            let lag = u64::from(candidate.lag);
            // The first repetition has no previous one to be compared with.
            let trials = ((repeats - 1) * lag).max(3 * length / 4);
            newest.checked_sub(trials).filter(|&from| from >= lag).is_some_and(|from| {
                lag <= longest && u64::from(sequence.repeats_within(from..newest, candidate.lag)) == trials
            })
        };
        let shortest = self.candidates.iter().filter(perfect).map(|candidate| u64::from(candidate.lag)).min();
        shortest.is_some_and(|lag| lag > 1)
    }

    /// Ends an epoch of `length` launches. Returns the shortest lag that scores as well as the best one, and
    /// its score.
    pub(super) fn close_epoch(&mut self, length: u64, sequence: &Sequence) -> Option<(u32, f64)> {
        self.score(sequence, sequence.count());
        let scored = |candidate: &EpochCandidate| {
            let trials = u64::from(candidate.trials);
            let enough = u64::from(LEAST_TRIALS).max(u64::from(candidate.lag).min(length / 3));
            let share = f64::from(candidate.hits) / f64::from(candidate.trials.max(1));
            (trials >= enough && 10 * trials >= 3 * length).then_some((candidate.lag, share))
        };
        let scores: Vec<_> = self.candidates.iter().filter_map(scored).collect();
        let best = scores.iter().map(|&(_, score)| score).fold(0.0, f64::max);
        let near = scores.into_iter().filter(|&(_, score)| score >= best - TOLERANCE);
        let found = near.min_by_key(|&(lag, _)| lag).filter(|_| best >= LEAST_SCORE);
        for candidate in &mut self.candidates {
            (candidate.hits, candidate.trials) = (0, 0);
        }
        if self.votes.len() > VOTE_LIMIT {
            let mut rows: Vec<_> = self.votes.drain().collect();
            rows.sort_unstable_by_key(|&(lag, votes)| (std::cmp::Reverse(votes), lag));
            self.votes.extend(rows.into_iter().take(VOTE_LIMIT / 4));
        }
        found
    }
}

/// Occurrences needed to judge regularity.
const FEWEST: usize = 4;
/// A distance is regular within this many launches of the median...
const SLACK: u32 = 2;
/// ...or within this fraction of the median.
const SLACK_PART: u32 = 10;
/// Fraction of distances that must be regular.
const REGULAR_SHARE: f64 = 0.8;
/// Fraction of the epoch that must lie between the first and the last occurrence.
const COVERAGE: f64 = 0.6;
/// Similarity that nine in ten adjacent segments must reach: common launches divided by launches, 0 to 1.
/// Tolerates 5 % of inserted launches; a mix of prompts and tokens, which has no step, stays below.
const SIMILARITY: f64 = 0.8;
/// Symbols whose segments are compared (those with the longest distances).
const COMPARED: usize = 16;

/// A launch that occurs once per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// Symbol of the launch.
    pub(super) symbol: u32,
    /// Median distance between two occurrences, in launches.
    pub(super) distance: u32,
}

/// Searches for an anchor; `current` is kept as long as it is one and no other occurs much less frequently.
pub(super) fn find_anchor(symbols: &[u32], current: Option<u32>) -> Option<Anchor> {
    let mut positions: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (position, &symbol) in symbols.iter().enumerate() {
        positions.entry(symbol).or_default().push(position as u32);
    }
    let mut rows: Vec<(Anchor, &Vec<u32>)> = positions
        .iter()
        .filter_map(|(&symbol, positions)| {
            Some((Anchor { symbol, distance: regular(positions, symbols.len())? }, positions))
        })
        .collect();
    // The result must not depend on the order of the map.
    rows.sort_unstable_by_key(|(anchor, positions)| (std::cmp::Reverse(anchor.distance), positions.first().copied()));
    let longest =
        rows.iter().take(COMPARED).find(|(_, positions)| alike(symbols, positions)).map(|&(anchor, _)| anchor)?;
    let kept = rows.iter().find(|(anchor, positions)| {
        let near = longest.distance.abs_diff(anchor.distance) <= longest.distance / SLACK_PART;
        Some(anchor.symbol) == current && near && alike(symbols, positions)
    });
    Some(kept.map_or(longest, |&(anchor, _)| anchor))
}

/// Median distance between adjacent positions, if most distances are near it and they cover `length` positions.
fn regular(positions: &[u32], length: usize) -> Option<u32> {
    let (&first, &last) = (positions.first()?, positions.last()?);
    if positions.len() < FEWEST || f64::from(last - first) < COVERAGE * length as f64 {
        return None;
    }
    let mut distances: Vec<u32> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let median = distances[distances.len() / 2];
    let slack = SLACK.max(median / SLACK_PART);
    let near = distances.iter().filter(|&&distance| distance.abs_diff(median) <= slack).count();
    (near as f64 >= REGULAR_SHARE * distances.len() as f64).then_some(median)
}

/// True if nine in ten segments between adjacent positions have mostly the same launches as the previous one.
fn alike(symbols: &[u32], positions: &[u32]) -> bool {
    let mut balance: FxHashMap<u32, i64> = FxHashMap::default();
    let mut different = 0;
    for triple in positions.windows(3) {
        let (a, b, c) = (triple[0] as usize, triple[1] as usize, triple[2] as usize);
        balance.clear();
        for symbol in &symbols[a..b] {
            *balance.entry(*symbol).or_default() += 1;
        }
        for symbol in &symbols[b..c] {
            *balance.entry(*symbol).or_default() -= 1;
        }
        let apart: u64 = balance.values().map(|count| count.unsigned_abs()).sum();
        if 1.0 - apart as f64 / ((c - a) as f64) < SIMILARITY {
            different += 1;
        }
    }
    10 * different <= positions.len().saturating_sub(2)
}
