//! Data for exports about kernels that NCCL's profiler plugin reported.

use gpuwhy_trace::collective::{Algorithm, DataType};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{Kernel, Timestamp};
use profiler_core::collective::{Basis, Collective, Joiner};
use rustc_hash::FxHashMap;

/// Maximum number of kernels with collective data; further ones are shown as ordinary kernels.
const LIMIT: usize = 1 << 20;

/// Identifies a kernel by its call and its graph node.
type KernelKey = (u32, u64);

/// Collective operations by kernel.
#[derive(Debug, Default)]
pub struct Collectives {
    joiner: Joiner,
    /// The first operation of a kernel, and the bytes of all of its operations.
    known: FxHashMap<KernelKey, (Collective, u64)>,
}

/// A value in the description of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A name.
    Text(String),
    /// A number, with the unit in its name.
    Number(u64),
}

impl Collectives {
    /// Processes an event of the trace.
    pub fn take(&mut self, event: &Event, dictionary: &Dictionary) {
        let Self { joiner, known } = self;
        match event {
            Event::Record(record) => joiner.push(record, dictionary),
            Event::Collective(event) => joiner.event(event),
            Event::Flush(at) => joiner.flushed(*at, |row| keep(known, row)),
            _ => {}
        }
    }

    /// Called after the last event.
    pub fn finish(&mut self) {
        let Self { joiner, known } = self;
        joiner.finish(Timestamp::from_nanos(u64::MAX), |row| keep(known, row));
    }

    /// Names and values that describe a kernel in addition to its record. Empty if NCCL did not report it.
    /// Names that exist in Kineto are spelled as Kineto does.
    pub fn notes(&self, kernel: &Kernel) -> Vec<(&'static str, Note)> {
        let key = (kernel.correlation.0, kernel.graph_node_id);
        let Some((row, bytes)) = self.known.get(&key).filter(|(row, _)| row.start == kernel.start) else {
            return Vec::new();
        };
        let text = |text: &str| Note::Text(text.to_owned());
        let mut notes = vec![
            ("Collective name", text(row.function.name())),
            ("Group size", Note::Number(row.ranks.into())),
            ("communicator", Note::Text(format!("{:016x}", row.communicator))),
            ("bytes", Note::Number(*bytes)),
            ("operations", Note::Number(row.operations_in_kernel.into())),
            ("basis", text(row.basis.name())),
        ];
        if row.data_type != DataType::Unknown {
            notes.push(("dtype", text(row.data_type.name())));
        }
        if row.algorithm != Algorithm::Unknown {
            notes.push(("algorithm", text(row.algorithm.name())));
        }
        notes.extend(row.sequence.map(|sequence| ("sequence", Note::Number(sequence))));
        notes
    }
}

fn keep(known: &mut FxHashMap<KernelKey, (Collective, u64)>, row: &Collective) {
    let key = (row.correlation.0, row.graph_node);
    let has_room = known.len() < LIMIT;
    match known.get_mut(&key) {
        Some((first, bytes)) if first.start == row.start => *bytes += row.bytes,
        None if row.basis != Basis::KernelName && has_room => {
            known.insert(key, (*row, row.bytes));
        }
        _ => {}
    }
}
