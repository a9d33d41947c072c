//! Row arguments that are derived from more than one field.

use std::io::{self, Write};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::geometry::{Geometry, Multiprocessors, WARP_THREADS};
use gpuwhy_trace::record::{Kernel, Payload, RangeEvent, Timestamp};

use crate::captured::Captured;
use crate::collectives::Note;
use crate::json::quoted;

/// Shape and resources of a launch, and how it fills the device: equal for every launch of a configuration.
/// Values that depend on the device are left out if it is not described.
pub fn shape(row: &Kernel, dictionary: &Dictionary) -> String {
    let config = dictionary.launch_config(row.config);
    let shared = u64::from(config.static_shared_bytes) + u64::from(config.dynamic_shared_bytes);
    let room = dictionary.device(row.device).and_then(Multiprocessors::of);
    let geometry = room.and_then(|room| Geometry::of(&config, &room).map(|geometry| (room, geometry)));
    let filling = geometry.map_or_else(String::new, |(room, geometry)| {
        let blocks = geometry.blocks as f64 / f64::from(room.count);
        let warps = blocks * f64::from(geometry.block_threads) / f64::from(WARP_THREADS);
        let occupancy = (geometry.achieved_occupancy * 100.0).round();
        format!("\"blocks per SM\": {blocks}, \"warps per SM\": {warps}, \"est. achieved occupancy %\": {occupancy}, ")
    });
    let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
    format!(
        "\"registers per thread\": {}, \"shared memory\": {shared}, {filling}\
         \"grid\": [{gx}, {gy}, {gz}], \"block\": [{bx}, {by}, {bz}]",
        config.registers_per_thread
    )
}

/// Writes NCCL's data about a kernel after its other arguments.
pub fn notes(output: &mut impl Write, notes: &[(&'static str, Note)]) -> io::Result<()> {
    notes.iter().try_for_each(|(name, note)| match note {
        Note::Text(text) => write!(output, ", \"{name}\": {}", quoted(text)),
        Note::Number(number) => write!(output, ", \"{name}\": {number}"),
    })
}

/// Writes the graph that launched an operation after its other arguments, and where it was captured.
pub fn graph(output: &mut impl Write, id: u32, node: u64, captured: Option<&Captured>) -> io::Result<()> {
    if id == 0 && node == 0 {
        return Ok(());
    }
    write!(output, r#", "graph id": {id}, "graph node id": {node}"#)?;
    let mut texts = captured.into_iter().flat_map(Captured::texts);
    texts.try_for_each(|(name, text)| write!(output, r#", "{name}": {}"#, quoted(text)))
}

/// Bytes per nanosecond, i.e. gigabytes per second; 0 for an operation without duration.
pub fn bandwidth(bytes: u64, start: Timestamp, end: Timestamp) -> f64 {
    match end.since(start) {
        0 => 0.0,
        nanos => bytes as f64 / nanos as f64,
    }
}

/// Payload, category and color that the program attached to a range or mark.
pub fn annotation(event: &RangeEvent, dictionary: &Dictionary) -> String {
    let mut members = Vec::new();
    for (key, name) in [("domain", event.domain), ("category", event.category)] {
        let text = dictionary.name(name);
        if !text.is_empty() {
            members.push(format!("\"{key}\": {}", quoted(text)));
        }
    }
    match event.payload {
        Payload::None => {}
        Payload::Unsigned(number) => members.push(format!("\"payload\": {number}")),
        Payload::Signed(number) => members.push(format!("\"payload\": {number}")),
        Payload::Float(number) if number.is_finite() => members.push(format!("\"payload\": {number}")),
        Payload::Float(number) => members.push(format!("\"payload\": \"{number}\"")),
    }
    members.join(", ")
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::{Device, DeviceId, LaunchConfig};

    use super::*;

    #[test]
    fn a_launch_is_described_as_kineto_does() {
        let mut dictionary = Dictionary::new();
        dictionary.add_device(Device { compute_capability: [7, 0], multiprocessors: 80, ..Device::default() });
        let config = dictionary.intern_launch_config(LaunchConfig {
            grid: [50, 1, 1],
            block: [256, 1, 1],
            registers_per_thread: 38,
            ..LaunchConfig::default()
        });
        // These are the numbers of the first kernel in the PyTorch profiler's own trace of ResNet-50 on a
        // V100.
        let text = shape(&Kernel { config, ..Kernel::default() }, &dictionary);
        for wanted in ["\"blocks per SM\": 0.625", "\"warps per SM\": 5,", "\"est. achieved occupancy %\": 8"] {
            assert!(text.contains(wanted), "{text}");
        }
        let elsewhere = shape(&Kernel { config, device: DeviceId(1), ..Kernel::default() }, &dictionary);
        assert!(!elsewhere.contains("per SM") && elsewhere.contains("\"grid\": [50, 1, 1]"), "{elsewhere}");
    }

    #[test]
    fn payloads_stay_json() {
        let dictionary = Dictionary::new();
        let text = |payload| annotation(&RangeEvent { payload, ..RangeEvent::default() }, &dictionary);
        assert!(text(Payload::Float(f64::NAN)).ends_with("\"NaN\""));
        assert!(text(Payload::Signed(-3)).ends_with("-3"));
    }
}
