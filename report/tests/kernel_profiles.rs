//! Kernel profiles in a trace: they survive a round trip, also in a compacted trace, and reach the report
//! with their kernel.

use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::compact;
use gpuwhy_trace::format::{Block, BlockReader, TraceReader, TraceWriter};
use gpuwhy_trace::kernels::{KernelProfile, Outcome};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use std::sync::Arc;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn profile(config: LaunchConfigId) -> KernelProfile {
    KernelProfile {
        config,
        begin: at(100),
        end: at(200),
        passes: 2,
        launches: 2,
        stall_ns: 40,
        values: vec![("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed".to_owned(), 84.1)],
        ..KernelProfile::default()
    }
}

fn dictionary() -> (Dictionary, LaunchConfigId) {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("_Z6k_copyv");
    let config = LaunchConfig { name, grid: [1_056, 1, 1], block: [256, 1, 1], ..LaunchConfig::default() };
    let config = dictionary.intern_launch_config(config);
    dictionary.add_device(Device { compute_capability: [9, 0], multiprocessors: 132, ..Device::default() });
    (dictionary, config)
}

fn profiles(reader: &mut TraceReader<&[u8]>) -> Vec<KernelProfile> {
    let profile = |event| if let Event::KernelProfile(profile) = event { Some((*profile).clone()) } else { None };
    reader.map(Result::unwrap).filter_map(profile).collect()
}

#[test]
fn profiles_come_back_from_a_trace_and_from_a_compacted_one() {
    let (dictionary, config) = dictionary();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    let refused = KernelProfile { outcome: Outcome::Refused(35), values: Vec::new(), ..profile(config) };
    writer.event(&Event::KernelProfile(Arc::new(profile(config))), &dictionary).unwrap();
    writer.event(&Event::KernelProfile(Arc::new(refused.clone())), &dictionary).unwrap();
    let trace = writer.finish(End::Clean, at(300), &Loss::default(), &dictionary).unwrap();
    let (_, compacted) = compact(&trace[..], Vec::new()).unwrap();
    for bytes in [&trace, &compacted] {
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        assert_eq!(profiles(&mut reader), [profile(config), refused.clone()]);
        assert!(reader.damage().is_none());
        let launch = reader.dictionary().launch_config(config);
        assert_eq!(reader.dictionary().name(launch.name), "_Z6k_copyv", "its row comes before it");
    }
}

#[test]
fn a_report_has_the_profile_beside_its_kernel() {
    let (dictionary, config) = dictionary();
    let (mut captures, session) = (Captures::new(None), ProcessInfo::default());
    for number in 0..50u32 {
        let start = u64::from(number) * 1_000 + 1_000;
        let correlation = CorrelationId(number + 1);
        let kernel = Kernel { start: at(start), end: at(start + 500), correlation, config, ..Kernel::default() };
        captures.event(&Event::Record(Record::Kernel(kernel)), &session, &dictionary);
    }
    captures.event(&Event::KernelProfile(Arc::new(profile(config))), &session, &dictionary);
    captures.finish(at(60_000), &session, &dictionary);
    let report = captures.report(&session, &dictionary, End::Clean, Vec::new());
    assert!(report.kernels.unmeasured.is_empty() && report.kernels.stall_ns == 40);
    let view = &report.kernels.measured[0];
    assert_eq!((view.name.as_str(), view.launches, view.total_ns), ("k_copy", 50, 25_000));
    assert_eq!(view.geometry.map(|geometry| geometry.waves), Some(1.0));
    let finding = &view.findings[0];
    assert_eq!(finding.rule, "at_roof");
    let (share, gain) = (view.share.unwrap(), view.step_gain(finding).unwrap());
    assert!(share > 0.0 && (gain - share * finding.gain()).abs() < 1e-12, "{share} {gain}");
}

#[test]
fn names_of_megabytes_that_pack_well_take_bounded_memory() {
    let (dictionary, config) = dictionary();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    let huge = KernelProfile { values: vec![("a".repeat(15 << 20), 1.0)], ..profile(config) };
    let huge = Event::KernelProfile(Arc::new(huge));
    (0..9).for_each(|_| writer.event(&huge, &dictionary).unwrap());
    writer.event(&Event::KernelProfile(Arc::new(profile(config))), &dictionary).unwrap();
    let trace = writer.finish(End::Clean, at(300), &Loss::default(), &dictionary).unwrap();
    assert!(trace.len() < 64 << 10, "{} bytes", trace.len());
    let mut reader = TraceReader::new(&trace[..]).unwrap();
    // 128 MiB hold eight profiles, and small ones still fit after them.
    let profiles = profiles(&mut reader);
    assert_eq!((profiles.len(), profiles.last()), (9, Some(&profile(config))));
    assert_eq!(reader.damage().skipped_blocks, 1);

    let mut blocks = BlockReader::new(&trace[..]).unwrap();
    let memory = |block: &Block| block.memory();
    let sizes: Vec<_> = std::iter::from_fn(|| blocks.next_block().unwrap().as_ref().map(memory)).collect();
    assert_eq!(sizes.iter().filter(|&&bytes| bytes >= 15 << 20).count(), 9, "what reads ahead counts them: {sizes:?}");
}
