//! Predictors and columns: how one field of many rows becomes few bytes.
//!
//! Each field of a row is replaced by its difference to what a predictor expects and appended to that field's own
//! column as a varint. Writer and reader run the *same* description of a row (see `row`) against an [`Encoder`] or a
//! [`Decoder`], so they cannot disagree about order or predictor. All arithmetic wraps at 2^64: every value comes
//! back, also an end before its start.
//!
//! Predictors start anew in each block. None depends on another block, so a lost one takes nothing else with it.

use rustc_hash::FxHashMap;

use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use crate::record::Timestamp;

/// Columns that a kind of row can have. Column ids are below it.
pub(super) const MAX_COLUMNS: usize = 16;

/// How the bytes of a column are to be read.
pub(super) mod encoding {
    /// One varint for each row.
    pub(in crate::trace) const VARINT: u8 = 0;
    /// One varint that holds for every row.
    pub(in crate::trace) const CONSTANT: u8 = 1;
}

/// A field that a column can hold.
pub(super) trait Field: Copy {
    fn number(self) -> u64;
    /// `None` when the field cannot have this value.
    fn from_number(number: u64) -> Option<Self>;
}

/// What a row does with each of its fields: the encoder reads them, the decoder sets them.
pub(super) trait Codec {
    /// The value itself.
    fn raw<F: Field>(&mut self, column: usize, field: &mut F);
    /// The difference to the same field of the previous row; at first to 0.
    fn step<F: Field>(&mut self, column: usize, field: &mut F);
    /// The difference to another field of the same row.
    fn relative<F: Field>(&mut self, column: usize, to: F, field: &mut F);
    /// Two times, in columns `columns` and `columns + 1`. The start is a gap to the previous end on the same lane
    /// (a stream or thread); the length is a difference to the last length of the same `like`, if there is one.
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp);
}

/// What is expected of the next row. Identical in encoder and decoder.
struct Predictor {
    previous: [u64; MAX_COLUMNS],
    lane_ends: FxHashMap<u32, u64>,
    lengths: FxHashMap<u32, u64>,
    /// The end that was seen last on any lane: the guess for a new lane. At first the `t_min` of the block.
    last_end: u64,
}

impl Predictor {
    fn new(base: u64) -> Self {
        Self {
            previous: [0; MAX_COLUMNS],
            lane_ends: FxHashMap::default(),
            lengths: FxHashMap::default(),
            last_end: base,
        }
    }

    /// Restores the state of [`Predictor::new`] and keeps the memory.
    fn reset(&mut self, base: u64) {
        self.previous = [0; MAX_COLUMNS];
        self.lane_ends.clear();
        self.lengths.clear();
        self.last_end = base;
    }
}

/// Appends rows to columns.
pub(super) struct Encoder {
    predictor: Predictor,
    columns: [Column; MAX_COLUMNS],
}

#[derive(Default)]
struct Column {
    bytes: Vec<u8>,
    first: u64,
    varies: bool,
}

impl Column {
    #[inline]
    fn push(&mut self, value: u64) {
        if self.bytes.is_empty() {
            self.first = value;
        }
        self.varies |= value != self.first;
        varint::put(&mut self.bytes, value);
    }
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { predictor: Predictor::new(0), columns: Default::default() }
    }

    /// Forgets all rows; the first lane is expected to start at `base`.
    pub(super) fn reset(&mut self, base: u64) {
        self.predictor.reset(base);
        for column in &mut self.columns {
            column.bytes.clear();
            column.varies = false;
        }
    }

    /// Appends the directory of the columns and then their bytes. A column that is 0 in every row is left out.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let mut present = 0;
        for column in &mut self.columns {
            if !column.varies {
                column.bytes.clear();
                if column.first != 0 {
                    varint::put(&mut column.bytes, column.first);
                }
                column.first = 0;
            }
            present += u8::from(!column.bytes.is_empty());
        }
        out.push(present);
        let filled = || self.columns.iter().enumerate().filter(|(_, column)| !column.bytes.is_empty());
        for (id, column) in filled() {
            let encoding = if column.varies { encoding::VARINT } else { encoding::CONSTANT };
            out.extend_from_slice(&[id as u8, encoding]);
            varint::put(out, column.bytes.len() as u64);
        }
        for (_, column) in filled() {
            out.extend_from_slice(&column.bytes);
        }
    }
}

impl Codec for Encoder {
    #[inline]
    fn raw<F: Field>(&mut self, column: usize, field: &mut F) {
        self.columns[column].push(field.number());
    }

    #[inline]
    fn step<F: Field>(&mut self, column: usize, field: &mut F) {
        let value = field.number();
        let previous = std::mem::replace(&mut self.predictor.previous[column], value);
        self.columns[column].push(zigzag(value.wrapping_sub(previous)));
    }

    #[inline]
    fn relative<F: Field>(&mut self, column: usize, to: F, field: &mut F) {
        self.columns[column].push(zigzag(field.number().wrapping_sub(to.number())));
    }

    #[inline]
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp) {
        let predictor = &mut self.predictor;
        let expected = predictor.lane_ends.entry(lane).or_insert(predictor.last_end);
        self.columns[columns].push(zigzag(start.nanos().wrapping_sub(*expected)));
        *expected = end.nanos();
        predictor.last_end = end.nanos();
        let length = end.nanos().wrapping_sub(start.nanos());
        let coded = match like {
            None => length,
            Some(like) => {
                let last = predictor.lengths.entry(like).or_insert(0);
                zigzag(length.wrapping_sub(std::mem::replace(last, length)))
            }
        };
        self.columns[columns + 1].push(coded);
    }
}

/// Takes rows from columns. Trouble is remembered rather than returned, so that a row reads like a list of fields;
/// [`Decoder::finish`] reports it.
pub(super) struct Decoder<'a> {
    predictor: Predictor,
    columns: [Input<'a>; MAX_COLUMNS],
    malformed: bool,
}

#[derive(Clone, Copy)]
enum Input<'a> {
    Constant(u64),
    Varint(Cursor<'a>),
}

/// The columns of one group of rows as its directory lists them.
pub(super) struct Directory<'a> {
    columns: [Input<'a>; MAX_COLUMNS],
    /// Columns in an encoding that this version does not know, one bit each.
    unreadable: u16,
}

impl<'a> Directory<'a> {
    /// Reads what [`Encoder::finish`] wrote. Columns with unknown ids are stepped over.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let mut entries = Vec::new();
        for _ in 0..cursor.byte()? {
            entries.push((cursor.byte()?, cursor.byte()?, cursor.varint()?));
        }
        let mut directory = Self { columns: [Input::Constant(0); MAX_COLUMNS], unreadable: 0 };
        for (id, encoding, length) in entries {
            let bytes = cursor.take(length)?;
            let Some(column) = directory.columns.get_mut(usize::from(id)) else { continue };
            match encoding {
                encoding::VARINT => *column = Input::Varint(Cursor::new(bytes)),
                encoding::CONSTANT => *column = Input::Constant(Cursor::new(bytes).varint()?),
                _ => directory.unreadable |= 1 << id,
            }
        }
        Ok(directory)
    }

    /// Whether the first `known` columns are in encodings that this version knows.
    pub(super) const fn is_readable(&self, known: usize) -> bool {
        self.unreadable.trailing_zeros() as usize >= known
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(directory: Directory<'a>, base: u64) -> Self {
        Self { predictor: Predictor::new(base), columns: directory.columns, malformed: false }
    }

    /// Whether every value made sense so far. Checked row by row, so that columns which end early cost no time.
    pub(super) const fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Whether everything made sense. Columns in `known` must be used up; others belong to newer versions.
    pub(super) fn finish(self, known: usize) -> Result<(), Malformed> {
        let left = |input: &Input<'_>| matches!(input, Input::Varint(cursor) if !cursor.is_empty());
        if self.malformed || self.columns.iter().take(known).any(left) { Err(Malformed) } else { Ok(()) }
    }

    #[inline]
    fn next(&mut self, column: usize) -> u64 {
        match &mut self.columns[column] {
            Input::Constant(value) => *value,
            Input::Varint(cursor) => cursor.varint().unwrap_or_else(|Malformed| {
                self.malformed = true;
                0
            }),
        }
    }

    #[inline]
    fn set<F: Field>(&mut self, field: &mut F, number: u64) {
        match F::from_number(number) {
            Some(value) => *field = value,
            None => self.malformed = true,
        }
    }
}

impl Codec for Decoder<'_> {
    #[inline]
    fn raw<F: Field>(&mut self, column: usize, field: &mut F) {
        let number = self.next(column);
        self.set(field, number);
    }

    #[inline]
    fn step<F: Field>(&mut self, column: usize, field: &mut F) {
        let number = self.predictor.previous[column].wrapping_add(unzigzag(self.next(column)));
        self.predictor.previous[column] = number;
        self.set(field, number);
    }

    #[inline]
    fn relative<F: Field>(&mut self, column: usize, to: F, field: &mut F) {
        let number = to.number().wrapping_add(unzigzag(self.next(column)));
        self.set(field, number);
    }

    #[inline]
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp) {
        let gap = unzigzag(self.next(columns));
        let coded = self.next(columns + 1);
        let predictor = &mut self.predictor;
        let expected = predictor.lane_ends.entry(lane).or_insert(predictor.last_end);
        let begin = expected.wrapping_add(gap);
        let length = match like {
            None => coded,
            Some(like) => {
                let last = predictor.lengths.entry(like).or_insert(0);
                *last = last.wrapping_add(unzigzag(coded));
                *last
            }
        };
        *expected = begin.wrapping_add(length);
        predictor.last_end = *expected;
        *start = Timestamp::from_nanos(begin);
        *end = Timestamp::from_nanos(*expected);
    }
}
