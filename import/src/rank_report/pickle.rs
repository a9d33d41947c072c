//! Pickles of plain data, as PyTorch's flight recorder writes them. No code is executed: instructions that
//! would create an object are rejected.
//!
//! The format is that of Python's `pickletools`, protocols 2 to 4. Lists, tuples, dictionaries, texts and
//! numbers are read. PyTorch writes each frame of the stacks once and refers to it from then on
//! (`torch/csrc/jit/serialization/pickler.cpp`), so values are kept once, and copied into the result. Copies
//! could expand to any size, or contain themselves: both are limited.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum nesting depth of containers.
const DEPTH: u16 = 32;
/// Maximum number of values in a dump: by default, the recorder keeps 2,000 operations of a hundred values.
const VALUES: usize = 20_000_000;
/// Values and bytes of text of the result: a fixed number, plus a number per byte of the file. Referring to an earlier
/// value takes two bytes or more; names of files and functions have some dozens, and a frame has three values.
const VALUES_ALWAYS: usize = 1 << 20;
const COPIES: usize = 32 << 20;
const A_BYTE: usize = 64;

/// Error of a result beyond these limits.
const TOO_OFTEN: &str = "its values are repeated too often: they take more memory than such a file may";

/// Index of a value.
type Place = u32;

/// A value; those in it are elsewhere.
#[derive(Debug)]
enum Node {
    Plain(Value),
    List(Vec<Place>),
    Map(Vec<(Place, Place)>),
}

struct PickleReader<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Place>,
    marks: Vec<usize>,
    memo: HashMap<u32, Place>,
    /// Values and bytes of text that the result may still take.
    values: usize,
    copies: usize,
}

/// Reads a pickle. The error names the byte offset.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    let allowed = |always: usize| always.saturating_add(bytes.len().saturating_mul(A_BYTE));
    let mut reader = PickleReader {
        bytes,
        at: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        values: allowed(VALUES_ALWAYS).min(VALUES),
        copies: allowed(COPIES),
    };
    loop {
        let at = reader.at;
        match reader.step() {
            Ok(true) => {}
            Ok(false) => {
                let top = reader.stack.pop().ok_or("it holds nothing")?;
                return reader.value(top, 0);
            }
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
            b'N' => self.push_plain(Value::Null)?,
            0x88 => self.push_plain(Value::Bool(true))?,
            0x89 => self.push_plain(Value::Bool(false))?,
            b'K' => self.small::<1>()?,
            b'M' => self.small::<2>()?,
            b'J' => {
                let number = self.number::<4>()? as u32;
                self.push_plain(Value::from(number.cast_signed()))?;
            }
            0x8a => self.long()?,
            b'G' => {
                let bits = self.number::<8>()?.swap_bytes();
                self.push_plain(Value::from(f64::from_bits(bits)))?;
            }
            b'X' | b'T' => self.text::<4>()?,
            0x8c | b'U' => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            b']' | b')' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Map(Vec::new()))?,
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.push(Node::List(items))?;
            }
            number @ (0x85..=0x87) => {
                let first = self.stack.len().checked_sub(usize::from(number - 0x84)).ok_or("too few values")?;
                let items = self.stack.split_off(first);
                self.push(Node::List(items))?;
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

    fn push_plain(&mut self, value: Value) -> Result<(), String> {
        self.push(Node::Plain(value))
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        if self.nodes.len() == VALUES {
            return Err(format!("more than {VALUES} values"));
        }
        self.stack.push(self.nodes.len() as Place);
        self.nodes.push(node);
        Ok(())
    }

    fn small<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()?;
        self.push_plain(Value::from(number))
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
        self.push_plain(Value::from(number.cast_signed()))
    }

    fn text<const N: usize>(&mut self) -> Result<(), String> {
        let count = usize::try_from(self.number::<N>()?).map_err(|_| "a text is too long")?;
        let text = String::from_utf8_lossy(self.take(count)?).into_owned();
        self.push_plain(Value::String(text))
    }

    fn pop(&mut self) -> Result<Place, String> {
        let base = self.marks.last().copied().unwrap_or(0);
        let is_there = self.stack.len() > base;
        self.stack.pop().filter(|_| is_there).ok_or_else(|| "too few values".to_owned())
    }

    fn since_mark(&mut self) -> Result<Vec<Place>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or("no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&mut self) -> Option<&mut Node> {
        self.stack.last().and_then(|&place| self.nodes.get_mut(place as usize))
    }

    fn append(&mut self, items: Vec<Place>) -> Result<(), String> {
        let Some(Node::List(list)) = self.top() else { return Err("no list".to_owned()) };
        list.extend(items);
        Ok(())
    }

    fn set(&mut self, items: Vec<Place>) -> Result<(), String> {
        let Some(Node::Map(map)) = self.top() else { return Err("no dictionary".to_owned()) };
        map.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    fn put<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()?;
        self.remember(number as u32)
    }

    /// Stores the top of the stack under a number.
    fn remember(&mut self, number: u32) -> Result<(), String> {
        let top = self.stack.last().ok_or("too few values")?;
        self.memo.insert(number, *top);
        Ok(())
    }

    fn get<const N: usize>(&mut self) -> Result<(), String> {
        let number = self.number::<N>()? as u32;
        let known = self.memo.get(&number).ok_or_else(|| format!("value {number} is not there"))?;
        self.stack.push(*known);
        Ok(())
    }

    /// The value at `place`, with all in it.
    fn value(&mut self, place: Place, depth: u16) -> Result<Value, String> {
        if depth > DEPTH {
            return Err("nested too deep".to_owned());
        }
        self.values = self.values.checked_sub(1).ok_or(TOO_OFTEN)?;
        match self.nodes.get(place as usize).ok_or("a value is not there")? {
            Node::Plain(value) => {
                self.copies = self.copies.checked_sub(value.as_str().map_or(0, str::len)).ok_or(TOO_OFTEN)?;
                Ok(value.clone())
            }
            Node::List(items) => {
                let items = items.clone();
                items.into_iter().map(|item| self.value(item, depth + 1)).collect()
            }
            Node::Map(entries) => {
                let entries = entries.clone();
                let mut map = Map::new();
                for (key, value) in entries {
                    let key = match self.value(key, depth + 1)? {
                        Value::String(text) => text,
                        Value::Number(number) => number.to_string(),
                        _ => return Err("a key is neither text nor number".to_owned()),
                    };
                    map.insert(key, self.value(value, depth + 1)?);
                }
                Ok(Value::Object(map))
            }
        }
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
    fn a_container_may_be_used_again_but_not_without_bound() {
        // Two entries that share a frame, as PyTorch's pickler writes them: a value is stored once it is whole.
        let frame = b"}(X\x04\x00\x00\x00nameq\x00X\x01\x00\x00\x00fq\x01X\x04\x00\x00\x00lineq\x02K\x07uq\x03";
        let shared = [&b"\x80\x02]("[..], b"](", frame, b"h\x03e](h\x03ee."].concat();
        assert_eq!(
            read(&shared),
            Ok(json!([[{"name": "f", "line": 7}, {"name": "f", "line": 7}], [{"name": "f", "line": 7}]]))
        );
        // Python stores a container before it fills it.
        assert_eq!(read(b"\x80\x02]q\x00(]q\x01K\x05ah\x01e."), Ok(json!([[5], [5]])));
        assert!(read(b"\x80\x02]q\x00h\x00a.").unwrap_err().contains("nested too deep"), "a list in itself");
        // Each list holds the one before twice.
        let mut doubled = b"\x80\x02]q\x00".to_vec();
        (0..30_u8).for_each(|level| doubled.extend([b']', b'(', b'h', level, b'h', level, b'e', b'q', level + 1]));
        doubled.push(b'.');
        assert!(read(&doubled).unwrap_err().contains("repeated too often"));
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
        let text = [&b"\x80\x04](X\x00\x00\x01\x00"[..], &[b'x'; 1 << 16], b"\x94"].concat();
        let often = [&text[..], &b"h\x00".repeat(1 << 14), b"e."].concat();
        assert!(read(&often).unwrap_err().contains("repeated too often"));
        assert!(read(b"\x80\x02X\xff\xff\xff\xff.").unwrap_err().contains("ends in between"));
        for noise in 0..2_000_u32 {
            let bytes: Vec<u8> =
                (0..60_u32).map(|at| (noise.wrapping_mul(2_654_435_761) >> (at % 24)) as u8 ^ at as u8).collect();
            let _ = read(&[&[0x80, 2][..], &bytes].concat());
        }
    }
}
