//! The final report of a long run, stored in its trace.
//!
//! A live run computes its report as it proceeds, so the report is available at its end. Recomputing it from
//! the records takes about a second per million; a block at the end of the trace saves that. It contains the
//! printed texts for readers of the same version. A reader of another version recomputes them, as does a
//! reader that needs other output or whose trace is incomplete.

use std::io::Read;

use zstd::bulk::Decompressor;

use super::TraceError;
use super::block::{Header, MAX_BODY, ZSTD, kind};
use super::pack;
use super::source::ByteSource;
use super::varint::{self, Cursor, Malformed};

/// Minimum number of records of a run whose report is stored. In smaller traces, the report would be a
/// considerable part of the size, and is quickly recomputed.
pub const STORED_REPORT_FROM: u64 = 1_000_000;

/// Final report of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredReport {
    /// Version of gpuwhy that wrote the report.
    pub gpuwhy_version: String,
    /// The short report.
    pub summary: String,
    /// All tables.
    pub full: String,
    /// The tables of ranges.
    pub ranges: String,
}

impl StoredReport {
    /// Reads the report from `source` without decoding records. Every block is checked. Returns `None` if the
    /// trace contains no report, is damaged, or has no end. The texts are untrusted: pass them through
    /// `printable_lines` before writing them to a terminal.
    ///
    /// # Errors
    /// If `source` cannot be read, is not a trace, or is of a newer major version.
    pub fn read(source: impl Read) -> Result<Option<Self>, TraceError> {
        let mut source = ByteSource::new(source)?;
        let (mut answer, mut ended) = (None, false);
        while let Some(header) = source.next_block()? {
            match header.kind {
                kind::ANSWER => answer = unpacked(&header, source.body()).and_then(|body| decode(&body)).ok(),
                kind::END => ended = true,
                // Records after the report are not included in it.
                kind::EVENTS => answer = None,
                _ => {}
            }
        }
        Ok(answer.filter(|_| ended && source.damage.is_none()))
    }
}

fn unpacked(header: &Header, body: &[u8]) -> Result<Vec<u8>, Malformed> {
    if header.flags & ZSTD == 0 {
        return Ok(body.to_vec());
    }
    pack::unpack(&mut Decompressor::new().map_err(|_| Malformed)?, body)
}

/// Appends the texts, unless they exceed the maximum block size.
pub(super) fn encode(answer: &StoredReport, body: &mut Vec<u8>) {
    let texts = [&answer.gpuwhy_version, &answer.summary, &answer.full, &answer.ranges];
    if texts.iter().map(|text| text.len() + 10).sum::<usize>() <= MAX_BODY {
        texts.into_iter().for_each(|text| varint::put_bytes(body, text.as_bytes()));
    }
}

fn decode(body: &[u8]) -> Result<StoredReport, Malformed> {
    let mut cursor = Cursor::new(body);
    Ok(StoredReport {
        gpuwhy_version: cursor.string()?,
        summary: cursor.string()?,
        full: cursor.string()?,
        ranges: cursor.string()?,
    })
}

#[cfg(test)]
mod tests {
    use crate::dictionary::Dictionary;
    use crate::event::Event;
    use crate::format::{TraceReader, TraceWriter};
    use crate::process_info::{End, ProcessInfo};
    use crate::record::{ApiCall, Loss, Record, Timestamp};

    use super::*;

    fn trace(answer: Option<&StoredReport>, more: bool, end: bool) -> Vec<u8> {
        let (dictionary, mut trace) = (Dictionary::new(), Vec::new());
        let mut writer = TraceWriter::new(&mut trace, &ProcessInfo::default()).unwrap();
        let call = |at| {
            let at = Timestamp::from_nanos(at);
            Event::Record(Record::Api(ApiCall { start: at, end: at, ..ApiCall::default() }))
        };
        (1..100).for_each(|at| writer.event(&call(at), &dictionary).unwrap());
        let at = Timestamp::from_nanos(200);
        if let Some(answer) = answer {
            writer.answer(at, answer, &dictionary).unwrap();
        }
        if more {
            writer.event(&call(300), &dictionary).unwrap();
        }
        if end {
            writer.finish(End::Clean, at, &Loss::default(), &dictionary).unwrap();
        } else {
            writer.close(&dictionary).unwrap();
        }
        trace
    }

    fn answer() -> StoredReport {
        let text = |words: &str| words.repeat(50);
        StoredReport {
            gpuwhy_version: "0.1.0".to_owned(),
            summary: text("bottleneck: launch "),
            full: text("kernel "),
            ranges: String::new(),
        }
    }

    #[test]
    fn the_answer_of_a_whole_trace_comes_back() {
        let whole = trace(Some(&answer()), false, true);
        assert_eq!(StoredReport::read(&whole[..]).unwrap(), Some(answer()));
        let mut reader = TraceReader::new(&whole[..]).unwrap();
        let records = reader.by_ref().filter(|event| matches!(event, Ok(Event::Record(_)))).count();
        assert!(records == 99 && reader.damage().is_none(), "readers of records pass it over");
    }

    #[test]
    fn a_trace_that_is_not_whole_has_none() {
        assert_eq!(StoredReport::read(&trace(None, false, true)[..]).unwrap(), None, "none was written");
        assert_eq!(StoredReport::read(&trace(Some(&answer()), true, true)[..]).unwrap(), None, "records behind it");
        assert_eq!(StoredReport::read(&trace(Some(&answer()), false, false)[..]).unwrap(), None, "no end");
        let whole = trace(Some(&answer()), false, true);
        for offset in (16..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[offset] ^= 0x10;
            assert_eq!(StoredReport::read(&damaged[..]).unwrap(), None, "damaged at byte {offset}");
        }
        assert!(StoredReport::read(&b"{\"traceEvents\": []}"[..]).is_err());
    }
}
