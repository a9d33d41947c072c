//! Samples of hardware counters, in the tables that `nsys profile --gpu-metrics-devices` fills.
//!
//! Metrics that nsys has use its names, so that scripts find "SMs Active"; values are integers, as in nsys.
//! The device is the lowest byte of `typeId`.

use gpuwhy_trace::counters::{CounterEvent, Metric};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use rusqlite::{CachedStatement, Connection, Result, params};
use rustc_hash::FxHashSet;

use super::insert::insert;
use crate::counters::{Counter, CounterValues};

/// Upper bytes of `typeId`, above the device: a number that only gpuwhy uses.
const TYPE: i64 = 0x6770 << 8;

/// Name of a metric and the divisor of its value; `None` for counters that are not sampled.
fn named(counter: Counter) -> Option<(&'static str, f64)> {
    let Counter::Metric(metric) = counter else { return None };
    Some(match metric {
        Metric::Unknown => return None,
        Metric::Clock => ("GPC Clock Frequency [MHz]", 1e6),
        Metric::EngineActive => ("GR Active [Throughput %]", 1.0),
        Metric::MultiprocessorsActive => ("SMs Active [Throughput %]", 1.0),
        Metric::Issue => ("SM Issue [Throughput %]", 1.0),
        Metric::Tensor => ("Tensor Active [Throughput %]", 1.0),
        Metric::Dram => ("DRAM Bandwidth [Throughput %]", 1.0),
        Metric::L2 => ("L2 Sectors [Throughput %]", 1.0),
        Metric::L1 => ("L1 Data Pipe [Throughput %]", 1.0),
        Metric::WarpsActive => ("Compute Warps in Flight [Throughput %]", 1.0),
        Metric::DramRead => ("DRAM Read Bandwidth [MB/s]", 1e6),
        Metric::DramWrite => ("DRAM Write Bandwidth [MB/s]", 1e6),
        Metric::PcieRead => ("PCIe RX Bandwidth [MB/s]", 1e6),
        Metric::PcieWrite => ("PCIe TX Bandwidth [MB/s]", 1e6),
        Metric::NvlinkRead => ("NVLink RX Bandwidth [MB/s]", 1e6),
        Metric::NvlinkWrite => ("NVLink TX Bandwidth [MB/s]", 1e6),
    })
}

/// Statements that fill the tables.
pub struct Inserts<'c> {
    value: CachedStatement<'c>,
    name: CachedStatement<'c>,
    values: CounterValues,
    described: FxHashSet<(DeviceId, u32)>,
}

impl<'c> Inserts<'c> {
    pub fn new(connection: &'c Connection) -> Result<Self> {
        Ok(Self {
            value: insert(connection, "GPU_METRICS", "rawTimestamp, timestamp, typeId, metricId, value")?,
            name: insert(connection, "TARGET_INFO_GPU_METRICS", "typeId, sourceId, typeName, metricId, metricName")?,
            values: CounterValues::default(),
            described: FxHashSet::default(),
        })
    }

    /// Inserts the values of an event. Times are relative to `origin`; earlier values are left out, as
    /// everywhere here.
    pub fn event(&mut self, event: &CounterEvent, origin: Timestamp) -> Result<()> {
        for value in self.values.of(event) {
            let Some((name, unit)) = named(value.counter).filter(|_| value.end >= origin) else { continue };
            let (kind, id) = (TYPE | i64::from(value.device.0 & 0xff), value.counter.number());
            if self.described.insert((value.device, id)) {
                self.name.execute(params![kind, 0, "gpuwhy: hardware counters", id, name])?;
            }
            // nsys stores the time at which a sample was taken, i.e. its end.
            let (raw, at) = (value.end.nanos() as i64, value.end.since(origin) as i64);
            self.value.execute(params![raw, at, kind, id, (value.value / unit).round() as i64])?;
        }
        Ok(())
    }
}
