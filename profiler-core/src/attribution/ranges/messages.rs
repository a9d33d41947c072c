//! Meaning of a range's text: a step, a wait in a data loader, or one of a family that differs in a number.
//!
//! Programs put counters into names (`ProfilerStep#12`, `aten::add, op_id = 345`), and each would get a
//! separate row. Such names share one row under a template with `*` for the number. Each distinct text is
//! examined once.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use crate::attribution::host_cause::HostCause;

/// Distinct messages with a cached class; further ones are examined each time.
const MESSAGE_LIMIT: usize = 65_536;
/// Maximum distinct templates; names of further ones are used unchanged.
const TEMPLATE_LIMIT: usize = 1_024;

/// Names of a training step, in lower case and without their number: the PyTorch profiler's, and those of
/// training loops and frameworks (Lightning, DeepSpeed, Megatron).
const STEPS: [&str; 11] = [
    "profilerstep",
    "step",
    "iteration",
    "iter",
    "train_step",
    "train step",
    "training_step",
    "train_iteration",
    "train_iter",
    "train_batch",
    "[pl][profile]run_training_batch",
];

/// Prefixes of the ranges that PyTorch writes around fetching a batch (`torch/utils/data/dataloader.py`,
/// `_utils`).
const LOADERS: [&str; 2] = ["enumerate(DataLoader)#", "enumerate(DataPipe)#"];

/// Prefix of the range that XLA writes around building a module (`xla/service/gpu/gpu_compiler.cc`, domain TSL).
const COMPILER: &str = "XlaCompile:#";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageClass {
    /// The first message with the same template.
    pub(super) name: NameId,
    /// True if such a range is a step.
    pub(super) step: bool,
    /// Activity of a thread in such a range, if it is that of a data loader or a compiler.
    pub(super) activity: Option<HostCause>,
}

/// Classes by message.
#[derive(Debug, Default)]
pub(super) struct Messages {
    classes: FxHashMap<NameId, MessageClass>,
    templates: FxHashMap<String, NameId>,
}

impl Messages {
    pub(super) fn get(&mut self, message: NameId, dictionary: &Dictionary) -> MessageClass {
        if let Some(&class) = self.classes.get(&message) {
            return class;
        }
        let text = dictionary.name(message);
        let name = template(text).map_or(message, |template| match self.templates.get(&template) {
            Some(&first) => first,
            None if self.templates.len() >= TEMPLATE_LIMIT => message,
            None => *self.templates.entry(template).or_insert(message),
        });
        let class = MessageClass { name, step: is_step(text), activity: activity(text) };
        if self.classes.len() < MESSAGE_LIMIT {
            self.classes.insert(message, class);
        }
        class
    }
}

/// `text` with `*` for its counters; `None` if it has none. A counter follows `#` or `= `, or is the end of
/// the name of a step.
pub fn template(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (digits, after) = number.split_at(end);
        out.push_str(before);
        let counts = out.ends_with('#') || out.ends_with("= ") || (after.is_empty() && is_step(text));
        found |= counts;
        out.push_str(if counts { "*" } else { digits });
        rest = after;
    }
    out.push_str(rest);
    found.then_some(out)
}

/// True if a range of this text is a step by its name, such as `train step 7`.
pub fn is_step(text: &str) -> bool {
    let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.trim_end_matches(['#', ' ', '_', ':', '-', '=']).to_ascii_lowercase();
    STEPS.contains(&stem.as_str())
}

/// Words that name a part of a model when a number follows, as in `blocks.12` and `DecoderLayer_3`.
const LAYERS: [&str; 4] = ["layer", "block", ".h", "stage"];

/// True if a range of this text is a layer of a model by its name, such as `FSDP::forward (blocks.12)`.
pub fn is_layer(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    LAYERS.iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            let rest = &text[at + word.len()..];
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            rest.trim_start_matches(['.', '_', ' ', '#', ':', '[']).starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

fn activity(text: &str) -> Option<HostCause> {
    if text.starts_with(COMPILER) {
        return Some(HostCause::KernelBuild);
    }
    let class = LOADERS.iter().find_map(|prefix| text.strip_prefix(prefix))?;
    Some(if class.starts_with("_SingleProcess") { HostCause::LoaderInline } else { HostCause::LoaderWait })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_templates_and_other_numbers_stay() {
        for (text, expected) in [
            ("ProfilerStep#12", Some("ProfilerStep#*")),
            ("step 7", Some("step *")),
            ("Iteration_7", Some("Iteration_*")),
            ("aten::add, op_id = 345", Some("aten::add, op_id = *")),
            ("f, seq = 1, op_id = 2", Some("f, seq = *, op_id = *")),
            ("layer1", None),
            ("conv2d", None),
            ("forward", None),
            ("epoch 3", None),
        ] {
            assert_eq!(template(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn steps_and_loaders_by_name() {
        for (text, step) in [
            ("ProfilerStep#12", true),
            ("step", true),
            ("Train_Step 3", true),
            ("optimizer.step", false),
            ("steps", false),
        ] {
            assert_eq!(is_step(text), step, "{text}");
        }
        for (text, layer) in [
            ("FSDP::forward (blocks.12)", true),
            ("DecoderLayer_3", true),
            ("transformer.h.7.attn", true),
            ("layers[4]", true),
            ("train_step 7", false),
            ("all layers", false),
            ("unblock", false),
        ] {
            assert_eq!(is_layer(text), layer, "{text}");
        }
        let single = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        assert_eq!(activity(single), Some(HostCause::LoaderInline));
        let many = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        assert_eq!(activity(many), Some(HostCause::LoaderWait));
        assert_eq!(activity("DataLoader"), None);
    }

    #[test]
    fn a_family_shares_its_first_name() {
        let mut dictionary = Dictionary::new();
        let [a, b, c] = ["ProfilerStep#1", "ProfilerStep#2", "other"].map(|name| dictionary.intern_name(name));
        let mut messages = Messages::default();
        assert_eq!([a, b, c].map(|name| messages.get(name, &dictionary).name), [a, a, c]);
    }
}
