//! Kernel time by library, and by the source line that launched it.
//!
//! Durations are exact; their origin is an estimate. A kernel's library is derived from its name, or else
//! from the loaded file that samples saw calling CUDA.

use std::cmp::Reverse;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::{Attributor, LaunchedWork};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use super::{LibraryRow, names};
use crate::library::Library;

/// Totals for one kernel name on all devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfName {
    count: u64,
    pub(super) total_ns: u64,
    pub(super) graph_ns: u64,
}

pub(super) fn kernels_by_name(attributor: &Attributor) -> FxHashMap<Option<NameId>, OfName> {
    let mut kernels: FxHashMap<Option<NameId>, OfName> = FxHashMap::default();
    for (name, row) in attributor.devices().flat_map(|account| account.statistics().kernels()) {
        let sum = kernels.entry(name).or_default();
        sum.count += row.durations.count();
        sum.total_ns = sum.total_ns.saturating_add(row.durations.total());
        sum.graph_ns = sum.graph_ns.saturating_add(row.graph_ns);
    }
    kernels
}

impl LibraryRow {
    /// Returns the kernels of all devices by library, the one with the most time first.
    pub(super) fn all(attributor: &Attributor, dictionary: &Dictionary) -> Vec<Self> {
        let kernels = kernels_by_name(attributor);
        let files = files_of_kernels(attributor);
        let all = kernels.values().fold(0u64, |sum, of| sum.saturating_add(of.total_ns));
        // The first kernel of a library is its largest.
        let mut kernels: Vec<(Option<NameId>, OfName)> = kernels.into_iter().collect();
        kernels.sort_rows_by_key(|&(name, of)| (Reverse(of.total_ns), name));
        let mut rows: Vec<Self> = Vec::new();
        for (name, of) in kernels {
            let by_name =
                name.and_then(|id| Library::of_kernel(dictionary.name(id))).map(|known| known.name().to_owned());
            let by_samples = match (&by_name, name.and_then(|id| files.get(&id))) {
                (None, Some(&file)) => Some(library_of_file(dictionary.name(file))),
                _ => None,
            };
            let by_samples_ns = if by_samples.is_some() { of.total_ns } else { 0 };
            let library = by_name.or(by_samples);
            let known = rows.iter().position(|row| row.library == library);
            let index = known.unwrap_or_else(|| {
                let largest = name.map_or_else(|| "(other kernels)".to_owned(), |id| names::kernel(dictionary, id));
                rows.push(Self { library, names: 0, count: 0, total_ns: 0, by_samples_ns: 0, share: 0.0, largest });
                rows.len() - 1
            });
            let row = &mut rows[index];
            row.names += 1;
            row.count += of.count;
            row.total_ns = row.total_ns.saturating_add(of.total_ns);
            row.by_samples_ns = row.by_samples_ns.saturating_add(by_samples_ns);
        }
        for row in &mut rows {
            row.share = row.total_ns as f64 / all.max(1) as f64;
        }
        rows.sort_rows_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.library.cmp(&b.library)));
        rows
    }
}

/// Maps each kernel to the file that launched it in most samples.
fn files_of_kernels(attributor: &Attributor) -> FxHashMap<NameId, NameId> {
    let mut counts: FxHashMap<(NameId, NameId), u64> = FxHashMap::default();
    for (work, place, sum) in attributor.launch_lines() {
        if let (LaunchedWork::Kernel(kernel), Some(file)) = (work, place.and_then(|place| place.binary)) {
            *counts.entry((kernel, file)).or_default() += sum.samples;
        }
    }
    let mut files: FxHashMap<NameId, (u64, Reverse<NameId>)> = FxHashMap::default();
    for ((kernel, file), samples) in counts {
        let most = files.entry(kernel).or_insert((samples, Reverse(file)));
        *most = (*most).max((samples, Reverse(file)));
    }
    files.into_iter().map(|(kernel, (_, Reverse(file)))| (kernel, file)).collect()
}

/// Returns the library of a loaded file, or the file's name.
fn library_of_file(file: &str) -> String {
    Library::of_file(file)
        .map_or_else(|| file.rsplit('/').next().unwrap_or(file).to_owned(), |library| library.name().to_owned())
}
