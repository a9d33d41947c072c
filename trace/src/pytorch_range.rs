//! Names of PyTorch's ranges (`torch.autograd.profiler.emit_nvtx`).
//!
//! They have a new number in every name, which becomes the payload of the range: `aten::addmm, seq = 12, op_id = 345`
//! is `aten::addmm` with the payload 345. Tensor sizes stay.

use std::borrow::Cow;

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
}
