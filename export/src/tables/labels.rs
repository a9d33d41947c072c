//! Which run and which rank a trace is.
//!
//! A run is what belongs together: the traces of one job, which tell their ranks. They are named after the folder they
//! lie in, since a trace knows its rank but not its job. A trace without a rank is a run of its own.

use std::collections::BTreeMap;
use std::path::Path;

use gpuwhy_import::{TraceFile, stem};

/// Where rows of a trace belong.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The run: never empty.
    pub run: String,
    /// The rank in the run; 0 for a process that has none.
    pub rank: u32,
}

/// Labels of `traces`, in their order, no two of them equal. `run` names the run of all instead of their folders.
///
/// A process inherits the rank of its parent. Of two traces of one run and rank the one that began first keeps it;
/// the other becomes a run of its own, named after its file too.
#[must_use]
pub fn labels(traces: &[TraceFile], run: Option<&str>) -> Vec<Label> {
    let mut order: Vec<usize> = (0..traces.len()).collect();
    order.sort_by_key(|&index| traces[index].session().start);
    let mut taken: BTreeMap<Label, usize> = BTreeMap::new();
    for index in order {
        let trace = &traces[index];
        let mut label = wished(trace.path(), trace.session().rank(), run);
        if taken.contains_key(&label) {
            label.run = format!("{}-{}", label.run, stem(trace.path()));
        }
        // Files of one name from two folders, say.
        let base = label.run.clone();
        for number in 2.. {
            if !taken.contains_key(&label) {
                break;
            }
            label.run = format!("{base}-{number}");
        }
        taken.insert(label, index);
    }
    let mut labels: Vec<(usize, Label)> = taken.into_iter().map(|(label, index)| (index, label)).collect();
    labels.sort_by_key(|&(index, _)| index);
    labels.into_iter().map(|(_, label)| label).collect()
}

/// The label of a trace that has no other beside it.
fn wished(path: &Path, rank: Option<u32>, run: Option<&str>) -> Label {
    let of_its_own = || match rank {
        Some(_) => folder(path).unwrap_or_else(|| stem(path)),
        None => stem(path),
    };
    Label { run: run.map_or_else(of_its_own, str::to_owned), rank: rank.unwrap_or(0) }
}

/// The name of the folder that holds the file.
fn folder(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(path.parent()?.file_name()?.to_string_lossy().into_owned())
}
