//! Sums of a time, and the shares that follow from them.
//!
//! A sample of the device says how long it was busy within some milliseconds, not when. A sample of the thread says
//! what it did at a moment. Both marginals are known, and what they have in common is not: of idle time `d` and of a
//! state with share `h`, at least `d + h - 1` and at most the smaller one coincide (Fréchet's bounds). These hold for
//! any set of moments. Here the sets are device samples that were busy for about the same part (strata): where the
//! device was idle all the time, or not at all, the bounds meet.

use super::seen::{SEEN_COUNT, Seen, SeenTimes};
use crate::attribution::leaf::Group;

/// Strata: idle all the time, and by the part in which the device was busy for certain.
const STRATA: usize = EDGES.len() + 2;
const EDGES: [f64; 7] = [0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.98];
/// A sample is idle all the time when it may be busy for this part of it: launches take some microseconds to begin.
pub(super) const IDLE: f64 = 0.02;

/// A thread that launches without pause is in launching calls for this part of its time, or for more: eager PyTorch
/// for 0.1 to 0.5 of it, loops of C++ for 0.9. Not measured for monitor mode yet.
const CALLS_OF_LAUNCHING: f64 = 0.3;
/// Below this part there are at least some 200 us between two launching calls of 2 us, which is no dispatch.
const NO_LAUNCHING: f64 = 0.01;

/// The groups that a share is told of, and their order.
pub(super) const GROUPS: [Group; 7] =
    [Group::GpuCompute, Group::Copy, Group::DataLoading, Group::HostCpu, Group::Launch, Group::Sync, Group::Allocator];

/// Smallest and largest part of a time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Between {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Between {
    /// Within 0 and 1; damage becomes everything.
    pub(super) fn new(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low.clamp(0.0, 1.0) } else { 0.0 };
        let high = if high.is_finite() { high.clamp(low, 1.0) } else { 1.0 };
        Self { low, high }
    }
}

/// A sample of a device: the parts of its time with kernels, and with copies alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSpan {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) busy: Between,
    pub(super) copying: Between,
}

impl DeviceSpan {
    fn stratum(&self) -> usize {
        if self.busy.high <= IDLE { 0 } else { 1 + EDGES.partition_point(|&edge| edge <= self.busy.low) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stratum {
    nanos: f64,
    busy: Between,
    copying: Between,
    seen: SeenTimes,
}

/// What was sampled in a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    strata: [Stratum; STRATA],
    pub(super) device_samples: u64,
    pub(super) host_samples: u64,
}

/// Shares of a time by group, in the order of [`GROUPS`].
pub(super) type Shares = [Between; GROUPS.len()];

impl Sums {
    /// Adds a sample of the device.
    pub(super) fn device(&mut self, span: &DeviceSpan) {
        let nanos = span.end.saturating_sub(span.begin) as f64;
        let stratum = &mut self.strata[span.stratum()];
        stratum.nanos += nanos;
        for (sum, part) in [(&mut stratum.busy, span.busy), (&mut stratum.copying, span.copying)] {
            sum.low += part.low * nanos;
            sum.high += part.high * nanos;
        }
        self.device_samples += 1;
    }

    /// Adds time that a thread was seen in a state, within `span`.
    pub(super) fn host(&mut self, span: &DeviceSpan, seen: Seen, nanos: f64) {
        self.strata[span.stratum()].seen[seen as usize] += nanos;
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.add_scaled(other, 1.0);
        self.device_samples += other.device_samples;
        self.host_samples += other.host_samples;
    }

    /// Takes away sums that were added.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.add_scaled(other, -1.0);
        rest
    }

    fn add_scaled(&mut self, other: &Self, factor: f64) {
        let add = |sum: &mut f64, part: f64| *sum = (*sum + part * factor).max(0.0);
        for (sum, part) in self.strata.iter_mut().zip(&other.strata) {
            add(&mut sum.nanos, part.nanos);
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

    /// Part of that with kernels.
    pub(super) fn busy(&self) -> Between {
        let nanos = self.nanos().max(1.0);
        let sum = |bound: fn(&Stratum) -> f64| self.strata.iter().map(bound).sum::<f64>() / nanos;
        Between::new(sum(|stratum| stratum.busy.low), sum(|stratum| stratum.busy.high))
    }

    /// Part of the time of the device samples for which the thread was seen.
    pub(super) fn covered(&self) -> f64 {
        self.strata.iter().flat_map(|stratum| stratum.seen).sum::<f64>() / self.nanos().max(1.0)
    }

    /// The shares, without what chance adds to them.
    pub(super) fn shares(&self) -> Shares {
        let total = self.nanos();
        let mut shares = Shares::default();
        if total <= 0.0 {
            return shares.map(|_| Between { low: 0.0, high: 1.0 });
        }
        let launching = self.launching();
        let unseen = (1.0 - self.covered()).max(0.0);
        let (mut waited, mut synchronizing) = (0.0, 0.0);
        for (index, stratum) in self.strata.iter().enumerate().filter(|(_, stratum)| stratum.nanos > 0.0) {
            let (weight, partly) = (stratum.nanos / total, index > 0);
            let part = |sum: f64| sum / stratum.nanos;
            let copying = Between::new(part(stratum.copying.low), part(stratum.copying.high));
            let busy = Between::new(part(stratum.busy.low), part(stratum.busy.high));
            // Idle without copies.
            let idle = Between::new(1.0 - busy.high - copying.high, 1.0 - busy.low - copying.low);
            let seen: f64 = stratum.seen.iter().sum();
            let states = stratum.seen.map(|nanos| if seen > 0.0 { nanos / seen * (1.0 - unseen) } else { 0.0 });
            let unknown = 1.0 - states.iter().sum::<f64>();
            let may_wait: f64 =
                Seen::ALL.iter().filter(|seen| seen.may_wait()).map(|&seen| states[seen as usize]).sum();
            waited += weight * busy.high.min(may_wait + unknown);
            synchronizing += weight * idle.high.min(1.0 - states[Seen::Loader as usize]);
            for (group, share) in GROUPS.into_iter().zip(&mut shares) {
                let found = match group {
                    Group::GpuCompute => busy,
                    // Small copies move too little to be seen by their bytes.
                    Group::Copy => {
                        let small = idle.high.min(states[Seen::Copying as usize]);
                        Between::new(copying.low, (copying.high + small).min(1.0 - busy.low))
                    }
                    group => {
                        let (certain, possible) = told(group, &states, partly, launching);
                        Between::new(idle.low + certain - 1.0, idle.high.min(possible + unknown))
                    }
                };
                share.low += weight * found.low;
                share.high += weight * found.high;
            }
        }
        // A host that waited while the device was busy would have been that much further on: the idle time after it
        // belongs to the wait, whatever the host did then (attribution, `Leaf::SyncDrain`).
        for (group, share) in GROUPS.into_iter().zip(&mut shares) {
            match group {
                Group::HostCpu | Group::Launch => share.low = (share.low - waited).max(0.0),
                Group::Sync => share.high = synchronizing.min(share.high + waited),
                _ => {}
            }
        }
        shares
    }

    /// Part of the time in launching calls, of that in calls and in code, while the device is partly busy. `None`
    /// where neither was seen.
    fn launching(&self) -> Option<f64> {
        let sum = |seen: Seen| self.strata[1..].iter().map(|stratum| stratum.seen[seen as usize]).sum::<f64>();
        let (calls, code) = (sum(Seen::Launching), sum(Seen::Code));
        (calls + code > 0.0).then(|| calls / (calls + code))
    }
}

/// The parts of a time in states that leave `group` alone as the cause, and in those that leave it as one of several.
fn told(group: Group, states: &[f64; SEEN_COUNT], partly: bool, launching: Option<f64>) -> (f64, f64) {
    let (mut certain, mut possible) = (0.0, 0.0);
    for seen in Seen::ALL {
        let (time, groups) = (states[seen as usize], seen.groups(partly));
        // Between two launching calls, briefly: the framework's cost of an operation.
        let of_launches = match launching {
            Some(part) if seen == Seen::Code && partly => (part / CALLS_OF_LAUNCHING).min(1.0),
            _ => 0.0,
        };
        let is_code = seen == Seen::Code && launching.is_some_and(|part| part <= NO_LAUNCHING);
        if groups.has(group) {
            possible += time * if group == Group::HostCpu { 1.0 - of_launches } else { 1.0 };
        }
        if groups.is_only(group) || (is_code && group == Group::HostCpu) {
            certain += time;
        } else if group == Group::Launch && !is_code {
            certain += time * of_launches;
        }
    }
    (certain, possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(busy: f64) -> DeviceSpan {
        let copying = Between::default();
        DeviceSpan { begin: 0, end: 1_000, busy: Between { low: busy, high: busy }, copying }
    }

    fn share(sums: &Sums, group: Group) -> Between {
        sums.shares()[GROUPS.iter().position(|&known| known == group).unwrap()]
    }

    fn near(found: Between, low: f64, high: f64) {
        assert!((found.low - low).abs() < 1e-9 && (found.high - high).abs() < 1e-9, "{found:?}, not {low} to {high}");
    }

    #[test]
    fn where_the_device_is_idle_throughout_the_state_is_the_cause() {
        let mut sums = Sums::default();
        for (busy, seen) in [(0.0, Seen::Loader), (0.0, Seen::Loader), (0.0, Seen::HostOnly), (1.0, Seen::Launching)] {
            sums.device(&span(busy));
            sums.host(&span(busy), seen, 1_000.0);
        }
        near(share(&sums, Group::GpuCompute), 0.25, 0.25);
        near(share(&sums, Group::DataLoading), 0.5, 0.5);
        near(share(&sums, Group::HostCpu), 0.25, 0.25);
        near(share(&sums, Group::Sync), 0.0, 0.0);
    }

    #[test]
    fn where_it_is_partly_busy_only_bounds_are_known() {
        let mut sums = Sums::default();
        for _ in 0..10 {
            sums.device(&span(0.5));
            sums.host(&span(0.5), Seen::Loader, 700.0);
            sums.host(&span(0.5), Seen::Launching, 300.0);
        }
        // The loader may have run beside kernels, with the moments between these as idle time.
        near(share(&sums, Group::DataLoading), 0.0, 0.5);
        near(share(&sums, Group::Launch), 0.0, 0.5);
        let mut launching = Sums::default();
        launching.device(&span(0.4));
        launching.host(&span(0.4), Seen::Launching, 300.0);
        launching.host(&span(0.4), Seen::Code, 700.0);
        near(share(&launching, Group::Launch), 0.6, 0.6);
        near(share(&launching, Group::HostCpu), 0.0, 0.0);
    }

    #[test]
    fn a_wait_while_the_device_is_busy_may_be_the_cause_of_idle_time_after_it() {
        let mut sums = Sums::default();
        for (busy, seen) in [(1.0, Seen::Waiting), (0.0, Seen::HostOnly), (0.0, Seen::HostOnly), (0.0, Seen::HostOnly)]
        {
            sums.device(&span(busy));
            sums.host(&span(busy), seen, 1_000.0);
        }
        near(share(&sums, Group::HostCpu), 0.5, 0.75);
        near(share(&sums, Group::Sync), 0.0, 0.25);
    }

    #[test]
    fn without_host_samples_any_cause_is_possible_and_none_is_certain() {
        let mut sums = Sums::default();
        sums.device(&span(0.25));
        for group in GROUPS.into_iter().skip(2) {
            near(share(&sums, group), 0.0, 0.75);
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
                let seen = Seen::ALL[(random() * SEEN_COUNT as f64) as usize];
                sums.host(&span, seen, 1_000.0 * random());
            }
            let shares = sums.shares();
            assert!(shares.iter().map(|share| share.low).sum::<f64>() <= 1.0 + 1e-9, "{shares:?}");
            assert!(shares.iter().all(|share| share.low <= share.high + 1e-9), "{shares:?}");
        }
    }
}
