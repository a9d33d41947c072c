//! Assigns a run and a rank to each trace.
//!
//! A run consists of the traces of one job that have ranks. Its name is that of `GPUWHY_RUN` or the launcher's job,
//! else the folder that contains them. A trace without a rank is a separate run, named after its file if it has no
//! name of its own.

use std::collections::BTreeMap;
use std::path::Path;

use gpuwhy_import::{TraceFile, stem};

/// Run and rank of the rows of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Name of the run, never empty.
    pub run: String,
    /// Rank in the run; 0 for a process without one.
    pub rank: u32,
}

/// Labels of `traces` in the same order, all different. `run` names the run of all traces instead of their
/// folders.
///
/// A process inherits the rank of its parent. Of two traces with the same run and rank, the one that started
/// first keeps them; the other becomes a separate run whose name includes the name of its file.
pub fn labels(traces: &[TraceFile], run: Option<&str>) -> Vec<Label> {
    let mut order: Vec<usize> = (0..traces.len()).collect();
    order.sort_by_key(|&index| traces[index].session().start);
    let mut taken: BTreeMap<Label, usize> = BTreeMap::new();
    for index in order {
        let trace = &traces[index];
        let mut label = wished(trace, run);
        if taken.contains_key(&label) {
            label.run = format!("{}-{}", label.run, stem(trace.path()));
        }
        // For example, files with the same name from two folders.
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

/// Label of a trace before duplicates are resolved.
fn wished(trace: &TraceFile, run: Option<&str>) -> Label {
    let (path, session) = (trace.path(), trace.session());
    let rank = session.rank();
    let of_place = || rank.and_then(|_| folder(path)).unwrap_or_else(|| stem(path));
    let of_its_own = || session.named_run().unwrap_or_else(of_place);
    Label { run: run.map_or_else(of_its_own, str::to_owned), rank: rank.unwrap_or(0) }
}

/// Name of the folder that contains the file.
pub(crate) fn folder(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(path.parent()?.file_name()?.to_string_lossy().into_owned())
}
