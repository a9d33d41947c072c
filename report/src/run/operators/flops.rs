//! Floating point operations of PyTorch's operators, by the shapes of their inputs.
//!
//! The formulas are those of `torch.profiler` with `with_flops` (`computeFlops` in `torch/csrc/profiler/util.cpp`): a
//! multiply-add counts as two, and only these operators have any.

/// Operations of a call of `operator`, whose inputs have these `shapes` (`[[2, 3], [3, 4]]`) and `values`
/// (`["", "[1, 1]"]`, empty if not recorded). `None` if the operator has no formula, or it needs a value that was not
/// recorded.
pub(super) fn flops(operator: &str, shapes: &str, values: &str) -> Option<u64> {
    let inputs = lists(shapes);
    let input = |at: usize| inputs.get(at).filter(|sizes| !sizes.is_empty());
    let product = |sizes: &[u64]| sizes.iter().copied().fold(1, u64::saturating_mul);
    // Rows of the left matrix times all elements of the right one.
    let matrices = |left: usize, is_batch: bool| {
        let (left, right) = (input(left)?, input(left + 1)?);
        let left = left.get(usize::from(is_batch)..left.len() - 1)?;
        Some(product(left).saturating_mul(product(right)).saturating_mul(2))
    };
    match operator {
        "aten::mm" => matrices(0, false),
        "aten::addmm" => matrices(1, false),
        "aten::bmm" => matrices(0, true),
        "aten::baddbmm" => matrices(1, true),
        "aten::add" | "aten::mul" => input(0).map(|sizes| product(sizes)),
        "aten::conv2d" => {
            let (&[batch, channels, height, width], &[features, _, high, wide]) = (&input(0)?[..], &input(1)?[..])
            else {
                return None;
            };
            let values: Vec<&str> = values.split('"').skip(1).step_by(2).collect();
            let pair = |at: usize| match lists(values.get(at)?)[..] {
                [ref sizes] => <[u64; 2]>::try_from(&sizes[..]).ok(),
                _ => None,
            };
            let (stride, padding, dilation) = (pair(3)?, pair(4)?, pair(5)?);
            let groups: u64 = values.get(6)?.parse().ok().filter(|&groups| groups > 0)?;
            let out = |size: u64, kernel: u64, axis: usize| {
                let reach = dilation[axis].checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
                Some(
                    size.checked_add(padding[axis].checked_mul(2)?)?.checked_sub(reach)?.checked_div(stride[axis])? + 1,
                )
            };
            let out = [out(height, high, 0)?, out(width, wide, 1)?];
            Some(product(&[2, batch, out[0], out[1], high, wide, channels, features]) / groups)
        }
        _ => None,
    }
}

/// The innermost lists of numbers in a text such as `[[2, 3], []]`, or `[1, 1]`. An empty list is one as well.
fn lists(text: &str) -> Vec<Vec<u64>> {
    let ends = text.split(']').filter_map(|part| part.rsplit_once('['));
    ends.map(|(_, numbers)| numbers.split(',').filter_map(|number| number.trim().parse().ok()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_convolutions_have_the_operations_of_torch_profiler() {
        let resnet = "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], []]";
        let grouped = "[[8, 64, 56, 56], [64, 4, 3, 3], [], [], [], [], []]";
        for (operator, shapes, values, expected) in [
            ("aten::mm", "[[2, 3], [3, 5]]", "", Some(60)),
            ("aten::addmm", "[[5], [2, 3], [3, 5], [], []]", "", Some(60)),
            ("aten::bmm", "[[4, 2, 3], [4, 3, 5]]", "", Some(240)),
            ("aten::baddbmm", "[[4, 2, 5], [4, 2, 3], [4, 3, 5], [], []]", "", Some(240)),
            ("aten::bmm", "[[4], [4]]", "", None),
            ("aten::baddbmm", "[[4], [4], [4]]", "", None),
            ("aten::mm", "[[3], [3]]", "", Some(6)),
            ("aten::add", "[[7, 3], [3], []]", "", Some(21)),
            ("aten::mul", "[[7, 3], []]", "", Some(21)),
            ("aten::mul", "[[], []]", "", None),
            ("aten::relu", "[[7, 3]]", "", None),
            ("aten::conv2d", resnet, r#"["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "1"]"#, Some(7_552_892_928)),
            ("aten::conv2d", grouped, r#"["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "16"]"#, Some(115_605_504)),
            ("aten::conv2d", resnet, "", None),
            ("aten::conv2d", resnet, r#"["", "", "", "[2, 2]", "same", "[1, 1]", "1"]"#, None),
            ("aten::conv2d", resnet, r#"["", "", "", "[0, 0]", "[3, 3]", "[1, 1]", "1"]"#, None),
            (
                "aten::conv2d",
                "[[1, 1, 1, 1], [1, 1, 3, 3]]",
                r#"["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"]"#,
                None,
            ),
        ] {
            assert_eq!(flops(operator, shapes, values), expected, "{operator} {shapes} {values}");
        }
    }
}
