//! Additions of trace version 1.5: samples of hardware counters, NVML readings, and lost samples.
//!
//! The golden file of version 1.5 is exactly this trace: any change here changes the expected contents of
//! that file.

use gpuwhy_trace::counters::{
    ChipName, CounterEvent, CounterLoss, GaugeReading, Metric, MetricList, MetricSet, Sample, Throttle,
    UnavailableReason,
};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, session};

/// Every kind of event.
pub fn events() -> [CounterEvent; 8] {
    let metrics = [Metric::Clock, Metric::MultiprocessorsActive, Metric::Tensor, Metric::DramRead];
    let set = MetricSet {
        device: DeviceId(0),
        chip: ChipName::new("GH100"),
        metrics: MetricList::new(&metrics),
        interval_ns: 50_000,
        highest_clock_hz: 1_980_000_000,
        multiprocessors: 132,
    };
    let sample = |begin, values: [f32; 4]| {
        CounterEvent::Sample(Sample::new(DeviceId(0), at(begin), at(begin + 50_000), &values))
    };
    let reading = GaugeReading {
        device: DeviceId(0),
        at: at(60_000),
        power_mw: Some(512_345),
        temperature_c: Some(51),
        memory_temperature_c: Some(63),
        sm_clock_mhz: Some(1_740),
        memory_clock_mhz: Some(3_201),
        throttle: Some(Throttle::PowerCap.bit()),
        memory_used_bytes: Some(41 << 30),
        pcie_received_bytes: Some(4_000_000_123),
        pcie_sent_bytes: Some(17),
        nvlink_received_bytes: Some(1 << 40),
        nvlink_sent_bytes: Some(1 << 41),
        energy_mj: Some(987_654_321_000),
        ..GaugeReading::default()
    };
    let loss = CounterLoss { device: DeviceId(0), lost: 2, incomplete: 1, first_dropped: 1, slowed: 1, refused: None };
    let refused = CounterLoss { device: DeviceId(1), refused: Some(UnavailableReason::Busy), ..CounterLoss::default() };
    [
        CounterEvent::Set(set),
        sample(0, [1.71e9, 93.5, 37.25, 1.25e12]),
        sample(50_000, [1.69e9, 88.0, 0.0, 2.5e12]),
        CounterEvent::Gauges(reading),
        CounterEvent::Gauges(GaugeReading { device: DeviceId(1), at: at(61_000), ..GaugeReading::default() }),
        sample(120_000, [1.98e9, 0.5, 12.0, 3.0e9]),
        CounterEvent::Loss(loss),
        CounterEvent::Loss(refused),
    ]
}

/// A trace of these events, between two kernels.
pub fn sample() -> (Dictionary, Vec<u8>) {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("gemm");
    let config = dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    for start in [10_000, 60_000] {
        let kernel = Kernel { start: at(start), end: at(start + 40_000), config, ..Kernel::default() };
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
    }
    for event in events() {
        writer.event(&event.into(), &dictionary).unwrap();
    }
    let loss = Loss::default();
    writer
        .event(&Event::from(loss), &dictionary)
        .and_then(|()| writer.event(&Event::Flush(at(200_000)), &dictionary))
        .unwrap();
    let bytes = writer.finish(End::Clean, at(250_000), &loss, &dictionary).unwrap();
    (dictionary, bytes)
}
