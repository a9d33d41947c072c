//! One entry of the catalogue, and the pages that several entries link to.

use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::Cause;

use super::facts::{Facts, Found};
use super::patterns::Class;
use super::trial::{How, Trial};
use crate::run::framework::Framework;
use crate::run::{Certainty, Results};
use crate::words::capitalized;

pub(super) use crate::run::model::Rank;

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

/// What a sentence leaves open, in this order: the first ones may contain the last ones.
pub(super) const OPEN: [&str; 8] =
    ["{what}", "{detail}", "{at}", "{there}", "{share}", "{model}", "{compile}", "{passes}"];
pub(super) const MODEL: &str = "model";
pub(super) const COMPILE_MODEL: &str = "model = torch.compile(model)";
pub(super) const PASSES: &str = " for the forward and backward pass";

/// How a remedy is recognized.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// Kernels of these classes take at least this share of kernel time, and would be this many times as fast.
    Shorter(&'static [Class], f64, (f64, f64)),
    /// Kernels of these classes take at least this share of kernel time, and would not run.
    Gone(&'static [Class], f64),
    /// Hardware counters show this limit as the largest of a GPU-bound program, in the L1 cache or not.
    Limit(Limit, bool),
    /// Any other condition.
    If(fn(&Facts<'_>) -> Option<Found>),
}

/// One remedy of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RemedyEntry {
    /// Stable word, in JSON and for `gpuwhy report --explain`.
    pub id: &'static str,
    /// Sentences by library; the first that fits is said, and none if none fits.
    pub(super) says: &'static [(Framework, &'static str)],
    /// The change in words that follow a number, for plans, by library; none where no plan has it.
    pub(super) short: &'static [(Framework, &'static str)],
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
    /// Remedies with which it gains more than alone.
    pub(super) beside: &'static [&'static str],
    /// Remedies that it can take the place of.
    pub(super) instead_of: &'static [&'static str],
    /// What its gain is of, to follow the gain: of several changes in its sentence one.
    pub(super) gain_of: &'static str,
    /// Its place among those that make the bottleneck smaller.
    pub(super) rank: Rank,
    /// True where it makes the bottleneck smaller although its target is other time.
    pub(super) also: fn(&Facts<'_>) -> bool,
    /// True if it is said only about the bottleneck, or where nothing specific is known.
    pub(super) is_generic: bool,
    /// Page of the vendor or the library about it.
    pub link: Option<&'static str>,
    /// The change by which `gpuwhy try` applies it.
    pub trial: Option<&'static Trial>,
    /// True if it can be applied without a change of the program, although `gpuwhy try` does not.
    pub(super) outside: bool,
}

impl RemedyEntry {
    pub(super) const NONE: Self = Self {
        id: "",
        says: &[],
        short: &[],
        target: Target::Kernels,
        when: When::If(|_| None),
        unless: |_| false,
        results: Results::Same,
        certainty: Certainty::Documented,
        recognized: "",
        gain: "",
        not_when: "",
        subsumes: &[],
        beside: &[],
        instead_of: &[],
        gain_of: "",
        rank: Rank::Gain,
        also: |_| false,
        is_generic: false,
        link: None,
        trial: None,
        outside: false,
    };

    /// The first of these texts that is for programs of this library.
    pub(super) fn spoken(texts: &[(Framework, &'static str)], framework: Framework) -> Option<&'static str> {
        texts.iter().find(|(of, _)| framework.understands(*of)).map(|(_, text)| *text)
    }

    /// True if it can be applied without a change of the program.
    pub fn is_outside(&self) -> bool {
        self.outside || self.trial.is_some()
    }

    /// The sentences of the entry, one for each library that has its own; places and numbers are left open.
    pub fn sentences(&self) -> impl Iterator<Item = String> + use<'_> {
        let values = ["the kernels", "", "", "there", "a large part", MODEL, COMPILE_MODEL, PASSES];
        let plain = move |text: &str| {
            capitalized(&OPEN.iter().zip(values).fold(text.to_owned(), |text, (name, value)| text.replace(name, value)))
        };
        self.says.iter().map(move |(_, text)| plain(text))
    }
}

/// Why changes of data loaders may find nothing to change.
pub(super) const NO_LOADER: &str = "no DataLoader that it changes was made";
pub(super) const FUSED_OPTIMIZER: Trial = Trial {
    id: "fused_optimizer",
    change: "fused=True in SGD, Adagrad, Adam and AdamW",
    keep: "fused=True for the optimizer",
    how: How::PyTorch,
    needs: "no optimizer that can be fused was made",
};

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
