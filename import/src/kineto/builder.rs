//! Turns rows into records.
//!
//! Kineto writes rows grouped by kind, not by time, and writes `baseTimeNanoseconds`, the reference of all
//! times, at the end. Records (about 100 bytes each) are therefore kept until the document is read, with
//! times relative to that base. A row of a relevant kind that cannot be used is counted with the reason; rows
//! of other kinds are skipped.

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, Copy, CorrelationId, DeviceId, DeviceWork, Kernel, LaunchConfig,
    Memset, NameId, Overhead, OverheadKind, Record, StreamId, Sync, SyncKind, ThreadId, Timestamp,
};
use serde_json::value::RawValue;

use super::collective::ProcessGroups;
use super::correlation::Correlations;
use super::jax::Layout;
use super::lenient::Lenient;
use super::operators::OperatorRows;
use super::processes::{Chosen, Contents, LabelId, Processes};
use super::python::PythonCall;
use super::repair::repaired;
use super::row::{Category, KinetoRow};
use super::{copy_name, time};

/// Keeps operations without correlation from being matched with calls without correlation.
pub(super) const CALL_WITHOUT_CORRELATION: CorrelationId = CorrelationId(u32::MAX);

/// Prefix of the ranges that name steps.
const STEP: &str = "ProfilerStep#";
/// Prefixes of the host ranges that are kept: steps, and PyTorch's ranges around fetching a batch.
const NAMED: [&str; 3] = [STEP, "enumerate(DataLoader)#", "enumerate(DataPipe)#"];

/// A range on a host thread; times relative to [`Builder::base_ns`].
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRange {
    pub(super) process: LabelId,
    pub(super) thread: ThreadId,
    pub(super) name: NameId,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

/// The reason why a row could not be used.
type Unusable = &'static str;

/// Everything read from the file.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) dictionary: Dictionary,
    /// In file order; times relative to `base_ns`.
    pub(super) records: Vec<Record>,
    /// The process of each record.
    labels: Vec<LabelId>,
    processes: Processes,
    /// The process that is kept, if one was chosen.
    chosen: Option<u32>,
    /// Operators and what is around them, if they were asked for.
    pub(super) operators: Option<OperatorRows>,
    /// Calls of Python functions.
    pub(super) python: Vec<PythonCall>,
    pub(super) layout: Layout,
    /// Thread, start and end of each `ProfilerStep#N` range, relative to `base_ns`.
    pub(super) steps: Vec<(ThreadId, Timestamp, Timestamp)>,
    /// Ranges that show what the program was doing, in file order.
    pub(super) ranges: Vec<HostRange>,
    /// True if the file has an array of rows.
    pub(super) found_rows: bool,
    pub(super) rows: u64,
    /// Number of rows about device work, usable or not.
    pub(super) device_rows: u64,
    /// Rows of relevant kinds that could not be used, by reason.
    pub(super) unusable: BTreeMap<Unusable, u64>,
    /// Rows that were read after the replacement of values and characters that JSON does not allow.
    pub(super) repaired: u64,
    correlations: Correlations,
    /// Reference of all times, nanoseconds since the Unix epoch; 0 in files with absolute times.
    pub(super) base_ns: i64,
    pub(super) host: String,
    pub(super) rank_variables: Vec<(String, String)>,
    pub(super) groups: ProcessGroups,
}

impl Builder {
    /// Takes the text of an object of `traceEvents`; false if it is not valid JSON.
    pub(super) fn row(&mut self, text: &[u8]) -> bool {
        let parsed = |text: &[u8]| serde_json::from_slice::<Lenient<KinetoRow>>(text).map(|row| row.0);
        if let Ok(row) = parsed(text) {
            self.take(row);
        } else if let Ok(row) = parsed(&repaired(text)) {
            self.repaired += 1;
            self.take(row);
        } else {
            self.lose();
            return false;
        }
        true
    }

    /// A row is not valid JSON.
    pub(super) fn lose(&mut self) {
        self.rows += 1;
        self.count("not valid JSON");
    }

    /// Takes an element of `traceEvents`; `None` if it is not an object.
    pub(super) fn take(&mut self, row: Option<KinetoRow>) {
        self.rows += 1;
        let Some(mut row) = row else {
            self.count("not an object");
            return;
        };
        if row.metadata {
            return self.layout.describe(&row);
        }
        if !row.categorized {
            self.layout.categorize(&mut row);
        }
        let device_work = matches!(row.category, Category::Kernel | Category::Copy | Category::Memset);
        self.device_rows += u64::from(device_work);
        if self.operators.is_some()
            && matches!(row.category, Category::Range | Category::Instant | Category::Python | Category::Arrow)
        {
            let process = self.processes.of(&row.process);
            if let Some(operators) = &mut self.operators {
                operators.take(&row, process);
            }
        }
        let is_named = NAMED.iter().any(|prefix| row.name.starts_with(prefix));
        if matches!(row.category, Category::Other | Category::Instant | Category::Arrow)
            || (row.category == Category::Range && !is_named)
        {
            return;
        }
        if let Err(reason) = self.convert(&row) {
            self.count(reason);
        }
    }

    pub(super) fn count(&mut self, reason: Unusable) {
        *self.unusable.entry(reason).or_default() += 1;
    }

    fn convert(&mut self, row: &KinetoRow) -> Result<(), Unusable> {
        let (start, end) = times(row)?;
        let process = self.processes.of(&row.process);
        let record = match row.category {
            Category::Kernel => Record::Kernel(self.kernel(row, start, end)?),
            Category::Copy => Record::Copy(self.copy(row, start, end)?),
            Category::Memset => Record::Memset(self.memset(row, start, end)?),
            Category::Runtime => Record::Api(self.call(row, ApiDomain::Runtime, start, end)?),
            Category::Driver => Record::Api(self.call(row, ApiDomain::Driver, start, end)?),
            Category::Sync => Record::Sync(self.sync(row, start, end)?),
            Category::Overhead => Record::Overhead(overhead(row, start, end)),
            Category::Python => {
                let call = PythonCall::of(&row.name, (process, thread(row)?), (start, end), &mut self.dictionary);
                self.python.extend(call);
                return Ok(());
            }
            Category::Range => {
                let name = self.dictionary.intern_name(&row.name);
                let range = HostRange { process, thread: thread(row)?, name, start, end };
                if row.name.starts_with(STEP) {
                    self.steps.push((range.thread, start, end));
                }
                self.ranges.push(range);
                return Ok(());
            }
            Category::Instant | Category::Arrow | Category::Other => return Ok(()),
        };
        if matches!(record, Record::Api(_)) {
            self.processes.called(process);
        }
        self.records.push(record);
        self.labels.push(process);
        Ok(())
    }

    /// Id of the chosen process, or of the first one; 0 if the rows have none.
    pub(super) fn process_id(&self) -> u32 {
        self.chosen.unwrap_or_else(|| self.processes.first())
    }

    /// Keeps only what is of the process `pid`. Returns a note on the others, if there are any.
    ///
    /// # Errors
    /// Lists the processes of the file if there is not exactly one with this number.
    pub(super) fn keep_process(&mut self, pid: u32) -> Result<Option<String>, String> {
        let Chosen { process, owners, note } = self.processes.choose(pid, &self.records, &self.labels)?;
        self.chosen = Some(pid);
        if note.is_none() {
            return Ok(None);
        }
        let mut of_process = owners.iter().map(|&owner| owner == process);
        self.records.retain(|_| of_process.next() == Some(true));
        self.labels = vec![process; self.records.len()];
        self.python.retain(|call| call.process == process);
        if let Some(operators) = &mut self.operators {
            operators.keep(process);
        }
        self.ranges.retain(|range| range.process == process);
        let steps = self.ranges.iter().filter(|range| self.dictionary.name(range.name).starts_with(STEP));
        self.steps = steps.map(|range| (range.thread, range.start, range.end)).collect();
        // These are of the file, which has several.
        self.groups = ProcessGroups::default();
        self.rank_variables.clear();
        Ok(note)
    }

    /// Makes the numbers of several processes distinct. Returns their number and a note if there are several.
    pub(super) fn separate_processes(&mut self) -> Option<(usize, String)> {
        let ranges = self.ranges.iter_mut().map(|range| (range.process, &mut range.thread));
        let calls = self.python.iter_mut().map(|call| (call.process, &mut call.thread));
        let operators = self.operators.iter_mut().flat_map(OperatorRows::threads);
        let found = self.processes.separate(Contents {
            records: &mut self.records,
            labels: &self.labels,
            threads: Box::new(ranges.chain(calls).chain(operators)),
            dictionary: &mut self.dictionary,
            correlations: &mut self.correlations,
        })?;
        // Both are of the process that marks or launches, but would be taken as of all.
        self.steps.clear();
        self.ranges.retain(|range| !self.dictionary.name(range.name).starts_with(STEP));
        self.groups = ProcessGroups::default();
        Some(found)
    }

    fn kernel(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Kernel, Unusable> {
        let arguments = &row.arguments;
        let config = LaunchConfig {
            name: self.dictionary.intern_name(&row.name),
            grid: arguments.grid.0,
            block: arguments.block.0,
            registers_per_thread: arguments.registers.within().unwrap_or(0),
            // Kineto writes the sum of static and dynamic shared memory.
            static_shared_bytes: arguments.shared_bytes.within().unwrap_or(0),
            ..LaunchConfig::default()
        };
        let work = self.work(row, start, end)?;
        self.groups.kernel(&row.name, work.correlation, &arguments.collective, &mut self.dictionary);
        Ok(Kernel { config: self.dictionary.intern_launch_config(config), ..work.into() })
    }

    fn work(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<DeviceWork, Unusable> {
        let arguments = &row.arguments;
        // Rows of a device have its ordinal as process and its stream as thread.
        let device = arguments.device.within().or_else(|| row.process.within());
        let stream = arguments.stream.within().or_else(|| row.thread.within());
        Ok(DeviceWork {
            start,
            end,
            device: DeviceId(device.ok_or("device work without device")?),
            context: ContextId(arguments.context.within().unwrap_or(0)),
            stream: StreamId(stream.unwrap_or(0)),
            correlation: self.correlations.of(row)?.unwrap_or_default(),
            bytes: arguments.bytes.within().unwrap_or(0),
            graph_id: arguments.graph.within().unwrap_or(0),
            graph_node_id: arguments.graph_node.within().unwrap_or(0),
        })
    }

    fn copy(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Copy, Unusable> {
        let work = self.work(row, start, end)?;
        let (kind, source, destination) = copy_name::path_of(&row.name);
        Ok(Copy { kind, source, destination, peers: [work.device; 2], ..work.into() })
    }

    fn memset(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Memset, Unusable> {
        Ok(Memset { memory: copy_name::memset_memory(&row.name), ..self.work(row, start, end)?.into() })
    }

    /// A `cuda_sync` row appears under a stream like device work, but is a wait of the host.
    fn sync(&mut self, row: &KinetoRow, start: Timestamp, end: Timestamp) -> Result<Sync, Unusable> {
        let written = row.arguments.sync_kind.text();
        let name = if written.is_empty() { row.name.as_str() } else { written };
        let kind = SyncKind::ALL.into_iter().find(|kind| kind.words() == name).unwrap_or_default();
        Ok(Sync {
            start,
            end,
            kind,
            context: ContextId(row.arguments.context.within().unwrap_or(0)),
            stream: StreamId(row.arguments.stream.within().unwrap_or(u32::MAX)),
            correlation: self.correlations.of(row)?.unwrap_or_default(),
            event_id: u32::MAX,
            event_sync_id: 0,
        })
    }

    fn call(
        &mut self,
        row: &KinetoRow,
        domain: ApiDomain,
        start: Timestamp,
        end: Timestamp,
    ) -> Result<ApiCall, Unusable> {
        let name = self.dictionary.intern_name(&row.name);
        let callback_id = row.arguments.callback_id.within().unwrap_or(0);
        Ok(ApiCall {
            start,
            end,
            thread: thread(row)?,
            correlation: self.correlations.of(row)?.unwrap_or(CALL_WITHOUT_CORRELATION),
            function: self.dictionary.intern_api_function(ApiFunction { domain, callback_id, name }),
            // The file has no return values; its calls are assumed to have succeeded.
            return_value: 0,
        })
    }
}

fn overhead(row: &KinetoRow, start: Timestamp, end: Timestamp) -> Overhead {
    let kind = OverheadKind::ALL.into_iter().find(|kind| kind.name() == row.name).unwrap_or_default();
    // Without a thread, the time belongs to no thread, which is written as zero.
    Overhead { start, end, kind, thread: thread(row).unwrap_or_default(), correlation: CorrelationId(0) }
}

pub(super) fn times(row: &KinetoRow) -> Result<(Timestamp, Timestamp), Unusable> {
    let nanos = |value: &Option<Box<RawValue>>| value.as_ref().and_then(|raw| time::nanoseconds(raw.get()));
    if !row.complete {
        return Err("begin and end in rows of their own");
    }
    let start = nanos(&row.start).and_then(|start| u64::try_from(start).ok()).ok_or("without a usable begin")?;
    let duration =
        nanos(&row.duration).and_then(|duration| u64::try_from(duration).ok()).ok_or("without a usable duration")?;
    Ok((Timestamp::from_nanos(start), Timestamp::from_nanos(start.saturating_add(duration))))
}

/// Thread as a number. Kineto truncates ids to signed 32-bit numbers; the bits are kept.
pub(super) fn thread(row: &KinetoRow) -> Result<ThreadId, Unusable> {
    row.thread
        .integer()
        .or_else(|| trailing(row.thread.text()))
        .map(|id| ThreadId(id as u32))
        .ok_or("without a thread number")
}

/// Number at the end of a text.
fn trailing(text: &str) -> Option<i64> {
    text[text.trim_end_matches(|letter: char| letter.is_ascii_digit()).len()..].parse().ok()
}
