//! What is known of the counters of all devices of a run, whichever capture asks.

use super::{CounterEvent, CounterLoss, MetricSet};
use crate::record::DeviceId;
use crate::utilization::DEVICE_LIMIT;

/// Metric sets and losses by device: the newest of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterLog {
    sets: Vec<MetricSet>,
    losses: Vec<CounterLoss>,
    /// Samples that came, of all devices.
    pub samples: u64,
    /// Readings of gauges that came, of all devices.
    pub readings: u64,
}

impl CounterLog {
    /// Takes an event.
    pub fn take(&mut self, event: &CounterEvent) {
        match event {
            CounterEvent::Set(set) => replace(&mut self.sets, *set, |set| set.device),
            CounterEvent::Loss(loss) => replace(&mut self.losses, *loss, |loss| loss.device),
            CounterEvent::Sample(_) => self.samples += 1,
            CounterEvent::Gauges(_) => self.readings += 1,
        }
    }

    /// What the devices are sampled for.
    #[must_use]
    pub fn sets(&self) -> &[MetricSet] {
        &self.sets
    }

    /// What `device` is sampled for.
    #[must_use]
    pub fn set(&self, device: DeviceId) -> Option<&MetricSet> {
        self.sets.iter().find(|set| set.device == device)
    }

    /// What was lost, by device.
    #[must_use]
    pub fn losses(&self) -> &[CounterLoss] {
        &self.losses
    }
}

/// Puts `newer` in the place of what is known of its device. Devices are bounded.
fn replace<T>(rows: &mut Vec<T>, newer: T, device: impl Fn(&T) -> DeviceId) {
    match rows.iter().position(|known| device(known) == device(&newer)) {
        Some(place) => rows[place] = newer,
        None if rows.len() < DEVICE_LIMIT => rows.push(newer),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_device_counts_and_devices_are_bounded() {
        let mut log = CounterLog::default();
        let loss = |device, lost| CounterLoss { device: DeviceId(device), lost, ..CounterLoss::default() };
        log.take(&CounterEvent::Loss(loss(3, 1)));
        log.take(&CounterEvent::Loss(loss(3, 5)));
        assert_eq!(log.losses(), [loss(3, 5)]);
        (0..1_000).for_each(|device| log.take(&CounterEvent::Loss(loss(device, 1))));
        assert_eq!(log.losses().len(), DEVICE_LIMIT);
    }
}
