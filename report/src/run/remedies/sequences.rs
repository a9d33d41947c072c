//! Patterns in the order of a step's kernels: a function that is computed by many kernels in a row.

use super::facts::{Facts, Found, Kernel};
use super::patterns::Class;

/// Share and count share of the kernels at these places of the step.
struct Chain {
    /// Places in the order of the step.
    places: Vec<usize>,
}

/// The kernels of a step in order, without other operations.
fn in_order<'b, 'a>(facts: &'b Facts<'a>) -> Vec<(usize, &'b Kernel<'a>)> {
    let kernels = facts.order.iter().flatten().enumerate();
    kernels.map(|(place, &index)| (place, &facts.kernels[index])).collect()
}

impl Chain {
    /// The time and the number of the kernels at the places, as parts of all of a step.
    fn parts(&self, facts: &Facts<'_>) -> (f64, f64) {
        let order: Vec<usize> = facts.order.iter().flatten().copied().collect();
        let mut times = vec![0usize; facts.kernels.len()];
        order.iter().for_each(|&index| times[index] += 1);
        let each = |place: &usize| {
            let index = order[*place];
            facts.kernels[index].share / times[index].max(1) as f64
        };
        (self.places.iter().map(each).sum(), self.places.len() as f64 / order.len().max(1) as f64)
    }
}

fn found(facts: &Facts<'_>, chain: &Chain, classes: &[Class], least: f64) -> Option<Found> {
    let (share, of_count) = chain.parts(facts);
    let worth = if facts.busy() >= 0.5 { share } else { of_count };
    (worth >= least).then(|| Found {
        at: facts.launched_at(classes),
        what: format!("{}", chain.places.len()),
        share,
        gain: Some(facts.without(share, of_count)),
    })
}

/// Attention by hand: a chain with a softmax between two matrix products. The kernels between the products.
pub(super) fn attention_by_hand(facts: &Facts<'_>) -> Option<Found> {
    /// Most elementwise kernels between the products: mask, scale, casts, softmax, dropout.
    const LONGEST: usize = 12;
    let kernels = in_order(facts);
    let is_product = |kernel: &Kernel<'_>| {
        kernel.classes.has(Class::Products) && !kernel.classes.has_any(&[Class::Convolutions, Class::FusedAttention])
    };
    let beside = |kernel: &Kernel<'_>| {
        let kinds = [Class::Elementwise, Class::Softmax, Class::Cast, Class::Reduction, Class::Fill];
        kernel.classes.has_any(&kinds) || kernel.name.contains("dropout")
    };
    let count = kernels.len();
    // A step may begin anywhere in the program's loop, so its end is followed by its start.
    let walk = |from: usize, step: usize| {
        let mut passed = Vec::new();
        for distance in 1..=LONGEST.min(count) {
            let at = (from + distance * step) % count;
            match kernels[at].1 {
                kernel if is_product(kernel) => return Some((at, passed)),
                kernel if beside(kernel) => passed.push(at),
                _ => return None,
            }
        }
        None
    };
    let mut places: Vec<usize> = Vec::new();
    for (at, (_, kernel)) in kernels.iter().enumerate() {
        if !kernel.classes.has(Class::Softmax) || kernel.name.contains("LogSoftMax") || is_log_softmax(kernel.name) {
            continue;
        }
        if let (Some((before, mut chain)), Some((behind, rest))) = (walk(at, count - 1), walk(at, 1))
            && before != behind
        {
            chain.push(at);
            chain.extend(rest);
            places.extend(chain);
        }
    }
    places.sort_unstable();
    places.dedup();
    found(facts, &Chain { places }, &[Class::Softmax], 0.05)
}

/// `softmax_warp_forward<float, float, float, 10, true, false>`: the first bool says that the logarithm is taken.
fn is_log_softmax(name: &str) -> bool {
    name.split_once("softmax_warp_").is_some_and(|(_, rest)| {
        let arguments = rest.split(['>', '(']).next().unwrap_or("");
        arguments.split(',').map(str::trim).nth(4) == Some("true")
    })
}

/// Runs of the step in which each kernel contains one of the parts of its position, in this order.
fn runs(facts: &Facts<'_>, pattern: &[&[&str]], besides: usize) -> Chain {
    let kernels = in_order(facts);
    let mut places = Vec::new();
    let mut start = 0;
    while start < kernels.len() {
        let mut at = start;
        let mut matched = Vec::new();
        let mut skipped = 0;
        for parts in pattern {
            while at < kernels.len()
                && !parts.iter().any(|part| kernels[at].1.name.contains(part))
                && skipped < besides
                && !matched.is_empty()
            {
                matched.push(at);
                at += 1;
                skipped += 1;
            }
            if at < kernels.len() && parts.iter().any(|part| kernels[at].1.name.contains(part)) {
                matched.push(at);
                at += 1;
            } else {
                matched.clear();
                break;
            }
        }
        if matched.is_empty() {
            start += 1;
        } else {
            places.extend(matched);
            start = at;
        }
    }
    Chain { places }
}

/// GELU from powers, products and a hyperbolic tangent.
pub(super) fn gelu_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain = runs(
        facts,
        &[
            &["pow_tensor_scalar"],
            &["Mul", "mul"],
            &["add", "Add"],
            &["Mul", "mul"],
            &["tanh_kernel"],
            &["add", "Add"],
            &["Mul", "mul"],
        ],
        3,
    );
    found(facts, &chain, &[Class::Elementwise], 0.03)
}

/// RMS norm from a square, a mean, a reciprocal root and products.
pub(super) fn rmsnorm_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain =
        runs(facts, &[&["pow_tensor_scalar"], &["MeanOps"], &["add", "Add"], &["rsqrt_kernel"], &["Mul", "mul"]], 2);
    found(facts, &chain, &[Class::Elementwise], 0.03)
}

/// Rotary embeddings from products, a negation and a concatenation.
pub(super) fn rope_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain = runs(facts, &[&["neg_kernel"], &["CatArrayBatchedCopy"], &["Mul", "mul"], &["add", "Add"]], 2);
    found(facts, &chain, &[Class::Concatenation], 0.03)
}

/// At least three elementwise kernels or reductions in a row that each take long: they pass over the same large data.
pub(super) fn chains(facts: &Facts<'_>) -> Option<Found> {
    /// An elementwise kernel of this length moves at least some megabytes on any of today's GPUs, nanoseconds.
    const LARGE: u64 = 10_000;
    const FEWEST: usize = 3;
    let kernels = in_order(facts);
    let fits = |kernel: &Kernel<'_>| {
        let kinds = [Class::Elementwise, Class::Softmax, Class::Reduction];
        let apart = [Class::Relayout, Class::Foreach, Class::FusedOptimizer, Class::Fill, Class::LoopOptimizer];
        kernel.classes.has_any(&kinds) && !kernel.classes.has_any(&apart) && kernel.median_ns >= LARGE
    };
    // A step may begin within a row.
    let first = kernels.iter().position(|(_, kernel)| !fits(kernel)).unwrap_or(0);
    let around = (0..kernels.len()).map(|at| Some((first + at) % kernels.len())).chain([None]);
    let mut places = Vec::new();
    let mut run: Vec<usize> = Vec::new();
    for at in around {
        if let Some(at) = at.filter(|&at| fits(kernels[at].1)) {
            run.push(at);
            continue;
        }
        // One pass of each row remains.
        if run.len() >= FEWEST {
            places.extend(&run[1..]);
        }
        run.clear();
    }
    found(facts, &Chain { places }, &[Class::Elementwise, Class::Softmax], 0.1)
}
