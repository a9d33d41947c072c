//! One entry of the catalogue, and the pages that several entries link to.

use profiler_core::leaf::Cause;

use super::facts::{Facts, Found};
use super::patterns::Class;
use crate::run::framework::Framework;
use crate::run::{Certainty, Results};

/// Time that a remedy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Time of kernels.
    Kernels,
    /// Kernels that are no longer launched: their time and that of their launches.
    FewerKernels,
    /// Time of one cause.
    Time(Cause),
    /// Obstacles of a CUDA graph among waits and reads; worth it alone or before a graph.
    Reads,
}

/// How a remedy is recognized.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// Kernels of these classes take at least this share of kernel time, and would be this many times as fast.
    Shorter(&'static [Class], f64, (f64, f64)),
    /// Kernels of these classes take at least this share of kernel time, and would not run.
    Gone(&'static [Class], f64),
    /// Any other condition.
    If(fn(&Facts<'_>) -> Option<Found>),
}

/// One remedy of the catalogue.
#[derive(Clone, Copy)]
pub struct RemedyEntry {
    /// Stable word, in JSON and for `gpuwhy report --explain`.
    pub id: &'static str,
    /// Sentences by library; the first that fits is said, and none if none fits.
    pub(super) says: &'static [(Framework, &'static str)],
    pub(super) target: Target,
    pub(super) when: When,
    /// True where the remedy must not be said.
    pub(super) unless: fn(&Facts<'_>) -> bool,
    /// What it changes in the results.
    pub results: Results,
    /// What is known about its effect.
    pub certainty: Certainty,
    /// How it is recognized, in words.
    pub recognized: &'static str,
    /// How the gain is predicted, and the source.
    pub gain: &'static str,
    /// When it does not apply.
    pub not_when: &'static str,
    /// Remedies that this one includes.
    pub(super) subsumes: &'static [&'static str],
    /// Page of the vendor or the library about it.
    pub link: Option<&'static str>,
    /// True if it can be applied without a change of the program.
    pub outside: bool,
}

impl RemedyEntry {
    pub(super) const NONE: Self = Self {
        id: "",
        says: &[],
        target: Target::Kernels,
        when: When::If(|_| None),
        unless: |_| false,
        results: Results::Same,
        certainty: Certainty::Documented,
        recognized: "",
        gain: "",
        not_when: "",
        subsumes: &[],
        link: None,
        outside: false,
    };

    /// The sentences of the entry, one for each library that has its own; places and numbers are left open.
    pub fn sentences(&self) -> impl Iterator<Item = String> + use<'_> {
        let open = [("{at}", ""), ("{there}", "there"), ("{what}", "the kernels"), ("{share}", "a large part")];
        let plain = move |text: &str| open.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        self.says.iter().map(move |(_, text)| plain(text))
    }
}

/// Name under which `gpuwhy try` has the change: two remedies have the same.
pub fn tried_as(id: &str) -> &str {
    if id == "foreach_fused" { "fused_optimizer" } else { id }
}

pub(super) const TUNING: Option<&str> = Some("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html");
pub(super) const CUDA_NOTES: Option<&str> = Some("https://docs.pytorch.org/docs/stable/notes/cuda.html");
pub(super) const MATRICES: Option<&str> =
    Some("https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html");
pub(super) const BEST_PRACTICES: Option<&str> =
    Some("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html");
pub(super) const SDPA: Option<&str> =
    Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html");
pub(super) const DATA: Option<&str> = Some("https://docs.pytorch.org/docs/stable/data.html");
pub(super) const COMPILE: Option<&str> = Some("https://docs.pytorch.org/docs/stable/generated/torch.compile.html");
pub(super) const PINNING: Option<&str> = Some("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html");
pub(super) const JAX_TIPS: Option<&str> = Some("https://docs.jax.dev/en/latest/gpu_performance_tips.html");
