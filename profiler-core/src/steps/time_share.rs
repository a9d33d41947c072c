//! Share of a cause in the time of the steps, with an interval that accounts for their order.
//!
//! Steps are not independent: a data loader is late for a run of steps, and every third step waits for the
//! workers. So complete runs of steps are drawn at random and concatenated to as many steps as were measured,
//! many times: the circular block bootstrap (Politis and Romano 1992, "A circular block-resampling procedure
//! for stationary data"). The length of a run follows from the autocorrelation of the steps (Politis and
//! White 2004, "Automatic block-length selection for the dependent bootstrap", with the correction of Patton,
//! Politis and White 2009), but is at least the cube root of their number. The random numbers are the same on
//! every machine.
//!
//! A median over steps is no substitute: if a cause takes much time in some steps and none in others, the
//! median shows which kind of step is more frequent, not how much time the cause takes.

/// Number of resamples. The ends of a 95 % interval are the tenth value of each side.
const RESAMPLES: usize = 400;
/// With fewer blocks in all steps, their variation is unknown.
const FEWEST_BLOCKS: usize = 3;
/// Seed of the random numbers.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Coefficients of Abramowitz and Stegun 26.2.19.
const NORMAL: [f64; 6] =
    [0.049_867_347, 0.021_141_006_1, 0.003_277_626_3, 0.000_038_003_6, 0.000_048_890_6, 0.000_005_383];
/// Half of a normal distribution's middle 95 %, in standard deviations.
const NORMAL_95: f64 = 1.959_964;

/// Share of time, 0 to 1, and the interval that contains the share of all steps with 95 % confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeShare {
    /// Time of the cause in all steps, divided by the time of all steps.
    pub share: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl TimeShare {
    /// A share with unknown variation.
    pub fn exactly(share: f64) -> Self {
        Self { share, low: share, high: share }
    }

    /// Computed from consecutive steps: time of the cause in each, and duration of each, nanoseconds. `None`
    /// if the total duration is zero.
    pub fn of(steps: &[(u64, u64)]) -> Option<Self> {
        let part: u64 = steps.iter().map(|step| step.0).sum();
        let whole: u64 = steps.iter().map(|step| step.1).sum();
        if whole == 0 {
            return None;
        }
        let share = part as f64 / whole as f64;
        let block = block_length(&influences(steps, share));
        let mut shares = resampled(steps, block);
        shares.sort_by(f64::total_cmp);
        let outside = (tail(steps.len() / block) * RESAMPLES as f64) as usize;
        let (low, high) = (shares[outside], shares[RESAMPLES - 1 - outside]);
        Some(Self { share, low: low.min(share), high: high.max(share) })
    }
}

/// Generator of Marsaglia 2003 ("Xorshift RNGs").
struct Random(u64);

impl Random {
    /// A number from 0 to `limit`, exclusive.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * limit as u128) >> 64) as usize
    }
}

/// Influence of each step on the share, up to a factor. The autocorrelation of the ratio is computed from
/// these.
fn influences(steps: &[(u64, u64)], share: f64) -> Vec<f64> {
    steps.iter().map(|&(part, whole)| part as f64 - share * whole as f64).collect()
}

/// Shares of [`RESAMPLES`] resamples, each concatenated from blocks of `length` steps.
fn resampled(steps: &[(u64, u64)], length: usize) -> Vec<f64> {
    // Prefix sums, twice around: a block that starts near the end continues at the start.
    let mut before = Vec::with_capacity(2 * steps.len() + 1);
    let mut sum = (0_u64, 0_u64);
    before.push(sum);
    for step in steps.iter().chain(steps) {
        sum = (sum.0 + step.0, sum.1 + step.1);
        before.push(sum);
    }
    let mut random = Random(SEED);
    let one = |_| {
        let (mut part, mut whole, mut left) = (0, 0, steps.len());
        while left > 0 {
            let (begin, count) = (random.below(steps.len()), left.min(length));
            let (from, to) = (before[begin], before[begin + count]);
            (part, whole, left) = (part + to.0 - from.0, whole + to.1 - from.1, left - count);
        }
        part as f64 / (whole as f64).max(1.0)
    };
    (0..RESAMPLES).map(one).collect()
}

/// Fraction of resamples on each side of the interval if `blocks` blocks make up all steps. Percentiles of a
/// bootstrap are too narrow for few draws: Hesterberg 2015, "What teachers should know about the bootstrap",
/// expands them to Student's t and by n / (n - 1).
fn tail(blocks: usize) -> f64 {
    let free = blocks.saturating_sub(1).max(1) as f64;
    let z = NORMAL_95;
    // Abramowitz and Stegun 26.7.5: Student's t from the normal distribution.
    let t = z
        + (z.powi(3) + z) / (4.0 * free)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * free.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * free.powi(3));
    let x = t * ((free + 1.0) / free).sqrt();
    // Abramowitz and Stegun 26.2.19: the normal distribution, with an error of at most 1.5e-7.
    let sum = NORMAL.iter().rev().fold(0.0, |sum, term| (sum + term) * x);
    0.5 * (1.0 + sum).powi(-16)
}

/// Number of steps drawn together, computed from `values` in their order.
fn block_length(values: &[f64]) -> usize {
    let count = values.len();
    let (few, many) = ((count as f64).cbrt().round() as usize, 3.0 * (count as f64).sqrt());
    let most = (count / FEWEST_BLOCKS).min(many as usize).max(1);
    (automatic_length(values).round() as usize).max(few).clamp(1, most)
}

/// Block length that minimizes the error of the variance of a mean; 1 for values without correlation.
fn automatic_length(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let covariance = |lag: usize| {
        let pairs = values.iter().zip(values.iter().skip(lag));
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / count
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return 1.0;
    }
    // Correlations are negligible from the first lag that is followed by this many negligible ones.
    let in_a_row = count.log10().sqrt().ceil().max(5.0) as usize;
    let longest = count.sqrt().ceil() as usize + in_a_row;
    let negligible = 2.0 * (count.log10() / count).sqrt();
    let covariances: Vec<f64> = (0..=longest + in_a_row).map(covariance).collect();
    let small = |lag: usize| (covariances[lag] / variance).abs() < negligible;
    let last = (0..longest).find(|&lag| (1..=in_a_row).all(|behind| small(lag + behind)));
    let reach = (2 * last.unwrap_or(longest).max(1)).min(longest);
    // Flat-top window of Politis and Romano 1995.
    let window = |lag: usize| (2.0 - 2.0 * lag as f64 / reach as f64).clamp(0.0, 1.0);
    let both_sides = |weight: &dyn Fn(usize) -> f64| -> f64 {
        (1..=reach).map(|lag| 2.0 * window(lag) * weight(lag) * covariances[lag]).sum()
    };
    let spectrum = variance + both_sides(&|_| 1.0);
    // Steps that compensate each other, as at a fixed distance: short blocks at worst make the interval too
    // wide.
    if spectrum <= variance {
        return 1.0;
    }
    let slope = both_sides(&|lag| lag as f64);
    let ratio = 2.0 * slope * slope / (4.0 / 3.0 * spectrum * spectrum).max(f64::MIN_POSITIVE);
    (ratio * count).cbrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of `work` nanoseconds in which the device waits for another `wait`.
    fn step(wait: u64, work: u64) -> (u64, u64) {
        (wait, wait + work)
    }

    /// Half the steps are waits that come in runs: a wait is followed by another one in `stay` of 100 cases.
    fn in_runs(random: &mut Random, count: usize, stay: usize) -> Vec<(u64, u64)> {
        let mut waits = random.below(2) == 0;
        let mut next = |_| {
            waits ^= random.below(100) >= stay;
            step(if waits { 27 } else { 0 }, 10 + random.below(3) as u64)
        };
        (0..count).map(&mut next).collect()
    }

    /// Number of 200 runs in which the interval contains `truth`.
    fn hits(truth: f64, mut run: impl FnMut(&mut Random) -> Vec<(u64, u64)>) -> usize {
        let mut random = Random(7);
        let mut held = 0;
        for _ in 0..200 {
            let found = TimeShare::of(&run(&mut random)).expect("steps");
            held += usize::from(found.low <= truth && truth <= found.high);
        }
        held
    }

    #[test]
    fn the_share_is_of_time_and_not_of_steps() {
        let found = TimeShare::of(&[step(0, 10), step(0, 10), step(30, 10), step(0, 10), step(0, 10)]).unwrap();
        assert!((found.share - 30.0 / 80.0).abs() < 1e-12);
        assert!(found.low < 0.1 && found.high > 0.5, "one step of five says little: {found:?}");
        assert_eq!(TimeShare::of(&[]), None);
        assert_eq!(TimeShare::of(&[(0, 0); 5]), None);
        assert_eq!(TimeShare::of(&[step(3, 7); 20]), Some(TimeShare::exactly(0.3)));
    }

    #[test]
    fn the_interval_holds_the_truth_though_waits_come_in_runs() {
        // A waiting step (half of the steps) waits for 27 of 38: 13.5 of 24.5 on average.
        let truth = 13.5 / 24.5;
        for (count, stay, least) in [(200, 50, 184), (200, 85, 172), (1_000, 85, 182), (1_000, 95, 172), (20, 50, 180)]
        {
            let held = hits(truth, |random| in_runs(random, count, stay));
            assert!(held >= least, "{held} of 200 for {count} steps of which {stay} % stay");
        }
    }

    #[test]
    fn what_comes_at_a_fixed_distance_is_known_well() {
        // Two of three steps wait.
        let steps: Vec<_> = (0..300).map(|number| step(if number % 3 == 0 { 0 } else { 27 }, 10)).collect();
        let found = TimeShare::of(&steps).unwrap();
        assert!((found.share - 18.0 / 28.0).abs() < 1e-12);
        assert!(found.high - found.low < 0.05, "{found:?}");
        // The same steps, all of one kind first: the continuation is unknown.
        let mut sorted = steps;
        sorted.sort_unstable();
        let found = TimeShare::of(&sorted).unwrap();
        assert!(found.high - found.low > 0.2, "{found:?}");
    }

    #[test]
    fn few_blocks_make_wide_intervals() {
        assert!((tail(1_000_000) - 0.025).abs() < 1e-4 && tail(10) < 0.012 && tail(3) < 0.001 && tail(0) < 0.001);
    }
}
