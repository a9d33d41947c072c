//! From time stamps of steps to a time per step.

/// First steps that are never measured, and shortest time for them.
pub const WARM_STEPS: usize = 10;
pub const WARM_SECONDS: f64 = 2.0;
/// Shortest time that is measured.
pub const SECONDS: f64 = 2.0;
/// Fewest steps that give a time.
pub const FEWEST_STEPS: usize = 3;
/// A step this many times as long as the median is a pause, such as that between two epochs.
const PAUSE: f64 = 3.0;
/// Minimum number of steps in a block: the CPU runs ahead of the GPU and waits for it once in a while.
const BLOCK: usize = 10;
/// Part of the time that a wait for the GPU takes at least where the CPU is far ahead. Elsewhere it is a few steps.
const BEHIND: f64 = 0.05;

/// Time per step in seconds, from the times at which steps ended; `None` for less than three.
///
/// With pauses all along the run, the time from the end of the first to the end of the last, which holds a whole number
/// of their periods. Otherwise the median of blocks, which a few pauses do not change.
pub fn per_step(times: &[f64]) -> Option<f64> {
    let steps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let limit = PAUSE * median(&steps)?;
    let pauses: Vec<usize> = (0..steps.len()).filter(|&at| steps[at] > limit).collect();
    if let [first, .., last] = pauses[..]
        && are_all_along(&pauses, steps.len())
    {
        return Some((times[last + 1] - times[first + 1]) / (last - first) as f64);
    }
    if steps.len() < 2 {
        return None;
    }
    let blocks = (steps.len() / BLOCK).max(1);
    let length = steps.len() / blocks;
    // The first steps that do not fill a block are left out.
    let means: Vec<f64> = steps[steps.len() % length..]
        .chunks_exact(length)
        .map(|block| block.iter().sum::<f64>() / length as f64)
        .collect();
    median(&means)
}

/// Time per step in seconds between the first and the last wait for the GPU, each after a step with this index and of
/// so many seconds, if the GPU works long after the CPU has launched its work; `None` where the ends of steps say it.
pub fn behind(times: &[f64], waits: &[(usize, f64)]) -> Option<f64> {
    let (&(first, _), &(last, waited)) = waits.first().zip(waits.last())?;
    let took = times.get(last)? - times.get(first)?;
    (last > first && waited > BEHIND * took).then(|| took / (last - first) as f64)
}

/// Time per step of the second half of the steps as a part of that of the first: above 1 if steps become longer.
pub fn trend(times: &[f64]) -> Option<f64> {
    let (first, second) = times.split_at(times.len() / 2);
    Some(per_step(second)? / per_step(first)?).filter(|ratio| ratio.is_finite())
}

/// Times per step of two runs over the same steps: those behind both start-ups if they are enough, else those behind
/// the first [`WARM_STEPS`]; `None` if there are too few. A run is its times and the number of the first one behind its
/// start-up.
pub fn of_same_steps(runs: [(&[f64], usize); 2]) -> Option<[f64; 2]> {
    let end = runs.map(|(times, _)| times.len()).into_iter().min()?;
    let first = runs.map(|(_, from)| from).into_iter().max()?;
    let first = if first + 2 * BLOCK < end { first } else { WARM_STEPS.min(end / 3) };
    let [one, other] = runs.map(|(times, _)| per_step(&times[first..end]));
    Some([one?, other?])
}

/// True if the GPU still worked for long when the program had made its last step. `waited` is how long it was waited
/// for at the end of the program, which may have waited itself before: one wait between the steps shows it then. Of
/// more waits, [`behind`] gives the time.
pub fn is_behind_at_end(times: &[f64], waited: f64, waits: &[(usize, f64)]) -> bool {
    let is_long = |waited: f64| times.last().is_some_and(|last| goes_on(times, last + waited));
    is_long(waited) || matches!(waits, [(_, waited)] if is_long(*waited))
}

/// True if it is long from the last step to `end`.
pub fn goes_on(times: &[f64], end: f64) -> bool {
    let ends = times.first().zip(times.last());
    ends.is_some_and(|(first, last)| end - last > BEHIND * (last - first))
}

/// True if there are three or more pauses, and the steps before the first and after the last are no more than those
/// between two of them. Others come from elsewhere: a few in one part of the run would stand for all of it.
fn are_all_along(pauses: &[usize], steps: usize) -> bool {
    let [first, .., last] = pauses[..] else { return false };
    let longest = pauses.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    pauses.len() >= 3 && first <= longest && steps - 1 - last <= longest
}

/// Index of the first time stamp after start-up in a program that ended by itself: where the steady steps began if
/// enough follow, otherwise after a third of the steps, at most [`WARM_STEPS`].
pub fn after_start(count: usize, steady: Option<usize>) -> usize {
    let usual = (count / 3).min(WARM_STEPS);
    steady.filter(|from| from + 2 * BLOCK < count).map_or(usual, |from| from.max(usual))
}

/// The middle of the values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Time stamps after steps of these durations.
    fn stamps(steps: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let ends = steps.into_iter().scan(5.0, |time, step| {
            *time += step;
            Some(*time)
        });
        [5.0].into_iter().chain(ends).collect()
    }

    fn near(found: Option<f64>, wanted: f64) {
        assert!((found.unwrap() - wanted).abs() < 1e-9, "{found:?}, wanted {wanted}");
    }

    #[test]
    fn one_step_with_a_pause_changes_nothing() {
        near(per_step(&stamps((0..60).map(|at| if at == 25 { 3.0 } else { 0.1 }))), 0.1);
        near(per_step(&stamps((0..65).map(|at| if at == 2 { 3.0 } else { 0.1 }))), 0.1);
    }

    #[test]
    fn regular_pauses_count_with_whole_periods() {
        // Pauses at 9, 29, 49: the 10 steps after the last one are left out.
        near(per_step(&stamps((0..60).map(|at| if at % 20 == 9 { 2.1 } else { 0.1 }))), 0.2);
        // The CPU runs ahead of the GPU, and waits for it in every tenth step.
        near(per_step(&stamps((0..64).map(|at| if at % 10 == 3 { 0.91 } else { 0.01 }))), 0.1);
    }

    #[test]
    fn pauses_in_one_part_of_the_run_do_not_stand_for_all_of_it() {
        // Another process disturbs 12 of 200 steps.
        let disturbed = |at: usize| if (100..112).contains(&at) && at.is_multiple_of(3) { 1.0 } else { 0.1 };
        near(per_step(&stamps((0..200).map(disturbed))), 0.1);
    }

    #[test]
    fn a_gpu_that_is_far_behind_gives_the_time() {
        // 40 steps are launched in 4 ms, and take the GPU 4 s.
        let launched = stamps((0..40).map(|at| if at == 39 { 4.0 } else { 0.0001 }));
        near(behind(&launched, &[(0, 0.0), (40, 3.996)]), 4.0039 / 40.0);
        assert_eq!(behind(&launched, &[(0, 0.0), (40, 0.1)]), None);
        assert_eq!(
            [behind(&launched, &[(40, 3.0)]), behind(&[], &[(0, 1.0), (1, 2.0)]), behind(&launched, &[])],
            [None; 3]
        );
    }

    #[test]
    fn a_gpu_that_is_far_behind_at_the_end_is_seen() {
        // 200 steps are launched in 60 ms, and take the GPU 4 s.
        let launched = stamps((0..199).map(|_| 0.0003));
        assert!(is_behind_at_end(&launched, 4.0, &[]) && !is_behind_at_end(&launched, 0.001, &[]));
        assert!(is_behind_at_end(&launched, 0.001, &[(150, 0.05)]) && !is_behind_at_end(&[], 4.0, &[]));
        // It has caught up meanwhile.
        assert!(!is_behind_at_end(&launched, 0.001, &[(10, 0.05), (150, 0.0)]));
        assert!(goes_on(&launched, 9.0) && !goes_on(&launched, 5.061) && !goes_on(&[], 9.0));
    }

    #[test]
    fn steps_that_grow_are_compared_over_the_same_ones() {
        // Decoding without a cache; the second run makes more steps in its time.
        let grows = |steps: u32, scale: f64| stamps((0..steps).map(|at| scale * f64::from(at)));
        let [slow, fast] = [grows(400, 1e-3), grows(560, 5e-4)];
        let [before, after] = of_same_steps([(&slow, 280), (&fast, 300)]).unwrap();
        near(Some(before / after), 2.0);
        // None of the steady steps is common.
        let [before, after] = of_same_steps([(&slow, 280), (&fast, 500)]).unwrap();
        near(Some(before / after), 2.0);
        assert!(trend(&slow[280..]).unwrap() > 1.1);
        near(trend(&stamps((0..60).map(|_| 0.1))), 1.0);
        assert_eq!((of_same_steps([(&slow, 0), (&[], 0)]), trend(&[])), (None, None));
    }

    #[test]
    fn two_kinds_of_steps_are_averaged() {
        near(per_step(&stamps((0..60).map(|at| if at % 2 == 0 { 0.1 } else { 0.2 }))), 0.15);
    }

    #[test]
    fn few_steps_still_give_a_time() {
        assert_eq!(per_step(&[]), None);
        assert_eq!(per_step(&stamps([0.1])), None);
        near(per_step(&stamps([0.1, 0.2])), 0.15);
        assert_eq!([after_start(4, None), after_start(100, None)], [1, 10]);
        assert_eq!([after_start(100, Some(50)), after_start(60, Some(50)), after_start(60, Some(5))], [50, 10, 10]);
    }
}
