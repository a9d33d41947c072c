//! The catalogue of remedies: what to change, when to say it, and what it would bring.
//!
//! All advice of a report is here. An entry is data: a sentence with the change as code for the library in use, the
//! condition under which it is recognized, the gain and its source, and what must be false. [`Facts`] is what a report
//! knows in the form that conditions need; [`choose`](choose::choose) applies the rules that hold for every entry.

mod catalog;
mod choose;
mod facts;
mod patterns;
mod sequences;

use profiler_core::attribution::leaf::Cause;

pub(in crate::run) use self::choose::{choose, first_sentences, is_about_kernels, sentence_of};
pub(in crate::run) use self::facts::{Activity, Facts, GraphFacts, Program};
use self::facts::{Found, Framework};
use self::patterns::Class;
use super::{Certainty, Results};

/// Time that a remedy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
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
enum When {
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
    says: &'static [(Framework, &'static str)],
    target: Target,
    when: When,
    /// True where the remedy must not be said.
    unless: fn(&Facts<'_>) -> bool,
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
    subsumes: &'static [&'static str],
    /// Page of the vendor or the library about it.
    pub link: Option<&'static str>,
    /// True if it can be applied without a change of the program.
    pub outside: bool,
}

impl RemedyEntry {
    const NONE: Self = Self {
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

/// All remedies, by subject.
pub fn remedies() -> impl Iterator<Item = &'static RemedyEntry> {
    catalog::ALL.iter().copied().flatten()
}

/// The remedy with this id.
pub fn remedy(id: &str) -> Option<&'static RemedyEntry> {
    remedies().find(|entry| entry.id == id)
}

const TUNING: Option<&str> = Some("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html");
const CUDA_NOTES: Option<&str> = Some("https://docs.pytorch.org/docs/stable/notes/cuda.html");
const MATRICES: Option<&str> =
    Some("https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html");
const BEST_PRACTICES: Option<&str> = Some("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html");
const SDPA: Option<&str> =
    Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html");
const DATA: Option<&str> = Some("https://docs.pytorch.org/docs/stable/data.html");
const COMPILE: Option<&str> = Some("https://docs.pytorch.org/docs/stable/generated/torch.compile.html");
const PINNING: Option<&str> = Some("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html");
const JAX_TIPS: Option<&str> = Some("https://docs.jax.dev/en/latest/gpu_performance_tips.html");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_complete_and_send_to_no_other_tool() {
        let mut ids: Vec<&str> = remedies().map(|entry| entry.id).collect();
        assert!(ids.len() >= 60, "{}", ids.len());
        for entry in remedies() {
            let id = entry.id;
            assert!(
                id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') && !id.is_empty(),
                "{id}"
            );
            assert!(!entry.recognized.is_empty() && !entry.gain.is_empty(), "{id}");
            assert!(entry.link.is_none_or(|link| link.starts_with("https://")), "{id}");
            assert!(entry.subsumes.iter().all(|part| remedy(part).is_some()), "{id} includes what is no remedy");
            assert!(entry.sentences().count() > 0, "{id}");
            for sentence in entry.sentences() {
                assert!(sentence.ends_with('.') && !sentence.contains(['{', '}']), "{id}: {sentence}");
                for tool in ["py-spy", "erfetto", "nsys", "Nsight", "ncu ", "nvidia-smi", "timeline"] {
                    assert!(!sentence.contains(tool), "{id}: {sentence}");
                }
                let torch = ["torch.", "DataLoader"].iter().any(|word| sentence.contains(word));
                let jax = ["jax.", "jnp.", "XLA_FLAGS"].iter().any(|word| sentence.contains(word));
                assert!(!(torch && jax), "{id} mixes two libraries: {sentence}");
            }
        }
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }
}
