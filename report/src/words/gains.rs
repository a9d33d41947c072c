//! Best cases in words.

use std::fmt::Write;

use profiler_core::sorting::SortRows as _;
use profiler_core::whatif::{
    BASE_ERROR_LIMIT, BestCase, COVERED_LEAST, FEWEST_STEPS, ScenarioKind, SimulationProblem, UNEXPLAINED_LIMIT, WhatIf,
};

/// Largest factor shown; larger ones only mean that almost nothing else remains.
const LARGEST_SHOWN: f64 = 100.0;
/// Factor from which only the lower end of the interval is shown, and the largest such end.
const ROUGHLY: f64 = 10.0;
/// Smallest lower end that is shown alone.
const LOWEST_ALONE: f64 = 2.0;

/// Condition of a scenario, to follow "if".
pub const fn condition(kind: ScenarioKind) -> &'static str {
    match kind {
        ScenarioKind::Base => "nothing changed",
        ScenarioKind::Untraced => "nothing were traced",
        ScenarioKind::DataReady => "data were always ready",
        ScenarioKind::LaunchesFree => "launches cost no time (CUDA graphs, larger kernels)",
        ScenarioKind::NoSyncs => "the CPU never waited for the GPU",
        ScenarioKind::NoAllocations => "memory were kept instead of freed and allocated again",
        ScenarioKind::CopiesOverlapped => "copies used pinned memory and overlapped the kernels",
        ScenarioKind::CommunicationHidden => "communication overlapped the kernels",
        ScenarioKind::GridsFilled => "equal small kernels in a row were one",
        ScenarioKind::NoReadbacks => "the CPU read no single values back from the GPU",
        ScenarioKind::CopiesJoined => "small copies in a row were one",
        ScenarioKind::ReadsReduced => "results were reduced on the GPU before they are copied to the CPU",
        ScenarioKind::DeviceCopiesGone => "there were no large copies within the GPU",
        ScenarioKind::NoHostWork => "there were no CPU work between launches",
        ScenarioKind::DeviceOnly => "the CPU cost no time at all",
        ScenarioKind::KernelsAtRoof => "each kernel reached 90 % of the peak of its busiest unit",
    }
}

/// A speedup in words, with as many digits as are significant: `about 4.1x`. From `ROUGHLY` on only the lower
/// end of the interval is shown: there the rest of the step determines the factor, and it was measured
/// together with the removed part. A bound without an interval is an upper one, so it is shown unchanged.
pub fn about(speedup: f64, interval: Option<(f64, f64)>) -> String {
    match interval {
        Some((low, _)) if digits(speedup) == 0 && low >= LOWEST_ALONE => {
            format!("more than {:.0}x", low.floor().min(ROUGHLY))
        }
        _ if speedup > LARGEST_SHOWN => format!("more than {LARGEST_SHOWN:.0}x"),
        _ => format!("about {:.*}x", digits(speedup), speedup),
    }
}

/// Bound of the gain without a cause with at most this share of the time, 0 to 1: the time is only subtracted. It has
/// no interval, because nothing says how much of the bound is reached.
pub(crate) fn at_most_without(share: f64) -> String {
    at_most(1.0 / (1.0 - share).max(f64::MIN_POSITIVE))
}

/// An upper bound: `at most 4.5x (a rough bound)`.
pub(crate) fn at_most(speedup: f64) -> String {
    format!("at most {:.*}x (a rough bound)", digits(speedup), speedup)
}

/// Number of significant decimal places of a factor.
fn digits(speedup: f64) -> usize {
    match speedup {
        _ if speedup < 1.995 => 2,
        _ if speedup < ROUGHLY - 0.05 => 1,
        _ => 0,
    }
}

/// A speedup with its interval: `about 4.1x (3.7x to 4.5x)`; without the interval if its ends print as the same
/// number, or if only the lower end is shown.
pub fn gain(speedup: f64, interval: Option<(f64, f64)>) -> String {
    let about = about(speedup, interval);
    let range = range(speedup, interval).filter(|_| about.starts_with("about"));
    range.map_or(about.clone(), |range| format!("{about} {range}"))
}

/// The same in a sentence about a duration: `about 4.1x faster (3.7x to 4.5x)`.
pub fn faster(speedup: f64, interval: Option<(f64, f64)>) -> String {
    gain(speedup, interval).replacen('x', "x faster", 1)
}

/// The interval of a speedup in words, with the digits that the speedup is shown with.
fn range(speedup: f64, interval: Option<(f64, f64)>) -> Option<String> {
    let [low, high] = <[f64; 2]>::from(interval?).map(|end| end_of(end, digits(speedup)));
    (low != high).then(|| format!("({low} to {high})"))
}

/// An estimate by its low end, and what measured gains of such estimates mostly reached.
pub(crate) fn at_least(low: f64) -> String {
    let usual = usual(low);
    format!("at least {low:.*}x, often {usual:.*}x (an estimate)", digits(low), digits(usual))
}

/// Gain that two of three programs reached whose gain was estimated to be at least `low` (22 of 33,
/// `tests/gpu/remedies.md`): half as much again, of the speedup or of the time saved, whichever is less.
fn usual(low: f64) -> f64 {
    const MORE: f64 = 1.5;
    let saved = MORE * (1.0 - 1.0 / low);
    if saved < 1.0 { (low * MORE).min(1.0 / (1.0 - saved)) } else { low * MORE }
}

/// An end of an interval, with the decimal places of the estimate; with its own if the estimate has none.
fn end_of(end: f64, digits_of_estimate: usize) -> String {
    let digits = if digits_of_estimate == 0 { digits(end) } else { digits_of_estimate };
    if end > LARGEST_SHOWN { format!("more than {LARGEST_SHOWN:.0}x") } else { format!("{end:.digits$}x") }
}

/// Reason why a simulation was refused.
pub fn not_simulated(refused: SimulationProblem) -> String {
    match refused {
        SimulationProblem::FewSteps(0) => format!("no step was simulated as a whole, {FEWEST_STEPS} are needed"),
        SimulationProblem::FewSteps(1) => format!("only 1 step was simulated as a whole, {FEWEST_STEPS} are needed"),
        SimulationProblem::FewSteps(steps) => {
            format!("only {steps} steps were simulated as a whole, {FEWEST_STEPS} are needed")
        }
        SimulationProblem::BaseError(error) => format!(
            "the simulation of the unmodified run is {:.1} % off, the limit is {:.0} %",
            error * 1e2,
            BASE_ERROR_LIMIT * 1e2
        ),
        SimulationProblem::Unexplained(part) => format!(
            "for {:.1} % of the step the GPU waited for something that was not recorded, the limit is {:.0} %",
            part * 1e2,
            UNEXPLAINED_LIMIT * 1e2
        ),
        SimulationProblem::Covered(part) => format!(
            "the steps cover {:.0} % of the time after start-up, at least {:.0} % are needed",
            part * 1e2,
            COVERED_LEAST * 1e2
        ),
    }
}

/// The best cases worth showing, the largest first.
pub fn worth_showing(answer: &WhatIf) -> Vec<&BestCase> {
    let mut shown: Vec<&BestCase> = answer.best_cases.iter().filter(|best_case| best_case.is_worth_showing()).collect();
    shown.sort_rows_by(|a, b| b.speedup.total_cmp(&a.speedup).then(a.kind.cmp(&b.kind)));
    shown
}

/// One line for each best case worth showing, and one for their basis.
pub fn what_if(answer: &WhatIf) -> String {
    let shown = worth_showing(answer);
    let mut text = String::new();
    for best_case in &shown {
        let _ = writeln!(text, "{} if {}", faster(best_case.speedup, best_case.interval), condition(best_case.kind));
    }
    let of = match answer.represented_steps {
        all if all > answer.steps => format!(" of {all}"),
        _ => String::new(),
    };
    let _ = match (answer.refused, answer.base_error) {
        (Some(refused), _) => {
            writeln!(text, "rough bounds, because the steps cannot be simulated: {}", not_simulated(refused))
        }
        (None, Some(error)) if !shown.is_empty() => writeln!(
            text,
            "simulated from {}{of} steps; the simulation of the unmodified run is {:.1} % off",
            answer.steps,
            error * 1e2
        ),
        _ => Ok(()),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::whatif::Busy;

    #[test]
    fn an_interval_is_shown_where_it_says_something() {
        assert_eq!(faster(4.08, Some((3.7, 4.49))), "about 4.1x faster (3.7x to 4.5x)");
        assert_eq!(faster(1.02, Some((1.019, 1.021))), "about 1.02x faster");
        assert_eq!(faster(2.5, None), "about 2.5x faster");
    }

    #[test]
    fn of_a_large_speed_up_the_lower_end_is_shown() {
        assert_eq!(faster(40.0, Some((33.0, 120.0))), "more than 10x faster");
        assert_eq!(faster(11.0, Some((8.4, 30.0))), "more than 8x faster");
        assert_eq!(faster(11.0, Some((1.19, 29.7))), "about 11x faster (1.19x to 30x)");
        assert_eq!(faster(26.0, None), "about 26x faster");
        assert_eq!(faster(140.0, None), "more than 100x faster");
    }

    #[test]
    fn a_speed_up_has_the_digits_that_it_is_worth() {
        let shown = [1.074, 1.994, 1.996, 4.082, 9.94, 9.96, 2952.4].map(|speedup| about(speedup, None));
        let wanted =
            ["about 1.07x", "about 1.99x", "about 2.0x", "about 4.1x", "about 9.9x", "about 10x", "more than 100x"];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_line_says_best_case_and_how_good_the_replay_was() {
        let best_case = |kind, speedup, interval| BestCase { kind, step_ns: 100, speedup, interval };
        let answer = WhatIf {
            steps: 38,
            represented_steps: 38,
            covers_ns: 0,
            base_error: Some(0.0),
            refused: None,
            untraced: None,
            priced: 1.0,
            best_cases: vec![
                best_case(ScenarioKind::NoSyncs, 1.009, None),
                best_case(ScenarioKind::DataReady, 2.0, Some((1.8, 2.2))),
            ],
            combined: Vec::new(),
            busy: Busy::default(),
        };
        assert_eq!(
            what_if(&answer),
            "about 2.0x faster (1.8x to 2.2x) if data were always ready\n\
             simulated from 38 steps; the simulation of the unmodified run is 0.0 % off\n"
        );
        let bounds = WhatIf { refused: Some(SimulationProblem::FewSteps(1)), represented_steps: 40, ..answer };
        assert!(what_if(&bounds).ends_with(
            "rough bounds, because the steps cannot be simulated: only 1 step was simulated as a whole, 3 are needed\n"
        ));
    }
}
