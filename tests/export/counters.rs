//! Samples of hardware counters and NVML readings in each format, and their effect on the report.

use std::fs;
use std::path::{Path, PathBuf};

use gpuwhy_trace::counters::{ChipName, CounterEvent, GaugeReading, Metric, MetricList, MetricSet, Sample, Throttle};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use rusqlite::Connection;
use serde_json::Value;

use super::{gpuwhy, play};
use crate::support::{Stage, stderr};

/// The recorded session with added samples of 1 ms, from a device that is always half active and whose memory
/// is 75 % busy, and with an NVML reading every 10 ms. Returns the file and the number of samples.
fn sampled(stage: &Stage) -> (PathBuf, u64) {
    let bytes = fs::read(stage.path("trace.gpuwhy")).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut items = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        items.push(item);
    }
    let (session, dictionary, _) = reader.into_parts();
    let work = items.iter().filter_map(|item| match item {
        Event::Record(record) => record.device_work(),
        _ => None,
    });
    let (first, last) =
        work.fold((u64::MAX, 0), |(first, last), work| (first.min(work.start.nanos()), last.max(work.end.nanos())));
    let set = MetricSet {
        device: DeviceId(0),
        chip: ChipName::new("GH100"),
        metrics: MetricList::new(&[Metric::Clock, Metric::MultiprocessorsActive, Metric::Dram, Metric::DramRead]),
        interval_ns: 1_000_000,
        highest_clock_hz: 1_980_000_000,
        multiprocessors: 132,
    };
    let mut events = vec![CounterEvent::Set(set)];
    for begin in (first..last).step_by(1_000_000) {
        let (from, to) = (Timestamp::from_nanos(begin), Timestamp::from_nanos(begin + 1_000_000));
        events.push(CounterEvent::Sample(Sample::new(DeviceId(0), from, to, &[1.5e9, 50.0, 75.0, 1e12])));
    }
    let samples = events.len() as u64 - 1;
    for at in (first..last).step_by(10_000_000) {
        events.push(CounterEvent::Gauges(GaugeReading {
            at: Timestamp::from_nanos(at),
            power_mw: Some(400_000),
            throttle: Some(Throttle::Thermal.bit()),
            ..GaugeReading::default()
        }));
    }
    let out = stage.path("sampled.gpuwhy");
    let mut writer = TraceWriter::new(fs::File::create(&out).unwrap(), &session).unwrap();
    let mut events = events.into_iter();
    for item in items {
        // The samples arrive during the run, all before its end.
        events.by_ref().take(64).for_each(|event| writer.event(&event.into(), &dictionary).unwrap());
        if !matches!(item, Event::Utilization { .. } | Event::Counters(_) | Event::Collective(_)) {
            writer.event(&item, &dictionary).unwrap();
        }
    }
    writer.close(&dictionary).unwrap();
    (out, samples)
}

fn exported(stage: &Stage, trace: &Path, to: &str, name: &str) -> PathBuf {
    let out = stage.path(name);
    let output = gpuwhy(&[&"export", &"--to", &to, &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    out
}

#[test]
fn samples_are_counters_in_each_format() {
    let stage = play("sync_item");
    let (trace, samples) = sampled(&stage);
    let document: Value =
        serde_json::from_slice(&fs::read(exported(&stage, &trace, "chrome", "out.json")).unwrap()).unwrap();
    let rows: Vec<_> = document["traceEvents"].as_array().unwrap().iter().filter(|row| row["ph"] == "C").collect();
    let active: Vec<_> = rows.iter().filter(|row| row["name"] == "sm_active (%)").collect();
    assert_eq!(active.len() as u64, samples);
    assert!(active.iter().all(|row| row["args"]["value"] == 50.0 && row["pid"] == 0));
    assert!(rows.iter().any(|row| row["name"] == "power (W)" && row["args"]["value"] == 400.0));

    let database = Connection::open(exported(&stage, &trace, "sqlite", "out.sqlite")).unwrap();
    // Queries as in scripts of nsys users.
    let (count, low, high): (u64, i64, i64) = database
        .query_row(
            "SELECT count(*), min(value), max(value) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId)
             WHERE metricName LIKE 'SMs Active%' AND typeId & 0xFF = 0 AND timestamp > 0",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!((count, low, high), (samples, 50, 50));
    let clock: i64 =
        database.query_row("SELECT DISTINCT value FROM GPU_METRICS WHERE metricId = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(clock, 1_500);

    let lines = fs::read_to_string(exported(&stage, &trace, "json", "out.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let dram = lines.iter().filter(|line| line["table"] == "gpu_metrics" && line["metric"] == "dram");
    assert_eq!(dram.clone().count() as u64, samples);
    assert!(dram.clone().all(|line| line["value"] == 75.0 && line["unit"] == "%"));

    let perfetto = fs::read(exported(&stage, &trace, "perfetto", "out.pftrace")).unwrap();
    let values = perfetto.windows(8).filter(|bytes| **bytes == 75f64.to_le_bytes()).count();
    assert!(values as u64 >= samples, "{values}");
    for name in ["sm_active", "dram_read", "power"] {
        assert!(perfetto.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{name}");
    }
}

#[test]
fn tables_and_the_report_say_the_same_of_limits() {
    let stage = play("sync_item");
    let (trace, samples) = sampled(&stage);
    let asked = |query: &str| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &"--format", &"json", &trace, &query]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let output = gpuwhy(&[&"report", &"--json", &trace]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &report["devices"][0];
    let limits = &device["compute_limits"];
    assert_eq!(limits["chip"], "GH100");
    let used = ["used", "unusable", "unplaced"].map(|kind| limits["samples"][kind].as_u64().unwrap());
    assert!(used.iter().sum::<u64>() <= samples && used[0] > samples / 2, "{used:?} {samples}");
    let sum: u64 = limits["steady_ns"].as_object().unwrap().values().map(|nanos| nanos.as_u64().unwrap()).sum();
    assert_eq!(sum, device["steady_leaves"]["compute"].as_u64().unwrap());
    assert_eq!(device["gauges"]["watts"], 400.0);
    assert!(device["gauges"]["lowered_by_ns"]["thermal"].as_u64().unwrap() > 0);
    for row in asked("SELECT limited_by, steady_ns FROM compute_limits") {
        assert_eq!(row["steady_ns"], limits["steady_ns"][row["limited_by"].as_str().unwrap()], "{row}");
    }
    let rows = asked("SELECT name, roof FROM kernel_limits");
    assert_eq!(rows.len(), device["kernels"].as_array().unwrap().len());
    for row in rows {
        let kernel = device["kernels"].as_array().unwrap().iter().find(|kernel| kernel["name"] == row["name"]).unwrap();
        assert_eq!(row["roof"], kernel["limits"]["roof"], "{row}");
    }
    let means = asked("SELECT avg(value) AS mean, count(*) AS n FROM gpu_metrics WHERE metric = 'dram'");
    assert_eq!((means[0]["mean"].as_f64(), means[0]["n"].as_u64()), (Some(75.0), Some(samples)));
    // A compacted copy has the same data.
    let copy = stage.path("copy.gpuwhy");
    let output = gpuwhy(&[&"export", &"--to", &"gpuwhy", &trace, &"-o", &copy]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let again: Value = serde_json::from_slice(&gpuwhy(&[&"report", &"--json", &copy]).stdout).unwrap();
    assert_eq!(again["devices"][0]["compute_limits"], *limits);
}
