//! Data loading.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{DATA, NO_LOADER, Rank, RemedyEntry, Target, When};
use crate::run::remedies::facts::{Activity, Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use super::others::TENSOR_BATCHES;

use Framework::{Any, Native, Pytorch};

const NONE: RemedyEntry = RemedyEntry {
    target: Target::Time(Cause::DataLoading),
    results: Results::Behavior,
    link: DATA,
    ..RemedyEntry::NONE
};

fn ready(facts: &Facts<'_>) -> Option<Gain> {
    facts.scenario(ScenarioKind::DataReady)
}

/// Data that are ready, with up to three tenths of the loading left: batches are received, and threads of the launching
/// process wait for cores that the workers use (2.1x measured where it was 4.4x without).
fn by_workers(facts: &Facts<'_>) -> Option<Gain> {
    ready(facts).map(|gain| partly(gain, 0.3 * facts.time(Cause::DataLoading)))
}

/// The gain if up to this share of the step remains, 0 to 1.
fn partly(gain: Gain, remains: f64) -> Gain {
    let (low, high) = gain.interval.unwrap_or((gain.speedup, gain.speedup));
    let low = (1.0 / (1.0 / low + remains)).max(1.0);
    Gain { speedup: (low * high).sqrt(), interval: Some((low, high)), ..gain }
}

/// Loading is the bottleneck, and the launching thread does this.
fn loading(facts: &Facts<'_>, causes: &[HostCause]) -> Option<Found> {
    let does = causes.iter().any(|&cause| facts.program.activity == Some(Activity::Does(cause)));
    (facts.is(Cause::DataLoading) && does).then(|| Found::default().gaining(ready(facts)))
}

/// The files of PyTorch that take single samples from a dataset of tensors, and join them.
const SAMPLES: [&str; 3] =
    ["torch/utils/data/dataset.py", "torch/utils/data/_utils/collate.py", "torch/utils/data/_utils/fetch.py"];

/// Half of the loading or more is in [`SAMPLES`], not in code of the program.
fn by_samples(facts: &Facts<'_>) -> Option<Found> {
    let found = loading(facts, &[HostCause::LoaderInline, HostCause::LoaderCollate])?;
    let (share, at) = facts.idle_in(&SAMPLES)?;
    (share >= 0.5 * facts.time(Cause::DataLoading)).then_some(Found { at: Some(at), ..found })
}

/// The other way, where the line of the program is known that the launching thread prepares batches at.
fn cheaper(facts: &Facts<'_>) -> String {
    let at = facts.program.activity_at.filter(|at| at.starts_with("at "));
    at.map_or_else(String::new, |at| {
        format!(
            "make the work {at} cheaper, which the launching thread does for each batch, or take it from that thread: "
        )
    })
}

pub(super) const WORKERS: Trial = Trial {
    id: "workers",
    change: "worker processes in data loaders that have none; data sets that draw random numbers give others",
    keep: "DataLoader(..., num_workers=8, persistent_workers=True)",
    how: How::PyTorch,
    needs: "no DataLoader without workers was made, or only one CPU core is free",
};

pub(super) const WORKER_THREADS: Trial = Trial {
    id: "worker_threads",
    change: "one thread for each process in CPU libraries",
    keep: "OMP_NUM_THREADS=1 and MKL_NUM_THREADS=1",
    how: How::Set(&[("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")]),
    needs: "OMP_NUM_THREADS=1 is set already",
};

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "persistent",
        says: &[(
            Pytorch,
            "Worker processes are started again for each epoch {there}: DataLoader(..., persistent_workers=True).",
        )],
        when: When::If(|facts| {
            let gain = ready(facts);
            facts.doing(&[Activity::StartsWorkers]).map(|found| found.gaining(gain))
        }),
        certainty: Certainty::Measured,
        recognized: "at least 10 % of the time in starting processes, in a program with a data loader",
        gain: "without the gap: 3.02x (2.95x to 3.09x) measured for short epochs",
        not_when: "there is one epoch only",
        trial: Some(&Trial {
            id: "persistent",
            change: "workers of data loaders live longer than an epoch",
            keep: "DataLoader(..., persistent_workers=True)",
            how: How::PyTorch,
            needs: NO_LOADER,
        }),
        rank: Rank::First,
        also: |facts| facts.program.activity.is_some(),
        ..NONE
    },
    RemedyEntry {
        id: "workers",
        says: &[
            (
                Native,
                "Read and prepare the next input in other threads, while the GPU works on this one. This helps while CPU cores are free.",
            ),
            (
                Pytorch,
                "{detail}prepare batches in worker processes: DataLoader(..., num_workers=4, pin_memory=True){at}. More workers help \
                 while CPU cores are free.",
            ),
            (
                Any,
                "Read and prepare the next input in other processes or threads, while the GPU works on this one. This helps while CPU \
                 cores are free.",
            ),
        ],
        short: &[(Any, "have each batch ready in time")],
        when: When::If(|facts| {
            let found = match facts.program.activity {
                None if facts.is(Cause::DataLoading) => Some(Found::default()),
                _ => loading(facts, &[HostCause::LoaderInline]),
            };
            found.map(|found| {
                let at = facts.loader_without_workers();
                Found { at, detail: cheaper(facts), ..found.gaining(by_workers(facts)) }
            })
        }),
        gain_of: ", by workers",
        certainty: Certainty::Measured,
        recognized: "the launching thread prepares batches itself, or nothing shows who does; the line is where data loaders \
                     are made, if it is known and none has workers",
        gain: "the simulation `data_ready`, with up to 30 % of the loading left: 8.8x, 4.5x and 2.1x measured for 7.1x, 4.6x and 4.4x",
        not_when: "the dataset holds CUDA tensors or state that cannot be pickled",
        // The same batches in the same order.
        results: Results::Same,
        trial: Some(&WORKERS),
        ..NONE
    },
    RemedyEntry {
        id: "collate",
        says: &[(
            Pytorch,
            "{detail}join and pin batches outside of the launching thread (num_workers > 0 joins them in the workers, \
             pin_memory=True pins in a thread of its own), and join fewer, larger pieces.",
        )],
        when: When::If(|facts| {
            let found = loading(facts, &[HostCause::LoaderCollate])?;
            Some(Found { detail: cheaper(facts), ..found })
        }),
        certainty: Certainty::Measured,
        recognized: "the launching thread joins samples to batches",
        gain: "the simulation `data_ready`: 8.8x measured",
        trial: Some(&WORKERS),
        ..NONE
    },
    RemedyEntry {
        id: "whole_batches",
        says: &[(
            Pytorch,
            "PyTorch takes and joins samples one by one {there}. If they are parts of tensors in memory, take each batch by one \
             index: DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), n, drop_last=True)), or \
             x[order[i:i + n]] without a DataLoader. Else prepare batches in worker processes: \
             DataLoader(..., num_workers=4).",
        )],
        short: &[(Any, "have each batch ready in time")],
        when: When::If(by_samples),
        recognized: "half of the loading or more is PyTorch taking and joining samples in the launching thread",
        gain: "the simulation `data_ready`",
        not_when: "samples are read from files or computed",
        subsumes: &["workers", "collate"],
        trial: Some(&TENSOR_BATCHES),
        ..NONE
    },
    RemedyEntry {
        id: "receive",
        says: &[(
            Pytorch,
            "The batch is ready and taking it over costs: return tensors rather than Python objects from the workers, raise \
             prefetch_factor, or pin in the loader's thread (pin_memory=True).",
        )],
        when: When::If(|facts| loading(facts, &[HostCause::LoaderReceive])),
        recognized: "the launching thread receives finished batches on a core",
        gain: "the simulation `data_ready`",
        ..NONE
    },
    RemedyEntry {
        id: "more_workers",
        says: &[(
            Pytorch,
            "The workers do not keep up: more of them (num_workers) while free cores remain, or a cheaper transform (smaller decoding, \
             on the device, done beforehand).",
        )],
        when: When::If(|facts| loading(facts, &[HostCause::LoaderWait, HostCause::LoaderWaitBusy])),
        recognized: "the launching thread waits for workers that are on a core or ready for one",
        gain: "the simulation `data_ready`, up to the free cores",
        not_when: "no core is free",
        results: Results::Same,
        trial: Some(&Trial {
            id: "more_workers",
            change: "twice the worker processes in data loaders; data sets that draw random numbers give others",
            keep: "a larger num_workers in DataLoader(...)",
            how: How::PyTorch,
            needs: "no DataLoader with workers was made, or it has one for each CPU core",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "loader_io",
        says: &[(
            Pytorch,
            "The workers wait for storage or the network. Use more of them (num_workers), so that more requests are under way at once; \
             or faster or local storage, larger files (shards), a cache.",
        )],
        when: When::If(|facts| loading(facts, &[HostCause::LoaderWaitIo])),
        certainty: Certainty::Measured,
        recognized: "the launching thread waits, and worker processes wait for storage",
        gain: "the simulation `data_ready`: 3.4x predicted, 4.45x measured",
        not_when: "the first epoch fills the page cache",
        results: Results::Same,
        trial: Some(&Trial {
            id: "loader_io",
            change: "more workers and prefetch_factor=8 in data loaders; data sets that draw random numbers give others",
            keep: "a larger num_workers and prefetch_factor=8 in DataLoader(...)",
            how: How::PyTorch,
            needs: NO_LOADER,
        }),
        ..NONE
    },
    RemedyEntry {
        id: "loader_prefetch",
        says: &[(
            Pytorch,
            "The workers were idle while the step waited: raise prefetch_factor, keep them alive between epochs \
             (persistent_workers=True), and look for what they wait for (a lock, a queue, the main process). If that is the network \
             or a server, use more of them (num_workers).",
        )],
        when: When::If(|facts| loading(facts, &[HostCause::LoaderWaitIdle])),
        recognized: "the launching thread waits, and all child processes are idle",
        gain: "the simulation `data_ready`",
        results: Results::Same,
        trial: Some(&Trial {
            id: "loader_prefetch",
            change: "prefetch_factor=8 in data loaders with workers",
            keep: "DataLoader(..., prefetch_factor=8)",
            how: How::PyTorch,
            needs: NO_LOADER,
        }),
        ..NONE
    },
    RemedyEntry {
        id: "worker_threads",
        says: &[(
            Pytorch,
            "Let each worker use one thread: torch.set_num_threads(1) in worker_init_fn, or OMP_NUM_THREADS=1. The workers and their \
             threads want more cores than there are ({share} of the launching thread's time waits for one).",
        )],
        when: When::If(|facts| {
            let totals = facts.host?.totals;
            let waited = totals.runnable_ns as f64 / totals.covered_ns.max(1) as f64;
            let loads = facts.is(Cause::DataLoading) && totals.workers > totals.waits_for_workers;
            (loads && waited >= 0.1).then(|| Found { share: waited, ..Found::default() })
        }),
        certainty: Certainty::Guess,
        recognized: "loading is the bottleneck with several workers, and the launching thread is ready without a core 10 % of the \
                     time",
        gain: "unknown: a part of the simulation `data_ready`",
        // Sums on the CPU are in another order.
        results: Results::Rounding,
        trial: Some(&WORKER_THREADS),
        ..NONE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_leave_lowers_the_low_end() {
        let ready = Gain { speedup: 4.4, interval: Some((4.0, 5.0)), ..Gain::NONE };
        let (low, high) = partly(ready, 0.25).interval.unwrap_or_default();
        assert!((low - 2.0).abs() < 1e-9 && high == 5.0, "{low} to {high}");
        assert!(partly(ready, 2.0).low() >= 1.0);
    }
}
