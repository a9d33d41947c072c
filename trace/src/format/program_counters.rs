//! Body of a PROGRAM_COUNTERS block: the result of PC sampling on a device.
//!
//! It is self-contained. Counts are sorted, so that offsets are small differences. A later version may append
//! fields.

use super::kernels::{outcome, put_outcome};
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use crate::kernels::{PcCount, PcFunction, PcWindow, limit};
use crate::record::{DeviceId, Timestamp};

pub(super) fn encode(window: &PcWindow, body: &mut Vec<u8>) {
    varint::put(body, window.device.0.into());
    put_outcome(window.outcome, body);
    let times = [window.opened, window.begin, window.end, window.closed].map(Timestamp::nanos);
    varint::put_all(body, &times);
    let numbers = [
        window.period_cycles,
        window.samples,
        window.dropped,
        window.foreign,
        window.overflow,
        window.full,
        window.modules_lost,
        window.reasons.len() as u64,
    ];
    varint::put_all(body, &numbers);
    window.reasons.iter().for_each(|name| varint::put_bytes(body, name.as_bytes()));
    varint::put(body, window.functions.len() as u64);
    for function in &window.functions {
        varint::put(body, function.module);
        varint::put_bytes(body, function.symbol.as_bytes());
    }
    varint::put(body, window.counts.len() as u64);
    let mut last = PcCount::default();
    for count in &window.counts {
        let step = u64::from(count.function).wrapping_sub(last.function.into());
        let from = if step == 0 { last.offset } else { 0 };
        let offset = zigzag(count.offset.wrapping_sub(from));
        varint::put_all(body, &[zigzag(step), offset, count.reason.into(), count.samples]);
        last = *count;
    }
}

/// The inverse of [`encode`]. Fields appended by newer versions are ignored.
pub(super) fn decode(body: &[u8]) -> Result<PcWindow, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut window = PcWindow {
        device: DeviceId(cursor.varint32()?),
        outcome: outcome(&mut cursor)?,
        opened: Timestamp::from_nanos(cursor.varint()?),
        begin: Timestamp::from_nanos(cursor.varint()?),
        end: Timestamp::from_nanos(cursor.varint()?),
        closed: Timestamp::from_nanos(cursor.varint()?),
        period_cycles: cursor.varint()?,
        samples: cursor.varint()?,
        dropped: cursor.varint()?,
        foreign: cursor.varint()?,
        overflow: cursor.varint()?,
        full: cursor.varint()?,
        modules_lost: cursor.varint()?,
        ..PcWindow::default()
    };
    for _ in 0..up_to(limit::REASONS, &mut cursor)? {
        window.reasons.push(cursor.string()?);
    }
    for _ in 0..up_to(limit::FUNCTIONS, &mut cursor)? {
        window.functions.push(PcFunction { module: cursor.varint()?, symbol: cursor.string()? });
    }
    let mut last = PcCount::default();
    for _ in 0..up_to(limit::COUNTS, &mut cursor)? {
        let step = unzigzag(cursor.varint()?);
        let function = u64::from(last.function).wrapping_add(step);
        let from = if step == 0 { last.offset } else { 0 };
        last = PcCount {
            function: function.try_into().map_err(|_| Malformed)?,
            offset: from.wrapping_add(unzigzag(cursor.varint()?)),
            reason: cursor.varint32()?,
            samples: cursor.varint()?,
        };
        let known = |place: u32, length: usize| usize::try_from(place).is_ok_and(|place| place < length);
        if !known(last.function, window.functions.len()) || !known(last.reason, window.reasons.len()) {
            return Err(Malformed);
        }
        window.counts.push(last);
    }
    Ok(window)
}

fn up_to(limit: usize, cursor: &mut Cursor<'_>) -> Result<u64, Malformed> {
    let count = cursor.varint()?;
    if count > limit as u64 { Err(Malformed) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Outcome;

    fn window(outcome: Outcome) -> PcWindow {
        let at = Timestamp::from_nanos;
        let count = |function, offset, reason, samples| PcCount { function, offset, reason, samples };
        PcWindow {
            device: DeviceId(1),
            outcome,
            opened: at(1_763_000_000_000_000_000),
            begin: at(1_763_000_000_300_000_000),
            end: at(1_763_000_001_300_000_000),
            closed: at(1_763_000_001_400_000_000),
            period_cycles: 1 << 18,
            reasons: vec!["smsp__pcsamp_warps_issue_stalled_wait".to_owned(), "b".to_owned()],
            functions: vec![
                PcFunction { module: u64::MAX, symbol: "_Z1fv".to_owned() },
                PcFunction { module: 0, symbol: String::new() },
            ],
            counts: vec![count(0, 0x10, 0, 5), count(0, 0x10, 1, 1), count(0, 0x20, 0, 9), count(1, u64::MAX, 1, 3)],
            samples: 20,
            dropped: 1,
            foreign: 1,
            overflow: 2,
            full: 3,
            modules_lost: 4,
        }
    }

    #[test]
    fn windows_come_back() {
        for outcome in [Outcome::Measured, Outcome::NotLaunched, Outcome::Refused(999), Outcome::Busy] {
            let mut body = Vec::new();
            encode(&window(outcome), &mut body);
            assert!(matches!(decode(&body), Ok(back) if back == window(outcome)), "{outcome:?}");
        }
        let mut body = Vec::new();
        encode(&PcWindow::default(), &mut body);
        assert!(matches!(decode(&body), Ok(back) if back == PcWindow::default()));
    }

    #[test]
    fn what_is_cut_out_of_range_or_too_much_is_refused_and_what_is_newer_is_read() {
        let mut body = Vec::new();
        encode(&window(Outcome::Measured), &mut body);
        for length in 0..body.len() {
            assert!(decode(&body[..length]).is_err(), "cut at {length}");
        }
        body.push(1);
        assert!(decode(&body).is_ok(), "a newer version appended");
        for count in [
            PcCount { function: 2, offset: 0, reason: 0, samples: 1 },
            PcCount { function: 0, offset: 0, reason: 2, samples: 1 },
        ] {
            let mut body = Vec::new();
            encode(&PcWindow { counts: vec![count], ..window(Outcome::Measured) }, &mut body);
            assert!(decode(&body).is_err(), "{count:?}");
        }
        let mut hostile = Vec::new();
        varint::put_all(&mut hostile, &[0; 14]);
        varint::put(&mut hostile, u64::MAX);
        assert!(decode(&hostile).is_err());
    }
}
