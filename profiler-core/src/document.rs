//! Serialized forms of engine types.

use std::collections::BTreeMap;

use gpuwhy_trace::document::document;

use crate::attribution::{HostLead, Spread};
use crate::collective::{Basis, CollectivesReport, NamedRow};
use crate::leaf::{Leaf, Leaves};
use crate::monitoring::MonitoredTime;
use crate::steps::{Iteration, Step, StepKind};
use crate::whatif::BestCase;

/// Nanoseconds by leaf name.
pub fn leaves(leaves: &Leaves) -> BTreeMap<&'static str, u64> {
    Leaf::ALL.map(|leaf| (leaf.name(), leaves[leaf as usize])).into()
}

document! {
    from: Step {
        start_unix_ns: from.start,
        duration_ns: from.duration(),
        leaves: leaves(&from.leaves),
        iteration?: from.iteration,
    }
    from: StepKind {
        name, count, total_ns, median_ns, p99_ns, sequences, tokens,
        leaves: leaves(&from.leaves),
    }
    from: Iteration {
        kind,
        sequences: Some(from.sequences).filter(|&sequences| sequences > 0),
        tokens: Some(from.tokens).filter(|&tokens| tokens > 0),
    }
    from: BestCase {
        kind, step_ns,
        speedup: Some(from.speedup).filter(|speedup| speedup.is_finite()),
        low: from.interval.map(|(low, _)| low),
        high: from.interval.map(|(_, high)| high),
    }
    from: HostLead {
        launches: from.launches(),
        late: from.late(),
        median_ns: from.median_ns(),
        min_ns: from.min_ns(),
        held_back: from.held_back(),
        held_back_ns: from.held_back_ns(),
    }
    from: Spread {
        count: from.durations.count(),
        total_ns: from.durations.total(),
        mean_ns: from.durations.mean(),
        median_ns: from.durations.median(),
        min_ns: from.durations.min(),
        max_ns: from.durations.max(),
        deviation_ns: from.deviation(),
    }
    from: CollectivesReport {
        rows, communicators,
        operations_without_kernel: from.unjoined.operations,
        operations_captured: from.unjoined.captured,
        operations_of_copy_engines: from.unjoined.copy_engine,
        kernels_without_operation: from.unjoined.kernels,
        graph_kernels_without_operation: from.unjoined.graph_kernels,
        dropped: from.unjoined.dropped,
        table_overflow: from.beyond,
    }
    from: NamedRow {
        communicator: (from.row.communicator != 0).then(|| format!("{:016x}", from.row.communicator)),
        name: Some(&from.name).filter(|name| !name.is_empty()),
        ranks: Some(from.row.ranks).filter(|&ranks| ranks > 0),
        function: from.row.function,
        algorithm: from.row.algorithm,
        kernels: from.row.kernels,
        grouped_kernels: from.row.grouped,
        operations: from.row.operations,
        bytes: from.row.bytes,
        min_bytes: from.row.min_bytes,
        max_bytes: from.row.max_bytes,
        time_ns: from.row.time_ns,
        exposed_ns: from.row.exposed_ns,
        longest_ns: from.row.longest_ns,
        algorithm_bytes_per_second: from.row.algorithm_bandwidth(),
        bus_bytes_per_second: from.row.bus_bandwidth(),
        basis: BTreeMap::from(Basis::ALL.map(|basis| (basis.name(), from.row.bases[basis as usize]))),
    }
    from: MonitoredTime {
        window_ns, start_up_ns, unresolved_ns,
        busy_low: from.busy.0,
        busy_high: from.busy.1,
        covered,
        gpu_samples: from.samples.0,
        host_samples: from.samples.1,
        bottleneck,
        causes: from.parts.iter().map(|part| (part.cause.name(), part)).collect::<BTreeMap<_, _>>(),
    }
}
