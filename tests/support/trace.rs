//! What a trace holds, record by record.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use profiler_core::dictionary::Dictionary;
use profiler_core::event::Event;
use profiler_core::record::{RangeEvent, Record};
use profiler_core::trace::TraceReader;

/// The range events of a trace in their order, and what they refer to.
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
