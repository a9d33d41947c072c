//! The steps that the engine finds, as host times: for tools that expect the program to have named its steps.
//!
//! A step is known by when it begins on the device. Its row stands on the thread that launched its first operation,
//! from that launching call to the one that begins the next step. The engine remembers the newest steps only, so they
//! are collected as it finds them.

use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{ApiCall, CorrelationId, DeviceId, DeviceWork, Record, ThreadId, Timestamp};
use profiler_core::steps::StepSource;
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use gpuwhy_import::{Progress, TraceFile, share};

/// What the names of steps begin with in this format.
const STEP: &str = "ProfilerStep#";
/// Steps of one series that are collected; further ones get no row (16 bytes each).
const STEP_LIMIT: usize = 1 << 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// The thread that launched its first operation.
    pub thread: ThreadId,
    /// When that call began.
    pub start: Timestamp,
    /// When the call that begins the next step began.
    pub end: Timestamp,
}

/// Where the steps of a trace begin on the host: asked for each call while the rows are written.
#[derive(Debug, Default)]
pub struct FoundSteps {
    /// Begin and end of each on the device, nanoseconds, in order.
    steps: Vec<(u64, u64)>,
    /// The launch of the operation with which one begins or ends.
    launches: FxHashMap<CorrelationId, u64>,
    /// By the time on the device: thread and begin of the launching call.
    calls: FxHashMap<u64, (ThreadId, Timestamp)>,
    left_out: u64,
}

impl FoundSteps {
    /// Finds the steps of `trace`: none where the program named its own, where nothing repeats, and where nothing tells
    /// a step from a part of one. Two passes.
    pub fn of(trace: &TraceFile, names: &Dictionary, progress: &mut Progress<'_>) -> Result<Self, ExportError> {
        if names.names().iter().any(|name| name.starts_with(STEP)) {
            return Ok(Self::default());
        }
        let Some((device, mut found)) = on_the_device(trace, &mut share(progress, 0..60))? else {
            return Ok(Self::default());
        };
        let mut boundaries: FxHashMap<u64, CorrelationId> = FxHashMap::default();
        for &(start, end) in &found.steps {
            boundaries.insert(start, CorrelationId(u32::MAX));
            boundaries.insert(end, CorrelationId(u32::MAX));
        }
        trace.pass(&mut share(progress, 60..100), |event, _| {
            let work: Option<DeviceWork> = match event {
                Event::Record(Record::Kernel(row)) => Some(row.into()),
                Event::Record(Record::Copy(row)) => Some(row.into()),
                Event::Record(Record::Memset(row)) => Some(row.into()),
                _ => None,
            };
            if let Some(work) = work.filter(|work| work.device == device)
                && let Some(launch) = boundaries.get_mut(&work.start.nanos())
            {
                // Of two that begin together the one that was launched first.
                *launch = (*launch).min(work.correlation);
            }
            Ok::<_, ExportError>(())
        })?;
        found.launches = boundaries.into_iter().map(|(at, launch)| (launch, at)).collect();
        Ok(found)
    }

    /// Takes note of a call that launches the first operation of a step.
    pub fn called(&mut self, call: &ApiCall) {
        let Some(&at) = self.launches.get(&call.correlation) else { return };
        let known = self.calls.entry(at).or_insert((call.thread, call.start));
        // A driver call inside has the same id in some versions.
        if call.start < known.1 {
            *known = (call.thread, call.start);
        }
    }

    /// The steps whose launches are in the trace, in order, and what is behind the last of them up to `end`:
    /// HolisticTraceAnalysis takes the last row for a step that is not complete, and leaves out what is behind it.
    pub fn rows(&self, end: Timestamp) -> impl Iterator<Item = HostStep> {
        let rest = self.steps.last().and_then(|last| self.calls.get(&last.1));
        let rest = rest.map(|&(thread, start)| HostStep { thread, start, end }).filter(|rest| rest.start < end);
        self.complete().chain(rest)
    }

    fn complete(&self) -> impl Iterator<Item = HostStep> {
        let row = |&(start, end): &(u64, u64)| {
            let (&(thread, start), &(_, end)) = (self.calls.get(&start)?, self.calls.get(&end)?);
            (start < end).then_some(HostStep { thread, start, end })
        };
        self.steps.iter().filter_map(row)
    }

    /// What was left out: sentences for the user.
    pub fn notes(&self) -> Vec<String> {
        let without = self.steps.len() - self.complete().count();
        let notes = [
            (without as u64, "steps have no row: the calls that launched them are not in the trace"),
            (self.left_out, "steps have no row: there are too many"),
        ];
        notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// All steps of the device with the longest window, of the capture that a report would be about.
fn on_the_device(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
) -> Result<Option<(DeviceId, FoundSteps)>, ExportError> {
    let mut captures = Captures::new(None);
    captures.stop_what_if();
    let mut series: FxHashMap<(u32, DeviceId, StepSource, u32), FoundSteps> = FxHashMap::default();
    let mut collect = |captures: &mut Captures| {
        for (capture, device, step) in captures.take_step_log() {
            let known = series.entry((capture, device, step.series.source, step.series.period)).or_default();
            if known.steps.len() < STEP_LIMIT {
                known.steps.push((step.start.nanos(), step.end.nanos()));
            } else {
                known.left_out += 1;
            }
        }
    };
    let mut last = Timestamp::ZERO;
    let passed = trace.pass(progress, |event, scope| {
        if matches!(event, Event::Flush(_)) {
            collect(&mut captures);
        }
        captures.event(event, scope.session, scope.dictionary);
        if let Event::Flush(at) | Event::End(_, at) = event {
            last = last.max(*at);
        }
        if matches!(event, Event::Flush(_) | Event::Capture(_)) {
            collect(&mut captures);
        }
        Ok::<_, ExportError>(())
    })?;
    collect(&mut captures);
    captures.finish(last, &passed.session, &passed.dictionary);
    collect(&mut captures);
    let report = captures.report(&passed.session, &passed.dictionary, passed.end, Vec::new());
    let number = report.captures.shown.unwrap_or(1);
    let Some(device) = report.devices.iter().max_by_key(|device| device.window_ns) else { return Ok(None) };
    let found = device.steps.as_ref().is_some_and(|steps| steps.source != StepSource::Annotated);
    if !found || device.step_meaning.told_by.is_none() {
        return Ok(None);
    }
    let id = device.device.id;
    let key = captures.step_series(id).map(|of| (number, id, of.source, of.period));
    Ok(key.and_then(|key| series.remove(&key)).map(|steps| (id, steps)))
}
