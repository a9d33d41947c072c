//! A launch that comes once a step, for programs whose steps differ in length: one search over an epoch.
//!
//! An inserted launch shifts everything after it, so no lag matches any more, but whatever a step does once it still
//! does once. A symbol is an anchor when it comes at about regular distances, throughout, and the launches between
//! two appearances are nearly the same as those before. The longest such distance wins: what comes once a layer
//! is regular too.

use rustc_hash::FxHashMap;

/// Appearances that are needed to speak of regularity.
const FEWEST: usize = 4;
/// A distance is regular within this many launches of the median...
const SLACK: u32 = 2;
/// ...or within this part of it.
const SLACK_PART: u32 = 10;
/// Share of distances that must be regular.
const REGULAR_SHARE: f64 = 0.8;
/// Part of the epoch that lies between the first and the last appearance.
const COVERAGE: f64 = 0.6;
/// Similarity that nine in ten neighboring segments must reach: launches in common by launches, 0 to 1. Survives 5 %
/// of inserted launches; a mix of prompts and tokens, which has no step, stays below.
const SIMILARITY: f64 = 0.8;
/// Symbols whose segments are compared, those with the longest distances first.
const COMPARED: usize = 16;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// The launch that comes once a step.
    pub(super) symbol: u32,
    /// Median distance between two of them, in launches.
    pub(super) distance: u32,
}

/// Looks for an anchor; `current` is kept as long as it is one and none comes much less often.
pub(super) fn find(symbols: &[u32], current: Option<u32>) -> Option<Anchor> {
    let mut places: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (place, &symbol) in symbols.iter().enumerate() {
        places.entry(symbol).or_default().push(place as u32);
    }
    let mut rows: Vec<(Anchor, &Vec<u32>)> = places
        .iter()
        .filter_map(|(&symbol, places)| Some((Anchor { symbol, distance: regular(places, symbols.len())? }, places)))
        .collect();
    // The order of the map must not show.
    rows.sort_unstable_by_key(|(anchor, places)| (std::cmp::Reverse(anchor.distance), places.first().copied()));
    let longest = rows.iter().take(COMPARED).find(|(_, places)| alike(symbols, places)).map(|&(anchor, _)| anchor)?;
    let kept = rows.iter().find(|(anchor, places)| {
        let near = longest.distance.abs_diff(anchor.distance) <= longest.distance / SLACK_PART;
        Some(anchor.symbol) == current && near && alike(symbols, places)
    });
    Some(kept.map_or(longest, |&(anchor, _)| anchor))
}

/// The median distance between neighbors if most are near it and they cover `length` places.
fn regular(places: &[u32], length: usize) -> Option<u32> {
    let (&first, &last) = (places.first()?, places.last()?);
    if places.len() < FEWEST || f64::from(last - first) < COVERAGE * length as f64 {
        return None;
    }
    let mut distances: Vec<u32> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let median = distances[distances.len() / 2];
    let slack = SLACK.max(median / SLACK_PART);
    let near = distances.iter().filter(|&&distance| distance.abs_diff(median) <= slack).count();
    (near as f64 >= REGULAR_SHARE * distances.len() as f64).then_some(median)
}

/// Whether nine in ten segments between neighboring places have mostly the launches of the one before.
fn alike(symbols: &[u32], places: &[u32]) -> bool {
    let mut balance: FxHashMap<u32, i64> = FxHashMap::default();
    let mut different = 0;
    for triple in places.windows(3) {
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
    10 * different <= places.len().saturating_sub(2)
}
