//! The document around the rows, read as a stream.
//!
//! A trace of a minute is gigabytes of JSON, so no tree of it is built: each row goes to the [`Collector`] as soon as
//! its closing brace is read. What has been collected survives an error further on, which is what makes a trace that
//! was cut off readable up to the cut.

use std::fmt;

use profiler_core::record::{Device, DeviceId};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::collector::Collector;
use super::row::Element;
use super::scalar::Scalar;

/// Reads a document into the collector. Two shapes exist: an object with `traceEvents`, and the bare array of rows.
pub(super) struct Document<'a>(pub(super) &'a mut Collector);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an object with traceEvents, or an array of rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::TraceEvents => map.next_value_seed(Rows(self.0))?,
                Key::DeviceProperties => {
                    // A few kilobytes at most, and any shape is acceptable.
                    for entry in map.next_value::<Value>()?.as_array().into_iter().flatten() {
                        self.0.dictionary.add_device(device(entry));
                    }
                }
                Key::DistributedInfo => {
                    let info = map.next_value::<Value>()?;
                    for (member, variable) in [("rank", "RANK"), ("world_size", "WORLD_SIZE")] {
                        if let Some(number) = info[member].as_u64() {
                            self.0.rank_variables.push((variable.to_owned(), number.to_string()));
                        }
                    }
                }
                Key::BaseTimeNanoseconds => self.0.base_ns = map.next_value::<Scalar>()?.integer().unwrap_or(0),
                Key::HostName => self.0.host = map.next_value::<Scalar>()?.into_text(),
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Rows(self.0).visit_seq(seq)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    TraceEvents,
    DeviceProperties,
    DistributedInfo,
    BaseTimeNanoseconds,
    #[serde(rename = "host_name")]
    HostName,
    #[serde(other)]
    Other,
}

/// The rows.
struct Rows<'a>(&'a mut Collector);

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.found_rows = true;
        while let Some(Element(row)) = seq.next_element()? {
            self.0.take(row);
        }
        Ok(())
    }
}

fn device(entry: &Value) -> Device {
    let number = |member: &str| entry[member].as_u64().unwrap_or(0);
    let small = |member: &str| u32::try_from(number(member)).unwrap_or(0);
    Device {
        id: DeviceId(small("id")),
        name: entry["name"].as_str().unwrap_or_default().to_owned(),
        compute_capability: [small("computeMajor"), small("computeMinor")],
        multiprocessors: small("numSms"),
        threads_per_multiprocessor: small("maxThreadsPerMultiprocessor"),
        registers_per_multiprocessor: small("regsPerMultiprocessor"),
        shared_bytes_per_multiprocessor: small("sharedMemPerMultiprocessor"),
        memory_bytes: number("totalGlobalMem"),
        ..Device::default()
    }
}
