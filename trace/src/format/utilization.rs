//! Body of a UTILIZATION block: the utilization totals of one device, or why there are none.
//!
//! Written about once a second in runs without device work records. Each block is self-contained: the last
//! one of a device yields the average over the run, and the difference of two yields the interval between
//! them.

use super::varint::{self, Cursor, Malformed};
use super::wire::{Wire, wire};
use crate::record::DeviceId;
use crate::utilization::{Absence, Counter, DeviceUtilization, Total, UtilizationReading};

/// Types of blocks. Numbers are never reused.
mod about {
    pub(super) const NOTHING: u8 = 0;
    pub(super) const DEVICE: u8 = 1;
}

/// Maximum number of counters that a reader accepts; unknown ones are skipped.
const MAX_COUNTERS: u64 = 256;

wire! { Total { over_ns, sum } }

/// Numbers start at 1 and are never reused; 0 means no absence. [`Absence::Refused`] has the number after the
/// last one.
const ABSENCES: [Absence; 6] = [
    Absence::Unknown,
    Absence::NoLibrary,
    Absence::NoDevice,
    Absence::Divided,
    Absence::NotSupported,
    Absence::NoFunction,
];
const REFUSED: u64 = ABSENCES.len() as u64 + 1;

fn put_absence(absence: Option<Absence>, body: &mut Vec<u8>) {
    match absence {
        None => varint::put(body, 0),
        Some(Absence::Refused(code)) => varint::put_all(body, &[REFUSED, code.into()]),
        Some(why) => varint::put(body, varint::number_in(&ABSENCES, why)),
    }
}

fn absence(cursor: &mut Cursor<'_>) -> Result<Option<Absence>, Malformed> {
    Ok(match cursor.varint()? {
        0 => None,
        REFUSED => Some(Absence::Refused(cursor.varint32()?)),
        number => Some(varint::at_place(&ABSENCES, number).unwrap_or(Absence::Unknown)),
    })
}

pub(super) fn encode(reading: &UtilizationReading, body: &mut Vec<u8>) {
    match reading {
        UtilizationReading::Absent(why) => {
            body.push(about::NOTHING);
            put_absence(Some(*why), body);
        }
        UtilizationReading::Device(utilization) => {
            body.push(about::DEVICE);
            varint::put(body, utilization.device.0.into());
            put_absence(utilization.no_rates, body);
            put_absence(utilization.no_counters, body);
            varint::put(body, utilization.failed);
            varint::put(body, Counter::ALL.len() as u64);
            for total in [utilization.busy, utilization.memory].iter().chain(&utilization.counters) {
                total.put(body);
            }
        }
    }
}

/// The inverse of [`encode`]. Counters unknown to an older writer count as never read; those of a newer one
/// are ignored.
pub(super) fn decode(body: &[u8]) -> Result<UtilizationReading, Malformed> {
    let mut cursor = Cursor::new(body);
    match cursor.byte()? {
        about::NOTHING => Ok(UtilizationReading::Absent(absence(&mut cursor)?.ok_or(Malformed)?)),
        about::DEVICE => {
            let mut utilization = DeviceUtilization {
                device: DeviceId(cursor.varint32()?),
                no_rates: absence(&mut cursor)?,
                no_counters: absence(&mut cursor)?,
                failed: cursor.varint()?,
                ..DeviceUtilization::default()
            };
            let counters = cursor.varint()?;
            if counters > MAX_COUNTERS {
                return Err(Malformed);
            }
            utilization.busy = Wire::get(&mut cursor)?;
            utilization.memory = Wire::get(&mut cursor)?;
            for place in utilization.counters.iter_mut().take(counters as usize) {
                *place = Wire::get(&mut cursor)?;
            }
            Ok(UtilizationReading::Device(utilization))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_back() {
        let mut full = DeviceUtilization { device: DeviceId(3), failed: 2, ..DeviceUtilization::default() };
        full.busy.add(1_000, 0.25);
        full.counters[Counter::NvlinkReceived as usize].add(500, 3.5);
        full.no_rates = Some(Absence::Refused(999));
        full.no_counters = Some(Absence::NotSupported);
        let absences = [
            Absence::NoLibrary,
            Absence::NoDevice,
            Absence::Divided,
            Absence::NotSupported,
            Absence::NoFunction,
            Absence::Refused(17),
            Absence::Unknown,
        ];
        let readings = absences.map(UtilizationReading::Absent).into_iter().chain([UtilizationReading::Device(full)]);
        for reading in readings {
            let mut body = Vec::new();
            encode(&reading, &mut body);
            assert!(matches!(decode(&body), Ok(back) if back == reading), "{reading:?}");
        }
    }

    #[test]
    fn counters_of_another_version_cost_nothing_else() {
        let mut body = vec![1, 3, 0, 0, 0, 1, 10, 5, 10, 4, 10, 9];
        let Ok(UtilizationReading::Device(older)) = decode(&body) else { panic!("a device with one counter") };
        assert_eq!((older.busy.mean(), older.counter(Counter::Active)), (Some(0.5), Some(0.9)));
        assert_eq!(older.counter(Counter::Multiprocessors), None);
        body[5] = 20;
        body.extend([7; 38]);
        let Ok(UtilizationReading::Device(newer)) = decode(&body) else { panic!("a device with twenty counters") };
        assert_eq!(newer.counter(Counter::NvlinkReceived), Some(1.0));
        assert!(decode(&body[..20]).is_err(), "cut");
    }
}
