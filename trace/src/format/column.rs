//! Predictors and columns: encoding one field of many rows in few bytes.
//!
//! Each field of a row is replaced by its difference to a predicted value and appended to its column as a
//! varint. Writer and reader run the *same* description of a row (see `row`) against an [`Encoder`] or a
//! [`Decoder`], so they cannot disagree about order or predictor. All arithmetic wraps at 2^64, so every
//! value is restored exactly, even an end before its start.
//!
//! Predictors restart in each block. No block depends on another one, so a lost block affects only its own
//! rows.

use std::io;

use rustc_hash::FxHashMap;

use super::pack::Packer;
use super::split::{OpenBits, SplitCursor};
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use crate::record::Timestamp;

/// Maximum number of columns of a kind of row. Column ids are below it.
pub(super) const MAX_COLUMNS: usize = 16;

/// Encoding of a column's bytes.
pub(super) mod encoding {
    pub(in crate::format) const VARINT: u8 = 0;
    /// One varint, the value of every row.
    pub(in crate::format) const CONSTANT: u8 = 1;
    /// A class byte for each row, then the remaining bits of all rows.
    pub(in crate::format) const SPLIT: u8 = 2;
}

/// A field that a column can hold.
pub(super) trait Field: Copy {
    fn number(self) -> u64;
    /// Returns `None` if the field cannot have this value.
    fn from_number(number: u64) -> Option<Self>;
}

/// Operations on the fields of a row: the encoder reads them, the decoder sets them.
pub(super) trait Codec {
    /// The value itself.
    fn raw<F: Field>(&mut self, column: usize, field: &mut F);
    /// The difference to the same field of the previous row, initially 0.
    fn step<F: Field>(&mut self, column: usize, field: &mut F);
    /// The difference to another field of the same row.
    fn relative<F: Field>(&mut self, column: usize, to: F, field: &mut F);
    /// Two times, in columns `columns` and `columns + 1`. The start is encoded as the gap since the previous
    /// end on the same lane (a stream or thread); the length as the difference to the previous length with the
    /// same key `like` (for example the launch configuration), if given. Without `like`, lengths are treated as noise
    /// and written as [`encoding::SPLIT`].
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp);
}

/// Prediction of the next row. Identical in encoder and decoder.
struct Predictor {
    previous: [u64; MAX_COLUMNS],
    /// Ends of all lanes except the last one.
    lane_ends: FxHashMap<u32, u64>,
    lengths: Lengths,
    /// Lane of the last row, which is usually also that of the next one.
    last_lane: Option<u32>,
    /// Most recent end on any lane, used as the prediction for a new lane. Initially the `t_min` of the
    /// block.
    last_end: u64,
}

impl Predictor {
    fn new(base: u64) -> Self {
        Self {
            previous: [0; MAX_COLUMNS],
            lane_ends: FxHashMap::default(),
            lengths: Lengths::default(),
            last_lane: None,
            last_end: base,
        }
    }

    /// Predicted start of the next row of a lane. Must be followed by a call of [`ended`](Self::ended).
    #[inline]
    fn expected(&mut self, lane: u32) -> u64 {
        if self.last_lane == Some(lane) {
            return self.last_end;
        }
        if let Some(left) = self.last_lane.replace(lane) {
            self.lane_ends.insert(left, self.last_end);
        }
        self.lane_ends.get(&lane).copied().unwrap_or(self.last_end)
    }

    /// Records the end of the row that [`expected`](Self::expected) predicted.
    #[inline]
    fn ended(&mut self, end: u64) {
        self.last_end = end;
    }

    /// Restores the state of [`Predictor::new`] but keeps the memory.
    fn reset(&mut self, base: u64) {
        self.previous = [0; MAX_COLUMNS];
        self.lane_ends.clear();
        self.lengths.clear();
        (self.last_lane, self.last_end) = (None, base);
    }
}

/// Launch configurations with numbers below this are looked up without hashing. The traces in `fixtures` have
/// up to 200 each.
const DIRECT: usize = 4096;

/// Previous length for each key `like`, initially 0.
#[derive(Default)]
struct Lengths {
    /// Lengths below [`DIRECT`], up to the largest number seen.
    direct: Vec<u64>,
    further: FxHashMap<u32, u64>,
}

impl Lengths {
    #[inline]
    fn last(&mut self, like: u32) -> &mut u64 {
        let index = like as usize;
        if index < self.direct.len() { &mut self.direct[index] } else { self.find_or_add(like) }
    }

    #[inline(never)]
    fn find_or_add(&mut self, like: u32) -> &mut u64 {
        let index = like as usize;
        if index >= DIRECT {
            return self.further.entry(like).or_insert(0);
        }
        self.direct.resize(index + 1, 0);
        &mut self.direct[index]
    }

    fn clear(&mut self) {
        self.direct.clear();
        self.further.clear();
    }
}

/// Appends rows to columns.
pub(super) struct Encoder {
    predictor: Predictor,
    columns: [ColumnWriter; MAX_COLUMNS],
    /// Compressor used to find the smaller form of each column.
    trial: Option<Packer>,
}

/// Encoding of a column whose rows differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Varints,
    Split,
}

/// Number of values that a column collects before encoding them in one loop. The pending values fit in the L1
/// cache: 32 KiB for all columns.
const BATCH: usize = 256;

/// A column under construction, in its chosen form, or in both forms if the smaller one is to be found.
///
/// Half of the columns of a kernel are constant within a block, so encoding starts at the first row that
/// differs.
#[derive(Default)]
struct ColumnWriter {
    /// Values that are not encoded yet, at most [`BATCH`].
    waiting: Vec<u64>,
    form: Form,
    varints: Vec<u8>,
    classes: Vec<u8>,
    open: OpenBits,
    first: u64,
    /// Number of rows equal to `first` while the column is constant.
    alike: usize,
    varies: bool,
}

impl ColumnWriter {
    #[inline]
    fn push(&mut self, value: u64, form: Form, both: bool) {
        self.form = form;
        self.waiting.push(value);
        if self.waiting.len() == BATCH {
            self.write_waiting(both);
        }
    }

    #[inline(never)]
    fn write_waiting(&mut self, both: bool) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if !self.varies {
            if self.alike == 0 {
                self.first = waiting.first().copied().unwrap_or(0);
            }
            if waiting.iter().all(|&value| value == self.first) {
                self.alike += waiting.len();
            } else {
                self.varies = true;
                self.append(&vec![self.first; self.alike], both);
            }
        }
        if self.varies {
            self.append(&waiting, both);
        }
        waiting.clear();
        self.waiting = waiting;
    }

    fn append(&mut self, values: &[u64], both: bool) {
        if self.form == Form::Varints || both {
            varint::put_all(&mut self.varints, values);
        }
        if self.form == Form::Split || both {
            self.classes.extend(values.iter().map(|&value| self.open.push(value)));
        }
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.varints.clear();
        self.classes.clear();
        self.open.clear();
        (self.alike, self.varies) = (0, false);
    }

    /// Completes the column and keeps one form. Returns its encoding; `None` if all rows are 0.
    fn settle(&mut self, trial: Option<&mut Packer>) -> io::Result<Option<u8>> {
        self.write_waiting(trial.is_some());
        if !self.varies {
            let first = if self.alike > 0 { self.first } else { 0 };
            self.clear();
            if first == 0 {
                return Ok(None);
            }
            varint::put(&mut self.varints, first);
            return Ok(Some(encoding::CONSTANT));
        }
        let open = self.open.finish().len();
        if let Some(packer) = trial {
            let varints = packer.packed_len(&self.varints)?;
            if packer.packed_len(&self.classes)? + open < varints {
                self.varints.clear();
            } else {
                self.classes.clear();
                self.open.clear();
            }
        }
        Ok(Some(if self.classes.is_empty() { encoding::VARINT } else { encoding::SPLIT }))
    }
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { predictor: Predictor::new(0), columns: Default::default(), trial: None }
    }

    /// Creates an encoder that compresses both forms of each column with `packer` and keeps the smaller one.
    /// It is several times as slow.
    pub(super) fn thorough(packer: Packer) -> Self {
        Self { trial: Some(packer), ..Self::new() }
    }

    /// Removes all rows; the predicted start of the first lane becomes `base`.
    pub(super) fn reset(&mut self, base: u64) {
        self.predictor.reset(base);
        self.columns.iter_mut().for_each(ColumnWriter::clear);
    }

    /// Appends the column directory and then the column bytes. A column that is 0 in every row is omitted.
    /// `ends` receives the positions in `out` at which differently distributed bytes meet.
    ///
    /// # Errors
    /// If zstd runs out of memory.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>, ends: &mut Vec<usize>) -> io::Result<()> {
        let count = out.len();
        out.push(0);
        for (id, column) in self.columns.iter_mut().enumerate() {
            if let Some(encoding) = column.settle(self.trial.as_mut())? {
                out[count] += 1;
                out.extend_from_slice(&[id as u8, encoding]);
                let bytes = column.varints.len() + column.classes.len() + column.open.finish().len();
                varint::put(out, bytes as u64);
            }
        }
        for column in &mut self.columns {
            for part in [&column.varints[..], &column.classes, column.open.finish()] {
                if !part.is_empty() {
                    out.extend_from_slice(part);
                    ends.push(out.len());
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, column: usize, value: u64, form: Form) {
        self.columns[column].push(value, form, self.trial.is_some());
    }
}

impl Codec for Encoder {
    #[inline]
    fn raw<F: Field>(&mut self, column: usize, field: &mut F) {
        self.push(column, field.number(), Form::Varints);
    }

    #[inline]
    fn step<F: Field>(&mut self, column: usize, field: &mut F) {
        let value = field.number();
        let previous = std::mem::replace(&mut self.predictor.previous[column], value);
        self.push(column, zigzag(value.wrapping_sub(previous)), Form::Varints);
    }

    #[inline]
    fn relative<F: Field>(&mut self, column: usize, to: F, field: &mut F) {
        self.push(column, zigzag(field.number().wrapping_sub(to.number())), Form::Varints);
    }

    #[inline]
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp) {
        let predictor = &mut self.predictor;
        let gap = zigzag(start.nanos().wrapping_sub(predictor.expected(lane)));
        predictor.ended(end.nanos());
        let length = end.nanos().wrapping_sub(start.nanos());
        let (coded, form) = match like {
            None => (length, Form::Split),
            Some(like) => {
                let last = predictor.lengths.last(like);
                (zigzag(length.wrapping_sub(std::mem::replace(last, length))), Form::Varints)
            }
        };
        self.push(columns, gap, form);
        self.push(columns + 1, coded, form);
    }
}

/// Reads rows from columns. Errors are stored rather than returned, so that a row reads like a list of
/// fields; [`Decoder::finish`] reports them.
pub(super) struct Decoder<'a> {
    predictor: Predictor,
    columns: [Input<'a>; MAX_COLUMNS],
    malformed: bool,
}

#[derive(Clone, Copy)]
enum Input<'a> {
    Constant(u64),
    Varint(Cursor<'a>),
    Split(SplitCursor<'a>),
}

/// Columns of one group of rows, as listed in its directory.
pub(super) struct Directory<'a> {
    columns: [Input<'a>; MAX_COLUMNS],
    /// Columns in an encoding unknown to this version, one bit each.
    unreadable: u16,
}

impl<'a> Directory<'a> {
    /// Reads the output of [`Encoder::finish`] for `rows` rows. Columns with unknown ids are skipped.
    pub(super) fn read(cursor: &mut Cursor<'a>, rows: u64) -> Result<Self, Malformed> {
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
                encoding::SPLIT => *column = Input::Split(SplitCursor::new(bytes, rows)?),
                _ => directory.unreadable |= 1 << id,
            }
        }
        Ok(directory)
    }

    /// True if the encodings of the first `known` columns are known to this version.
    pub(super) const fn is_readable(&self, known: usize) -> bool {
        self.unreadable.trailing_zeros() as usize >= known
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(directory: Directory<'a>, base: u64) -> Self {
        Self { predictor: Predictor::new(base), columns: directory.columns, malformed: false }
    }

    /// True if an invalid value was read. Checked after every row, so that a column that is too short costs
    /// no time.
    pub(super) const fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Checks that all values were valid and the columns in `known` were used up. Other columns belong to
    /// newer versions.
    pub(super) fn finish(self, known: usize) -> Result<(), Malformed> {
        let left = |input: &Input<'_>| match input {
            Input::Constant(_) => false,
            Input::Varint(cursor) => !cursor.is_empty(),
            Input::Split(cursor) => !cursor.is_used_up(),
        };
        if self.malformed || self.columns.iter().take(known).any(left) { Err(Malformed) } else { Ok(()) }
    }

    #[inline]
    fn next(&mut self, column: usize) -> u64 {
        let number = match &mut self.columns[column] {
            Input::Constant(value) => return *value,
            Input::Varint(cursor) => cursor.varint(),
            Input::Split(cursor) => cursor.next(),
        };
        number.unwrap_or_else(|Malformed| {
            self.malformed = true;
            0
        })
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
        let begin = predictor.expected(lane).wrapping_add(gap);
        let length = match like {
            None => coded,
            Some(like) => {
                let last = predictor.lengths.last(like);
                *last = last.wrapping_add(unzigzag(coded));
                *last
            }
        };
        let ended = begin.wrapping_add(length);
        predictor.ended(ended);
        *start = Timestamp::from_nanos(begin);
        *end = Timestamp::from_nanos(ended);
    }
}
