//! Patterns in the order of a step's kernels: a function that is computed by many kernels in a row.

use super::facts::{Facts, Found, Kernel};
use super::gain::Gain;
use super::patterns::Class;

/// Rows of kernels, each over the same data.
#[derive(Default)]
struct Chain {
    /// Places among the kernels of the step.
    rows: Vec<Vec<usize>>,
}

/// The kernels of a step in order, without other operations, each with its share of the time of kernels.
fn in_order<'b, 'a>(facts: &'b Facts<'a>) -> Vec<(f64, &'b Kernel<'a>)> {
    let places = facts.order.iter().zip(&facts.order_shares);
    places.filter_map(|(place, &share)| Some((share, &facts.kernels[(*place)?]))).collect()
}

impl Chain {
    fn of(places: Vec<usize>) -> Self {
        Self { rows: vec![places] }
    }

    fn count(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Shares of the time and of the number of kernels.
    fn parts(&self, facts: &Facts<'_>) -> (f64, f64) {
        let kernels = in_order(facts);
        let time = self.rows.iter().flatten().map(|&place| kernels[place].0).sum();
        (time, self.count() as f64 / kernels.len().max(1) as f64)
    }

    /// Gain of one kernel for each row. It moves the data that the first reads and the last writes, so it takes as long
    /// as the longest: measured were 0.65 (GELU), 0.5 (RMS norm) and 0.75 to 1.0 (ten and 13 kernels). With casts the
    /// longest may have moved three times the bytes; a row may also become two kernels.
    fn joined(&self, facts: &Facts<'_>) -> Gain {
        const SHORTEST: f64 = 0.5;
        const OF_CASTS: f64 = 0.33;
        const LONGEST: f64 = 1.5;
        // A long row reads more arrays: one of 33 kernels became as long as 2.4.
        const MANY: f64 = 10.0;
        let kernels = in_order(facts);
        let (mut low, mut high) = (0.0, 0.0);
        for row in &self.rows {
            let whole: f64 = row.iter().map(|&place| kernels[place].0).sum();
            let longest = row.iter().map(|&place| kernels[place].0).fold(0.0, f64::max);
            low += whole - (LONGEST.max(row.len() as f64 / MANY) * longest).min(whole);
            let casts = row.iter().any(|&place| kernels[place].1.classes.has(Class::Cast));
            high += whole - if casts { OF_CASTS } else { SHORTEST } * longest;
        }
        let gone = (self.count() - self.rows.len()) as f64 / kernels.len().max(1) as f64;
        facts.without_between((low, gone), (high, gone))
    }

    fn found(&self, facts: &Facts<'_>, classes: &[Class], least: f64, gain: Gain) -> Option<Found> {
        let (share, of_count) = self.parts(facts);
        let worth = if facts.busy() >= 0.5 { share } else { of_count };
        (worth >= least).then(|| Found { what: self.count().to_string(), ..facts.found(classes, share, gain) })
    }
}

/// Attention by hand: a chain with a softmax between two matrix products. The kernels between the products are gone.
/// The products no longer write and read the scores: a fused kernel took 0.37 and 0.57 of their time.
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
    let (mut places, mut products): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for (at, (_, kernel)) in kernels.iter().enumerate() {
        if !kernel.classes.has(Class::Softmax) || kernel.name.contains("LogSoftMax") || is_log_softmax(kernel.name) {
            continue;
        }
        if let (Some((before, mut chain)), Some((behind, rest))) = (walk(at, count - 1), walk(at, 1))
            && before != behind
        {
            chain.push(at);
            chain.extend(rest);
            // In attention a product with the values lies between the softmax and its gradient; in a loss none does.
            let softmax = chain.iter().map(|&at| kernels[at].1).filter(|kernel| kernel.classes.has(Class::Softmax));
            let (backward, forward): (Vec<_>, Vec<_>) = softmax.partition(|kernel| is_backward(kernel.name));
            if !backward.is_empty() && !forward.is_empty() {
                continue;
            }
            places.extend(chain);
            products.extend([before, behind]);
        }
    }
    for all in [&mut places, &mut products] {
        all.sort_unstable();
        all.dedup();
    }
    let (share, of_count) = Chain::of(places.clone()).parts(facts);
    let (products, _) = Chain::of(products).parts(facts);
    let gain = facts.without_between((0.97 * share + 0.1 * products, of_count), (share + 0.8 * products, of_count));
    Chain::of(places).found(facts, &[Class::Softmax], 0.05, gain)
}

/// `softmax_warp_backward<...>`, `cunn_SoftMaxBackwardSmem<...>`.
fn is_backward(name: &str) -> bool {
    name.contains("backward") || name.contains("Backward")
}

/// `softmax_warp_forward<float, float, float, 10, true, false>`: the first bool says that the logarithm is taken.
fn is_log_softmax(name: &str) -> bool {
    name.split_once("softmax_warp_").is_some_and(|(_, rest)| {
        let arguments = rest.split(['>', '(']).next().unwrap_or("");
        arguments.split(',').map(str::trim).nth(4) == Some("true")
    })
}

/// Runs of the step in which each kernel contains one of the parts of its position, in this order, with at most
/// `besides` others between them.
fn runs(facts: &Facts<'_>, pattern: &[&[&str]], besides: usize) -> Chain {
    let kernels = in_order(facts);
    let is = |at: usize, parts: &[&str]| {
        kernels.get(at).is_some_and(|(_, kernel)| parts.iter().any(|part| kernel.name.contains(part)))
    };
    let run = |start: usize| {
        let (mut at, mut skipped) = (start, 0);
        for parts in pattern {
            while !is(at, parts) {
                if at == start || at >= kernels.len() || skipped == besides {
                    return None;
                }
                (at, skipped) = (at + 1, skipped + 1);
            }
            at += 1;
        }
        Some(at)
    };
    let (mut rows, mut start) = (Vec::new(), 0);
    while start < kernels.len() {
        let end = run(start);
        rows.extend(end.map(|end| (start..end).collect()));
        start = end.unwrap_or(start + 1);
    }
    Chain { rows }
}

/// The rows with the casts in front of them, and the casts and products behind them, which belong to the function.
fn with_casts(facts: &Facts<'_>, chain: Chain) -> Chain {
    /// A cast, a product with a weight, and its own cast.
    const MOST: usize = 3;
    let kernels = in_order(facts);
    let is_cast = |place: usize| kernels[place].1.classes.has(Class::Cast);
    let is_product = |place: usize| kernels[place].1.name.contains("MulFunctor");
    let mut begin = 0;
    let rows = chain.rows.into_iter().map(|mut row| {
        let (first, last) = (row[0], row[row.len() - 1]);
        if first > begin && is_cast(first - 1) {
            row.insert(0, first - 1);
        }
        let behind = last + 1..(last + 1 + MOST).min(kernels.len());
        row.extend(behind.take_while(|&place| is_cast(place) || is_product(place)));
        begin = row[row.len() - 1] + 1;
        row
    });
    Chain { rows: rows.collect() }
}

/// GELU from powers, products and a hyperbolic tangent.
fn gelu(facts: &Facts<'_>) -> Chain {
    const MUL: &[&str] = &["Mul", "mul"];
    const ADD: &[&str] = &["add", "Add"];
    runs(facts, &[&["pow_tensor_scalar"], MUL, ADD, MUL, &["tanh_kernel"], ADD, MUL], 3)
}

/// RMS norm from a square, a mean, a reciprocal root and products.
fn rms_norm(facts: &Facts<'_>) -> Chain {
    let parts: [&[&str]; 5] =
        [&["pow_tensor_scalar"], &["MeanOps"], &["add", "Add"], &["rsqrt_kernel"], &["Mul", "mul"]];
    with_casts(facts, runs(facts, &parts, 2))
}

/// Rotary embeddings from products, a negation and a concatenation.
fn rope(facts: &Facts<'_>) -> Chain {
    runs(facts, &[&["neg_kernel"], &["CatArrayBatchedCopy"], &["Mul", "mul"], &["add", "Add"]], 2)
}

pub(super) fn gelu_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain = gelu(facts);
    chain.found(facts, &[Class::Elementwise], 0.03, chain.joined(facts))
}

pub(super) fn rmsnorm_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain = rms_norm(facts);
    chain.found(facts, &[Class::Elementwise], 0.03, chain.joined(facts))
}

pub(super) fn rope_parts(facts: &Facts<'_>) -> Option<Found> {
    let chain = rope(facts);
    chain.found(facts, &[Class::Concatenation], 0.03, chain.joined(facts))
}

/// Rows of kernels in a step that fit, at least so many in a row.
fn rows(facts: &Facts<'_>, fewest: usize, fits: impl Fn(usize, &Kernel<'_>) -> bool) -> Chain {
    // What repeats within a step passes over new data.
    let inside = facts.device.and_then(|device| device.step_meaning.inside);
    let longest = inside.map_or(usize::MAX, |inside| inside.launches as usize);
    let mut place = 0;
    let operations: Vec<Option<usize>> = facts
        .order
        .iter()
        .map(|index| {
            let index = (*index)?;
            place += 1;
            fits(place - 1, &facts.kernels[index]).then_some(place - 1)
        })
        .collect();
    // A step may begin within a row.
    let first = operations.iter().position(Option::is_none).unwrap_or(0);
    let around = operations[first..].iter().chain(&operations[..first]).copied().chain([None]);
    let mut chain = Chain::default();
    let mut row: Vec<usize> = Vec::new();
    for at in around {
        row.extend(at);
        if at.is_none() || row.len() >= longest {
            let whole = std::mem::take(&mut row);
            chain.rows.extend(Some(whole).filter(|row| row.len() >= fewest));
        }
    }
    chain
}

/// At least three elementwise kernels or reductions in a row that each take long: they pass over the same large data.
pub(super) fn chains(facts: &Facts<'_>) -> Option<Found> {
    /// An elementwise kernel of this length moves at least some megabytes on any of today's GPUs, nanoseconds.
    const LARGE: u64 = 10_000;
    // A function with a remedy of its own is no row.
    let functions = [gelu(facts), rms_norm(facts), rope(facts)];
    let named: Vec<usize> = functions.into_iter().flat_map(|chain| chain.rows).flatten().collect();
    let chain = rows(facts, 3, |place, kernel| {
        let kinds = [Class::Elementwise, Class::Softmax, Class::Reduction];
        let apart = [Class::Relayout, Class::Foreach, Class::FusedOptimizer, Class::Fill, Class::LoopOptimizer];
        kernel.classes.has_any(&kinds)
            && !kernel.classes.has_any(&apart)
            && kernel.median_ns >= LARGE
            && !named.contains(&place)
    });
    chain.found(facts, &[Class::Elementwise, Class::Softmax], 0.1, chain.joined(facts))
}

/// At least two of CuPy's own kernels in a row.
pub(super) fn cupy_chains(facts: &Facts<'_>) -> Option<Found> {
    let (of_count, chain) =
        (facts.count_share(&[Class::Cupy]), rows(facts, 2, |_, kernel| kernel.classes.has(Class::Cupy)));
    let found = chain.found(facts, &[Class::Cupy], 0.0, chain.joined(facts))?;
    (of_count >= 0.5).then_some(Found { share: of_count, ..found })
}
