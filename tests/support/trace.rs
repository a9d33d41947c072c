//! Contents of a trace, record by record.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::{RangeEvent, Record};

/// Range events of a trace in order, and the dictionary for them.
pub fn ranges(trace: &Path) -> (Vec<RangeEvent>, Dictionary) {
    let mut reader = TraceReader::new(BufReader::new(File::open(trace).unwrap())).unwrap();
    let mut ranges = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        if let Event::Record(Record::Range(range)) = item {
            ranges.push(range);
        }
    }
    (ranges, reader.into_parts().1)
}
