//! Derives the overhead table from the output of the program with and without tracing: medians of
//! differences, with their scatter.

use std::collections::BTreeMap;

use gpuwhy_trace::cost::Prices;
use gpuwhy_trace::cost::prices::{LARGEST, NAMES};

use super::program::{COPY_PAIR, LONG, SHORT};

/// Nanoseconds by loop name, one for each repetition.
pub type Samples = BTreeMap<String, Vec<f64>>;

/// One run without tracing and one with it, in succession.
pub struct Round {
    /// Samples without tracing.
    pub bare: Samples,
    pub traced: Samples,
}

/// Overheads and their interquartile ranges. An overhead smaller than its scatter is 0.
pub fn of(rounds: &[Round]) -> (Prices, Prices) {
    // Difference between each traced repetition and the untraced one of the same round.
    let longer = |name: &str| -> Vec<f64> {
        rounds.iter().flat_map(|Round { bare, traced }| pairs(traced.get(name), bare.get(name), |a, b| a - b)).collect()
    };
    let (short, long, kernel) = (longer("graph_short"), longer("graph_long"), longer("kernel_gap"));
    let node = pairs(Some(&long), Some(&short), |long, short| (long - short) / (LONG - SHORT) as f64);
    let graph = pairs(Some(&short), Some(&node), |short, node| short - node * SHORT as f64);
    let copy_gap = pairs(Some(&longer(COPY_PAIR)), Some(&kernel), |pair, kernel| pair - kernel);
    let samples = NAMES.map(|name| match name {
        "kernel_launch" => longer("launch"),
        "kernel_launch_cold" => longer("launch_cold"),
        "graph_launch" => graph.clone(),
        "graph_node" => node.clone(),
        "copy_gap" => copy_gap.clone(),
        same => longer(same),
    });
    let both = samples.map(price);
    (Prices::from_array(both.map(|(price, _)| price)), Prices::from_array(both.map(|(_, scatter)| scatter)))
}

fn pairs(first: Option<&Vec<f64>>, second: Option<&Vec<f64>>, join: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let (first, second) = (first.into_iter().flatten(), second.into_iter().flatten());
    first.zip(second).map(|(&first, &second)| join(first, second)).collect()
}

/// Median and interquartile range, rounded to nanoseconds.
fn price(mut samples: Vec<f64>) -> (u32, u32) {
    samples.retain(|sample| sample.is_finite());
    samples.sort_by(f64::total_cmp);
    let quarter = |quarters: usize| {
        let last = samples.len().saturating_sub(1);
        samples.get(last * quarters / 4).copied().unwrap_or(0.0)
    };
    let (median, scatter) = (quarter(2), quarter(3) - quarter(1));
    let whole = |nanos: f64| nanos.round().clamp(0.0, f64::from(LARGEST)) as u32;
    (if median > scatter { whole(median) } else { 0 }, whole(scatter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: &[(&str, f64)], noise: f64) -> Samples {
        let row = |&(name, nanos): &(&str, f64)| {
            let repetitions = (0..7).map(|index| nanos + noise * f64::from(index - 3)).collect();
            (name.to_owned(), repetitions)
        };
        of.iter().map(row).collect()
    }

    #[test]
    fn prices_are_what_tracing_adds() {
        let names = [
            "launch",
            "launch_cold",
            "copy",
            "call",
            "graph_short",
            "graph_long",
            "kernel_gap",
            "node_gap",
            "memset_node_gap",
            "copy_pair",
        ];
        let with = |of: [f64; 10], noise| samples(&names.into_iter().zip(of).collect::<Vec<_>>(), noise);
        let bare = [2_700.0, 3_500.0, 2_300.0, 300.0, 5_000.0, 5_600.0, 900.0, 500.0, 1_000.0, 3_000.0];
        // 800 ns per node and 300 per graph; 200 before a kernel, 350 before a copy.
        let more = [900.0, 1_500.0, 700.0, 270.0, 16_300.0, 160_300.0, 200.0, 10.0, 1_150.0, 550.0];
        let traced = std::array::from_fn(|index| bare[index] + more[index]);
        let rounds = [0.0, 50.0, -20.0].map(|drift| {
            let moved = |of: [f64; 10]| of.map(|nanos| nanos + drift);
            Round { bare: with(moved(bare), 1.0), traced: with(moved(traced), 1.0) }
        });
        let (prices, scatter) = of(&rounds);
        assert_eq!(prices.to_array(), [900, 1_500, 300, 800, 700, 270, 200, 10, 1_150, 350]);
        assert_eq!(scatter, Prices::default(), "what drifts from round to round is in both runs of it");
    }

    #[test]
    fn what_is_less_than_its_scatter_is_nothing() {
        let round = |bare: &[f64], traced: &[f64]| {
            let of = |samples: &[f64]| Samples::from([("launch".to_owned(), samples.to_vec())]);
            Round { bare: of(bare), traced: of(traced) }
        };
        let (prices, scatter) = of(&[round(&[100.0; 4], &[60.0, 110.0, 130.0, 400.0])]);
        assert_eq!((prices.kernel_launch, scatter.kernel_launch), (0, 70));
        let (prices, _) = of(&[round(&[100.0; 3], &[50.0, 50.0, 50.0])]);
        assert_eq!(prices.kernel_launch, 0, "no negative price");
        assert_eq!(of(&[]).0, Prices::default());
        assert_eq!(of(&[round(&[1.0], &[f64::NAN])]).0, Prices::default());
    }
}
