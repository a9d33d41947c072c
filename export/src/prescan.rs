//! The first pass: data that must be known before the first row can be written.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{DeviceId, DeviceWork, MemoryKind, NameId, Record, StreamId, ThreadId, Timestamp};
use profiler_core::attribution::is_communication;

use crate::collectives::Collectives;
use crate::correlations::Correlations;
use crate::error::ExportError;
use gpuwhy_import::{Passed, Progress, TraceFile};

/// Summary of the contents of a trace.
#[derive(Debug, Default)]
pub struct Prescan {
    /// Earliest time of all records, to which all rows are relative.
    pub base: Timestamp,
    /// Latest time of all records.
    pub end: Timestamp,
    /// Calls whose work is in the trace.
    pub with_work: Correlations,
    /// Work whose call is in the trace.
    pub with_call: Correlations,
    /// Host threads.
    pub threads: BTreeSet<ThreadId>,
    pub streams: BTreeMap<DeviceId, BTreeSet<StreamId>>,
    /// Devices and kinds of memory with allocations.
    pub memory: BTreeSet<(DeviceId, MemoryKind)>,
    /// True if the program has ranges.
    pub has_ranges: bool,
    /// True if an NCCL collective ran.
    pub communicates: bool,
    /// NCCL's data about kernels.
    pub collectives: Collectives,
}

impl Prescan {
    /// Reads the trace once.
    pub fn of(trace: &TraceFile, progress: &mut Progress<'_>) -> Result<(Self, Passed), ExportError> {
        let mut prescan = Self { base: Timestamp::from_nanos(u64::MAX), ..Self::default() };
        let passed = trace.pass(progress, |event, scope| {
            prescan.collectives.take(event, scope.dictionary);
            if let Event::Record(record) = event {
                prescan.take(record);
            }
            Ok::<_, ExportError>(())
        })?;
        prescan.collectives.finish();
        prescan.base = prescan.base.min(prescan.end);
        let names = passed.dictionary.launch_configs().iter().map(|config| passed.dictionary.name(config.name));
        prescan.communicates = names.into_iter().any(is_communication);
        Ok((prescan, passed))
    }

    fn take(&mut self, record: &Record) {
        match record {
            Record::Kernel(row) => self.work(&row.into()),
            Record::Copy(row) => self.work(&row.into()),
            Record::Memset(row) => self.work(&row.into()),
            Record::Api(row) => {
                self.with_call.insert(row.correlation);
                self.host(row.thread, row.start, row.end);
            }
            Record::Sync(row) => self.widen(row.start, row.end),
            Record::Overhead(row) => self.host(row.thread, row.start, row.end),
            Record::Range(row) => {
                self.has_ranges = true;
                self.host(row.thread, row.at, row.at);
            }
            Record::Memory(row) => {
                if row.name == NameId::UNKNOWN {
                    self.memory.insert((row.device, row.kind));
                }
                self.widen(row.at, row.at);
            }
            Record::Managed(row) => self.widen(row.start, row.end),
            Record::Sample(_) | Record::Event(_) => {}
        }
    }

    fn work(&mut self, work: &DeviceWork) {
        self.with_work.insert(work.correlation);
        self.streams.entry(work.device).or_default().insert(work.stream);
        self.widen(work.start, work.end);
    }

    fn host(&mut self, thread: ThreadId, start: Timestamp, end: Timestamp) {
        self.threads.insert(thread);
        self.widen(start, end);
    }

    /// Ignores times that were not recorded.
    fn widen(&mut self, start: Timestamp, end: Timestamp) {
        if start != Timestamp::ZERO {
            self.base = self.base.min(start);
        }
        self.end = self.end.max(end);
    }
}
