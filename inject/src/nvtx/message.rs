//! The name of a text in the trace.
//!
//! Distinct names are limited, because programs generate them: `step 1`, `step 2`, ... PyTorch's own ranges
//! (`torch.autograd.profiler.emit_nvtx`) have a new number in every name, so the numbers are removed:
//! `aten::addmm, seq = 12, op_id = 345` is `aten::addmm` with the payload 345. Tensor sizes stay.

use std::borrow::Cow;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;

/// Maximum number of distinct names of ranges, marks and categories in one trace.
pub const MAX_NAMES: usize = 1 << 16;

/// Name for all texts beyond the first [`MAX_NAMES`].
pub const FURTHER: &str = "<one of more than 65536 names>";

/// Adds names to the dictionary, up to the limit.
#[derive(Debug, Default)]
pub struct Names {
    added: usize,
}

impl Names {
    /// Id of `name`, or that of [`FURTHER`].
    pub fn intern(&mut self, name: &str, dictionary: &mut Dictionary) -> NameId {
        if let Some(known) = dictionary.find_name(name) {
            return known;
        }
        if self.added == MAX_NAMES {
            return dictionary.intern_name(FURTHER);
        }
        self.added += 1;
        dictionary.intern_name(name)
    }
}

/// Splits off the numbers that PyTorch adds. Returns the last one: the operation's, else the sequence number
/// of its backward function.
pub fn split(text: &str) -> (Cow<'_, str>, Option<u64>) {
    let mut parts = text.split(", ").skip(1);
    if !parts.any(|part| number(part).is_some()) {
        return (text.into(), None);
    }
    // The lists come last; commas inside them are not separators.
    let (text, _) = text.split_once(", input_op_ids = ").unwrap_or((text, ""));
    let (text, sizes) = text.find(", sizes = ").map_or((text, ""), |at| text.split_at(at));
    let mut name = String::with_capacity(text.len() + sizes.len());
    let mut last = None;
    for (at, part) in text.split(", ").enumerate() {
        match number(part).filter(|_| at > 0) {
            Some(number) => last = Some(number),
            None if at > 0 => name.extend([", ", part]),
            None => name.push_str(part),
        }
    }
    name.push_str(sizes);
    (name.into(), last)
}

/// Parses the number in `seq = 12` and `op_id = 12`.
fn number(part: &str) -> Option<u64> {
    part.strip_prefix("seq = ").or_else(|| part.strip_prefix("op_id = "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_pytorch_become_the_payload() {
        for (text, name, payload) in [
            ("aten::addmm, seq = 12", "aten::addmm", Some(12)),
            ("aten::addmm, seq = 12, op_id = 345", "aten::addmm", Some(345)),
            ("aten::t, op_id = 7, input_op_ids = [(0,0), (3,1)]", "aten::t", Some(7)),
            (
                "aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], [3]], input_op_ids = [(0,0)]",
                "aten::mm, sizes = [[2, 3], [3]]",
                Some(2),
            ),
            ("f(a, b), seq = 3", "f(a, b)", Some(3)),
        ] {
            let (split, number) = split(text);
            assert_eq!((&*split, number), (name, payload), "{text}");
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["", "step 12", "load, then go", "seq = 4", "a, seq = many", "a, sizes = [1, 2]", ", ", "x,seq = 4"]
        {
            assert_eq!(split(text), (text.into(), None));
        }
    }

    #[test]
    fn names_are_bounded() {
        let (mut names, mut dictionary) = (Names::default(), Dictionary::new());
        let first = names.intern("step 0", &mut dictionary);
        for step in 1..MAX_NAMES {
            names.intern(&format!("step {step}"), &mut dictionary);
        }
        let further = names.intern("one more", &mut dictionary);
        assert_eq!(dictionary.name(further), FURTHER);
        assert_eq!(names.intern("and another", &mut dictionary), further);
        assert_eq!(names.intern("step 0", &mut dictionary), first);
        assert_eq!(dictionary.names().len(), MAX_NAMES + 1);
    }
}
