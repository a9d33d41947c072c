//! Steps that become visible before an epoch of launches has passed, by a CUDA graph, a copy between host and
//! device, or a wait of the host. Each detector follows events at equal distances with the same launches in
//! between each time.
//!
//! **A graph.** A program that replays a captured step launches once or a few times per step, so it may be
//! over before there are enough launches to compare periods. But a graph launch differs from a kernel launch:
//! a graph is captured to be repeated. When one graph occurs eight times at equal distances, its distance is
//! the period. Kernels are no such evidence: in a loop of equal kernels, each kernel is not a step. A graph
//! that represents a layer and not a step is taken for the step until the epochs correct it.
//!
//! **A copy.** A slow program may be over after sixteen steps of fifty launches, which is too little for two
//! epochs. Exact repetition alone cannot shorten the wait: the layers of a model repeat as exactly as its
//! steps do. But the host rarely transfers data once per layer; a batch or a loss is transferred once per
//! step. When such a copy occurs at one distance five times, that distance is the period. A program that
//! copies for each layer (weights kept on the host), or for each of more than four micro-batches before an
//! optimizer step, is cut there until the epochs correct it.
//!
//! **A wait.** The layers of a decoder, or the time steps of a recurrent network, may launch the same
//! sequence repeatedly with no launch in between that shows where a step starts. A host that synchronizes
//! once per step shows it. When a waiting function is called at equal distances eight times in a row, and a
//! unit of few launches repeats at least twice within that distance, the distance is the step. Units that
//! contain an input copy, an optimizer or a CUDA graph are left out: those are steps, and a host that waits
//! every hundred of them reads a loss or takes the time.

use std::collections::VecDeque;

use super::sequence::Sequence;

/// Consecutive equal distances that make a period.
const GRAPH_REPEATS: u32 = 8;
/// Longest distance, in launches: beyond that, an epoch of 512 launches is soon complete.
const LONGEST_GRAPH: u64 = 64;
/// Graphs that are followed at a time (the most recent ones).
const GRAPHS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Graph {
    symbol: u32,
    number: u64,
    distance: u64,
    repeats: u32,
}

#[derive(Debug, Default)]
pub(super) struct GraphBeat {
    graphs: Vec<Graph>,
}

impl GraphBeat {
    /// Launch `number`, the newest of `sequence`, launches a graph. Returns the period if this completes one.
    pub(super) fn launched(&mut self, symbol: u32, number: u64, sequence: &Sequence) -> Option<u32> {
        let Some(index) = self.graphs.iter().position(|graph| graph.symbol == symbol) else {
            if self.graphs.len() == GRAPHS {
                let oldest = (0..GRAPHS).min_by_key(|&index| self.graphs[index].number)?;
                self.graphs.swap_remove(oldest);
            }
            self.graphs.push(Graph { symbol, number, distance: 0, repeats: 0 });
            return None;
        };
        let graph = &mut self.graphs[index];
        let distance = number - graph.number;
        graph.repeats = if distance == graph.distance { graph.repeats.saturating_add(1) } else { 1 };
        (graph.number, graph.distance) = (number, distance);
        if graph.repeats < GRAPH_REPEATS || distance > LONGEST_GRAPH {
            return None;
        }
        let lag = distance as u32;
        let since = number + 1 - u64::from(GRAPH_REPEATS - 1) * distance;
        (since..=number).all(|number| sequence.repeats(number, lag) == Some(true)).then_some(lag)
    }
}

/// Consecutive exact repetitions that make a period: as many as an epoch has of a known one.
const COPY_REPEATS: u64 = 4;
/// Fewest launches that must repeat, those of the shortest early epoch but one...
const FEWEST_LAUNCHES: u64 = 128;
/// ...and shortest distance: shorter ones end their epoch early anyway, and weight conversion loops look like
/// this.
const SHORTEST_COPY: u64 = 9;
/// Longest distance: the launches to compare with must still be remembered.
const LONGEST_COPY: u64 = 8_192;
/// Copies that are remembered; a step with more copies starts at one of its last. Bounds the work per copy.
const COPIES: usize = 32;

/// Newest copies between host and device, oldest first: their symbols and launch numbers.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    copies: VecDeque<(u32, u64)>,
}

impl Exchanges {
    /// Launch `number`, the newest, copies between host and device.
    pub(super) fn copied(&mut self, symbol: u32, number: u64) {
        if self.copies.len() == COPIES {
            self.copies.pop_front();
        }
        self.copies.push_back((symbol, number));
    }

    /// Shortest distance from the newest copy to an equal one that has repeated since.
    pub(super) fn period(&self, sequence: &Sequence) -> Option<u32> {
        let &(symbol, newest) = self.copies.back()?;
        let equal = self.copies.iter().rev().skip(1).filter(|copy| copy.0 == symbol);
        let distance =
            equal.map(|copy| newest - copy.1).take_while(|&distance| distance <= LONGEST_COPY).find(|&distance| {
                let trials = (COPY_REPEATS * distance).max(FEWEST_LAUNCHES);
                let lag = distance as u32;
                (0..trials).all(|back| newest.checked_sub(back).and_then(|n| sequence.repeats(n, lag)) == Some(true))
            })?;
        // Weights copied one after the other are not steps: the copied data must be used in between.
        let copies = self.copies.iter().filter(|copy| copy.1 + distance > newest).count() as u64;
        (distance >= SHORTEST_COPY && copies < distance).then_some(distance as u32)
    }
}

/// Consecutive equal distances that make a period, as for graphs.
const WAIT_REPEATS: u32 = 8;
/// Distances without a wait after which it no longer comes: another phase.
const WAIT_FORGOTTEN: u64 = 4;
/// Longest distance, in launches: the launches to compare with must still be remembered.
const LONGEST_WAIT: u64 = 8_192;
/// Longest unit, in launches. Layers of transformers have 10 to 60; a longer unit may well be the step.
pub(super) const LONGEST_UNIT: u32 = 64;
/// Functions that are followed at a time: CUDA has six that wait.
const FUNCTIONS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Beat {
    function: u32,
    number: u64,
    distance: u64,
    repeats: u32,
}

/// Waits of the host for one device.
#[derive(Debug, Default)]
pub(super) struct WaitBeats {
    beats: Vec<Beat>,
}

impl WaitBeats {
    /// The host called the waiting function `function` before launch `number`. Returns the distance from the
    /// previous call if it has repeated enough.
    pub(super) fn waited(&mut self, function: u32, number: u64) -> Option<u32> {
        let Some(beat) = self.beats.iter_mut().find(|beat| beat.function == function) else {
            if self.beats.len() < FUNCTIONS {
                self.beats.push(Beat { function, number, distance: 0, repeats: 0 });
            }
            return None;
        };
        let distance = number - beat.number;
        if distance == 0 {
            return None;
        }
        beat.repeats = if distance == beat.distance { beat.repeats.saturating_add(1) } else { 1 };
        (beat.number, beat.distance) = (number, distance);
        (beat.repeats >= WAIT_REPEATS && distance <= LONGEST_WAIT).then_some(distance as u32)
    }

    /// True if the host waits once in each `period` launches, of which there are `count` up to now.
    pub(super) fn comes_each(&self, period: u32, count: u64) -> bool {
        let recent = |beat: &Beat| count.saturating_sub(beat.number) <= WAIT_FORGOTTEN * beat.distance;
        let each = |beat: &Beat| beat.repeats >= WAIT_REPEATS && beat.distance == u64::from(period);
        self.beats.iter().any(|beat| each(beat) && recent(beat))
    }
}

/// True if the newest launches repeat those `distance` before them without exception, as many times as the
/// waits did.
pub(super) fn repeats_exactly(distance: u32, sequence: &Sequence) -> bool {
    let (newest, trials) = (sequence.count(), u64::from(WAIT_REPEATS - 1) * u64::from(distance));
    let known = newest.checked_sub(trials).filter(|&from| from >= sequence.oldest() + u64::from(distance));
    known.is_some_and(|from| u64::from(sequence.repeats_within(from..newest, distance)) == trials)
}
