//! The document around the rows, read as a stream.
//!
//! A trace of a minute is gigabytes of JSON, so no tree is built: each row goes to the [`Builder`] as soon as
//! its closing brace is read. Rows collected before an error are kept, so a truncated trace is readable up to
//! the cut.

use std::fmt;

use gpuwhy_trace::record::{Device, DeviceId};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::builder::Builder;
use super::lenient::{Lenient, Shape};
use super::row::KinetoRow;
use super::scalar::Scalar;

/// Maximum number of devices of a process.
const MAX_DEVICES: usize = 256;

/// Reads a document into the builder. Two forms exist: an object with `traceEvents`, and a bare array of
/// rows.
pub(super) struct TraceDocument<'a>(pub(super) &'a mut Builder);

impl<'de> DeserializeSeed<'de> for TraceDocument<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TraceDocument<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an object with traceEvents, or an array of rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<DocumentKey>()? {
            match key {
                DocumentKey::TraceEvents => map.next_value_seed(TraceEvents(self.0))?,
                DocumentKey::DeviceProperties => {
                    let devices = map.next_value::<Lenient<Devices>>()?.0;
                    for device in devices.map(|devices| devices.0).unwrap_or_default() {
                        self.0.dictionary.add_device(device);
                    }
                }
                DocumentKey::DistributedInfo => {
                    let job = map.next_value::<Lenient<Job>>()?.0.unwrap_or_default();
                    for (variable, number) in [("RANK", job.rank), ("WORLD_SIZE", job.world_size)] {
                        if let Some(number) = number.within::<u64>() {
                            self.0.rank_variables.push((variable.to_owned(), number.to_string()));
                        }
                    }
                }
                DocumentKey::BaseTimeNanoseconds => self.0.base_ns = map.next_value::<Scalar>()?.integer().unwrap_or(0),
                DocumentKey::HostName => self.0.host = map.next_value::<Scalar>()?.into_text(),
                DocumentKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        TraceEvents(self.0).visit_seq(seq)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum DocumentKey {
    TraceEvents,
    DeviceProperties,
    DistributedInfo,
    BaseTimeNanoseconds,
    #[serde(rename = "host_name")]
    HostName,
    #[serde(other)]
    Other,
}

struct TraceEvents<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for TraceEvents<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TraceEvents<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.found_rows = true;
        while let Some(Lenient(row)) = seq.next_element::<Lenient<KinetoRow>>()? {
            self.0.take(row);
        }
        Ok(())
    }
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
