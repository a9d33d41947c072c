//! Kernels that are built while the program runs: how many, until when, for what, and how to avoid it.
//!
//! The advice follows what samples saw: the functions and libraries of the lines that build, and the names of
//! kernels. What was not seen stands behind a condition.

use profiler_core::attribution::KernelBuilds;
use profiler_core::attribution::leaf::{Cause, Leaf};
use profiler_core::thresholds::WORTH_SHARE;

use super::ranking::Ranking;
use crate::run::{DeviceReport, GapSubject, HostReport, LineRow};
use crate::text_format::{counted, duration, percent};
use crate::words;

/// Largest other CPU work between launches, as a part of the time of builds, for which a simulation without
/// any of that work is one without builds.
const OTHER_WORK: f64 = 0.1;

/// Advice that always holds.
pub(super) const SAME_SHAPES: &str = "Build kernels before the loop and keep them. If they are built for new shapes, keep the shapes \
     the same: pad to a few sizes.";

/// Place that a sample names, and advice about who builds there.
const BUILDERS: [(&[&str], &str); 5] = [
    (
        &["torch/_inductor", "torch/_dynamo", "torch/fx/", "sympy/"],
        "torch.compile(dynamic=True) builds kernels for all sizes, where the model allows it.",
    ),
    (
        &["/triton/"],
        "Triton builds a kernel for each new value of a tl.constexpr argument and each new type: keep those the same.",
    ),
    (&["/cupy/", "/cupyx/"], "Pass what changes as arguments: CuPy builds a kernel for each new source."),
    (&["/numba/"], "Numba builds a kernel for each new combination of argument types: keep those the same."),
    (
        &["/jax/", "/jaxlib/", "/jax_plugins/"],
        "jax.jit builds kernels for each new shape and static argument: keep those the same.",
    ),
];

/// True if builds are nearly all CPU work between launches, so that the simulation without such work applies.
pub(super) fn are_the_host_work(devices: &[DeviceReport]) -> bool {
    let sum = |cause: Cause| devices.iter().map(|device| cause.total(&device.steady_leaves)).sum::<u64>() as f64;
    let built = sum(Cause::KernelBuild);
    built > 0.0 && sum(Cause::HostCpu) <= OTHER_WORK * built
}

/// Sentences about builds: all of them if they are the bottleneck, else only that they have ended.
pub(super) fn sentences(cause: Cause, ranking: &Ranking, devices: &[DeviceReport]) -> Vec<String> {
    let mut builds = KernelBuilds::default();
    devices.iter().for_each(|device| builds.add(&device.builds));
    let share = ranking.share(Cause::KernelBuild);
    if cause != Cause::KernelBuild {
        let over = !builds.last() && builds.count > 0 && share.share >= WORTH_SHARE;
        let when = if builds.later_count == 0 { "none" } else { "few" };
        return Vec::from_iter(over.then(|| {
            format!(
                "Building kernels took {} of the time, {when} of it in the second half: a longer run has less of it.",
                percent(share.share)
            )
        }));
    }
    let mut sentences = vec![format!(
        "Kernels were built {} while the GPU waited ({} in all): CPU work of over 100 us that ends in {}. {} of these \
         builds are in the second half of the time after start-up.",
        counted(builds.count, "time"),
        duration(builds.total_ns),
        loading_call(devices),
        builds.later_count,
    )];
    let simulated =
        devices.iter().filter_map(|device| device.what_if.as_ref()).any(|what_if| what_if.refused.is_none());
    if !simulated || !are_the_host_work(devices) {
        let without = words::faster_without(share.share, (share.low, share.high));
        sentences.push(format!("Without them {without}: their time subtracted (a rough bound)."));
    }
    sentences
}

/// The call in which most kernels were loaded.
fn loading_call(devices: &[DeviceReport]) -> &str {
    let rows = devices.iter().flat_map(|device| &device.gaps).filter(|row| row.leaf == Leaf::KernelBuild);
    let calls = rows.filter_map(|row| match &row.subject {
        GapSubject::Call(function) => Some((row.totals.count, function)),
        _ => None,
    });
    calls.max_by_key(|&(count, _)| count).map_or("a call that loads them", |(_, function)| function)
}

/// The line, without a function of Python's own library that it calls.
fn place(line: &LineRow) -> String {
    let of_python = |file: &str| file.contains("/lib/python3") && !file.contains("-packages/");
    let within = line.within.clone().filter(|(_, file)| !of_python(file));
    LineRow { within, ..line.clone() }.at_place()
}

/// What to change, by what samples saw where kernels were built.
pub(super) fn advice(host: Option<&HostReport>, devices: &[DeviceReport]) -> String {
    let lines: Vec<&LineRow> = host.into_iter().flat_map(|host| host.lines_of(Cause::KernelBuild)).collect();
    let seen = |parts: &[&str]| {
        let has = |text: &str| parts.iter().any(|part| text.contains(part));
        let within = |row: &LineRow| row.within.as_ref().is_some_and(|(function, file)| has(function) || has(file));
        lines.iter().any(|row| has(&row.file) || has(&row.function) || within(row))
    };
    let runs = |parts: &[&str]| {
        let kernels = devices.iter().flat_map(|device| &device.kernels);
        kernels.into_iter().any(|row| parts.iter().all(|part| row.name.contains(part)))
    };
    // Python's line says more than the compiler's library.
    let python = |row: &&&LineRow| row.within.as_ref().is_none_or(|(_, file)| file.ends_with(".py"));
    let line = lines.iter().find(python).or(lines.first());
    let mut advice = match line {
        // Shapes are arguments there.
        Some(line) if seen(&["/cupy/", "/cupyx/", "/numba/", "/triton/"]) && !seen(&["torch/_inductor"]) => {
            format!("Build the kernels {} once, before the loop. ", place(line))
        }
        Some(line) => format!("Keep the shapes {} the same: pad to a few sizes. ", place(line)),
        None => format!("{SAME_SHAPES} "),
    };
    if seen(&["sdpa", "scaled_dot_product_attention"]) && runs(&["cudnn", "sdpa"]) {
        advice += "cuDNN builds an attention kernel for each new length: torch.backends.cuda.enable_cudnn_sdp(False) uses \
                   others. ";
    } else if seen(&["torch/nn/modules/conv", "libcudnn"]) {
        advice += "If torch.backends.cudnn.benchmark is on, turn it off: it tries kernels for each new shape. ";
    }
    for (places, words) in BUILDERS {
        if seen(places) {
            advice += words;
            advice.push(' ');
        }
    }
    advice.trim_end().to_owned()
}
