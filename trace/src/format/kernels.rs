//! Body of a KERNEL_PROFILE block: the measurements of one kernel.
//!
//! It is self-contained except for the launch configuration, which is a dictionary row. A later version may
//! append fields.

use super::varint::{self, Cursor, Malformed};
use crate::kernels::{KernelProfile, Outcome};
use crate::record::{DeviceId, LaunchConfigId, Timestamp};

/// Maximum number of metrics that a reader accepts; ten times as many as a writer measures.
const MAX_METRICS: u64 = 4_096;

/// Numbers start at 1 and are never reused; 0 is [`Outcome::Measured`]. [`Outcome::Refused`] contains a code;
/// its entry in the list has code 0.
const OUTCOMES: [Outcome; 6] = [
    Outcome::NotLaunched,
    Outcome::OutOfBudget,
    Outcome::Disturbed,
    Outcome::Refused(0),
    Outcome::Busy,
    Outcome::Unsuitable,
];
const UNKNOWN: u64 = 255;

pub(super) fn put_outcome(outcome: Outcome, body: &mut Vec<u8>) {
    let (outcome, code) = if let Outcome::Refused(code) = outcome { (Outcome::Refused(0), code) } else { (outcome, 0) };
    let number = if outcome == Outcome::Unknown { UNKNOWN } else { varint::number_in(&OUTCOMES, outcome) };
    varint::put_all(body, &[number, code.into()]);
}

pub(super) fn outcome(cursor: &mut Cursor<'_>) -> Result<Outcome, Malformed> {
    let (number, code) = (cursor.varint()?, cursor.varint32()?);
    Ok(match varint::at_place(&OUTCOMES, number) {
        None if number == 0 => Outcome::Measured,
        Some(Outcome::Refused(_)) => Outcome::Refused(code),
        known => known.unwrap_or(Outcome::Unknown),
    })
}

pub(super) fn encode(profile: &KernelProfile, body: &mut Vec<u8>) {
    varint::put_all(body, &[profile.device.0.into(), profile.config.0.into()]);
    put_outcome(profile.outcome, body);
    let numbers = [
        profile.begin.nanos(),
        profile.end.nanos(),
        profile.passes.into(),
        profile.launches.into(),
        profile.discarded.into(),
        profile.stall_ns,
        profile.missing.len() as u64,
    ];
    varint::put_all(body, &numbers);
    profile.missing.iter().for_each(|name| varint::put_bytes(body, name.as_bytes()));
    varint::put(body, profile.values.len() as u64);
    for (name, value) in &profile.values {
        varint::put_bytes(body, name.as_bytes());
        body.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

/// The inverse of [`encode`]. Fields appended by newer versions are ignored.
pub(super) fn decode(body: &[u8]) -> Result<KernelProfile, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut profile = KernelProfile {
        device: DeviceId(cursor.varint32()?),
        config: LaunchConfigId(cursor.varint32()?),
        outcome: outcome(&mut cursor)?,
        begin: Timestamp::from_nanos(cursor.varint()?),
        end: Timestamp::from_nanos(cursor.varint()?),
        passes: cursor.varint32()?,
        launches: cursor.varint32()?,
        discarded: cursor.varint32()?,
        stall_ns: cursor.varint()?,
        ..KernelProfile::default()
    };
    for _ in 0..count(&mut cursor)? {
        profile.missing.push(cursor.string()?);
    }
    for _ in 0..count(&mut cursor)? {
        let name = cursor.string()?;
        let bits = cursor.take(8)?.first_chunk::<8>().ok_or(Malformed)?;
        profile.values.push((name, f64::from_bits(u64::from_le_bytes(*bits))));
    }
    Ok(profile)
}

fn count(cursor: &mut Cursor<'_>) -> Result<u64, Malformed> {
    let count = cursor.varint()?;
    if count > MAX_METRICS { Err(Malformed) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(outcome: Outcome) -> KernelProfile {
        KernelProfile {
            device: DeviceId(3),
            config: LaunchConfigId(70_000),
            outcome,
            begin: Timestamp::from_nanos(1_763_000_000_000_000_000),
            end: Timestamp::from_nanos(1_763_000_000_100_000_000),
            passes: 2,
            launches: 3,
            discarded: 1,
            stall_ns: 41_000_000,
            missing: vec!["a__b.sum".to_owned()],
            values: vec![("gpu__time_duration.sum".to_owned(), 80_123.5), ("sm__x.avg".to_owned(), -0.0)],
        }
    }

    #[test]
    fn profiles_come_back() {
        for outcome in [
            Outcome::Measured,
            Outcome::NotLaunched,
            Outcome::OutOfBudget,
            Outcome::Disturbed,
            Outcome::Refused(35),
            Outcome::Busy,
            Outcome::Unsuitable,
            Outcome::Unknown,
        ] {
            let mut body = Vec::new();
            encode(&profile(outcome), &mut body);
            let back = decode(&body);
            assert!(matches!(back, Ok(back) if back == profile(outcome)), "{outcome:?}");
        }
    }

    #[test]
    fn what_is_cut_or_too_much_is_refused_and_what_is_newer_is_read() {
        let mut body = Vec::new();
        encode(&profile(Outcome::Measured), &mut body);
        for length in 0..body.len() {
            assert!(decode(&body[..length]).is_err(), "cut at {length}");
        }
        body.push(1);
        assert!(decode(&body).is_ok(), "a newer version appended");
        let mut hostile = Vec::new();
        varint::put_all(&mut hostile, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, u64::MAX]);
        assert!(decode(&hostile).is_err());
    }
}
