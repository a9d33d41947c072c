//! Lead of the launching threads over a device.

use super::operation::LaunchCall;
use crate::api::{ApiClass, BLOCKING_COPY_NANOS};
use crate::quantile::Durations;

/// How far the launching threads run ahead of a device over some time, and how frequently it holds them back.
///
/// The lead of a launch is the time that its operation was queued after running work: from the return of the
/// launching call to the start of the operation, or to the point before it where the device ran dry. This one
/// number separates a device that is kept busy (its host is ahead) from one that is fed late (no lead). It
/// also separates a long launching call that waited for room in the queue from one that really costs its
/// duration: the former leaves the device with work.
///
/// Operations of a graph after its first, late ones and those without a known launch are not counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HostLead {
    leads: Durations,
    late: u64,
    held_back: u64,
    held_back_ns: u64,
}

impl HostLead {
    /// An operation launched by `launch` starts; `busy_until` is the end of the work before it, or its own
    /// start if that work is still running.
    pub(super) fn add(&mut self, launch: &LaunchCall, busy_until: u64) {
        let lead = busy_until.saturating_sub(launch.end);
        self.leads.add(lead);
        self.late += u64::from(lead == 0);
        let lasted = launch.end - launch.start;
        if launch.class == ApiClass::KernelLaunch && lasted > BLOCKING_COPY_NANOS && lead >= lasted {
            self.held_back += 1;
            self.held_back_ns += lasted;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.leads.merge(&other.leads);
        self.late += other.late;
        self.held_back += other.held_back;
        self.held_back_ns += other.held_back_ns;
    }

    /// Number of launches measured.
    pub fn launches(&self) -> u64 {
        self.leads.count()
    }

    /// Number of these that returned after the device had run dry: their lead is 0.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The lower median of all leads, within 1.6 %, nanoseconds.
    pub fn median_ns(&self) -> u64 {
        self.leads.median()
    }

    /// Smallest lead, nanoseconds.
    pub fn min_ns(&self) -> u64 {
        self.leads.min()
    }

    /// Calls launching one kernel that took over 50 us and left the device with work for at least their
    /// duration: the queue was full. Launching takes 2 to 10 us.
    pub fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Their total time, nanoseconds. It is back-pressure of a busy device, not a cost of launching.
    pub fn held_back_ns(&self) -> u64 {
        self.held_back_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_distinguished_from_a_slow_launch() {
        let launch = |start, end, class| LaunchCall { start, end, thread: 0, class, sampled: false };
        let mut lead = HostLead::default();
        lead.add(&launch(0, 5_000, ApiClass::KernelLaunch), 905_000);
        lead.add(&launch(10_000, 110_000, ApiClass::KernelLaunch), 910_000);
        assert_eq!((lead.held_back(), lead.held_back_ns()), (1, 100_000));
        // A graph of many nodes takes long to launch.
        lead.add(&launch(200_000, 300_000, ApiClass::GraphLaunch), 920_000);
        // The device had run dry: it waited for this one.
        lead.add(&launch(1_000_000, 1_200_000, ApiClass::KernelLaunch), 950_000);
        // A copy from pageable memory waits for its own data.
        lead.add(&launch(2_000_000, 2_200_000, ApiClass::Copy), 2_300_000);
        assert_eq!((lead.held_back(), lead.late(), lead.launches()), (1, 1, 5));
        assert_eq!((lead.min_ns(), lead.median_ns()), (0, 620_000));
    }
}
