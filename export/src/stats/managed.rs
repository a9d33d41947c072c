//! Managed memory by address, in all, and by the instruction of the host that missed it.
//!
//! nsys makes these sums with SQL, whose rules show in its tables: one column's name begins with a space, what a page
//! has none of is empty rather than 0, a throughput is a product of whole numbers, and the lowest and highest address
//! stand there only when there were migrations both ways and faults on both sides.

use std::cmp::Reverse;

use profiler_core::record::{ManagedEvent, ManagedKind, Record};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::input::{Input, Notes};
use super::statistic::Statistic;
use super::table::Cell;
use crate::error::ExportError;

/// Addresses that the sum shows: nsys's own default.
const ROWS: usize = 10;
/// Addresses and instructions that are told apart: a table of 80 MB at most. Pages are reported in pieces of 4 KiB to 2
/// MiB (64 MiB moved back and forth twice on an H200: 4671 pieces).
const PLACES: usize = 1 << 19;

/// What happened to pages, in each way that is counted.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    to_device: Option<u64>,
    to_host: Option<u64>,
    host_faults: u64,
    device_faults: Option<u64>,
    nanos: u64,
}

impl Sums {
    fn add(&mut self, event: &ManagedEvent) {
        let add = |sum: &mut Option<u64>| *sum = Some(sum.unwrap_or(0).saturating_add(event.value));
        match event.kind {
            ManagedKind::HostToDevice => add(&mut self.to_device),
            ManagedKind::DeviceToHost => add(&mut self.to_host),
            ManagedKind::DeviceFault => add(&mut self.device_faults),
            ManagedKind::HostFault => self.host_faults += 1,
            ManagedKind::DeviceToDevice | ManagedKind::Unknown => return,
        }
        if event.kind.is_migration() {
            self.nanos = self.nanos.saturating_add(event.end.since(event.start));
        }
    }

    /// Bytes a second, by nsys's formula in whole numbers; `None` without a migration.
    fn throughput(&self) -> Option<u64> {
        let bytes = match (self.to_device, self.to_host) {
            (None, None) => return None,
            (one, other) => one.unwrap_or(0).saturating_add(other.unwrap_or(0)),
        };
        Some(bytes.saturating_mul(1_000_000_000u64.checked_div(self.nanos)?))
    }
}

/// The rows of `statistic`.
pub(super) fn rows(
    statistic: Statistic,
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<Vec<Vec<Cell>>, ExportError> {
    let mut totals = ManagedTotals::new(statistic);
    let filter = input.filter;
    let passed = input.trace.pass(input.progress, |item, scope| {
        if let Item::Record(Record::Managed(event)) = item
            && filter.admits(scope.session.start, event.start, event.end)
        {
            totals.add(event);
        }
        Ok::<_, ExportError>(())
    })?;
    notes.0.extend(passed.notes());
    notes.count(totals.overflow, "events of managed memory are at addresses for which there was no room");
    Ok(totals.rows())
}

/// What is known after some of the trace.
#[derive(Debug)]
struct ManagedTotals {
    statistic: Statistic,
    all: Sums,
    /// Lowest and highest address of migrations to devices and to the host, of the host's faults and of devices'.
    bounds: [Option<(u64, u64)>; 4],
    places: FxHashMap<u64, Sums>,
    overflow: u64,
}

impl ManagedTotals {
    fn new(statistic: Statistic) -> Self {
        Self { statistic, all: Sums::default(), bounds: [None; 4], places: FxHashMap::default(), overflow: 0 }
    }

    fn add(&mut self, event: &ManagedEvent) {
        let bounds = match event.kind {
            ManagedKind::HostToDevice => &mut self.bounds[0],
            ManagedKind::DeviceToHost => &mut self.bounds[1],
            ManagedKind::HostFault => &mut self.bounds[2],
            ManagedKind::DeviceFault => &mut self.bounds[3],
            ManagedKind::DeviceToDevice | ManagedKind::Unknown => return,
        };
        let (low, high) = bounds.unwrap_or((event.address, event.address));
        *bounds = Some((low.min(event.address), high.max(event.address)));
        self.all.add(event);
        let place = match self.statistic {
            Statistic::ManagedTotalSum => return,
            Statistic::HostFaultSum if event.kind != ManagedKind::HostFault => return,
            Statistic::HostFaultSum => event.value,
            _ => event.address,
        };
        if self.places.len() < PLACES || self.places.contains_key(&place) {
            self.places.entry(place).or_default().add(event);
        } else {
            self.overflow += 1;
        }
    }

    fn rows(self) -> Vec<Vec<Cell>> {
        match self.statistic {
            Statistic::ManagedTotalSum => self.total().into_iter().collect(),
            Statistic::HostFaultSum => self.by_instruction(),
            _ => self.by_address(),
        }
    }

    /// `None` when there was nothing.
    fn total(self) -> Option<Vec<Cell>> {
        self.bounds.iter().any(Option::is_some).then(|| {
            let whole: Option<Vec<(u64, u64)>> = self.bounds.into_iter().collect();
            let bound = |bound: Option<u64>| bound.map_or(Cell::Empty, address);
            let lowest = whole.as_ref().and_then(|all| all.iter().map(|&(low, _)| low).min());
            let highest = whole.and_then(|all| all.into_iter().map(|(_, high)| high).max());
            vec![
                megabytes(self.all.to_device),
                megabytes(self.all.to_host),
                Cell::Number(self.all.host_faults),
                self.all.device_faults.map_or(Cell::Empty, Cell::Number),
                bound(lowest),
                bound(highest),
            ]
        })
    }

    /// The pages that moved fastest first, then those that did not move.
    fn by_address(self) -> Vec<Vec<Cell>> {
        let mut places: Vec<(u64, Sums)> = self.places.into_iter().collect();
        places.sort_unstable_by_key(|&(place, sums)| (Reverse(sums.throughput()), place));
        let row = |(place, sums): (u64, Sums)| {
            vec![
                address(place),
                megabytes(sums.to_device),
                megabytes(sums.to_host),
                Some(sums.host_faults).filter(|&faults| faults > 0).map_or(Cell::Empty, Cell::Number),
                sums.device_faults.map_or(Cell::Empty, Cell::Number),
                megabytes(sums.throughput()),
            ]
        };
        places.into_iter().take(ROWS).map(row).collect()
    }

    /// The instruction that missed most first.
    fn by_instruction(self) -> Vec<Vec<Cell>> {
        let mut places: Vec<(u64, u64)> =
            self.places.into_iter().map(|(place, sums)| (place, sums.host_faults)).collect();
        places.sort_unstable_by_key(|&(place, faults)| (Reverse(faults), place));
        // nsys writes the function instead where it knows one, and an address as here.
        let instruction = |place: u64| Cell::Text(format!("{place:#x}"));
        let row = |(place, faults)| vec![Cell::Number(faults), instruction(place), Cell::Empty, Cell::Empty];
        places.into_iter().map(row).collect()
    }
}

fn address(number: u64) -> Cell {
    Cell::Text(format!("0x{number:X}"))
}

fn megabytes(bytes: Option<u64>) -> Cell {
    bytes.map_or(Cell::Empty, |bytes| Cell::Decimal(bytes as f64 / 1e6, 3))
}

#[cfg(test)]
mod tests {
    use profiler_core::record::Timestamp;

    use super::*;

    fn event(kind: ManagedKind, address: u64, value: u64, nanos: u64) -> ManagedEvent {
        let [start, end] = [1_000, 1_000 + nanos].map(Timestamp::from_nanos);
        ManagedEvent { start, end, kind, address, value, ..ManagedEvent::default() }
    }

    fn rows(statistic: Statistic, events: &[ManagedEvent]) -> Vec<Vec<Cell>> {
        let mut totals = ManagedTotals::new(statistic);
        events.iter().for_each(|event| totals.add(event));
        totals.rows()
    }

    #[test]
    fn pages_are_ordered_by_the_throughput_in_whole_numbers() {
        let rows = rows(
            Statistic::ManagedSum,
            &[
                event(ManagedKind::HostToDevice, 0x2000, 4096, 700),
                event(ManagedKind::HostToDevice, 0x1000, 65_536, 3_000),
                event(ManagedKind::DeviceToHost, 0x1000, 65_536, 3_000),
                event(ManagedKind::DeviceFault, 0x3000, 7, 100),
                event(ManagedKind::HostFault, 0x1000, 0x40_1000, 0),
            ],
        );
        let empty = Cell::Empty;
        assert_eq!(
            rows,
            [
                vec![
                    address(0x1000),
                    Cell::Decimal(0.065_536, 3),
                    Cell::Decimal(0.065_536, 3),
                    Cell::Number(1),
                    empty.clone(),
                    // 131072 * (1000000000 / 6000)
                    Cell::Decimal(21_845.245_952, 3),
                ],
                vec![
                    address(0x2000),
                    Cell::Decimal(0.004_096, 3),
                    empty.clone(),
                    empty.clone(),
                    empty.clone(),
                    Cell::Decimal(5_851.426_816, 3),
                ],
                vec![address(0x3000), empty.clone(), empty.clone(), empty.clone(), Cell::Number(7), empty],
            ]
        );
    }

    #[test]
    fn bounds_need_all_four_ways() {
        let three = [
            event(ManagedKind::HostToDevice, 0x2000, 4096, 700),
            event(ManagedKind::DeviceToHost, 0x1000, 4096, 700),
            event(ManagedKind::DeviceFault, 0x5000, 2, 100),
        ];
        assert_eq!(rows(Statistic::ManagedTotalSum, &three)[0][4..], [Cell::Empty, Cell::Empty]);
        let four = [&three[..], &[event(ManagedKind::HostFault, 0x1800, 9, 0)]].concat();
        let total = &rows(Statistic::ManagedTotalSum, &four)[0];
        assert_eq!(total[2..], [Cell::Number(1), Cell::Number(2), address(0x1000), address(0x5000)]);
        assert!(rows(Statistic::ManagedTotalSum, &[]).is_empty());
    }

    #[test]
    fn instructions_are_ordered_by_their_faults() {
        let fault = |instruction| event(ManagedKind::HostFault, 0x1000, instruction, 0);
        let rows = rows(
            Statistic::HostFaultSum,
            &[fault(0xfd), fault(0xfe), fault(0xfe), event(ManagedKind::DeviceFault, 1, 1, 1)],
        );
        let firsts: Vec<_> = rows.iter().map(|row| row[..2].to_vec()).collect();
        let instruction = |text: &str| Cell::Text(text.to_owned());
        assert_eq!(firsts, [[Cell::Number(2), instruction("0xfe")], [Cell::Number(1), instruction("0xfd")]]);
    }
}
