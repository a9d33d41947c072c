//! Pickles of plain data, as PyTorch's flight recorder writes them. No code is executed: instructions that
//! would create an object are rejected.
//!
//! The format is that of Python's `pickletools`, protocols 2 to 4. Lists, tuples, dictionaries, texts and
//! numbers are read; containers that are used twice are rejected, because they could expand to any size.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum nesting depth of containers.
const DEPTH: u16 = 32;
/// Maximum number of values in a dump: by default, the recorder keeps 2,000 operations of a hundred values.
const VALUES: usize = 20_000_000;
/// Bytes of text that may be copied: a fixed number, plus a number per byte of the file. Referring to an
/// earlier text takes two bytes or more, and names of files and functions have some dozens.
const COPIES: usize = 32 << 20;
const COPIES_A_BYTE: usize = 64;

/// A value on the stack, and its nesting depth.
type Item = (Value, u16);

struct PickleReader<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    values: usize,
    /// Bytes of text that may still be copied.
    copies: usize,
}

/// Reads a pickle. The error names the byte offset.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    let copies = COPIES.saturating_add(bytes.len().saturating_mul(COPIES_A_BYTE));
    let mut reader =
        PickleReader { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), values: 0, copies };
    loop {
        let at = reader.at;
        match reader.step() {
            Ok(true) => {}
            Ok(false) => return reader.stack.pop().map(|(value, _)| value).ok_or("it holds nothing".to_owned()),
            Err(why) => return Err(format!("byte {at}: {why}")),
        }
    }
}

impl PickleReader<'_> {
    /// Executes one instruction; `false` at the end.
    fn step(&mut self) -> Result<bool, String> {
        match self.number::<1>()? as u8 {
            0x80 => drop(self.number::<1>()?),
            0x95 => drop(self.number::<8>()?),
            b'.' => return Ok(false),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Value::Null)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => self.small::<1>()?,
            b'M' => self.small::<2>()?,
            b'J' => {
                let number = self.number::<4>()? as u32;
                self.push(Value::from(number.cast_signed()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                let bits = self.number::<8>()?.swap_bytes();
                self.push(Value::from(f64::from_bits(bits)))?;
            }
            b'X' | b'T' => self.text::<4>()?,
            0x8c | b'U' => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            b']' => self.push(Value::Array(Vec::new()))?,
            b')' => self.push(Value::Array(Vec::new()))?,
            b'}' => self.push(Value::Object(Map::new()))?,
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.container(items)?;
            }
            number @ (0x85..=0x87) => {
                let first = self.stack.len().checked_sub(usize::from(number - 0x84)).ok_or("too few values")?;
                let items = self.stack.split_off(first);
                self.container(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(items)?;
            }
            b'q' => self.put::<1>()?,
            b'r' => self.put::<4>()?,
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => self.get::<1>()?,
            b'j' => self.get::<4>()?,
            b'0' => drop(self.pop()?),
            b'c' | b'R' | b'b' | b'o' | b'i' | 0x81 | 0x92 | 0x93 | b'P' | b'Q' => {
                return Err("it makes objects of Python, which is refused: expected plain data".to_owned());
            }
            other => return Err(format!("operation {other:#04x} is not known")),
        }
        Ok(true)
    }

    /// Reads an unsigned little-endian number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Result<u64, String> {
        let bytes = self.take(N)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let begin = std::mem::replace(&mut self.at, end.ok_or("the file ends in between")?);
        Ok(&self.bytes[begin..begin + count])
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        self.values += 1;
        if self.values > VALUES {
            return Err(format!("more than {VALUES} values"));
        }
        self.stack.push((value, 0));
        Ok(())
    }

    fn small<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()?;
        self.push(Value::from(number))
    }

    fn long(&mut self) -> Result<(), String> {
        let count = self.number::<1>()? as usize;
        let bytes = self.take(count)?;
        if count > 8 {
            return Err("a number has more than 64 bits".to_owned());
        }
        let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { u64::MAX } else { 0 };
        let mut number = if count == 8 { 0 } else { sign };
        for &byte in bytes.iter().rev() {
            number = number << 8 | u64::from(byte);
        }
        self.push(Value::from(number.cast_signed()))
    }

    fn text<const N: usize>(&mut self) -> Result<(), String> {
        let count = usize::try_from(self.number::<N>()?).map_err(|_| "a text is too long")?;
        let text = String::from_utf8_lossy(self.take(count)?).into_owned();
        self.push(Value::String(text))
    }

    fn pop(&mut self) -> Result<Item, String> {
        let base = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= base {
            Err("too few values".to_owned())
        } else {
            Ok(self.stack.pop().unwrap_or_default())
        }
    }

    fn since_mark(&mut self) -> Result<Vec<Item>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or("no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn container(&mut self, items: Vec<Item>) -> Result<(), String> {
        self.push(Value::Array(Vec::new()))?;
        self.append(items)
    }

    fn append(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some((Value::Array(list), depth)) = self.stack.last_mut() else { return Err("no list".to_owned()) };
        for (value, inner) in items {
            *depth = (*depth).max(inner + 1);
            list.push(value);
        }
        if *depth > DEPTH { Err("nested too deep".to_owned()) } else { Ok(()) }
    }

    fn set(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some((Value::Object(map), depth)) = self.stack.last_mut() else { return Err("no dictionary".to_owned()) };
        let mut items = items.into_iter();
        while let (Some((key, _)), Some((value, inner))) = (items.next(), items.next()) {
            *depth = (*depth).max(inner + 1);
            let key = match key {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => return Err("a key is neither text nor number".to_owned()),
            };
            map.insert(key, value);
        }
        if *depth > DEPTH { Err("nested too deep".to_owned()) } else { Ok(()) }
    }

    fn put<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()?;
        self.remember(number as u32)
    }

    /// Stores the top of the stack under a number; for a container, only its existence.
    fn remember(&mut self, number: u32) -> Result<(), String> {
        let top = self.stack.last().map(|(value, _)| value);
        let kept = match top {
            Some(Value::Array(_) | Value::Object(_)) | None => Value::Array(Vec::new()),
            Some(plain) => plain.clone(),
        };
        self.copied(&kept)?;
        self.memo.insert(number, kept);
        Ok(())
    }

    fn get<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()? as u32;
        match self.memo.get(&number) {
            None => Err(format!("value {number} is not there")),
            Some(Value::Array(_)) => Err("a container is used twice, which is refused".to_owned()),
            Some(value) => {
                let value = value.clone();
                self.copied(&value)?;
                self.push(value)
            }
        }
    }

    /// Counts a copy: one text that many operations refer to could expand to the square of the file size.
    fn copied(&mut self, value: &Value) -> Result<(), String> {
        let left = self.copies.checked_sub(value.as_str().map_or(0, str::len));
        self.copies = left.ok_or("its texts are repeated too often: they take more memory than such a file may")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `pickle.dumps({"a": [1, -2, 300, 70000, 2**40, True, None, 0.5], "b": ("x", "a"), 3: {}}, protocol=2)`.
    const PLAIN: &[u8] = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\
        \x8a\x06\x00\x00\x00\x00\x00\x01\x88NG?\xe0\x00\x00\x00\x00\x00\x00eX\x01\x00\x00\x00bq\x03X\x01\x00\x00\x00xq\x04\
        h\x01\x86q\x05K\x03}q\x06u.";

    #[test]
    fn plain_data_is_read() {
        let wanted = json!({"a": [1, -2, 300, 70_000, 1_u64 << 40, true, null, 0.5], "b": ["x", "a"], "3": {}});
        assert_eq!(read(PLAIN), Ok(wanted));
    }

    #[test]
    fn objects_and_damage_are_refused_with_their_place() {
        for end in 0..PLAIN.len() {
            assert!(read(&PLAIN[..end]).is_err(), "{end}");
        }
        let evil = read(b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.").unwrap_err();
        assert!(evil.contains("byte 2: it makes objects"), "{evil}");
        let deep = [&b"\x80\x02"[..], &vec![b']'; 100_000], &vec![b'a'; 99_999], b"."].concat();
        assert!(read(&deep).unwrap_err().contains("nested too deep"));
        assert!(read(b"\x80\x02]q\x00h\x00.").unwrap_err().contains("used twice"));
        let text = [&b"\x80\x04X\x00\x00\x01\x00"[..], &[b'x'; 1 << 16]].concat();
        for again in [&b"\x94"[..], b"\x94h\x00"] {
            let often = [&text[..], &again.repeat(1 << 14), b"."].concat();
            assert!(read(&often).unwrap_err().contains("repeated too often"));
        }
        assert!(read(b"\x80\x02X\xff\xff\xff\xff.").unwrap_err().contains("ends in between"));
        for noise in 0..2_000_u32 {
            let bytes: Vec<u8> =
                (0..60_u32).map(|at| (noise.wrapping_mul(2_654_435_761) >> (at % 24)) as u8 ^ at as u8).collect();
            let _ = read(&[&[0x80, 2][..], &bytes].concat());
        }
    }
}
