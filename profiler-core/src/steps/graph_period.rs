//! Steps of few launches around one CUDA graph, before an epoch of launches has passed.
//!
//! A program that replays a captured step launches once or a few times a step, so it may be over before there are
//! enough launches to compare periods. A graph launch is not a kernel launch, though: somebody captured it to be
//! repeated. When one graph comes eight times at equal distances, with the same launches in between each time, its
//! distance is the period. Kernels give no such hint: a loop of equal kernels is not a step for each of them.
//!
//! A graph that stands for a layer and not for a step is taken for the step until the epochs know better.

use super::sequence::Sequence;

/// Equal distances in a row that make a period.
const REPEATS: u32 = 8;
/// Longest distance, in launches: beyond, an epoch of 512 launches is not long in coming.
const LONGEST: u64 = 64;
/// Graphs that are followed at a time, those that came last.
const GRAPHS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Graph {
    symbol: u32,
    number: u64,
    distance: u64,
    repeats: u32,
}

/// The graphs of one device.
#[derive(Debug, Default)]
pub(super) struct GraphBeat {
    graphs: Vec<Graph>,
}

impl GraphBeat {
    /// Launch `number`, the newest of `sequence`, launches a graph. Gives the period if this makes one.
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
        if graph.repeats < REPEATS || distance > LONGEST {
            return None;
        }
        let lag = distance as u32;
        let since = number + 1 - u64::from(REPEATS - 1) * distance;
        (since..=number).all(|number| sequence.repeats(number, lag) == Some(true)).then_some(lag)
    }
}
