//! Steps found by the engine, as host times: for tools that expect the program to name its steps.
//!
//! A step is identified by its start on the device. Its row is on the thread that launched its first
//! operation, from that launching call to the call that launches the first operation of the next step. The
//! engine stores only the newest steps, so they are collected as it finds them.

use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{ApiCall, CorrelationId, DeviceId, DeviceWork, Record, ThreadId, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::steps::StepSource;
use rustc_hash::FxHashMap;

use crate::error::ExportError;
use gpuwhy_import::{Progress, TraceFile, share};

/// Prefix of step names in this format.
const STEP: &str = "ProfilerStep#";
/// Maximum number of steps collected per series (16 bytes each); further ones get no row.
const STEP_LIMIT: usize = 1 << 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// Thread that launched the first operation of the step.
    pub thread: ThreadId,
    /// Start of that launching call.
    pub start: Timestamp,
    /// Start of the call that launches the first operation of the next step.
    pub end: Timestamp,
}

/// Start times of a trace's steps on the host, looked up for each call while rows are written.
#[derive(Debug, Default)]
pub struct FoundSteps {
    /// Start and end of each step on the device, nanoseconds, in order.
    steps: Vec<(u64, u64)>,
    /// Launch of the operation at a step's start or end, and the time of that boundary on the device.
    launches: FxHashMap<CorrelationId, u64>,
    /// Thread and start of the launching call, by time on the device.
    calls: FxHashMap<u64, (ThreadId, Timestamp)>,
    left_out: u64,
}

impl FoundSteps {
    /// Finds the steps of `trace` in two passes. Returns no steps if the program named its own, if no
    /// activity repeats, or if a step cannot be distinguished from a part of one.
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
                // If two operations start at the same time, the one launched first.
                *launch = (*launch).min(work.correlation);
            }
            Ok::<_, ExportError>(())
        })?;
        found.launches = boundaries.into_iter().map(|(at, launch)| (launch, at)).collect();
        Ok(found)
    }

    /// Records a call if it launches the first operation of a step.
    pub fn called(&mut self, call: &ApiCall) {
        let Some(&at) = self.launches.get(&call.correlation) else { return };
        let known = self.calls.entry(at).or_insert((call.thread, call.start));
        // In some versions, the driver call inside has the same id.
        if call.start < known.1 {
            *known = (call.thread, call.start);
        }
    }

    /// Steps whose launches are in the trace, in order, plus a row for the time from the last one up to
    /// `end`. HolisticTraceAnalysis treats the last row as an incomplete step and ignores it and everything
    /// after it.
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

    /// Describes steps that were left out, for the user.
    pub fn notes(&self) -> Vec<String> {
        let without = self.steps.len() - self.complete().count();
        let notes = [
            (without as u64, "steps have no row: the calls that launched them are not in the trace"),
            (self.left_out, "steps have no row: there are too many"),
        ];
        notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// All steps of the device with the longest window, in the capture that a report would describe.
fn on_the_device(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
) -> Result<Option<(DeviceId, FoundSteps)>, ExportError> {
    let mut captures = Captures::new(None);
    captures.options.no_simulation = true;
    let mut series: FxHashMap<(u32, DeviceId, StepSource, u32), FoundSteps> = FxHashMap::default();
    let mut collect = |captures: &mut Captures| {
        for (capture, device, step) in captures.take(Attributor::take_step_log) {
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
    if !found || device.step_meaning.recognized_by.is_none() || device.step_meaning.contains.is_some() {
        return Ok(None);
    }
    let id = device.device.id;
    let shown = captures.reported().and_then(|(_, engine)| engine.step_series(id));
    let key = shown.map(|of| (number, id, of.source, of.period));
    Ok(key.and_then(|key| series.remove(&key)).map(|steps| (id, steps)))
}
