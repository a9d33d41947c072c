//! State that a sink needs if it starts in the middle of a run.
//!
//! When a capture, a trace file or a session of the program starts, it first receives the newest state of the
//! counters, all communicators, the origins of the nodes of graphs, and the memory calls.

use std::collections::VecDeque;

use crate::collective::CollectiveEvent;
use crate::counters::{CounterEvent, CounterLoss, GaugeReading, MetricSet};
use crate::event::Event;
use crate::graph_node::GraphNode;
use crate::memory_call::MemoryCall;
use crate::record::DeviceId;
use crate::utilization::DEVICE_LIMIT;

const COMMUNICATORS: usize = 1 << 14;
/// The newest nodes of graphs, 32 bytes each: a capture that starts later replays graphs from before it.
const GRAPH_NODES: usize = 1 << 17;
/// The newest memory calls, 96 bytes each: a capture that starts later holds what was taken before it.
const MEMORY_CALLS: usize = 1 << 16;

/// Latest counter state and all communicators; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Preamble {
    sets: Vec<MetricSet>,
    losses: Vec<CounterLoss>,
    /// Latest readings that contain energy, which is rarely read.
    energy: Vec<GaugeReading>,
    communicators: Vec<CollectiveEvent>,
    dropped: u64,
    graph_nodes: VecDeque<GraphNode>,
    graph_nodes_dropped: u64,
    memory_calls: VecDeque<MemoryCall>,
}

impl Preamble {
    /// Stores an event if later sinks need it. Returns true if every later one gets it, regardless of its time.
    pub fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Counters(event) => {
                self.note_counters(event);
                return false;
            }
            Event::Collective(event @ CollectiveEvent::Communicator(_)) => {
                if self.communicators.len() < COMMUNICATORS {
                    self.communicators.push(*event);
                } else {
                    self.dropped += 1;
                }
            }
            Event::GraphNode(node) => {
                if self.graph_nodes.len() >= GRAPH_NODES {
                    self.graph_nodes.pop_front();
                    self.graph_nodes_dropped += 1;
                }
                self.graph_nodes.push_back(*node);
            }
            Event::MemoryCall(call) => {
                if self.memory_calls.len() >= MEMORY_CALLS {
                    self.memory_calls.pop_front();
                }
                self.memory_calls.push_back(**call);
            }
            _ => return false,
        }
        true
    }

    /// Like [`note`](Self::note), for counter events.
    pub fn note_counters(&mut self, event: &CounterEvent) {
        match *event {
            CounterEvent::Set(set) => replace(&mut self.sets, set, |set| set.device),
            CounterEvent::Loss(loss) => replace(&mut self.losses, loss, |loss| loss.device),
            CounterEvent::Gauges(reading) if reading.energy_mj.is_some() => {
                replace(&mut self.energy, reading, |reading| reading.device);
            }
            CounterEvent::Gauges(_) | CounterEvent::Process(_) | CounterEvent::Sample(_) => {}
        }
    }

    /// Events that later events refer to: metric sets, communicators, nodes of graphs and memory calls.
    pub fn definitions(&self) -> impl Iterator<Item = Event> {
        let sets = self.sets.iter().map(|set| CounterEvent::Set(*set).into());
        let communicators = self.communicators.iter().map(|event| Event::Collective(*event));
        let calls = self.memory_calls.iter().map(|call| Event::MemoryCall(Box::new(*call)));
        sets.chain(communicators).chain(self.graph_nodes.iter().map(|node| Event::GraphNode(*node))).chain(calls)
    }

    /// Like [`definitions`](Self::definitions), plus the current totals, for a new file.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let losses = self.losses.iter().map(|loss| CounterEvent::Loss(*loss).into());
        let energy = self.energy.iter().map(|reading| CounterEvent::Gauges(*reading).into());
        self.definitions().chain(losses).chain(energy)
    }

    /// Metric set of `device`.
    pub fn set(&self, device: DeviceId) -> Option<&MetricSet> {
        self.sets.iter().find(|set| set.device == device)
    }

    /// Counter losses by device.
    pub fn counter_losses(&self) -> &[CounterLoss] {
        &self.losses
    }

    /// Communicators dropped because the limit was reached.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Nodes of graphs dropped because the limit was reached.
    pub fn graph_nodes_dropped(&self) -> u64 {
        self.graph_nodes_dropped
    }
}

/// Replaces the entry of the same device, or adds one. The number of devices is limited.
fn replace<T>(rows: &mut Vec<T>, newer: T, device: impl Fn(&T) -> DeviceId) {
    match rows.iter().position(|known| device(known) == device(&newer)) {
        Some(index) => rows[index] = newer,
        None if rows.len() < DEVICE_LIMIT => rows.push(newer),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Communicator, QueuedOperation};
    use crate::counters::Sample;
    use crate::record::Timestamp;

    fn counter_loss(device: u32, lost: u64) -> Event {
        Event::from(CounterEvent::Loss(CounterLoss { device: DeviceId(device), lost, ..CounterLoss::default() }))
    }

    #[test]
    fn the_newest_of_a_device_counts_and_devices_are_bounded() {
        let mut preamble = Preamble::default();
        preamble.note(&counter_loss(3, 1));
        preamble.note(&counter_loss(3, 5));
        assert_eq!(preamble.events().collect::<Vec<_>>(), [counter_loss(3, 5)]);
        (0..1_000).for_each(|device| assert!(!preamble.note(&counter_loss(device, 1))));
        assert_eq!(preamble.counter_losses().len(), DEVICE_LIMIT);
    }

    #[test]
    fn what_is_of_its_moment_is_not_repeated() {
        let at = Timestamp::from_nanos(7);
        let reading =
            |energy_mj| Event::from(CounterEvent::Gauges(GaugeReading { at, energy_mj, ..GaugeReading::default() }));
        let communicator =
            Event::Collective(CollectiveEvent::Communicator(Communicator { number: 1, ..Communicator::default() }));
        let mut preamble = Preamble::default();
        let passing = [
            reading(None),
            Event::from(CounterEvent::Sample(Sample::new(DeviceId(0), at, at, &[1.0]))),
            Event::Collective(CollectiveEvent::Operation(QueuedOperation::default())),
            Event::Flush(at),
        ];
        passing.iter().chain([&communicator, &reading(Some(5))]).for_each(|event| {
            preamble.note(event);
        });
        assert!(preamble.definitions().eq([communicator.clone()]));
        assert_eq!(preamble.events().collect::<Vec<_>>(), [communicator, reading(Some(5))]);
    }

    #[test]
    fn nodes_of_graphs_are_kept_in_order_and_bounded() {
        let node = |node| Event::GraphNode(GraphNode { node, ..GraphNode::default() });
        let mut preamble = Preamble::default();
        (1..=GRAPH_NODES as u64 + 3).for_each(|id| assert!(preamble.note(&node(id))));
        assert_eq!(preamble.graph_nodes_dropped(), 3);
        assert!(preamble.definitions().eq((4..=GRAPH_NODES as u64 + 3).map(node)), "the newest");
        assert_eq!(preamble.dropped(), 0);
    }
}
