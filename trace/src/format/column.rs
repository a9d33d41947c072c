//! Predictors and columns: how one field of many rows becomes few bytes.
//!
//! Each field of a row is replaced by its difference to what a predictor expects and appended to that field's own
//! column as a varint. Writer and reader run the *same* description of a row (see `row`) against an [`Encoder`] or a
//! [`Decoder`], so they cannot disagree about order or predictor. All arithmetic wraps at 2^64: every value comes
//! back, also an end before its start.
//!
//! Predictors start anew in each block. None depends on another block, so a lost one takes nothing else with it.

use std::io;

use rustc_hash::FxHashMap;

use super::pack::Packer;
use super::split::{OpenBits, SplitCursor};
use super::varint::{self, Cursor, Malformed, unzigzag, zigzag};
use crate::record::Timestamp;

/// Columns that a kind of row can have. Column ids are below it.
pub(super) const MAX_COLUMNS: usize = 16;

/// How the bytes of a column are to be read.
pub(super) mod encoding {
    pub(in crate::format) const VARINT: u8 = 0;
    /// One varint that holds for every row.
    pub(in crate::format) const CONSTANT: u8 = 1;
    /// A class byte for each row, then the bits that the classes leave open.
    pub(in crate::format) const SPLIT: u8 = 2;
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
    /// (a stream or thread); the length is a difference to the last length of the same `like`, if there is one. Without
    /// one they are taken for noise, which is written as [`encoding::SPLIT`].
    fn span(&mut self, columns: usize, lane: u32, like: Option<u32>, start: &mut Timestamp, end: &mut Timestamp);
}

/// What is expected of the next row. Identical in encoder and decoder.
struct Predictor {
    previous: [u64; MAX_COLUMNS],
    /// Ends of the lanes but the last one.
    lane_ends: FxHashMap<u32, u64>,
    lengths: Lengths,
    /// The lane of the last row, which is that of the next one, as a rule.
    last_lane: Option<u32>,
    /// The end that was seen last on any lane: the guess for a new lane. At first the `t_min` of the block.
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

    /// When the next row of a lane is expected to start. To be followed by [`ended`](Self::ended).
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

    /// The row of that lane has ended.
    #[inline]
    fn ended(&mut self, end: u64) {
        self.last_end = end;
    }

    /// Restores the state of [`Predictor::new`] and keeps the memory.
    fn reset(&mut self, base: u64) {
        self.previous = [0; MAX_COLUMNS];
        self.lane_ends.clear();
        self.lengths.clear();
        (self.last_lane, self.last_end) = (None, base);
    }
}

/// Launch configurations with numbers below this are looked up without a hash. The sessions in `fixtures` have up to
/// 200 each.
const DIRECT: usize = 4096;

/// The last length of each `like`, 0 at first.
#[derive(Default)]
struct Lengths {
    /// Of those below [`DIRECT`], as far as they have come.
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
    columns: [Column; MAX_COLUMNS],
    /// Finds the smaller form of each column.
    trial: Option<Packer>,
}

/// How a column is written when its rows differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Varints,
    Split,
}

/// Values that a column takes before it makes bytes of them in one loop. What waits stays in the nearest cache: 32 KiB
/// for all columns.
const BATCH: usize = 256;

/// One column while rows are added, in the form that it will have; in both while the smaller is to be found.
///
/// Half of the columns of a kernel never vary within a block, so bytes are only made from the first row that does.
#[derive(Default)]
struct Column {
    /// Not written yet, at most [`BATCH`].
    waiting: Vec<u64>,
    form: Form,
    varints: Vec<u8>,
    classes: Vec<u8>,
    open: OpenBits,
    first: u64,
    /// Rows that have `first`, as long as nothing varies.
    alike: usize,
    varies: bool,
}

impl Column {
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

    /// Ends the column and leaves one form of it. Answers its encoding; `None` when it is 0 in every row.
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

    /// One that tries each column in both forms under `packer` and takes the smaller: several times as slow.
    pub(super) fn thorough(packer: Packer) -> Self {
        Self { trial: Some(packer), ..Self::new() }
    }

    /// Forgets all rows; the first lane is expected to start at `base`.
    pub(super) fn reset(&mut self, base: u64) {
        self.predictor.reset(base);
        self.columns.iter_mut().for_each(Column::clear);
    }

    /// Appends the directory of the columns and then their bytes. A column that is 0 in every row is left out. `ends`
    /// are where unlike bytes meet in `out`.
    ///
    /// # Errors
    /// When zstd has no memory.
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
    Split(SplitCursor<'a>),
}

/// The columns of one group of rows as its directory lists them.
pub(super) struct Directory<'a> {
    columns: [Input<'a>; MAX_COLUMNS],
    /// Columns in an encoding that this version does not know, one bit each.
    unreadable: u16,
}

impl<'a> Directory<'a> {
    /// Reads what [`Encoder::finish`] wrote of `rows` rows. Columns with unknown ids are stepped over.
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
