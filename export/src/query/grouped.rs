//! Rows of a scan in the order of some of their columns, for `GROUP BY`.
//!
//! SQLite would sort all rows. Here a row is appended to the bytes of its group, as differences to the previous row
//! of this group: two or three bytes for a duration. Beyond a limit, the bytes move to a temporary file.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use gpuwhy_import::scratch;
use rustc_hash::FxHashMap;

use super::source::{Scan, Texts, Value};
use crate::error::ExportError;

/// Maximum bytes of all groups in memory.
const MEMORY: usize = 16 << 20;

/// A column by which rows are ordered: its index in the row, and true for the largest value first.
pub type Key = (usize, bool);

/// Ordered rows; see the [module](self).
pub struct Grouped {
    scan: Scan,
    /// Groups that are not read to their end, in reverse order.
    groups: Vec<Group>,
    file: Option<File>,
    /// Columns that differ within a group, each with a value of its type.
    columns: Vec<(usize, Value)>,
    /// Bytes of rows, of which those before `at` were read, and the columns of the newest of these rows.
    bytes: Vec<u8>,
    at: usize,
    newest: Vec<u64>,
    row: Vec<Value>,
}

/// Rows with equal keys.
struct Group {
    keys: Vec<Value>,
    /// Columns of the newest row.
    newest: Vec<u64>,
    /// Parts in the file: offset and length.
    parts: VecDeque<(u64, usize)>,
    bytes: Vec<u8>,
    /// Rows that were not read.
    rows: u64,
}

impl Grouped {
    /// Reads all rows of `scan`.
    pub fn new(scan: Scan, keys: &[Key]) -> Result<Self, ExportError> {
        Self::within(scan, keys, MEMORY)
    }

    fn within(mut scan: Scan, keys: &[Key], memory: usize) -> Result<Self, ExportError> {
        let is_key = |place: usize| keys.iter().any(|&(key, _)| key == place);
        let mut columns: Vec<_> =
            (0..scan.width()).filter(|&place| !is_key(place)).map(|place| (place, Value::Empty)).collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut numbers: FxHashMap<Vec<u64>, usize> = FxHashMap::default();
        let mut file: Option<File> = None;
        let (mut key, mut size, mut written) = (Vec::new(), 0, 0);
        while scan.next()? {
            let row = scan.row();
            key.clear();
            key.extend(keys.iter().flat_map(|&(place, _)| [u64::from(row[place] != Value::Empty), bits(row[place])]));
            let number = numbers.get(&key).copied().unwrap_or_else(|| {
                numbers.insert(key.clone(), groups.len());
                groups.push(Group {
                    keys: keys.iter().map(|&(place, _)| row[place]).collect(),
                    newest: vec![0; columns.len()],
                    parts: VecDeque::new(),
                    bytes: Vec::new(),
                    rows: 0,
                });
                groups.len() - 1
            });
            size += groups[number].push(row, &mut columns);
            if size > memory {
                let file = match &mut file {
                    Some(file) => file,
                    none => none.insert(scratch::create()?),
                };
                for group in groups.iter_mut().filter(|group| !group.bytes.is_empty()) {
                    let bytes = std::mem::take(&mut group.bytes);
                    file.write_all(&bytes).map_err(scratch::failed)?;
                    group.parts.push_back((written, bytes.len()));
                    written += bytes.len() as u64;
                }
                size = 0;
            }
        }
        groups.sort_by(|a, b| {
            let of_keys = keys.iter().zip(a.keys.iter().zip(&b.keys)).map(|(&(_, falls), (&a, &b))| {
                let order = compared(a, b, scan.texts());
                if falls { order.reverse() } else { order }
            });
            of_keys.fold(Ordering::Equal, Ordering::then).reverse()
        });
        let row = vec![Value::Empty; scan.width()];
        let mut grouped = Self { scan, groups, file, columns, bytes: Vec::new(), at: 0, newest: Vec::new(), row };
        grouped.begin(keys);
        Ok(grouped)
    }

    pub fn texts(&self) -> &Texts {
        self.scan.texts()
    }

    pub fn row(&self) -> &[Value] {
        &self.row
    }

    /// Begins with the last group.
    fn begin(&mut self, keys: &[Key]) {
        let Some(group) = self.groups.last() else { return };
        keys.iter().zip(&group.keys).for_each(|(&(place, _), &value)| self.row[place] = value);
        self.newest = vec![0; self.columns.len()];
    }

    /// Goes to the next row; false at the end. `keys` are those of the call that made this.
    pub fn next(&mut self, keys: &[Key]) -> Result<bool, ExportError> {
        while self.groups.last().is_some_and(|group| group.rows == 0) {
            self.groups.pop();
            self.begin(keys);
        }
        let Some(group) = self.groups.last_mut() else { return Ok(false) };
        group.rows -= 1;
        if self.at == self.bytes.len() {
            (self.at, self.bytes) = (0, std::mem::take(&mut group.bytes));
            if let (Some((offset, length)), Some(file)) = (group.parts.pop_front(), &self.file) {
                group.bytes = std::mem::replace(&mut self.bytes, vec![0; length]);
                file.read_exact_at(&mut self.bytes, offset).map_err(scratch::failed)?;
            }
        }
        for (newest, &(place, like)) in self.newest.iter_mut().zip(&self.columns) {
            self.row[place] = match read(&self.bytes, &mut self.at) {
                None => Value::Empty,
                Some(step) => {
                    *newest = newest.wrapping_add(step);
                    match like {
                        Value::Real(_) => Value::Real(f64::from_bits(*newest)),
                        Value::Text(_) => Value::Text(*newest as u32),
                        Value::Integer(_) | Value::Empty => Value::Integer(newest.cast_signed()),
                    }
                }
            };
        }
        Ok(true)
    }
}

impl Group {
    /// Appends a row. Returns the number of its bytes.
    fn push(&mut self, row: &[Value], columns: &mut [(usize, Value)]) -> usize {
        let before = self.bytes.len();
        for (newest, (place, like)) in self.newest.iter_mut().zip(columns) {
            let value = row[*place];
            if value == Value::Empty {
                self.bytes.push(0);
                continue;
            }
            *like = value;
            put(bits(value).wrapping_sub(*newest), &mut self.bytes);
            *newest = bits(value);
        }
        self.rows += 1;
        self.bytes.len() - before
    }
}

/// A value as a number, whatever its type.
fn bits(value: Value) -> u64 {
    match value {
        Value::Empty => 0,
        Value::Integer(number) => number.cast_unsigned(),
        Value::Real(number) => number.to_bits(),
        Value::Text(number) => number.into(),
    }
}

/// Compares as SQLite does. Values of a column have one type, or are empty.
fn compared(a: Value, b: Value, texts: &Texts) -> Ordering {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(&b),
        (Value::Real(a), Value::Real(b)) => a.total_cmp(&b),
        (Value::Text(a), Value::Text(b)) => texts.get(a).cmp(texts.get(b)),
        _ => (a != Value::Empty).cmp(&(b != Value::Empty)),
    }
}

/// Appends a difference, seven bits in a byte, the lowest first: small ones of either sign are short. The first number,
/// 0, is an empty value.
fn put(step: u64, bytes: &mut Vec<u8>) {
    let mut rest = u128::from(step << 1 ^ (step.cast_signed() >> 63).cast_unsigned()) + 1;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Reads a difference; `None` is an empty value.
fn read(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (mut number, mut shift) = (0u128, 0);
    loop {
        let byte = bytes.get(*at).copied().unwrap_or(0);
        *at += 1;
        number |= u128::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 70 {
            break;
        }
    }
    let folded = number.checked_sub(1)? as u64;
    Some(folded >> 1 ^ (folded & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpuwhy_import::TraceFile;

    use super::super::source::Source;
    use super::*;
    use crate::tables::{Label, Table};

    #[test]
    fn numbers_of_either_sign_and_empty_ones_come_back() {
        let (mut bytes, mut at) = (Vec::new(), 0);
        let steps = [0, 1, u64::MAX, 63, 64, i64::MAX as u64, i64::MIN as u64];
        for step in steps {
            put(step, &mut bytes);
            bytes.push(0);
        }
        for step in steps {
            assert_eq!((read(&bytes, &mut at), read(&bytes, &mut at)), (Some(step), None));
        }
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn rows_come_back_by_group_from_memory_and_from_a_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/traces/checkpoint.gpuwhy");
        let source = Source::new(vec![(TraceFile::open(path).unwrap(), Label::default())]);
        // run, start_ns, duration_ns, name, function
        let (wanted, keys) = (0b11_0001_0101, [(3, true)]);
        let scan = || Scan::new(&source, Table::Api, wanted);
        let (mut as_read, mut sorted) = (scan(), Vec::new());
        while as_read.next().unwrap() {
            sorted.push(as_read.row().to_vec());
        }
        sorted.sort_by(|a, b| compared(b[3], a[3], as_read.texts()));
        assert!(sorted.len() > 100 && sorted.iter().any(|row| row[3] != sorted[0][3]));
        for memory in [MEMORY, 1000, 0] {
            let mut grouped = Grouped::within(scan(), &keys, memory).unwrap();
            assert_eq!(grouped.file.is_some(), memory < MEMORY);
            let mut rows = Vec::new();
            while grouped.next(&keys).unwrap() {
                rows.push(grouped.row().to_vec());
            }
            assert_eq!(rows, sorted, "{memory}");
        }
    }
}
