//! Sums over a time, and the shares derived from them.
//!
//! A device sample shows how long the device was busy within some milliseconds, not when. A sample of the
//! thread shows its activity at one moment. So both marginals are known, but not their intersection: for idle
//! time `d` and a state with share `h`, at least `d + h - 1` and at most the smaller one coincide (Fréchet's
//! bounds). These hold for any set of moments. Here the sets are device samples with about the same busy
//! fraction (strata): where the device was idle the entire time, or never, the bounds meet.

use super::seen::{SEEN_COUNT, SeenTimes, ThreadActivity};
use crate::leaf::Cause;

/// Strata: one for idle the entire time, the others by the fraction in which the device was certainly busy.
const STRATA: usize = EDGES.len() + 2;
const EDGES: [f64; 7] = [0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.98];
/// A sample counts as idle the entire time up to this busy fraction: launches take some microseconds to
/// start.
pub(super) const IDLE: f64 = 0.02;

/// Fraction of its time that a thread that launches without pause spends in launching calls, lower and upper
/// limit; more is possible. Eager PyTorch: 0.1 to 0.5, loops of C++: 0.9.
const CALLS_OF_LAUNCHING: [f64; 2] = [0.1, 0.3];
/// Below this fraction there are at least some 200 us between two launching calls of 2 us, which is not
/// dispatch.
const NO_LAUNCHING: f64 = 0.01;

/// Maximum idle fraction of the device while a thread waits for it: it takes some 10 us until the thread
/// continues.
const LATE_WAIT: f64 = 0.15;
/// Idle time after waits is at least this fraction of the smaller one of waiting and idle time in samples of
/// the same kind. Steps differ.
const ALTERNATING: f64 = 0.7;
/// Maximum time that the engine works longer than kernels, as a fraction of the time in launching calls: 1.4
/// us per kernel (H100), for calls of 3 us.
const AROUND_LAUNCHES: f64 = 0.5;
/// Busy fraction above which kernels do not wait for their launches.
const BUSY: f64 = 0.98;

/// Causes with a share, in this order.
pub(super) const CAUSES: [Cause; 7] =
    [Cause::GpuCompute, Cause::Copy, Cause::DataLoading, Cause::HostCpu, Cause::Launch, Cause::Sync, Cause::Allocator];

/// Smallest and largest fraction of a time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Between {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Between {
    /// Clamps to 0 and 1; damaged values become the full range.
    pub(super) fn new(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low.clamp(0.0, 1.0) } else { 0.0 };
        let high = if high.is_finite() { high.clamp(low, 1.0) } else { 1.0 };
        Self { low, high }
    }

    pub(super) fn width(self) -> f64 {
        self.high - self.low
    }
}

/// A device sample: the fractions of its time with kernels, and with only copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSpan {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) busy: Between,
    /// Copies by calls that hold up no thread.
    pub(super) copying: Between,
    /// Maximum fraction with copies by a thread in its call.
    pub(super) staged: f64,
    /// Traffic over the link to the host, bytes per nanosecond, if known.
    pub(super) traffic: Option<f64>,
    /// True if `busy` is the engine counter, which also counts work between queued kernels.
    pub(super) has_engine: bool,
}

impl DeviceSpan {
    fn stratum(&self) -> usize {
        if self.busy.high <= IDLE { 0 } else { 1 + EDGES.partition_point(|&edge| edge <= self.busy.low) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stratum {
    nanos: f64,
    with_engine: f64,
    busy: Between,
    copying: Between,
    staged: f64,
    seen: SeenTimes,
}

/// Sums of the samples in a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    strata: [Stratum; STRATA],
    pub(super) device_samples: u64,
    pub(super) host_samples: u64,
}

/// Shares of a time by cause, in the order of [`CAUSES`].
pub(super) type Shares = [Between; CAUSES.len()];

impl Sums {
    /// Adds a device sample.
    pub(super) fn device(&mut self, span: &DeviceSpan) {
        let nanos = span.end.saturating_sub(span.begin) as f64;
        let stratum = &mut self.strata[span.stratum()];
        stratum.nanos += nanos;
        stratum.staged += span.staged * nanos;
        stratum.with_engine += if span.has_engine { nanos } else { 0.0 };
        for (sum, part) in [(&mut stratum.busy, span.busy), (&mut stratum.copying, span.copying)] {
            sum.low += part.low * nanos;
            sum.high += part.high * nanos;
        }
        self.device_samples += 1;
    }

    /// Adds time of a thread in a state, within `span`.
    pub(super) fn host(&mut self, span: &DeviceSpan, seen: ThreadActivity, nanos: f64) {
        self.strata[span.stratum()].seen[seen as usize] += nanos;
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.add_scaled(other, 1.0);
        self.device_samples += other.device_samples;
        self.host_samples += other.host_samples;
    }

    /// Subtracts sums that were added.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.add_scaled(other, -1.0);
        rest
    }

    fn add_scaled(&mut self, other: &Self, factor: f64) {
        let add = |sum: &mut f64, part: f64| *sum = (*sum + part * factor).max(0.0);
        for (sum, part) in self.strata.iter_mut().zip(&other.strata) {
            add(&mut sum.nanos, part.nanos);
            add(&mut sum.with_engine, part.with_engine);
            add(&mut sum.staged, part.staged);
            for (sum, part) in [(&mut sum.busy, part.busy), (&mut sum.copying, part.copying)] {
                add(&mut sum.low, part.low);
                add(&mut sum.high, part.high);
            }
            for (sum, part) in sum.seen.iter_mut().zip(part.seen) {
                add(sum, part);
            }
        }
    }

    /// Time of the device samples, nanoseconds.
    pub(super) fn nanos(&self) -> f64 {
        self.strata.iter().map(|stratum| stratum.nanos).sum()
    }

    /// Fraction of that time with kernels.
    pub(super) fn busy(&self) -> Between {
        let nanos = self.nanos().max(1.0);
        let sum = |bound: fn(&Stratum) -> f64| self.strata.iter().map(bound).sum::<f64>() / nanos;
        Between::new(sum(|stratum| stratum.busy.low), sum(|stratum| stratum.busy.high))
    }

    /// Fraction of the time of the device samples that host samples cover.
    pub(super) fn covered(&self) -> f64 {
        self.strata.iter().flat_map(|stratum| stratum.seen).sum::<f64>() / self.nanos().max(1.0)
    }

    /// Shares without their random error.
    pub(super) fn shares(&self) -> Shares {
        let total = self.nanos();
        let mut shares = Shares::default();
        if total <= 0.0 {
            return shares.map(|_| Between { low: 0.0, high: 1.0 });
        }
        let (launching, covered) = (self.launching(), self.covered());
        let (mut waited, mut after_waits) = (0.0, 0.0);
        for (index, stratum) in self.strata.iter().enumerate().filter(|(_, stratum)| stratum.nanos > 0.0) {
            let part = stratum.part(index > 0, covered, launching);
            let weight = stratum.nanos / total;
            waited += weight * part.waited;
            after_waits += weight * part.after_waits;
            for (share, found) in shares.iter_mut().zip(part.shares) {
                share.low += weight * found.low;
                share.high += weight * found.high;
            }
        }
        // Without the wait, the host would have been that much further while the device was busy: the idle
        // time after a wait belongs to it, regardless of the host's later activity (attribution,
        // `Leaf::SyncDrain`). A wait may be in the previous sample, so the sum of all waits is the upper
        // limit.
        let [_, _, _, host, launch, sync, _] = &mut shares;
        sync.high = (sync.high + waited.min(host.high + launch.high)).min(after_waits);
        host.low = (host.low - waited).max(0.0);
        launch.low = (launch.low - waited).max(0.0);
        shares
    }

    /// Fraction of launching calls in the time of launching calls and code, while the device is partly busy.
    /// `None` if neither was seen.
    fn launching(&self) -> Option<f64> {
        let sum =
            |seen: ThreadActivity| self.strata[1..].iter().map(|stratum| stratum.seen[seen as usize]).sum::<f64>();
        let (calls, code) = (sum(ThreadActivity::Launching), sum(ThreadActivity::Code));
        (calls + code > 0.0).then(|| calls / (calls + code))
    }
}

/// Division of a stratum.
struct StratumShare {
    /// In the order of [`CAUSES`]; idle time after waits is still assigned by the host's activity.
    shares: Shares,
    /// Busy time in which the thread may have waited for the device.
    waited: f64,
    /// Idle time that may follow a wait, or be in one.
    after_waits: f64,
}

impl Stratum {
    /// Divides the stratum. `partly`: the device may have been busy in it; `covered`: the fraction of the
    /// total time covered by host samples.
    fn part(&self, partly: bool, covered: f64, launching: Option<f64>) -> StratumShare {
        let part = |sum: Between| Between::new(sum.low / self.nanos, sum.high / self.nanos);
        let (busy, copying) = (part(self.busy), part(self.copying));
        let seen: f64 = self.seen.iter().sum();
        let states = self.seen.map(|nanos| if seen > 0.0 { nanos / seen * covered.min(1.0) } else { 0.0 });
        let unknown = 1.0 - states.iter().sum::<f64>();
        let state = |seen: ThreadActivity| states[seen as usize];
        // Copies without a thread seen in them: where a thread moves bytes itself, it explains the traffic.
        let hidden =
            (self.staged / self.nanos).min(state(ThreadActivity::Unseen) + state(ThreadActivity::Unclear) + unknown);
        let [low, high] = [copying.low, copying.high].map(|part| (part - state(ThreadActivity::Moving)).max(0.0));
        let beside = Between::new(low, high + hidden);
        // While a thread waits for the device, the device works, except for the moments until the thread
        // continues.
        let idle = Between::new(1.0 - busy.high - beside.high, 1.0 - busy.low - beside.low);
        let (waiting, free) = (state(ThreadActivity::Waiting), 1.0 - state(ThreadActivity::Waiting));
        let in_wait = Between::new(idle.low - free, idle.high.min(LATE_WAIT * waiting).max(idle.low - free));
        let freely = Between::new(idle.low - in_wait.high, idle.high - in_wait.low);
        let of = |certain: f64, possible: f64| {
            Between::new(freely.low + certain - free, freely.high.min(possible + unknown))
        };
        let gaps = partly && self.with_engine < self.nanos / 2.0;
        // Brief code between launching calls: the framework's cost per operation.
        let code = match launching {
            Some(calls) if partly && calls > NO_LAUNCHING => {
                let [least, most] = CALLS_OF_LAUNCHING;
                Between::new((calls / most).min(1.0), (calls / least).min(1.0))
            }
            _ => Between::default(),
        };
        // The engine works for a moment before and after each kernel. If kernels wait for their launches,
        // that is part of the launch cost.
        let around =
            if busy.low < BUSY { (AROUND_LAUNCHES * state(ThreadActivity::Launching)).min(busy.low) } else { 0.0 };
        let mut shares = CAUSES.map(|cause| match cause {
            Cause::GpuCompute => Between::new(busy.low - around, busy.high),
            Cause::Copy => {
                let moving =
                    of(state(ThreadActivity::Moving), state(ThreadActivity::Moving) + state(ThreadActivity::Copying));
                Between::new(beside.low + moving.low, (beside.high + moving.high).min(1.0 - busy.low))
            }
            Cause::Sync => {
                let (_, possible) = bounds_of(cause, &states, gaps, code);
                Between::new(in_wait.low, in_wait.high + of(0.0, possible - waiting).high)
            }
            cause => {
                let (certain, possible) = bounds_of(cause, &states, gaps, code);
                of(certain, possible)
            }
        });
        // Idle time after a wait. Here the thread and the device alternated, so it follows waits in this
        // stratum. A thread in an unknown call may wait itself, which is the same cause.
        let own = [ThreadActivity::HostOnly, ThreadActivity::Launching, ThreadActivity::Code, ThreadActivity::Unseen]
            .map(state)
            .iter()
            .sum();
        let after = ALTERNATING * (waiting - in_wait.high).min(busy.low).min(of(own, own).low).max(0.0);
        let [_, _, _, host, launch, sync, _] = &mut shares;
        let high = (host.high + launch.high).max(f64::MIN_POSITIVE);
        for share in [host, launch] {
            let rest = share.high * (1.0 - after / high);
            *share = Between::new(share.low.min(rest), rest);
        }
        sync.low += after;
        sync.high += after;
        launch.high += around;
        let may_wait: f64 = ThreadActivity::ALL.iter().filter(|seen| seen.may_wait()).map(|&seen| state(seen)).sum();
        let after_waits = idle.high.min(1.0 - state(ThreadActivity::Loader));
        StratumShare { shares, waited: busy.high.min(may_wait + unknown), after_waits }
    }
}

/// Time in states for which `cause` is the only possible cause, and time in states for which it is one of
/// several. `code` is the fraction of code outside of CUDA that belongs to launches.
fn bounds_of(cause: Cause, states: &[f64; SEEN_COUNT], gaps: bool, code: Between) -> (f64, f64) {
    let (mut certain, mut possible) = (0.0, 0.0);
    for seen in ThreadActivity::ALL {
        let (time, causes) = (states[seen as usize], seen.causes(gaps));
        let part = match (seen, cause) {
            (ThreadActivity::Code, Cause::HostCpu) => Between::new(1.0 - code.high, 1.0 - code.low),
            (ThreadActivity::Code, Cause::Launch) if gaps => Between::new(code.low, 1.0),
            (ThreadActivity::Code, Cause::Launch) => code,
            _ => Between::new(f64::from(u8::from(causes.is_only(cause))), f64::from(u8::from(causes.has(cause)))),
        };
        certain += time * part.low;
        possible += time * part.high;
    }
    (certain, possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample with the engine counter.
    fn span(busy: f64) -> DeviceSpan {
        let copying = Between::default();
        let busy = Between { low: busy, high: busy };
        DeviceSpan { begin: 0, end: 1_000, busy, copying, staged: 0.0, traffic: None, has_engine: true }
    }

    fn share(sums: &Sums, cause: Cause) -> Between {
        sums.shares()[CAUSES.iter().position(|&known| known == cause).unwrap()]
    }

    fn near(found: Between, low: f64, high: f64) {
        assert!((found.low - low).abs() < 1e-9 && (found.high - high).abs() < 1e-9, "{found:?}, not {low} to {high}");
    }

    #[test]
    fn where_the_device_is_idle_throughout_the_state_is_the_cause() {
        let mut sums = Sums::default();
        for (busy, seen) in [
            (0.0, ThreadActivity::Loader),
            (0.0, ThreadActivity::Loader),
            (0.0, ThreadActivity::HostOnly),
            (1.0, ThreadActivity::Launching),
        ] {
            sums.device(&span(busy));
            sums.host(&span(busy), seen, 1_000.0);
        }
        near(share(&sums, Cause::GpuCompute), 0.25, 0.25);
        near(share(&sums, Cause::DataLoading), 0.5, 0.5);
        near(share(&sums, Cause::HostCpu), 0.25, 0.25);
        near(share(&sums, Cause::Sync), 0.0, 0.0);
    }

    #[test]
    fn where_it_is_partly_busy_only_bounds_are_known() {
        for has_engine in [true, false] {
            let mut sums = Sums::default();
            let span = DeviceSpan { has_engine, ..span(0.5) };
            sums.device(&span);
            sums.host(&span, ThreadActivity::Loader, 700.0);
            sums.host(&span, ThreadActivity::Launching, 300.0);
            // Without the engine counter, the idle time may be the gaps between kernels, in addition to the
            // loader.
            let (certain, most) = if has_engine { (0.2, 0.3 + 0.15) } else { (0.0, 0.5 + 0.15) };
            near(share(&sums, Cause::DataLoading), certain, 0.5);
            near(share(&sums, Cause::Launch), 0.0, most);
            near(share(&sums, Cause::GpuCompute), 0.35, 0.5);
        }
        let mut launching = Sums::default();
        launching.device(&span(0.4));
        launching.host(&span(0.4), ThreadActivity::Launching, 300.0);
        launching.host(&span(0.4), ThreadActivity::Code, 700.0);
        near(share(&launching, Cause::Launch), 0.6, 0.6 + 0.15);
        near(share(&launching, Cause::HostCpu), 0.0, 0.0);
    }

    #[test]
    fn a_wait_while_the_device_is_busy_may_be_the_cause_of_idle_time_after_it() {
        let mut sums = Sums::default();
        for (busy, seen) in [
            (1.0, ThreadActivity::Waiting),
            (0.0, ThreadActivity::HostOnly),
            (0.0, ThreadActivity::HostOnly),
            (0.0, ThreadActivity::HostOnly),
        ] {
            sums.device(&span(busy));
            sums.host(&span(busy), seen, 1_000.0);
        }
        near(share(&sums, Cause::HostCpu), 0.5, 0.75);
        near(share(&sums, Cause::Sync), 0.0, 0.25);
    }

    #[test]
    fn a_thread_that_waits_for_the_device_leaves_its_idle_time_to_other_states() {
        // Like `.item()` in each step: the thread waits half of the time, and the device idles when it does
        // not.
        let mut sums = Sums::default();
        sums.device(&span(0.5));
        sums.host(&span(0.5), ThreadActivity::Waiting, 500.0);
        sums.host(&span(0.5), ThreadActivity::Code, 500.0);
        let late = LATE_WAIT * 0.5;
        near(share(&sums, Cause::Sync), ALTERNATING * (0.5 - late), 0.5);
        near(share(&sums, Cause::HostCpu), 0.0, 0.5 - ALTERNATING * (0.5 - late));
    }

    #[test]
    fn a_call_that_copies_moves_bytes_or_waits() {
        let mut copying = DeviceSpan { copying: Between::new(0.1, 0.6), staged: 0.9, traffic: Some(7.0), ..span(0.1) };
        for (traffic, cause) in [(7.0, Cause::Copy), (0.2, Cause::Sync)] {
            copying.traffic = Some(traffic);
            let mut sums = Sums::default();
            sums.device(&DeviceSpan { copying: Between::default(), ..copying });
            sums.host(&copying, ThreadActivity::Copying.with_traffic(copying.traffic), 1_000.0);
            let found = share(&sums, cause);
            assert!((found.high - 0.9).abs() < 1e-9 && found.low > 0.89, "{cause:?}: {found:?}");
        }
        assert_eq!(ThreadActivity::Copying.with_traffic(None), ThreadActivity::Copying);
        assert_eq!(ThreadActivity::Launching.with_traffic(Some(7.0)), ThreadActivity::Launching);
    }

    #[test]
    fn without_host_samples_any_cause_is_possible_and_none_is_certain() {
        let mut sums = Sums::default();
        sums.device(&span(0.25));
        for cause in CAUSES.into_iter().skip(2) {
            near(share(&sums, cause), 0.0, 0.75);
        }
        assert_eq!(Sums::default().shares()[0], Between { low: 0.0, high: 1.0 });
    }

    #[test]
    fn what_is_certain_never_sums_to_more_than_the_time() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..500 {
            let mut sums = Sums::default();
            for _ in 0..20 {
                let low = random();
                let mut span = span(low);
                span.busy.high = low + (1.0 - low) * random() * random();
                span.copying.high = (1.0 - low) * random() * random();
                sums.device(&span);
                let seen = ThreadActivity::ALL[(random() * SEEN_COUNT as f64) as usize];
                sums.host(&span, seen, 1_000.0 * random());
            }
            let shares = sums.shares();
            assert!(shares.iter().map(|share| share.low).sum::<f64>() <= 1.0 + 1e-9, "{shares:?}");
            assert!(shares.iter().all(|share| share.low <= share.high + 1e-9), "{shares:?}");
        }
    }
}
