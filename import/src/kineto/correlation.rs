//! Correlation ids of any width as the 32-bit ids of records.
//!
//! CUPTI's are unsigned 32-bit numbers. Other writers have 64 bits, negative numbers or texts.

use gpuwhy_trace::record::CorrelationId;
use rustc_hash::FxHashMap;

use super::row::KinetoRow;
use super::scalar::Scalar;

/// Ids below stay as they are; all others are numbered from here on.
const NUMBERED: u32 = 1 << 31;

/// An id that is no small number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wide {
    Number(i64),
    Text(String),
}

#[derive(Debug, Default)]
pub(super) struct Correlations {
    known: FxHashMap<Wide, CorrelationId>,
    given: u32,
}

impl Correlations {
    /// Correlation id of a row; an error if the row has one that is not an id.
    pub(super) fn of(&mut self, row: &KinetoRow) -> Result<Option<CorrelationId>, &'static str> {
        let value = &row.arguments.correlation;
        let wide = match (value, value.integer()) {
            (Scalar::Absent, _) => return Ok(None),
            (_, Some(number)) => match u32::try_from(number) {
                Ok(id) if id < NUMBERED => return Ok(Some(CorrelationId(id))),
                _ => Wide::Number(number),
            },
            (Scalar::Text(text), None) if text.contains(|letter: char| letter.is_ascii_digit()) => {
                Wide::Text(text.clone())
            }
            _ => return Err("with a correlation that is no number"),
        };
        let Self { known, given } = self;
        Ok(Some(*known.entry(wide).or_insert_with(|| fresh(given))))
    }

    /// An id that no row has.
    pub(super) fn fresh(&mut self) -> CorrelationId {
        fresh(&mut self.given)
    }
}

/// The last id is none: calls without a correlation have it. A file cannot have as many rows.
fn fresh(given: &mut u32) -> CorrelationId {
    *given = (*given + 1).min(u32::MAX - NUMBERED);
    CorrelationId(NUMBERED + *given - 1)
}
