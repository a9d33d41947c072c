//! Tables of collectives: operations with their kernels, and communicators.

use gpuwhy_trace::collective::{Algorithm, Communicator, DataType, Function, Protocol};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::Timestamp;
use profiler_core::collective::{Basis, Collective, Joiner};

use super::cell::{Cell, Cells, Column, ColumnType};
use super::records::table;

table! {
    /// `communicator` is its id as text.
    COLLECTIVES, collective(row: &Collective, communicator: Option<&'a str>) {
        "communicator" Text "16 hexadecimal digits, equal on all ranks; empty if NCCL did not report it" = communicator;
        "ranks" Integer "of the communicator; empty if not known" = known(u64::from(row.ranks));
        "function" Text "all_reduce and others" = row.function.name();
        "sequence" Integer "operations of this function in the communicator before it, as NCCL counts, equal on all ranks; empty if not known" = row.sequence;
        "ordinal" Integer "rows of this communicator and function before it in this trace" = row.ordinal;
        "bytes" Integer "size as nccl-tests counts it; empty if not known" = known(row.bytes);
        "data_type" Text "float32 and others; empty if not known" = known_name(row.data_type != DataType::Unknown, row.data_type.name());
        "algorithm" Text "ring and others; empty if not known" = known_name(row.algorithm != Algorithm::Unknown, row.algorithm.name());
        "protocol" Text "ll, ll128, simple; empty if not known" = known_name(row.protocol != Protocol::Unknown, row.protocol.name());
        "channels" Integer "empty if not known" = known(u64::from(row.channels));
        "root_or_peer" Integer "rank of the root, or of the other side of a send or receive; empty for other functions" = root_or_peer(row);
        "operations_in_kernel" Integer "operations that the same kernel did, this one included; empty if not known" = known(u64::from(row.operations_in_kernel));
        "queued_ns" Integer "when the program queued it; empty if not known" = known(row.queued.nanos());
        "start_ns" Integer "begin of its kernel" = row.start.nanos();
        "end_ns" Integer "end of its kernel" = row.end.nanos();
        "exposed_ns" Integer "part of end_ns - start_ns in which no other kernel computed on the device" = row.exposed_ns;
        "device" Integer "ordinal of the device" = row.device.0;
        "stream" Integer "stream of the kernel" = row.stream.0;
        "correlation" Integer "joins with kernels.correlation" = row.correlation.0;
        "graph" Integer "executable CUDA graph; empty without" = known(u64::from(row.graph));
        "graph_node" Integer "node of the graph; empty without" = known(row.graph_node);
        "basis" Text "what the row rests on: plugin, order, nvtx, kernel_name" = row.basis.name();
    }
}

table! {
    /// `id` is its id as text.
    COMMUNICATORS, communicator(row: &Communicator, id: &'a str, dictionary: &'a Dictionary) {
        "communicator" Text "16 hexadecimal digits, equal on all ranks" = id;
        "name" Text "what the program calls it; empty without" = known_name(!dictionary.name(row.name).is_empty(), dictionary.name(row.name));
        "ranks" Integer "ranks" = row.ranks;
        "nodes" Integer "hosts" = row.nodes;
        "rank_in_communicator" Integer "rank of the process in it; empty if not known" = Some(row.rank).filter(|&rank| rank < row.ranks);
    }
}

fn known(number: u64) -> Option<u64> {
    Some(number).filter(|&number| number != 0)
}

fn known_name(known: bool, name: &str) -> Option<&str> {
    Some(name).filter(|_| known)
}

fn root_or_peer(row: &Collective) -> Option<u64> {
    use Function::{Broadcast, Gather, Receive, Reduce, Scatter, Send};
    let has = matches!(row.function, Broadcast | Gather | Receive | Reduce | Scatter | Send);
    u64::try_from(row.root_or_peer).ok().filter(|_| has && row.basis != Basis::KernelName)
}

/// Collects the rows of both tables during the pass over the other tables of records.
#[derive(Debug, Default)]
pub struct CollectiveRows {
    joiner: Joiner,
    rows: Vec<Collective>,
}

impl CollectiveRows {
    /// Processes an event. Returns the rows that it completes.
    pub fn take(&mut self, event: &Event, dictionary: &Dictionary) -> std::vec::Drain<'_, Collective> {
        let Self { joiner, rows } = self;
        match event {
            Event::Record(record) => joiner.push(record, dictionary),
            Event::Collective(event) => joiner.event(event),
            Event::Flush(at) => joiner.flushed(*at, |row| rows.push(*row)),
            _ => {}
        }
        rows.drain(..)
    }

    /// Returns the remaining rows and all communicators after the last event.
    pub fn finish(mut self) -> (Vec<Collective>, Vec<Communicator>) {
        let Self { joiner, rows } = &mut self;
        joiner.finish(Timestamp::from_nanos(u64::MAX), |row| rows.push(*row));
        (self.rows, self.joiner.communicators())
    }
}

/// Id of a communicator as text.
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}
