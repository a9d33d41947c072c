//! Perfetto's format, decoded by a separate reader: durations are derived from start and end events, as in a
//! viewer.

use std::collections::{BTreeMap, BTreeSet};

use super::{gpuwhy, play};
use crate::support::stderr;

/// A field of a protobuf message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Fields of a message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
                bytes = rest;
                Value::Number(u64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn number(message: &[(u64, Value<'_>)], field: u64) -> Option<u64> {
    message.iter().find_map(|(number, value)| match value {
        Value::Number(value) if *number == field => Some(*value),
        _ => None,
    })
}

fn bytes<'a>(message: &[(u64, Value<'a>)], field: u64) -> impl Iterator<Item = &'a [u8]> {
    message.iter().filter_map(move |(number, value)| match value {
        Value::Bytes(value) if *number == field => Some(*value),
        _ => None,
    })
}

struct Event {
    at: u64,
    track: u64,
    kind: u64,
    category: Option<u64>,
    counter: Option<i64>,
    arrow: [Option<u64>; 2],
}

/// Events in time order, categories by id, and the tracks that are described.
fn read(trace: &[u8]) -> (Vec<Event>, BTreeMap<u64, String>, BTreeSet<u64>) {
    let (mut events, mut categories, mut tracks) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for packet in bytes(&fields(trace), 1) {
        let packet = fields(packet);
        for descriptor in bytes(&packet, 60) {
            tracks.insert(number(&fields(descriptor), 1).unwrap());
        }
        for category in bytes(&packet, 12).flat_map(|data| bytes(&fields(data), 1).collect::<Vec<_>>()) {
            let entry = fields(category);
            let text = String::from_utf8(bytes(&entry, 2).next().unwrap().to_vec()).unwrap();
            categories.insert(number(&entry, 1).unwrap(), text);
        }
        for event in bytes(&packet, 11) {
            let event = fields(event);
            events.push(Event {
                at: number(&packet, 8).unwrap(),
                track: number(&event, 11).unwrap(),
                kind: number(&event, 9).unwrap(),
                category: number(&event, 3),
                counter: number(&event, 30).map(|value| value as i64),
                arrow: [number(&event, 47), number(&event, 48)],
            });
        }
    }
    events.sort_by_key(|event| event.at);
    (events, categories, tracks)
}

#[test]
fn slices_counters_and_arrows_are_those_of_the_trace() {
    for fixture in ["graph_torch", "sync_item"] {
        let stage = play(fixture);
        let (trace, out) = (stage.path("trace.gpuwhy"), stage.path("out.perfetto-trace"));
        let output = gpuwhy(&[&"export", &"--to", &"perfetto", &trace, &"-o", &out]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let content = std::fs::read(&out).unwrap();
        let (events, categories, tracks) = read(&content);

        let mut open: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut counters: BTreeMap<u64, i64> = BTreeMap::new();
        let mut arrows: [Vec<u64>; 2] = Default::default();
        for event in &events {
            assert!(tracks.contains(&event.track), "a track without description");
            for (ends, arrow) in arrows.iter_mut().zip(event.arrow) {
                ends.extend(arrow);
            }
            match event.kind {
                1 => open.entry(event.track).or_default().push((event.at, event.category.unwrap())),
                2 => {
                    let (start, category) = open.get_mut(&event.track).and_then(Vec::pop).expect("an end has a begin");
                    let sum = sums.entry(&categories[&category]).or_default();
                    *sum = (sum.0 + 1, sum.1 + event.at - start);
                }
                4 => {
                    let value = event.counter.unwrap();
                    counters.insert(event.track, value);
                    assert!(value >= 0, "{fixture}: {value}");
                }
                other => panic!("event of type {other}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "everything that began has ended");
        assert!(!counters.is_empty() && counters.values().all(|&last| last == 0), "{counters:?}");
        arrows.iter_mut().for_each(|ends| ends.sort_unstable());
        assert!(!arrows[0].is_empty() && arrows[0] == arrows[1]);

        let report = stage.report();
        let total = |table: &str| -> (u64, u64) {
            let rows = report["devices"][0][table].as_array().unwrap();
            let sum = |member: &str| rows.iter().map(|row| row[member].as_u64().unwrap()).sum();
            (sum("count"), sum("total_ns"))
        };
        assert_eq!(sums["kernel"], total("kernels"), "{fixture}");
        assert_eq!(sums["copy"], total("copies"), "{fixture}");
        assert_eq!(sums["gpuwhy"].0, 1, "the bottleneck");
        // Only steps that the engine remembers; the table has all.
        let sql = "SELECT count(*), sum(duration_ns) FROM steps WHERE step > (SELECT max(step) FROM steps) - 1024";
        let steps = gpuwhy(&[&"query", &trace, &sql, &"--format", &"csv"]);
        let (count, nanos) = sums["step"];
        let steps = String::from_utf8(steps.stdout).unwrap();
        assert_eq!(steps.lines().last(), Some(format!("{count},{nanos}").as_str()), "{fixture}");
        let calls = report["completeness"]["records"]["api_calls"].as_u64().unwrap();
        let written = ["cuda_runtime", "cuda_driver"].map(|kind| sums.get(kind).map_or(0, |sum| sum.0));
        assert_eq!(written.iter().sum::<u64>(), calls, "{fixture}");
    }
}
