//! The catalogue of remedies: what to change, when to say it, and what it would bring.
//!
//! All advice of a report is here. An entry is data: a sentence with the change as code for the library in use, the
//! condition under which it is recognized, the gain and its source, and what must be false. `facts.rs` is what a report
//! knows in the form that conditions need; `choose.rs` applies the rules that hold for every entry.

mod catalog;
mod choose;
mod entry;
mod facts;
mod gain;
mod lines;
mod obstacles;
mod options;
mod patterns;
mod repeated;
mod sequences;
mod shares;
mod trial;

#[doc(hidden)]
pub use self::catalog::opened_by_lines;
pub use self::catalog::{remedies, remedy};
pub(in crate::run) use self::choose::{choose, short};
pub use self::entry::RemedyEntry;
pub use self::facts::CodeReader;
pub(in crate::run) use self::facts::{Activity, CallFacts, Facts, GraphFacts, ParsedLines, Program, SharedQueue};
#[doc(hidden)]
pub use self::lines::{fits, with_lines};
pub(in crate::run) use self::obstacles::Obstacle;
pub(crate) use self::patterns::product_types;
pub use self::trial::{How, Trial};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::framework::Framework;

    /// What is recognized by frames of Python, which such a program has none of.
    const BY_FRAMES: [&str; 4] = ["gc", "gil", "one_launcher", "save_less"];

    #[test]
    fn programs_are_told_nothing_of_other_libraries() {
        const PYTORCH: &[&str] = &["torch", "DataLoader"];
        const JAX: &[&str] = &["jax", "jnp.", "XLA_FLAGS"];
        const PYTHON: &[&str] = &[".item()", ".cpu()", ".to(", "GIL", "gc.", "cupy", "dataset", "pip "];
        const CUDA: &[&str] = &["cudaStreamBeginCapture", "cublas"];
        for (framework, others) in [
            (Framework::Pytorch, &[JAX][..]),
            (Framework::Jax, &[PYTORCH]),
            (Framework::Cupy, &[PYTORCH, JAX]),
            (Framework::Numba, &[PYTORCH, JAX]),
            (Framework::Native, &[PYTORCH, JAX, PYTHON]),
            (Framework::Offload, &[PYTORCH, JAX, PYTHON, CUDA]),
        ] {
            for entry in remedies().filter(|entry| !BY_FRAMES.contains(&entry.id)) {
                let texts = [entry.says, entry.short].map(|texts| RemedyEntry::spoken(texts, framework));
                for text in texts.into_iter().flatten() {
                    let word = others.iter().copied().flatten().find(|word| text.contains(**word));
                    assert!(word.is_none(), "{} says {word:?} to {framework:?}: {text}", entry.id);
                }
            }
        }
    }

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

    #[test]
    fn settings_are_added_to_what_is_set_and_not_twice() {
        let fragmentation = Trial::named("fragmentation").unwrap();
        let with = |set: &'static [(&str, &str)]| {
            fragmentation.environment(|name| Some(set.iter().find(|(other, _)| *other == name)?.1.into()))
        };
        let added = "expandable_segments:True";
        assert_eq!(with(&[]), [("PYTORCH_CUDA_ALLOC_CONF", Some(added.into()))]);
        assert_eq!(
            with(&[("PYTORCH_ALLOC_CONF", "backend:native")]),
            [("PYTORCH_ALLOC_CONF", Some(format!("backend:native,{added}").into()))]
        );
        assert_eq!(with(&[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")]), []);
        let threads = Trial::named("worker_threads").unwrap();
        assert_eq!(threads.environment(|_| Some("1".into())), []);
        assert_eq!(threads.environment(|_| None).len(), 2);
        let blocking = Trial::named("launch_blocking").unwrap();
        assert_eq!(blocking.environment(|_| None), [("CUDA_LAUNCH_BLOCKING", None)]);
    }
}
