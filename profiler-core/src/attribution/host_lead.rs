//! How far the launching threads run ahead of a device, and how often they are held back by it.
//!
//! The lead of a launch is how long its operation was queued behind work that ran: from the return of the launching
//! call to the begin of the operation, or to where the device ran dry before it. It is the one figure that tells a
//! device that is kept busy (its host is ahead) from one that is fed late (no lead), and a long launching call that
//! waited for room in the queue from one that costs what it lasts: the former leaves the device with work.
//!
//! Operations behind the first of a graph, late ones and those without a known launch are not counted.

use super::api::{ApiClass, BLOCKING_COPY_NANOS};
use super::join::Launch;
use super::quantile::Durations;

/// Leads of one device over some time.
#[derive(Clone, Debug, Default)]
pub struct HostLead {
    leads: Durations,
    late: u64,
    held_back: u64,
    held_back_ns: u64,
}

impl HostLead {
    /// An operation launched by `launch` begins; `busy_until` is the end of what ran before it, or its begin when that
    /// still runs.
    pub(super) fn add(&mut self, launch: &Launch, busy_until: u64) {
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

    /// Launches that were looked at.
    #[must_use]
    pub fn launches(&self) -> u64 {
        self.leads.count()
    }

    /// Of them, those that returned when the device had run dry: their lead is 0.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The lower median of all leads, within 1.6 %, nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> u64 {
        self.leads.median()
    }

    /// The least lead, nanoseconds.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        self.leads.min()
    }

    /// Calls launching one kernel that lasted over 50 us and left the device with work for longer than that: the queue
    /// was full. Launching takes 2 to 10 us.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Their time, nanoseconds. It is back-pressure of a busy device, not a cost of launching.
    #[must_use]
    pub fn held_back_ns(&self) -> u64 {
        self.held_back_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_told_from_a_slow_launch() {
        let launch = |start, end, class| Launch { start, end, thread: 0, class, sampled: false };
        let mut lead = HostLead::default();
        lead.add(&launch(0, 5_000, ApiClass::KernelLaunch), 905_000);
        lead.add(&launch(10_000, 110_000, ApiClass::KernelLaunch), 910_000);
        assert_eq!((lead.held_back(), lead.held_back_ns()), (1, 100_000));
        // A graph of many nodes takes long to launch.
        lead.add(&launch(200_000, 300_000, ApiClass::GraphLaunch), 920_000);
        // The device had run dry: this one is what it waited for.
        lead.add(&launch(1_000_000, 1_200_000, ApiClass::KernelLaunch), 950_000);
        // A copy from ordinary memory waits for its own data.
        lead.add(&launch(2_000_000, 2_200_000, ApiClass::Copy), 2_300_000);
        assert_eq!((lead.held_back(), lead.late(), lead.launches()), (1, 1, 5));
        assert_eq!((lead.min_ns(), lead.median_ns()), (0, 620_000));
    }
}
