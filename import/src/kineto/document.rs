//! The document around the rows, read as a stream.
//!
//! A trace of a minute is gigabytes of JSON, so no tree is built: each row goes to the [`Builder`] as soon as
//! its closing brace is read. A row that cannot be read costs only that row, and a truncated trace is readable
//! up to the cut.

use std::io::BufRead;

use gpuwhy_trace::record::{Device, DeviceId};
use serde::Deserialize;
use serde::de::{DeserializeOwned, MapAccess, SeqAccess};

use super::builder::Builder;
use super::lenient::{Lenient, Shape};
use super::repair::repaired;
use super::scalar::Scalar;
use super::text::{Element, Text, ValueEnd};

/// Maximum number of devices of a process.
const MAX_DEVICES: usize = 256;

/// Where reading ended before the end of the document.
#[derive(Debug)]
pub(super) struct Stopped {
    /// Position in the text, bytes.
    pub(super) offset: u64,
    pub(super) what: String,
}

/// Outcome of reading a part of the document.
type Outcome<T> = Result<T, What>;

/// The reason why reading ended.
type What = String;

/// Reads a document into the builder. Two forms exist: an object with `traceEvents`, and a bare array of rows.
pub(super) fn read(source: impl BufRead, builder: &mut Builder) -> Result<(), Stopped> {
    let mut document = Document { text: Text::new(source), builder };
    document.read().map_err(|what| Stopped { offset: document.text.position(), what })
}

struct Document<'a, R> {
    text: Text<R>,
    builder: &'a mut Builder,
}

impl<R: BufRead> Document<'_, R> {
    fn read(&mut self) -> Outcome<()> {
        match self.peek()? {
            Some(b'{') => {
                self.text.consume(1);
                self.members()?;
            }
            Some(b'[') => {
                self.text.consume(1);
                // Chrome's format allows an array without its end: its writer may be killed at any time.
                self.rows(true)?;
            }
            None => return Err(cut()),
            Some(_) => return Err("expected an object with traceEvents, or an array of rows".to_owned()),
        }
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err("more text after the end of the document".to_owned()),
        }
    }

    fn peek(&mut self) -> Outcome<Option<u8>> {
        self.text.peek().map_err(|error| error.to_string())
    }

    fn members(&mut self) -> Outcome<()> {
        loop {
            match self.peek()? {
                None => return Err(cut()),
                Some(b',') => self.text.consume(1),
                Some(b'}') => {
                    self.text.consume(1);
                    return Ok(());
                }
                Some(b'"') => {
                    let end = self.value(true)?;
                    let key = String::from_utf8_lossy(&self.text.value).into_owned();
                    let followed = self.peek()?;
                    if followed.is_none() || end == ValueEnd::Cut {
                        return Err(cut());
                    }
                    if end != ValueEnd::Whole || followed != Some(b':') {
                        self.resume()?;
                        continue;
                    }
                    self.text.consume(1);
                    self.member(&key)?;
                }
                Some(_) => self.resume()?,
            }
        }
    }

    fn value(&mut self, keep: bool) -> Outcome<ValueEnd> {
        self.text.read_value(keep).map_err(|error| error.to_string())
    }

    /// Reads the value of the member `key`, which has its quotes.
    fn member(&mut self, key: &str) -> Outcome<()> {
        if key == "\"traceEvents\"" {
            return match self.peek()? {
                None => Err(cut()),
                Some(b'[') => {
                    self.text.consume(1);
                    self.rows(false)
                }
                Some(_) => Err("traceEvents is no array of rows".to_owned()),
            };
        }
        let is_read = ["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "host_name"]
            .iter()
            .any(|name| key.trim_matches('"') == *name);
        match self.value(is_read)? {
            ValueEnd::Whole if is_read => self.take(key),
            ValueEnd::Whole => {}
            ValueEnd::Cut => return Err(cut()),
            ValueEnd::Next(_) => {
                self.builder.count("a member of the document that is not valid JSON");
                return self.member("\"traceEvents\"");
            }
            ValueEnd::Broken => {
                self.builder.count("a member of the document that is not valid JSON");
                self.resume()?;
            }
        }
        Ok(())
    }

    /// After text that is no JSON: finds the rows, or the next row if they have begun.
    fn resume(&mut self) -> Outcome<()> {
        if self.builder.found_rows {
            let found = self.text.find_row().map_err(|error| error.to_string())?;
            return if found == Element::Lost { self.rows(false) } else { Err("text that is no JSON".to_owned()) };
        }
        match self.text.find_rows().map_err(|error| error.to_string())? {
            true => self.member("\"traceEvents\""),
            false => Err("text that is no JSON".to_owned()),
        }
    }

    /// Reads the rows. `may_be_open`: the end of the text between two rows is the end of the rows.
    fn rows(&mut self, may_be_open: bool) -> Outcome<()> {
        self.builder.found_rows = true;
        let mut learned = false;
        loop {
            match self.text.read_element().map_err(|error| error.to_string())? {
                Element::Row => {
                    let is_read = self.builder.row(&self.text.value);
                    if is_read && !learned {
                        self.text.learn_row_key();
                        learned = true;
                    }
                }
                Element::Other => self.builder.take(None),
                Element::Lost => self.builder.lose(),
                Element::End => return Ok(()),
                Element::EndOfText { closed } if closed || may_be_open => return Ok(()),
                Element::EndOfText { .. } | Element::Cut => return Err(cut()),
            }
        }
    }

    /// Takes a member of the document.
    fn take(&mut self, key: &str) {
        let value = &self.text.value;
        match key.trim_matches('"') {
            "deviceProperties" => {
                let devices = parsed::<Lenient<Devices>>(value).and_then(|devices| devices.0);
                for device in devices.map(|devices| devices.0).unwrap_or_default() {
                    self.builder.dictionary.add_device(device);
                }
            }
            "distributedInfo" => {
                let job = parsed::<Lenient<Job>>(value).and_then(|job| job.0).unwrap_or_default();
                for (variable, number) in [("RANK", job.rank), ("WORLD_SIZE", job.world_size)] {
                    if let Some(number) = number.within::<u64>() {
                        self.builder.rank_variables.push((variable.to_owned(), number.to_string()));
                    }
                }
            }
            "baseTimeNanoseconds" => {
                self.builder.base_ns = parsed::<Scalar>(value).and_then(|base| base.integer()).unwrap_or(0);
            }
            _ => self.builder.host = parsed::<Scalar>(value).map(Scalar::into_text).unwrap_or_default(),
        }
    }
}

fn cut() -> What {
    "the text ends in the middle".to_owned()
}

/// The value of a text that is JSON, or nearly so.
fn parsed<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).or_else(|_| serde_json::from_slice(&repaired(value))).ok()
}

/// Devices of a process; entries beyond the maximum are skipped.
struct Devices(Vec<Device>);

impl Shape for Devices {
    fn elements<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let mut devices = Vec::new();
        while let Some(Lenient(entry)) = seq.next_element::<Lenient<DeviceEntry>>()? {
            devices.extend(entry.filter(|_| devices.len() < MAX_DEVICES).map(|entry| entry.0));
        }
        Ok(Some(Self(devices)))
    }
}

/// An element of `deviceProperties`.
struct DeviceEntry(Device);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum DeviceKey {
    Id,
    Name,
    ComputeMajor,
    ComputeMinor,
    NumSms,
    MaxThreadsPerMultiprocessor,
    RegsPerMultiprocessor,
    SharedMemPerMultiprocessor,
    TotalGlobalMem,
    #[serde(other)]
    Other,
}

impl Shape for DeviceEntry {
    fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut device = Device::default();
        while let Some(key) = map.next_key::<DeviceKey>()? {
            let value: Scalar = map.next_value()?;
            let small = value.within().unwrap_or(0);
            match key {
                DeviceKey::Id => device.id = DeviceId(small),
                DeviceKey::Name => device.name = value.into_text(),
                DeviceKey::ComputeMajor => device.compute_capability[0] = small,
                DeviceKey::ComputeMinor => device.compute_capability[1] = small,
                DeviceKey::NumSms => device.multiprocessors = small,
                DeviceKey::MaxThreadsPerMultiprocessor => device.threads_per_multiprocessor = small,
                DeviceKey::RegsPerMultiprocessor => device.registers_per_multiprocessor = small,
                DeviceKey::SharedMemPerMultiprocessor => device.shared_bytes_per_multiprocessor = small,
                DeviceKey::TotalGlobalMem => device.memory_bytes = value.within().unwrap_or(0),
                DeviceKey::Other => {}
            }
        }
        Ok(Some(Self(device)))
    }
}

/// `distributedInfo`: rank of the process in its job.
#[derive(Default)]
struct Job {
    rank: Scalar,
    world_size: Scalar,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum JobKey {
    Rank,
    WorldSize,
    #[serde(other)]
    Other,
}

impl Shape for Job {
    fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut job = Self::default();
        while let Some(key) = map.next_key::<JobKey>()? {
            let value = map.next_value()?;
            match key {
                JobKey::Rank => job.rank = value,
                JobKey::WorldSize => job.world_size = value,
                JobKey::Other => {}
            }
        }
        Ok(Some(job))
    }
}
