//! Samples of `nsys profile --gpu-metrics-devices`: GPU counters of complete devices.
//!
//! A row of GPU_METRICS is one metric at one time. All rows of one time form a sample, which starts at the
//! time of the previous one. Metrics are identified by name, which differs slightly between chips; unknown
//! metrics are omitted and listed in the notes of the session. nsys writes integers, so a percentage is off
//! by up to half a point.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_report::text_format::printable;
use gpuwhy_trace::counters::{
    ChipName, CounterEvent, CounterLoss, METRIC_LIMIT, Metric, MetricList, MetricSet, Sample,
};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{DeviceId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Result, Rows, Statement};
use rustc_hash::FxHashMap;

use super::schema::Schema;

const VALUES: &str = "GPU_METRICS";
const NAMES: &str = "TARGET_INFO_GPU_METRICS";
/// Mask of `typeId`: its lowest byte is the device.
const DEVICE: i64 = 0xff;
/// Number of samples from which the interval is computed.
const FIRST: usize = 101;
/// A sample after a gap of this many intervals or more covers only the last interval; the ones before it are
/// lost.
const LATE: u64 = 2;
/// Two gaps count as equal if they differ by at most this fraction: a twentieth.
const ALIKE: u64 = 20;
/// Number of unknown metrics that a note names.
const NAMED: usize = 6;

/// Meaning of the rows of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    /// Metric, and the factor by which the value is multiplied.
    Metric(Metric, f64),
    /// Part of the device memory utilization, percent of the bandwidth; the metric is the read or the write
    /// rate.
    Memory(Metric),
}

/// Finds the meaning of a metric by name; `None` if it is unknown.
fn meaning(name: &str) -> Option<Meaning> {
    let (stem, unit) = name.split_once('[').map_or((name, ""), |(stem, unit)| (stem, unit.trim_end_matches(']')));
    let scale = match unit {
        "MHz" | "MB/s" => 1e6,
        "GB/s" => 1e9,
        "kB/s" | "KB/s" => 1e3,
        _ => 1.0,
    };
    let (share, rate) = (unit.is_empty() || unit.contains('%'), unit.ends_with("B/s"));
    let metric = |metric, known: bool| known.then_some(Meaning::Metric(metric, scale));
    let of_memory = |of| if rate { metric(of, true) } else { share.then_some(Meaning::Memory(of)) };
    match stem.trim().to_ascii_lowercase().as_str() {
        // Files of old versions omit the unit; the value is in MHz there too.
        "gpc clock frequency" if unit.is_empty() => Some(Meaning::Metric(Metric::Clock, 1e6)),
        "gpc clock frequency" => metric(Metric::Clock, unit == "MHz"),
        "gr active" => metric(Metric::EngineActive, share),
        "sms active" | "sm active" => metric(Metric::MultiprocessorsActive, share),
        "sm issue" => metric(Metric::Issue, share),
        "tensor active" | "tensor active / fp16 active" => metric(Metric::Tensor, share),
        "compute warps in flight" => metric(Metric::WarpsActive, share),
        "dram bandwidth" => metric(Metric::Dram, share),
        "l2 sectors" => metric(Metric::L2, share),
        "l1 data pipe" => metric(Metric::L1, share),
        "dram read bandwidth" | "dram read throughput" => of_memory(Metric::DramRead),
        "dram write bandwidth" | "dram write throughput" => of_memory(Metric::DramWrite),
        "pcie rx bandwidth" | "pcie rx throughput" => metric(Metric::PcieRead, rate),
        "pcie tx bandwidth" | "pcie tx throughput" => metric(Metric::PcieWrite, rate),
        "nvlink rx bandwidth" => metric(Metric::NvlinkRead, rate),
        "nvlink tx bandwidth" => metric(Metric::NvlinkWrite, rate),
        _ => None,
    }
}

/// Metrics to which the rows of a metric contribute, with factors.
type Parts = Vec<(Metric, f64)>;

/// Sampled devices, and the meaning of their rows.
pub(super) struct Sampled {
    devices: Vec<SampledDevice>,
    /// By `typeId` and `metricId`.
    parts: FxHashMap<(i64, i64), Parts>,
    /// Sentences for the user.
    pub(super) notes: Vec<String>,
}

struct SampledDevice {
    number: i64,
    set: MetricSet,
    /// End of the previous sample; the first sample has no start.
    before: Option<u64>,
    /// Time between the ends of the previous two samples, nanoseconds.
    gap: u64,
    loss: CounterLoss,
}

impl Sampled {
    /// Reads the sampled devices of the file; empty if it has no samples.
    pub(super) fn of(connection: &Connection, schema: &Schema, dictionary: &Dictionary) -> Result<Self> {
        let mut found = Self { devices: Vec::new(), parts: FxHashMap::default(), notes: Vec::new() };
        if !schema.has_columns(VALUES, &["timestamp", "typeId", "metricId", "value"]) {
            return Ok(found);
        }
        if !schema.has_columns(NAMES, &["typeId", "metricId", "metricName"]) {
            found.notes.push(format!("the samples of {VALUES} are left out: the file has no {NAMES} that names them"));
            return Ok(found);
        }
        let ordinals = ordinals(connection, schema)?;
        let mut names: BTreeMap<i64, Vec<(i64, i64, String)>> = BTreeMap::new();
        let query = format!("SELECT DISTINCT typeId, metricId, metricName FROM {NAMES} ORDER BY 1, 2");
        let mut statement = connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let (Some(kind), Some(id), Some(name)) = (row.get::<_, Option<i64>>(0)?, row.get(1)?, row.get(2)?) {
                names.entry(kind & DEVICE).or_default().push((kind, id, name));
            }
        }
        let mut unknown = BTreeSet::new();
        for (number, names) in names {
            let id = ordinals.get(&number).copied().unwrap_or(DeviceId(number as u32));
            let described = dictionary.device(id);
            let bandwidth = described.map_or(0.0, |device| device.memory_bandwidth_kbps as f64 * 1e3);
            let mut metrics = Vec::new();
            for (kind, metric, parts) in parts_of(&names, bandwidth, &mut unknown) {
                metrics.extend(parts.iter().map(|&(metric, _)| metric));
                found.parts.insert((kind, metric), parts);
            }
            metrics.sort_unstable();
            let Some(interval_ns) = interval(connection, number)?.filter(|_| !metrics.is_empty()) else { continue };
            let set = MetricSet {
                device: id,
                chip: chip(connection, schema, number)?,
                metrics: MetricList::new(&metrics),
                interval_ns,
                highest_clock_hz: described.map_or(0, |device| u64::from(device.core_clock_khz) * 1_000),
                multiprocessors: described.map_or(0, |device| device.multiprocessors),
            };
            let loss = CounterLoss { device: id, ..CounterLoss::default() };
            found.devices.push(SampledDevice { number, set, before: None, gap: 0, loss });
        }
        found.notes.extend(unknown_note(&unknown));
        Ok(found)
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = CounterEvent> {
        self.devices.iter().map(|device| CounterEvent::Set(device.set))
    }

    /// Query that returns the rows in the order of time; `None` if there are no samples.
    pub(super) fn statement<'c>(&self, connection: &'c Connection) -> Result<Option<Statement<'c>>> {
        let query = format!(
            "SELECT timestamp, typeId & {DEVICE}, typeId, metricId, value FROM {VALUES}
             WHERE timestamp IS NOT NULL AND value IS NOT NULL ORDER BY 1, 2"
        );
        if self.devices.is_empty() { Ok(None) } else { connection.prepare(&query).map(Some) }
    }
}

/// Contributions of the rows of a device. A metric's own rows take precedence over a sum of other metrics.
fn parts_of(names: &[(i64, i64, String)], bandwidth: f64, unknown: &mut BTreeSet<String>) -> Vec<(i64, i64, Parts)> {
    let mut direct = BTreeSet::new();
    for (.., name) in names {
        if let Some(Meaning::Metric(metric, _)) = meaning(name) {
            direct.insert(metric);
        }
    }
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for (kind, id, name) in names {
        let parts = match meaning(name) {
            // A second name of the same metric.
            Some(Meaning::Metric(metric, _)) if !taken.insert(metric) => continue,
            Some(Meaning::Metric(metric, scale)) => vec![(metric, scale)],
            Some(Meaning::Memory(rate)) => {
                let rate = Some((rate, bandwidth / 100.0)).filter(|_| bandwidth > 0.0);
                let both = std::iter::once((Metric::Dram, 1.0)).chain(rate);
                both.filter(|(metric, _)| !direct.contains(metric)).collect()
            }
            None => {
                unknown.insert(name.clone());
                continue;
            }
        };
        found.push((*kind, *id, parts));
    }
    found
}

fn unknown_note(unknown: &BTreeSet<String>) -> Option<String> {
    let count = unknown.len();
    let listed: Vec<_> = unknown.iter().take(NAMED).map(|name| printable(name).to_string()).collect();
    let more = if count > NAMED { format!("; and {} more", count - NAMED) } else { String::new() };
    let metrics = if count == 1 { "metric" } else { "metrics" };
    (count > 0)
        .then(|| format!("{count} {metrics} of {VALUES} that gpuwhy has no use for: {}{more}", listed.join("; ")))
}

/// CUDA ordinals by the device numbers of the file, if the two differ.
fn ordinals(connection: &Connection, schema: &Schema) -> Result<FxHashMap<i64, DeviceId>> {
    let table = "TARGET_INFO_CUDA_DEVICE";
    if !schema.has_column(table, "gpuId") || !schema.has_column(table, "cudaId") {
        return Ok(FxHashMap::default());
    }
    let mut statement =
        connection.prepare(&format!("SELECT DISTINCT gpuId, cudaId FROM {table} ORDER BY 1, 2 DESC"))?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)))?;
    let mut found = FxHashMap::default();
    for row in rows {
        if let (Some(number), Some(Ok(id))) = row.map(|(number, id)| (number, id.map(u32::try_from)))? {
            found.insert(number, DeviceId(id));
        }
    }
    Ok(found)
}

fn chip(connection: &Connection, schema: &Schema, number: i64) -> Result<ChipName> {
    if !schema.has_column("TARGET_INFO_GPU", "chipName") || !schema.has_column("TARGET_INFO_GPU", "id") {
        return Ok(ChipName::default());
    }
    let query = "SELECT chipName FROM TARGET_INFO_GPU WHERE id = ?";
    let name = connection.query_row(query, [number], |row| row.get::<_, Option<String>>(0)).optional()?.flatten();
    Ok(ChipName::new(&name.unwrap_or_default()))
}

/// Sampling interval of a device, nanoseconds: the median over the first samples. `None` with fewer than two.
fn interval(connection: &Connection, number: i64) -> Result<Option<u64>> {
    let query = format!(
        "SELECT DISTINCT timestamp FROM {VALUES} WHERE typeId & {DEVICE} = ? AND timestamp IS NOT NULL ORDER BY 1 LIMIT {FIRST}"
    );
    let mut statement = connection.prepare(&query)?;
    let times = statement.query_map([number], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>>>()?;
    let mut apart: Vec<_> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as u64).collect();
    apart.sort_unstable();
    Ok(apart.get(apart.len() / 2).copied())
}

/// Samples in the order of time.
pub(super) struct Samples<'s> {
    sampled: Sampled,
    rows: Option<Rows<'s>>,
    /// First row of the next sample.
    row: Option<SampleRow>,
    start: u64,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct SampleRow {
    at: i64,
    number: i64,
    kind: i64,
    metric: i64,
    value: f64,
}

impl<'s> Samples<'s> {
    /// Reads the samples of `statement`, whose times are relative to `start`.
    pub(super) fn new(sampled: Sampled, statement: Option<&'s mut Statement<'_>>, start: Timestamp) -> Result<Self> {
        let rows = statement.map(|statement| statement.query([])).transpose()?;
        let mut samples = Self { sampled, rows, row: None, start: start.nanos() };
        samples.advance()?;
        Ok(samples)
    }

    fn advance(&mut self) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        self.row = match rows.next()? {
            Some(row) => Some(SampleRow {
                at: row.get(0)?,
                number: row.get(1)?,
                kind: row.get(2)?,
                metric: row.get(3)?,
                value: row.get(4)?,
            }),
            None => None,
        };
        Ok(())
    }

    /// Returns the next sample if it ended by `until`; `None` if there is none.
    pub(super) fn next(&mut self, until: Timestamp) -> Result<Option<CounterEvent>> {
        while let Some(first) = self.row.filter(|row| self.time(row.at) <= until.nanos()) {
            let mut values = [f64::NAN; METRIC_LIMIT];
            let index = self.sampled.devices.iter().position(|device| device.number == first.number);
            while let Some(row) = self.row.filter(|row| (row.at, row.number) == (first.at, first.number)) {
                let parts = self.sampled.parts.get(&(row.kind, row.metric)).into_iter().flatten();
                for (metric, scale) in parts.filter(|_| row.value.is_finite()) {
                    let column = index.and_then(|index| self.sampled.devices[index].set.metrics.position(*metric));
                    if let Some(value) = column.and_then(|column| values.get_mut(column)) {
                        *value = row.value * scale + if value.is_nan() { 0.0 } else { *value };
                    }
                }
                self.advance()?;
            }
            let end = self.time(first.at);
            if let Some(sample) = index.and_then(|index| self.sampled.devices[index].sample(end, &values)) {
                return Ok(Some(CounterEvent::Sample(sample)));
            }
        }
        Ok(None)
    }

    /// Lost samples of each device.
    pub(super) fn losses(&self) -> impl Iterator<Item = CounterEvent> {
        self.sampled.devices.iter().map(|device| CounterEvent::Loss(device.loss))
    }

    fn time(&self, at: i64) -> u64 {
        self.start.saturating_add_signed(at)
    }
}

impl SampledDevice {
    /// Makes the sample that ended at `end`; `None` for the first one.
    fn sample(&mut self, end: u64, values: &[f64; METRIC_LIMIT]) -> Option<Sample> {
        let Some(before) = self.before.replace(end) else {
            self.loss.first_dropped += 1;
            return None;
        };
        let interval = self.set.interval_ns.max(1);
        let gap = end.saturating_sub(before);
        let missed = gap / interval;
        // Two equal gaps in a row mean another sampling rate, not a loss.
        let alike = gap.abs_diff(std::mem::replace(&mut self.gap, gap)) <= gap / ALIKE;
        let begin = if missed >= LATE && !alike {
            self.loss.lost = self.loss.lost.saturating_add(missed - 1);
            end - interval
        } else {
            before
        };
        let values = values.map(|value| value as f32);
        Some(Sample::new(self.set.device, Timestamp::from_nanos(begin), Timestamp::from_nanos(end), &values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_go_by_their_names() {
        for (name, wanted) in [
            ("GPC Clock Frequency [MHz]", Some(Meaning::Metric(Metric::Clock, 1e6))),
            ("SMs Active [Throughput %]", Some(Meaning::Metric(Metric::MultiprocessorsActive, 1.0))),
            ("GR Active [Throughput %]", Some(Meaning::Metric(Metric::EngineActive, 1.0))),
            ("SM Active", Some(Meaning::Metric(Metric::MultiprocessorsActive, 1.0))),
            ("Tensor Active / FP16 Active [Throughput %]", Some(Meaning::Metric(Metric::Tensor, 1.0))),
            ("DRAM Read Bandwidth [Throughput %]", Some(Meaning::Memory(Metric::DramRead))),
            ("DRAM Write Bandwidth [MB/s]", Some(Meaning::Metric(Metric::DramWrite, 1e6))),
            ("Compute Warps in Flight [Throughput %]", Some(Meaning::Metric(Metric::WarpsActive, 1.0))),
            ("Compute Warps in Flight [Avg]", None),
            ("PCIe RX Throughput [Throughput %]", None),
            ("SYS Clock Frequency [MHz]", None),
            ("", None),
        ] {
            assert_eq!(meaning(name), wanted, "{name}");
        }
    }

    #[test]
    fn parts_of_memory_add_up_unless_the_sum_is_there() {
        let names = |list: &[&str]| -> Vec<(i64, i64, String)> {
            list.iter().zip(0..).map(|(name, id)| (0, id, (*name).to_owned())).collect()
        };
        let both = ["DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"];
        let mut unknown = BTreeSet::new();
        let found = parts_of(&names(&both), 4e12, &mut unknown);
        assert_eq!(found[0].2, [(Metric::Dram, 1.0), (Metric::DramRead, 4e10)]);
        assert_eq!(found[1].2, [(Metric::Dram, 1.0), (Metric::DramWrite, 4e10)]);
        assert_eq!(parts_of(&names(&both), 0.0, &mut unknown)[0].2, [(Metric::Dram, 1.0)], "no bandwidth is known");
        let all = [both[0], "DRAM Bandwidth [Throughput %]", "DRAM Bandwidth", "Something New [%]"];
        let found = parts_of(&names(&all), 4e12, &mut unknown);
        assert_eq!(found[0].2, [(Metric::DramRead, 4e10)]);
        assert_eq!((found[1].2.as_slice(), found.len()), (&[(Metric::Dram, 1.0)][..], 2));
        assert!(
            unknown_note(&unknown).unwrap().contains("1 metric of GPU_METRICS that gpuwhy has no use for: Something")
        );
    }

    #[test]
    fn a_late_sample_is_of_its_interval_and_those_before_are_lost() {
        let metrics = MetricList::new(&[Metric::Issue]);
        let set = MetricSet {
            device: DeviceId(0),
            chip: ChipName::default(),
            metrics,
            interval_ns: 100,
            highest_clock_hz: 0,
            multiprocessors: 0,
        };
        let mut device = SampledDevice { number: 0, set, before: None, gap: 0, loss: CounterLoss::default() };
        let mut at = |end| device.sample(end, &[1.0; METRIC_LIMIT]).map(|of| (of.begin.nanos(), of.end.nanos()));
        assert_eq!(
            [at(1_000), at(1_100), at(1_210), at(1_610), at(2_010)].map(|span| span.unwrap_or((0, 0))),
            [(0, 0), (1_000, 1_100), (1_100, 1_210), (1_510, 1_610), (1_610, 2_010)]
        );
        assert_eq!((device.loss.first_dropped, device.loss.lost), (1, 3));
    }
}
