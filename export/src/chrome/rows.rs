//! The second pass: converts records to rows, with the members and their order as in Kineto's files.

use std::collections::VecDeque;
use std::io::{self, Write};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, CudaEvent, DeviceId, DeviceWork, Kernel, LaunchConfigId, Overhead, RangeEvent, RangeEventKind,
    Record, StreamId, Sync, SyncKind, Timestamp,
};
use profiler_core::api::without_suffix;
use rustc_hash::FxHashMap;

use super::arguments::{annotation, bandwidth, graph, notes, shape};
use super::steps::HostStep;

use crate::captured::CapturedPlaces;
use crate::correlations::Correlations;
use crate::counters::CounterValue;
use crate::json::{Micros, quoted};
use crate::names::{ReadableNames, demangled};
use crate::options::Options;
use crate::prescan::Prescan;
use crate::projection::ProjectedRange;
use crate::ranges::{ClosedRange, OpenRanges};
use crate::tracks::Tracks;
use crate::{kineto_names, process_names};

/// Maximum number of synchronizations waiting for the records of their events; those of one delivery.
const WAITING_LIMIT: usize = 1 << 16;
/// Maximum number of event recordings kept for the waits that refer to them.
const EVENTS_LIMIT: usize = 1 << 16;
/// Difference between the numbers of a stream's lines. CUPTI numbers streams by context, starting at 7.
const NEXT_LINE: u32 = 1_000_000;

pub struct ChromeRows<'a> {
    prescan: &'a Prescan,
    session: &'a ProcessInfo,
    options: &'a Options,
    kernel_names: ReadableNames,
    api_names: ReadableNames,
    texts: ReadableNames,
    shapes: FxHashMap<(DeviceId, LaunchConfigId), String>,
    stream_tracks: FxHashMap<(DeviceId, StreamId), Tracks>,
    arrows_from: Correlations,
    arrows_to: Correlations,
    pub captured: CapturedPlaces,
    pub ranges: OpenRanges,
    waiting: Vec<Sync>,
    events: FxHashMap<u64, CudaEvent>,
    event_order: VecDeque<u64>,
    is_first: bool,
    steps: u64,
}

impl<'a> ChromeRows<'a> {
    pub fn new(prescan: &'a Prescan, session: &'a ProcessInfo, options: &'a Options) -> Self {
        Self {
            prescan,
            session,
            options,
            kernel_names: ReadableNames::new(|name| quoted(&demangled(name))),
            api_names: ReadableNames::new(|name| quoted(without_suffix(name))),
            texts: ReadableNames::new(quoted),
            shapes: FxHashMap::default(),
            stream_tracks: FxHashMap::default(),
            arrows_from: Correlations::default(),
            arrows_to: Correlations::default(),
            captured: CapturedPlaces::default(),
            ranges: OpenRanges::default(),
            waiting: Vec::new(),
            events: FxHashMap::default(),
            event_order: VecDeque::new(),
            is_first: true,
            steps: 0,
        }
    }

    /// Writes names of processes and threads. A device is a process whose number is its ordinal.
    pub fn metadata(&mut self, output: &mut impl Write, dictionary: &Dictionary) -> io::Result<()> {
        let program = quoted(process_names::program(self.session));
        let process = self.session.process_id;
        self.process(output, process, &program, "CPU", u64::from(process))?;
        for (device, streams) in &self.prescan.streams {
            // Kineto sorts devices after all processes.
            self.process(output, device.0, &program, &format!("GPU {device}"), 5_000_000 + u64::from(device.0))?;
            for stream in streams {
                self.line(output, device.0, stream.0, &format!("\"stream {stream} \""), stream.0)?;
            }
        }
        for thread in &self.prescan.threads {
            let name = quoted(&format!(
                "{} ({})",
                process_names::thread(*thread, dictionary),
                process_names::program(self.session)
            ));
            self.line(output, process, thread.0, &name, thread.0)?;
        }
        Ok(())
    }

    fn process(&mut self, output: &mut impl Write, pid: u32, name: &str, label: &str, position: u64) -> io::Result<()> {
        for (what, args) in [
            ("process_name", format!("\"name\": {name}")),
            ("process_labels", format!("\"labels\": \"{label}\"")),
            ("process_sort_index", format!("\"sort_index\": {position}")),
        ] {
            self.next(output)?;
            write!(output, r#"{{"name": "{what}", "ph": "M", "ts": 0, "pid": {pid}, "tid": 0, "args": {{{args}}}}}"#)?;
        }
        Ok(())
    }

    fn line(&mut self, output: &mut impl Write, pid: u32, tid: u32, name: &str, position: u32) -> io::Result<()> {
        for (what, args) in
            [("thread_name", format!("\"name\": {name}")), ("thread_sort_index", format!("\"sort_index\": {position}"))]
        {
            self.next(output)?;
            write!(
                output,
                r#"{{"name": "{what}", "ph": "M", "ts": 0, "pid": {pid}, "tid": {tid}, "args": {{{args}}}}}"#
            )?;
        }
        Ok(())
    }

    /// Writes the rows of a record.
    pub fn record(&mut self, output: &mut impl Write, record: &Record, dictionary: &Dictionary) -> io::Result<()> {
        match record {
            Record::Kernel(row) => self.kernel(output, row, dictionary),
            Record::Copy(row) => {
                self.transfer(output, ("gpu_memcpy", &kineto_names::copy(row)), &row.into(), dictionary)
            }
            Record::Memset(row) => {
                self.transfer(output, ("gpu_memset", &kineto_names::memset(row)), &row.into(), dictionary)
            }
            Record::Api(row) => self.call(output, row, dictionary),
            Record::Overhead(row) => self.overhead(output, row),
            Record::Sync(row) => {
                self.waiting.push(*row);
                if self.waiting.len() < WAITING_LIMIT { Ok(()) } else { self.flush(output, dictionary) }
            }
            Record::Event(row) => {
                self.remember(row);
                Ok(())
            }
            Record::Range(row) if row.kind == RangeEventKind::Mark => self.mark(output, row, dictionary),
            Record::Range(row) => match self.ranges.take(row) {
                Some(range) => self.range(output, &range, dictionary),
                None => Ok(()),
            },
            Record::Sample(_) | Record::Memory(_) | Record::Managed(_) => Ok(()),
        }
    }

    /// Writes a counter value of a device as a counter track. A value from before the first record is
    /// dropped.
    pub fn counter(&mut self, output: &mut impl Write, value: &CounterValue) -> io::Result<()> {
        let CounterValue { device, counter, begin, value, .. } = *value;
        if begin < self.prescan.base || !value.is_finite() {
            return Ok(());
        }
        self.next(output)?;
        write!(
            output,
            r#"{{"ph": "C", "name": "{} ({})", "pid": {device}, "tid": 0, "ts": {}, "args": {{"value": {value}}}}}"#,
            counter.name(),
            counter.unit(),
            Micros(begin.since(self.prescan.base)),
        )
    }

    /// Called when one delivery is complete: writes the rows that waited for it.
    pub fn flush(&mut self, output: &mut impl Write, dictionary: &Dictionary) -> io::Result<()> {
        for sync in std::mem::take(&mut self.waiting) {
            self.sync(output, &sync, dictionary)?;
        }
        Ok(())
    }

    /// Writes the remaining rows.
    pub fn finish(&mut self, output: &mut impl Write, dictionary: &Dictionary) -> io::Result<()> {
        self.flush(output, dictionary)?;
        for range in self.ranges.finish(self.prescan.end) {
            self.range(output, &range, dictionary)?;
        }
        Ok(())
    }

    /// Writes a range over the work launched within it on one stream, as Kineto does.
    pub fn projection(
        &mut self,
        output: &mut impl Write,
        row: &ProjectedRange,
        dictionary: &Dictionary,
    ) -> io::Result<()> {
        let name = self.texts.get(row.message, dictionary).to_owned();
        self.open(output, "gpu_user_annotation", &name, row.device.0, row.stream.0, row.first, row.last)?;
        write!(output, "}}}}")
    }

    /// Writes a detected step, under the name that tools for this format search for.
    pub fn step(&mut self, output: &mut impl Write, number: usize, step: &HostStep) -> io::Result<()> {
        let name = format!("\"ProfilerStep#{number}\"");
        let HostStep { thread, start, end } = *step;
        self.open(output, "user_annotation", &name, self.session.process_id, thread.0, start, end)?;
        write!(output, "}}}}")
    }

    fn kernel(&mut self, output: &mut impl Write, row: &Kernel, dictionary: &Dictionary) -> io::Result<()> {
        let line = self.line_of(output, &row.into())?;
        let shape = self.shapes.entry((row.device, row.config)).or_insert_with(|| shape(row, dictionary));
        separate(output, &mut self.is_first)?;
        write!(
            output,
            r#"{{"ph": "X", "cat": "kernel", "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"queued": 0, "device": {}, "context": {}, "stream": {}, "correlation": {}, {shape}"#,
            self.kernel_names.get(dictionary.launch_config(row.config).name, dictionary),
            row.device,
            line,
            Micros(row.start.since(self.prescan.base)),
            Micros(row.end.since(row.start)),
            row.device,
            row.context,
            row.stream,
            row.correlation,
        )?;
        notes(output, &self.prescan.collectives.notes(row))?;
        self.close(output, &row.into(), line, dictionary)
    }

    /// A copy or memset.
    fn transfer(
        &mut self,
        output: &mut impl Write,
        (category, name): (&str, &str),
        row: &DeviceWork,
        dictionary: &Dictionary,
    ) -> io::Result<()> {
        let line = self.line_of(output, row)?;
        self.open(output, category, &quoted(name), row.device.0, line, row.start, row.end)?;
        write!(
            output,
            r#""device": {}, "context": {}, "stream": {}, "correlation": {}, "bytes": {}, "memory bandwidth (GB/s)": {}"#,
            row.device,
            row.context,
            row.stream,
            row.correlation,
            row.bytes,
            bandwidth(row.bytes, row.start, row.end),
        )?;
        self.close(output, row, line, dictionary)
    }

    /// Line number for an operation: its stream, or another line while that is occupied.
    fn line_of(&mut self, output: &mut impl Write, row: &DeviceWork) -> io::Result<u32> {
        let stream = row.stream.0;
        let (number, is_new) = self.stream_tracks.entry((row.device, row.stream)).or_default().take(row.start, row.end);
        let line = stream.wrapping_add(NEXT_LINE.wrapping_mul(number as u32));
        if is_new && number > 0 {
            self.line(output, row.device.0, line, &format!("\"stream {stream} ({})\"", number + 1), stream)?;
        }
        Ok(line)
    }

    /// Writes the end of an operation's row, and the end of its arrow.
    fn close(
        &mut self,
        output: &mut impl Write,
        row: &DeviceWork,
        line: u32,
        dictionary: &Dictionary,
    ) -> io::Result<()> {
        graph(output, row.graph_id, row.graph_node_id, self.captured.get(row.graph_node_id, dictionary))?;
        write!(output, "}}}}")?;
        self.arrow_to(output, row, line)
    }

    fn call(&mut self, output: &mut impl Write, row: &ApiCall, dictionary: &Dictionary) -> io::Result<()> {
        let function = dictionary.api_function(row.function);
        let category = match function.map(|function| function.domain) {
            Some(ApiDomain::Driver) => "cuda_driver",
            Some(ApiDomain::Runtime) | None => "cuda_runtime",
        };
        separate(output, &mut self.is_first)?;
        let name = function.map_or("\"?\"", |function| self.api_names.get(function.name, dictionary));
        write!(
            output,
            r#"{{"ph": "X", "cat": "{category}", "name": {name}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"cbid": {}, "correlation": {}}}}}"#,
            self.session.process_id,
            row.thread,
            Micros(row.start.since(self.prescan.base)),
            Micros(row.end.since(row.start)),
            function.map_or(0, |function| function.callback_id),
            row.correlation,
        )?;
        // One arrow per correlation: a runtime call and the driver call inside it may share one.
        if !self.prescan.with_work.contains(row.correlation) || !self.arrows_from.insert(row.correlation) {
            return Ok(());
        }
        self.next(output)?;
        write!(
            output,
            r#"{{"ph": "s", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "ac2g", "name": "ac2g"}}"#,
            row.correlation,
            self.session.process_id,
            row.thread,
            Micros(row.start.since(self.prescan.base)),
        )
    }

    /// Writes the end of the arrow from the call. Operations of a graph share a call; only the first one gets
    /// the arrow.
    fn arrow_to(&mut self, output: &mut impl Write, row: &DeviceWork, line: u32) -> io::Result<()> {
        let &DeviceWork { device, correlation, start, .. } = row;
        if !self.prescan.with_call.contains(correlation) || !self.arrows_to.insert(correlation) {
            return Ok(());
        }
        self.next(output)?;
        write!(
            output,
            r#"{{"ph": "f", "id": {correlation}, "pid": {device}, "tid": {line}, "ts": {}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}"#,
            Micros(start.since(self.prescan.base)),
        )
    }

    /// Writes a wait on the line of its stream, as Kineto does; a context synchronization is on stream -1.
    fn sync(&mut self, output: &mut impl Write, row: &Sync, dictionary: &Dictionary) -> io::Result<()> {
        let kind = row.kind.words();
        let device = dictionary.context(row.context).map_or(0, |context| context.device.0);
        let stream = if row.stream.0 == u32::MAX { -1 } else { i64::from(row.stream.0) };
        separate(output, &mut self.is_first)?;
        write!(
            output,
            r#"{{"ph": "X", "cat": "cuda_sync", "name": "{kind}", "pid": {device}, "tid": {stream}, "ts": {}, "dur": {}, "args": {{"cuda_sync_kind": "{kind}", "stream": {stream}, "correlation": {}, "device": {device}, "context": {}"#,
            Micros(row.start.since(self.prescan.base)),
            Micros(row.end.since(row.start)),
            row.correlation,
            row.context,
        )?;
        let awaited = matches!(row.kind, SyncKind::Event | SyncKind::StreamWaitEvent)
            .then(|| self.events.get(&row.event_sync_id))
            .flatten();
        if let Some(event) = awaited {
            write!(
                output,
                r#", "wait_on_stream": {}, "wait_on_cuda_event_record_corr_id": {}, "wait_on_cuda_event_id": {}"#,
                event.stream, event.correlation, event.event_id,
            )?;
        }
        write!(output, "}}}}")
    }

    /// Stores the recording of an event that has a unique id. Recordings without one cannot be distinguished.
    fn remember(&mut self, event: &CudaEvent) {
        if event.event_sync_id == 0 || self.events.insert(event.event_sync_id, *event).is_some() {
            return;
        }
        self.event_order.push_back(event.event_sync_id);
        if self.event_order.len() > EVENTS_LIMIT
            && let Some(oldest) = self.event_order.pop_front()
        {
            self.events.remove(&oldest);
        }
    }

    fn overhead(&mut self, output: &mut impl Write, row: &Overhead) -> io::Result<()> {
        let name = quoted(row.kind.name());
        self.open(output, "overhead", &name, self.session.process_id, row.thread.0, row.start, row.end)?;
        write!(output, "\"correlation\": {}}}}}", row.correlation)
    }

    fn mark(&mut self, output: &mut impl Write, row: &RangeEvent, dictionary: &Dictionary) -> io::Result<()> {
        self.next(output)?;
        write!(
            output,
            r#"{{"ph": "i", "s": "t", "cat": "user_annotation", "name": {}, "pid": {}, "tid": {}, "ts": {}, "args": {{{}}}}}"#,
            self.texts.get(row.message, dictionary),
            self.session.process_id,
            row.thread,
            Micros(row.at.since(self.prescan.base)),
            annotation(row, dictionary),
        )
    }

    /// Pushed ranges nest on the line of their thread. Started ranges may overlap, which that line cannot
    /// show.
    fn range(&mut self, output: &mut impl Write, range: &ClosedRange, dictionary: &Dictionary) -> io::Result<()> {
        let ClosedRange { begin, end, .. } = range;
        let process = self.session.process_id;
        let name = self.texts.get(begin.message, dictionary).to_owned();
        let arguments = annotation(begin, dictionary);
        if begin.kind == RangeEventKind::Push {
            self.open(output, "user_annotation", &name, process, begin.thread.0, begin.at, *end)?;
            write!(output, "{arguments}}}}}")?;
        } else {
            for (phase, at) in [("b", begin.at), ("e", *end)] {
                self.next(output)?;
                write!(
                    output,
                    r#"{{"ph": "{phase}", "id": {}, "cat": "user_annotation", "name": {name}, "pid": {process}, "tid": {}, "ts": {}, "args": {{{arguments}}}}}"#,
                    begin.range_id,
                    begin.thread,
                    Micros(at.since(self.prescan.base)),
                )?;
            }
        }
        if self.options.step_range.as_deref() == Some(dictionary.name(begin.message)) {
            let step = format!("\"ProfilerStep#{}\"", self.steps);
            self.steps += 1;
            self.open(output, "user_annotation", &step, process, begin.thread.0, begin.at, *end)?;
            write!(output, "}}}}")?;
        }
        Ok(())
    }

    /// Writes a row up to the opening brace of its arguments.
    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    fn open(
        &mut self,
        output: &mut impl Write,
        category: &str,
        name: &str,
        pid: u32,
        tid: u32,
        start: Timestamp,
        end: Timestamp,
    ) -> io::Result<()> {
        self.next(output)?;
        write!(
            output,
            r#"{{"ph": "X", "cat": "{category}", "name": {name}, "pid": {pid}, "tid": {tid}, "ts": {}, "dur": {}, "args": {{"#,
            Micros(start.since(self.prescan.base)),
            Micros(end.since(start)),
        )
    }

    fn next(&mut self, output: &mut impl Write) -> io::Result<()> {
        separate(output, &mut self.is_first)
    }
}

/// Starts a row.
fn separate(output: &mut impl Write, is_first: &mut bool) -> io::Result<()> {
    let separator: &[u8] = if std::mem::replace(is_first, false) { b"\n    " } else { b",\n    " };
    output.write_all(separator)
}
