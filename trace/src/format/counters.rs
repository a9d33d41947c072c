//! Body of a COUNTERS block: groups of counter events, each preceded by its length so that a reader can skip
//! unknown kinds.
//!
//! Consecutive samples of one device form a group of columns. A column is written as differences, without the
//! low bits that are 0 in all of its values (values are rounded in advance). This is lossless.

use super::block::MAX_EVENTS;
use super::column::Field;
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use super::wire::Wire;
use crate::counters::{
    ChipName, CounterEvent, CounterLoss, GaugeReading, METRIC_LIMIT, Metric, MetricList, MetricSet, ProcessReading,
    ProgramName, Sample, UnavailableReason,
};
use crate::record::{DeviceId, Timestamp};

/// Contents of a group. Numbers are never reused.
mod what {
    pub(super) const SET: u8 = 1;
    pub(super) const SAMPLES: u8 = 2;
    pub(super) const GAUGES: u8 = 3;
    pub(super) const LOSS: u8 = 4;
    pub(super) const PROCESS: u8 = 5;
}

/// Maximum number of columns in a group that a reader accepts; those beyond [`METRIC_LIMIT`] are skipped.
const MOST_COLUMNS: u64 = 256;

/// Earliest and latest time in `events`; both 0 if there are no times.
pub(super) fn times(events: &[CounterEvent]) -> (u64, u64) {
    let spans = events.iter().filter_map(CounterEvent::span);
    let extent = spans.fold(None, |extent: Option<(u64, u64)>, (begin, end)| {
        let (first, last) = extent.unwrap_or((u64::MAX, 0));
        Some((first.min(begin.nanos()), last.max(end.nanos())))
    });
    extent.unwrap_or_default()
}

/// Appends `events`, with times relative to `base`.
pub(super) fn encode(events: &[CounterEvent], base: u64, body: &mut Vec<u8>) {
    let mut group = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        group.clear();
        let (kind, taken) = match first {
            CounterEvent::Set(set) => {
                put_set(set, &mut group);
                (what::SET, 1)
            }
            CounterEvent::Gauges(reading) => {
                put_gauges(reading, base, &mut group);
                (what::GAUGES, 1)
            }
            CounterEvent::Process(reading) => {
                put_process(reading, base, &mut group);
                (what::PROCESS, 1)
            }
            CounterEvent::Loss(loss) => {
                put_loss(loss, &mut group);
                (what::LOSS, 1)
            }
            CounterEvent::Sample(first) => {
                let same = |event: &CounterEvent| match event {
                    CounterEvent::Sample(sample) if sample.device == first.device => Some(*sample),
                    _ => None,
                };
                let samples: Vec<Sample> = rest.iter().map_while(same).collect();
                put_samples(&samples, base, &mut group);
                (what::SAMPLES, samples.len())
            }
        };
        body.push(kind);
        varint::put_bytes(body, &group);
        rest = rest.get(taken..).unwrap_or_default();
    }
}

/// The inverse of [`encode`]. Returns the number of groups of unknown kinds. A malformed body yields no
/// events.
pub(super) fn decode(body: &[u8], base: u64, mut give: impl FnMut(CounterEvent)) -> Result<u64, Malformed> {
    let mut events = Vec::new();
    let mut unknown = 0;
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        let kind = cursor.byte()?;
        let mut group = Cursor::new(cursor.bytes()?);
        match kind {
            what::SET => events.push(CounterEvent::Set(set(&mut group)?)),
            what::SAMPLES => samples(&mut group, base, &mut events)?,
            what::GAUGES => events.push(CounterEvent::Gauges(gauges(&mut group, base)?)),
            what::PROCESS => events.push(CounterEvent::Process(process(&mut group, base)?)),
            what::LOSS => events.push(CounterEvent::Loss(loss(&mut group)?)),
            _ => unknown += 1,
        }
        if events.len() > MAX_EVENTS {
            return Err(Malformed);
        }
    }
    events.into_iter().for_each(&mut give);
    Ok(unknown)
}

fn put_set(set: &MetricSet, group: &mut Vec<u8>) {
    varint::put(group, set.device.0.into());
    varint::put_bytes(group, set.chip.as_str().as_bytes());
    varint::put_all(group, &[set.interval_ns, set.highest_clock_hz, set.multiprocessors.into()]);
    varint::put(group, set.metrics.as_slice().len() as u64);
    group.extend(set.metrics.as_slice().iter().map(|&metric| metric as u8));
}

fn set(group: &mut Cursor<'_>) -> Result<MetricSet, Malformed> {
    let device = DeviceId(group.varint32()?);
    let chip = ChipName::new(&group.string()?);
    let (interval_ns, highest_clock_hz, multiprocessors) = (group.varint()?, group.varint()?, group.varint32()?);
    let count = group.varint()?;
    let codes = group.take(count)?.iter();
    let metrics: Vec<_> = codes.map(|&code| Metric::from_code(code).unwrap_or(Metric::Unknown)).collect();
    let metrics = MetricList::new(&metrics);
    Ok(MetricSet { device, chip, metrics, interval_ns, highest_clock_hz, multiprocessors })
}

fn put_samples(samples: &[Sample], base: u64, group: &mut Vec<u8>) {
    let Some(first) = samples.first() else { return };
    let used = |sample: &Sample| METRIC_LIMIT - sample.values.iter().rev().take_while(|value| value.is_nan()).count();
    let columns = samples.iter().map(used).max().unwrap_or(0);
    varint::put_all(group, &[first.device.0.into(), samples.len() as u64, columns as u64]);
    let (mut before, mut numbers) = (base, Vec::with_capacity(samples.len()));
    for sample in samples {
        let begin = sample.begin.nanos();
        numbers.push(zigzag(begin.wrapping_sub(std::mem::replace(&mut before, begin))));
    }
    varint::put_all(group, &numbers);
    put_differences(samples.iter().map(|sample| sample.end.nanos().wrapping_sub(sample.begin.nanos())), group);
    for column in 0..columns {
        let bits = || samples.iter().map(move |sample| sample.values.get(column).map_or(0, |value| value.to_bits()));
        let shift = bits().fold(0, |all, bits| all | bits).trailing_zeros().min(31);
        group.push(shift as u8);
        put_differences(bits().map(|bits| u64::from(bits >> shift)), group);
    }
}

fn put_differences(values: impl Iterator<Item = u64>, group: &mut Vec<u8>) {
    let mut before = 0;
    let numbers: Vec<u64> =
        values.map(|value| zigzag(value.wrapping_sub(std::mem::replace(&mut before, value)))).collect();
    varint::put_all(group, &numbers);
}

fn samples(group: &mut Cursor<'_>, base: u64, events: &mut Vec<CounterEvent>) -> Result<(), Malformed> {
    let device = DeviceId(group.varint32()?);
    let (count, columns) = (group.varint()?, group.varint()?);
    // A sample takes at least two bytes, so larger counts are invalid.
    if count > MAX_EVENTS as u64 || columns > MOST_COLUMNS || count * 2 > group.rest() as u64 {
        return Err(Malformed);
    }
    let mut rows = Vec::with_capacity(count as usize);
    let mut before = base;
    for _ in 0..count {
        before = before.wrapping_add(unzigzag(group.varint()?));
        let begin = Timestamp::from_nanos(before);
        rows.push(Sample { device, begin, end: begin, values: [f32::NAN; METRIC_LIMIT] });
    }
    let mut length = 0u64;
    for row in &mut rows {
        length = length.wrapping_add(unzigzag(group.varint()?));
        row.end = Timestamp::from_nanos(row.begin.nanos().wrapping_add(length));
    }
    for column in 0..columns as usize {
        let shift = group.byte()?;
        let mut bits = 0u64;
        for row in &mut rows {
            bits = bits.wrapping_add(unzigzag(group.varint()?));
            let value = u32::try_from(bits).ok().filter(|_| shift < 32).ok_or(Malformed)?;
            if let Some(place) = row.values.get_mut(column) {
                *place = f32::from_bits(value << shift);
            }
        }
    }
    events.extend(rows.into_iter().map(CounterEvent::Sample));
    Ok(())
}

macro_rules! gauges {
    ($($gauge:ident)*) => {
        fn put_gauges(reading: &GaugeReading, base: u64, group: &mut Vec<u8>) {
            let values = [$(reading.$gauge.map(Field::number)),*];
            let mask = values.iter().rev().fold(0, |mask, value| mask << 1 | u64::from(value.is_some()));
            varint::put_all(group, &[reading.device.0.into(), zigzag(reading.at.nanos().wrapping_sub(base)), mask]);
            values.into_iter().flatten().for_each(|value| varint::put(group, value));
        }

        fn gauges(group: &mut Cursor<'_>, base: u64) -> Result<GaugeReading, Malformed> {
            let device = DeviceId(group.varint32()?);
            let at = Timestamp::from_nanos(base.wrapping_add(unzigzag(group.varint()?)));
            let mut mask = group.varint()?;
            let mut reading = GaugeReading { device, at, ..GaugeReading::default() };
            $(
                if mask & 1 != 0 {
                    reading.$gauge = Some(Wire::get(group)?);
                }
                mask >>= 1;
            )*
            // Values of readings that newer versions added.
            (0..mask.count_ones()).try_for_each(|_| group.varint().map(|_| ()))?;
            Ok(reading)
        }
    };
}

// In the order of the bits in the mask of a reading.
gauges! {
    power_mw temperature_c memory_temperature_c sm_clock_mhz memory_clock_mhz throttle memory_used_bytes
    pcie_received_bytes pcie_sent_bytes nvlink_received_bytes nvlink_sent_bytes energy_mj
    busy_percent
}

/// Unknown numbers are 0, known ones one more.
fn put_process(reading: &ProcessReading, base: u64, group: &mut Vec<u8>) {
    let at = zigzag(reading.at.nanos().wrapping_sub(base));
    varint::put_all(group, &[reading.device.0.into(), at, reading.pid.into()]);
    varint::put_bytes(group, reading.name.as_str().as_bytes());
    let known = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
    varint::put_all(group, &[known(reading.busy_percent.map(u64::from)), known(reading.memory_bytes)]);
    if let Some(until) = reading.until {
        varint::put(group, until.since(reading.at));
    }
}

fn process(group: &mut Cursor<'_>, base: u64) -> Result<ProcessReading, Malformed> {
    let device = DeviceId(group.varint32()?);
    let at = Timestamp::from_nanos(base.wrapping_add(unzigzag(group.varint()?)));
    let (pid, name) = (group.varint32()?, ProgramName::new(&group.string()?));
    let (busy, memory) = (group.varint32()?, group.varint()?);
    let (busy_percent, memory_bytes) = (busy.checked_sub(1), memory.checked_sub(1));
    let length = if group.is_empty() { None } else { Some(group.varint()?) };
    let until = length.map(|length| Timestamp::from_nanos(at.nanos().saturating_add(length)));
    Ok(ProcessReading { device, at, until, pid, name, busy_percent, memory_bytes })
}

/// Numbers start at 1 and are never reused; 0 means no refusal. [`UnavailableReason::Failed`] has the number after the
/// last one.
const REFUSALS: [UnavailableReason; 9] = [
    UnavailableReason::Unknown,
    UnavailableReason::Busy,
    UnavailableReason::NotPermitted,
    UnavailableReason::NoLibrary,
    UnavailableReason::TooOld,
    UnavailableReason::UnknownChip,
    UnavailableReason::NotSupported,
    UnavailableReason::GivenAway,
    UnavailableReason::Incomplete,
];
const FAILED: u64 = REFUSALS.len() as u64 + 1;

fn put_loss(loss: &CounterLoss, group: &mut Vec<u8>) {
    let (refusal, code) = match loss.refused {
        None => (0, 0),
        Some(UnavailableReason::Failed(code)) => (FAILED, code),
        Some(why) => (varint::number_in(&REFUSALS, why), 0),
    };
    let counts = [loss.lost, loss.incomplete, loss.first_dropped, loss.slowed];
    varint::put_all(group, &[loss.device.0.into(), refusal, code.into()]);
    varint::put_all(group, &counts);
}

fn loss(group: &mut Cursor<'_>) -> Result<CounterLoss, Malformed> {
    let device = DeviceId(group.varint32()?);
    let refused = match (group.varint()?, group.varint32()?) {
        (0, _) => None,
        (FAILED, code) => Some(UnavailableReason::Failed(code)),
        (number, _) => Some(varint::at_place(&REFUSALS, number).unwrap_or(UnavailableReason::Unknown)),
    };
    let mut count = || group.optional();
    Ok(CounterLoss { device, lost: count()?, incomplete: count()?, first_dropped: count()?, slowed: count()?, refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_790_000_000_000_000_000 + nanos)
    }

    fn back(events: &[CounterEvent]) -> Vec<CounterEvent> {
        let mut body = Vec::new();
        encode(events, times(events).0, &mut body);
        let mut read = Vec::new();
        assert_eq!(decode(&body, times(events).0, |event| read.push(event)), Ok(0));
        read
    }

    /// NaN does not compare equal to itself.
    fn bits(event: &CounterEvent) -> String {
        match event {
            CounterEvent::Sample(sample) => format!("{sample:?} {:?}", sample.values.map(f32::to_bits)),
            other => format!("{other:?}"),
        }
    }

    fn events() -> Vec<CounterEvent> {
        let set = MetricSet {
            device: DeviceId(1),
            chip: ChipName::new("GH100"),
            metrics: MetricList::new(&[Metric::Clock, Metric::Tensor, Metric::DramRead]),
            interval_ns: 5_000_000,
            highest_clock_hz: 1_980_000_000,
            multiprocessors: 132,
        };
        let sample = |device, begin: u64, values: &[f32]| {
            CounterEvent::Sample(Sample::new(DeviceId(device), at(begin), at(begin + 5_000_000), values))
        };
        let loss =
            |refused| CounterLoss { device: DeviceId(0), lost: 3, incomplete: 4, first_dropped: 1, slowed: 2, refused };
        let gauges = GaugeReading {
            device: DeviceId(1),
            at: at(77),
            power_mw: Some(698_123),
            throttle: Some(u64::MAX),
            energy_mj: Some(0),
            busy_percent: Some(98),
            ..GaugeReading::default()
        };
        let process = ProcessReading {
            device: DeviceId(1),
            at: at(78),
            until: None,
            pid: 812,
            name: ProgramName::new("python3 server.py"),
            busy_percent: Some(0),
            memory_bytes: None,
        };
        let mut events = vec![
            CounterEvent::Set(set),
            sample(1, 0, &[1.7e9, 37.5, 4.05e12]),
            sample(1, 5_000_000, &[1.71e9, f32::NAN, 4.0e12]),
            sample(0, 2_000_000, &[]),
            CounterEvent::Gauges(gauges),
            CounterEvent::Process(process),
            CounterEvent::Process(ProcessReading { until: Some(at(90)), ..process }),
            CounterEvent::Gauges(GaugeReading { at: at(78), ..GaugeReading::default() }),
            sample(1, 3, &[f32::from_bits(0xffff_ffff), -0.0, f32::MIN_POSITIVE, f32::INFINITY]),
        ];
        let refusals = [
            None,
            Some(UnavailableReason::Unknown),
            Some(UnavailableReason::Busy),
            Some(UnavailableReason::NotPermitted),
            Some(UnavailableReason::NoLibrary),
            Some(UnavailableReason::TooOld),
            Some(UnavailableReason::UnknownChip),
            Some(UnavailableReason::NotSupported),
            Some(UnavailableReason::GivenAway),
            Some(UnavailableReason::Incomplete),
            Some(UnavailableReason::Failed(999)),
        ];
        events.extend(refusals.map(|refused| CounterEvent::Loss(loss(refused))));
        events
    }

    #[test]
    fn events_come_back_in_their_order_bit_by_bit() {
        let events = events();
        let read = back(&events);
        assert_eq!(read.iter().map(bits).collect::<Vec<_>>(), events.iter().map(bits).collect::<Vec<_>>());
    }

    #[test]
    fn a_body_that_is_cut_gives_nothing() {
        let (events, mut body) = (events(), Vec::new());
        encode(&events, 0, &mut body);
        for length in 0..body.len() {
            let mut read = Vec::new();
            let result = decode(&body[..length], 0, |event| read.push(event));
            // A prefix that ends at a group boundary is valid.
            assert!(result.is_ok() || read.is_empty(), "{length}");
        }
        assert_eq!(decode(&[what::SAMPLES, 3, 0, 0xff, 0x7f], 0, |_| {}), Err(Malformed));
    }

    #[test]
    fn kinds_and_values_of_newer_writers_are_stepped_over() {
        let mut body = vec![200, 2, 9, 9];
        encode(&[CounterEvent::Loss(CounterLoss::default())], 0, &mut body);
        let mut read = Vec::new();
        assert_eq!(decode(&body, 0, |event| read.push(event)), Ok(1));
        assert_eq!(read, [CounterEvent::Loss(CounterLoss::default())]);
        // A mask with bit 20, and a value for it.
        let mut group = Vec::new();
        varint::put_all(&mut group, &[0, 0, 1 | 1 << 20, 250_000, 42]);
        let reading = gauges(&mut Cursor::new(&group), 0).unwrap();
        assert_eq!(reading.power_mw, Some(250_000));
        // An unknown metric keeps its position.
        let mut group = Vec::new();
        varint::put_all(&mut group, &[0, 0, 1, 2, 3, 3]);
        group.extend([Metric::Clock as u8, 250, Metric::Issue as u8]);
        assert_eq!(set(&mut Cursor::new(&group)).unwrap().metrics.position(Metric::Issue), Some(2));
    }
}
