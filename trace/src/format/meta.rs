//! Bodies of the blocks with metadata: SESSION, LOSS, CAPTURE, COST and END.
//!
//! They are few and small, so they are designed for extension rather than size: the session is a list of
//! tagged fields of which readers skip unknown ones, and the counters are a list that may grow at its end.

use super::varint::{self, Cursor, Malformed};
use crate::cost::prices::{self, CALIBRATION_LIMIT, NAME_LIMIT};
use crate::cost::{Calibration, Cost, Mode, Prices};
use crate::process_info::{End, ProcessInfo};
use crate::record::{CaptureMark, Loss, Timestamp, Trigger};
use crate::short_text::cut;

/// Fields of the process. Numbers are never reused. In a list, the tag occurs once for each element.
mod tag {
    pub(super) const PROCESS_ID: u64 = 1;
    pub(super) const PARENT_PROCESS_ID: u64 = 2;
    pub(super) const COMMAND: u64 = 3;
    pub(super) const HOST: u64 = 4;
    pub(super) const START: u64 = 5;
    pub(super) const DRIVER_CUDA_VERSION: u64 = 6;
    pub(super) const DRIVER_VERSION: u64 = 7;
    pub(super) const CUPTI_VERSION: u64 = 8;
    pub(super) const CUPTI_PATH: u64 = 9;
    pub(super) const GPUWHY_VERSION: u64 = 10;
    pub(super) const RANK_VARIABLE: u64 = 11;
    pub(super) const NOTE: u64 = 12;
    pub(super) const CALIBRATION: u64 = 13;
}

/// Appends every field as tag, length, bytes.
pub(super) fn encode_session(session: &ProcessInfo, body: &mut Vec<u8>) {
    let mut field = |tag: u64, bytes: &[u8]| {
        varint::put(body, tag);
        varint::put_bytes(body, bytes);
    };
    let number = |value: u64| {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, value);
        bytes
    };
    field(tag::PROCESS_ID, &number(session.process_id.into()));
    field(tag::PARENT_PROCESS_ID, &number(session.parent_process_id.into()));
    for argument in &session.command {
        field(tag::COMMAND, argument.as_bytes());
    }
    field(tag::HOST, session.host.as_bytes());
    field(tag::START, &number(session.start.nanos()));
    field(tag::DRIVER_CUDA_VERSION, &number(session.driver_cuda_version.into()));
    field(tag::DRIVER_VERSION, session.driver_version.as_bytes());
    field(tag::CUPTI_VERSION, &number(session.cupti_version.into()));
    field(tag::CUPTI_PATH, session.cupti_path.as_bytes());
    field(tag::GPUWHY_VERSION, session.gpuwhy_version.as_bytes());
    for (name, value) in &session.rank_variables {
        let mut pair = Vec::new();
        varint::put_bytes(&mut pair, name.as_bytes());
        varint::put_bytes(&mut pair, value.as_bytes());
        field(tag::RANK_VARIABLE, &pair);
    }
    for note in &session.notes {
        field(tag::NOTE, note.as_bytes());
    }
    for calibration in session.calibrations.iter().take(CALIBRATION_LIMIT) {
        let mut row = Vec::new();
        varint::put_bytes(&mut row, calibration.gpu.as_bytes());
        for price in calibration.prices.to_array() {
            varint::put(&mut row, price.into());
        }
        field(tag::CALIBRATION, &row);
    }
}

/// Reads the name of a GPU, then its overheads in order; a later version may append some.
fn decode_calibration(row: &mut Cursor<'_>) -> Result<Calibration, Malformed> {
    let gpu = cut(&row.string()?, NAME_LIMIT).to_owned();
    let mut prices = [0; prices::NAMES.len()];
    for price in &mut prices {
        *price = u32::try_from(row.optional()?).unwrap_or(u32::MAX);
    }
    Ok(Calibration { gpu, prices: Prices::from_array(prices) })
}

/// The inverse of [`encode_session`]; missing fields keep their defaults.
pub(super) fn decode_session(body: &[u8]) -> Result<ProcessInfo, Malformed> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut session = ProcessInfo::default();
    let mut cursor = Cursor::new(body);
    while !cursor.is_empty() {
        let tag = cursor.varint()?;
        let bytes = cursor.bytes()?;
        let mut field = Cursor::new(bytes);
        match tag {
            tag::PROCESS_ID => session.process_id = field.varint32()?,
            tag::PARENT_PROCESS_ID => session.parent_process_id = field.varint32()?,
            tag::COMMAND => session.command.push(text(bytes)),
            tag::HOST => session.host = text(bytes),
            tag::START => session.start = Timestamp::from_nanos(field.varint()?),
            tag::DRIVER_CUDA_VERSION => session.driver_cuda_version = field.varint32()?,
            tag::DRIVER_VERSION => session.driver_version = text(bytes),
            tag::CUPTI_VERSION => session.cupti_version = field.varint32()?,
            tag::CUPTI_PATH => session.cupti_path = text(bytes),
            tag::GPUWHY_VERSION => session.gpuwhy_version = text(bytes),
            tag::RANK_VARIABLE => session.rank_variables.push((field.string()?, field.string()?)),
            tag::NOTE => session.notes.push(text(bytes)),
            tag::CALIBRATION if session.calibrations.len() < CALIBRATION_LIMIT => {
                session.calibrations.push(decode_calibration(&mut field)?);
            }
            _ => {}
        }
    }
    Ok(session)
}

/// Appends the counters in the order of their declaration.
pub(super) fn encode_loss(loss: &Loss, body: &mut Vec<u8>) {
    loss.kinds().iter().for_each(|kind| varint::put(body, kind.count));
}

/// The inverse of [`encode_loss`]; counters unknown to an older writer are 0.
pub(super) fn decode_loss(body: &[u8]) -> Result<Loss, Malformed> {
    let mut cursor = Cursor::new(body);
    Loss::read(|| cursor.optional())
}

/// Modes by their number in the file; never reordered.
const MODES: [Mode; 5] = [Mode::Unknown, Mode::Monitor, Mode::Light, Mode::Full, Mode::Auto];

/// Tags of the other fields after the totals of a COST block, in addition to steps down to a mode.
const NODES_SINCE: u64 = 64;
const UNRECORDED_NODES: u64 = 65;
const BURSTS: u64 = 66;
const BURST_NANOS: u64 = 67;
/// Slowdown of a step since the first burst, in parts per million.
const SLOWED_LOW: u64 = 68;
const SLOWED_HIGH: u64 = 69;
const MILLION: f64 = 1e6;

fn mode_number(mode: Mode) -> u64 {
    MODES.iter().position(|&known| known == mode).unwrap_or_default() as u64
}

/// Modes of newer versions become [`Mode::Unknown`].
fn decode_mode(number: u64) -> Mode {
    usize::try_from(number).ok().and_then(|number| MODES.get(number)).copied().unwrap_or_default()
}

/// Appends the totals of `cost` and the steps down that were taken.
pub(super) fn encode_cost(cost: &Cost, body: &mut Vec<u8>) {
    for number in [
        mode_number(cost.mode),
        cost.whole_graphs.into(),
        cost.observed_ns,
        cost.records_ns,
        cost.cupti_ns,
        cost.callback_ns,
        cost.threads_ns,
    ] {
        varint::put(body, number);
    }
    let steps = cost.steps_down().map(|step| (mode_number(step.to), step.at.nanos()));
    let millionths = |ratio: f64| (ratio * MILLION).round() as u64;
    let slowed = cost.slowed.map_or((0, 0), |(low, high)| (millionths(low), millionths(high)));
    let others = [
        (NODES_SINCE, cost.nodes_since.nanos()),
        (UNRECORDED_NODES, cost.unrecorded_nodes_ns),
        (BURSTS, cost.bursts.into()),
        (BURST_NANOS, cost.burst_ns),
        (SLOWED_LOW, slowed.0),
        (SLOWED_HIGH, slowed.1),
    ];
    for (what, number) in steps.chain(others.into_iter().filter(|&(_, number)| number != 0)) {
        varint::put(body, what);
        varint::put(body, number);
    }
}

/// The inverse of [`encode_cost`].
pub(super) fn decode_cost(body: &[u8]) -> Result<Cost, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut cost = Cost {
        mode: decode_mode(cursor.varint()?),
        whole_graphs: cursor.varint()? != 0,
        observed_ns: cursor.varint()?,
        records_ns: cursor.varint()?,
        cupti_ns: cursor.varint()?,
        callback_ns: cursor.varint()?,
        threads_ns: cursor.varint()?,
        ..Cost::default()
    };
    while !cursor.is_empty() {
        let (what, number) = (cursor.varint()?, cursor.varint()?);
        match what {
            NODES_SINCE => cost.nodes_since = Timestamp::from_nanos(number),
            UNRECORDED_NODES => cost.unrecorded_nodes_ns = number,
            BURSTS => cost.bursts = u32::try_from(number).unwrap_or(u32::MAX),
            BURST_NANOS => cost.burst_ns = number,
            SLOWED_LOW => cost.slowed = Some((number as f64 / MILLION, number as f64 / MILLION)),
            SLOWED_HIGH => cost.slowed = cost.slowed.map(|(low, _)| (low, number as f64 / MILLION)),
            mode => cost.step_down(Timestamp::from_nanos(number), decode_mode(mode)),
        }
    }
    Ok(cost)
}

/// Appends the number of `end`.
pub(super) fn encode_end(end: End, body: &mut Vec<u8>) {
    body.push(match end {
        End::Abrupt => 0,
        End::Clean => 1,
        End::TimedOut => 2,
    });
}

/// The inverse of [`encode_end`]. A kind of end from a newer version is not treated as a clean end.
pub(super) fn decode_end(body: &[u8]) -> Result<End, Malformed> {
    Ok(match Cursor::new(body).byte()? {
        1 => End::Clean,
        2 => End::TimedOut,
        _ => End::Abrupt,
    })
}

/// Types of CAPTURE blocks. Numbers are never reused.
mod mark {
    pub(super) const BEGIN: u8 = 1;
    pub(super) const SELECT: u8 = 2;
    pub(super) const END: u8 = 3;
}

/// Triggers by their number in the file; never reordered.
const TRIGGERS: [Trigger; 9] = [
    Trigger::Start,
    Trigger::ProfilerApi,
    Trigger::Range,
    Trigger::Delay,
    Trigger::Steps,
    Trigger::Command,
    Trigger::Open,
    Trigger::Drift,
    Trigger::Graph,
];

/// Appends the type of the mark, the number of the capture, and for a start its trigger. Returns the time for
/// the header; [`Timestamp::ZERO`] for a mark without a time.
pub(super) fn encode_capture(capture: CaptureMark, body: &mut Vec<u8>) -> Timestamp {
    let (what, number, at) = match capture {
        CaptureMark::Begin { number, at, .. } => (mark::BEGIN, number, at),
        CaptureMark::Select { number } => (mark::SELECT, number, Timestamp::ZERO),
        CaptureMark::End { number, at } => (mark::END, number, at),
    };
    body.push(what);
    varint::put(body, number.into());
    if let CaptureMark::Begin { trigger, .. } = capture {
        body.push(TRIGGERS.iter().position(|&known| known == trigger).unwrap_or_default() as u8);
    }
    at
}

/// The inverse of [`encode_capture`]. A trigger of a newer version becomes [`Trigger::Start`]; a mark of a
/// newer version is rejected because its meaning is unknown.
pub(super) fn decode_capture(body: &[u8], at: Timestamp) -> Result<CaptureMark, Malformed> {
    let mut cursor = Cursor::new(body);
    let what = cursor.byte()?;
    let number = cursor.varint32()?;
    match what {
        mark::BEGIN => {
            let trigger = TRIGGERS.get(usize::from(cursor.byte()?)).copied().unwrap_or_default();
            Ok(CaptureMark::Begin { number, at, trigger })
        }
        mark::SELECT => Ok(CaptureMark::Select { number }),
        mark::END => Ok(CaptureMark::End { number, at }),
        _ => Err(Malformed),
    }
}
