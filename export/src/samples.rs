//! Host samples as stacks: for speedscope, over time by thread, and collapsed, for flame graphs.
//!
//! A sample stands for the time since the previous one of its thread. These times differ, because a thread that
//! sleeps is not sampled again, so both formats weigh a stack with its time, not with its number of samples. The
//! innermost frame of a thread that waits is what it waits for, such as `[sleep]`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gpuwhy_import::{Progress, TraceFile};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{Frame, HostSample, Record, StackId, ThreadId, ThreadState, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::destination::Destination;
use crate::error::ExportError;
use crate::json::quoted;
use crate::options::ExportOutcome;
use crate::output::Output;
use crate::process_names;

/// Schema of the files of speedscope.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
/// Frame of a running thread whose stack is not known.
const NO_STACK: &str = "[no stack]";

/// Writes a file for speedscope: a profile of type `sampled` for each thread, in nanoseconds since the start of
/// tracing. Time without samples has an empty stack, so the profiles have a common time axis.
pub fn speedscope(
    trace: &TraceFile,
    to: Destination,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    written(trace, to, progress, Samples::write_speedscope)
}

/// Writes a line for each thread and stack, outermost frame first, with its time in nanoseconds.
pub fn collapsed(
    trace: &TraceFile,
    to: Destination,
    progress: &mut Progress<'_>,
) -> Result<ExportOutcome, ExportError> {
    written(trace, to, progress, Samples::write_collapsed)
}

fn written(
    trace: &TraceFile,
    to: Destination,
    progress: &mut Progress<'_>,
    write: impl FnOnce(&Samples, &mut Output, &ProcessInfo, &Dictionary) -> io::Result<()>,
) -> Result<ExportOutcome, ExportError> {
    let mut outcome = ExportOutcome::default();
    let mut samples = Samples::default();
    let passed = trace.pass(progress, |event, scope| {
        match event {
            Event::Record(Record::Sample(sample)) => {
                outcome.written += 1;
                samples.push(sample, scope.session.start);
            }
            Event::Record(record) => outcome.leave_out(record.kind()),
            _ => {}
        }
        Ok::<_, ExportError>(())
    })?;
    if samples.threads.is_empty() {
        let why = "it has no host samples, so there are no stacks; GPUWHY_SAMPLING=auto records them";
        return Err(ExportError::refused(trace.path(), why.to_owned()));
    }
    outcome.notes = passed.notes();
    if samples.overlapping > 0 {
        outcome.notes.push(format!(
            "{} host samples begin before the end of the previous one of their thread and were shortened",
            samples.overlapping
        ));
    }
    let mut output = Output::create(to)?;
    write(&samples, &mut output, &passed.session, &passed.dictionary).map_err(|error| output.failed(error))?;
    output.finish()?;
    Ok(outcome)
}

/// A stack with the state of its thread; `None` is time without samples.
type Place = Option<(StackId, ThreadState)>;

/// The samples by thread: twelve bytes for each change of place. The sampler takes at most 1 % of a core, so a
/// day has some million of them.
#[derive(Debug, Default)]
struct Samples {
    places: Vec<Place>,
    numbers: FxHashMap<Place, u32>,
    threads: BTreeMap<ThreadId, ThreadSamples>,
    /// Number of samples that begin before the end of the previous one of their thread.
    overlapping: u64,
}

#[derive(Debug, Default)]
struct ThreadSamples {
    /// Numbers of places, in the order of time.
    places: Vec<u32>,
    /// Duration of each, nanoseconds.
    weights: Vec<u64>,
    /// Their sum.
    end: u64,
}

impl ThreadSamples {
    fn push(&mut self, place: u32, weight: u64) {
        self.end += weight;
        match (self.places.last(), self.weights.last_mut()) {
            (Some(&last), Some(total)) if last == place => *total += weight,
            _ => {
                self.places.push(place);
                self.weights.push(weight);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.places.iter().copied().zip(self.weights.iter().copied())
    }
}

impl Samples {
    /// Adds a sample of a trace that starts at `start`.
    fn push(&mut self, sample: &HostSample, start: Timestamp) {
        let [gap, place] = [None, Some((sample.stack, sample.state))].map(|place| self.number(place));
        let thread = self.threads.entry(sample.thread).or_default();
        let since = sample.since.since(start);
        self.overlapping += u64::from(since < thread.end);
        if since > thread.end {
            thread.push(gap, since - thread.end);
        }
        let rest = sample.at.since(start).saturating_sub(thread.end);
        if rest > 0 {
            thread.push(place, rest);
        }
    }

    fn number(&mut self, place: Place) -> u32 {
        *self.numbers.entry(place).or_insert_with(|| {
            self.places.push(place);
            self.places.len() as u32 - 1
        })
    }

    fn write_speedscope(&self, output: &mut Output, session: &ProcessInfo, dictionary: &Dictionary) -> io::Result<()> {
        let mut frames = Frames::default();
        let stacks: Vec<String> = self
            .places
            .iter()
            .map(|&place| {
                let numbers = stack(place, dictionary).into_iter().map(|frame| frames.number(frame).to_string());
                numbers.collect::<Vec<_>>().join(",")
            })
            .collect();
        let name = quoted(&format!("{} {}", process_names::program(session), session.process_id));
        let exporter = concat!("gpuwhy ", env!("CARGO_PKG_VERSION"));
        write!(output, r#"{{"$schema":"{SCHEMA}","exporter":"{exporter}","name":{name},"profiles":["#)?;
        for (number, (thread, samples)) in self.threads.iter().enumerate() {
            let name = quoted(&process_names::thread(*thread, dictionary));
            let comma = if number > 0 { "," } else { "" };
            let end = samples.end;
            write!(
                output,
                r#"{comma}{{"type":"sampled","name":{name},"unit":"nanoseconds","startValue":0,"endValue":{end},"samples":["#
            )?;
            for (number, (place, _)) in samples.iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                write!(output, "{comma}[{}]", stacks[place as usize])?;
            }
            write!(output, r#"],"weights":["#)?;
            for (number, (_, weight)) in samples.iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                write!(output, "{comma}{weight}")?;
            }
            write!(output, "]}}")?;
        }
        write!(output, r#"],"shared":{{"frames":["#)?;
        for (number, shown) in frames.shown.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(output, "{comma}{}", shown.json(dictionary))?;
        }
        writeln!(output, "]}}}}")
    }

    fn write_collapsed(&self, output: &mut Output, _: &ProcessInfo, dictionary: &Dictionary) -> io::Result<()> {
        for (&thread, samples) in &self.threads {
            let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
            for (place, weight) in samples.iter() {
                *sums.entry(place).or_default() += weight;
            }
            // Stacks with one text: a frame of each id has a different caller.
            let mut lines: BTreeMap<String, u64> = BTreeMap::new();
            for (place, sum) in sums {
                let frames = stack(self.places[place as usize], dictionary);
                if !frames.is_empty() {
                    let texts: Vec<_> = frames.into_iter().map(|frame| frame.line(dictionary)).collect();
                    *lines.entry(texts.join(";")).or_default() += sum;
                }
            }
            let thread = cell(&process_names::thread(thread, dictionary));
            for (stack, sum) in lines {
                writeln!(output, "{thread};{stack} {sum}")?;
            }
        }
        Ok(())
    }
}

/// A frame as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shown {
    /// Without the caller, which makes no difference between two frames.
    Function(Frame),
    Waiting(ThreadState),
    NoStack,
}

impl Shown {
    fn json(self, dictionary: &Dictionary) -> String {
        let Self::Function(Frame { function, file, line, .. }) = self else {
            return json!({"name": self.line(dictionary)}).to_string();
        };
        let (name, file) = (quoted(dictionary.name(function)), quoted(dictionary.name(file)));
        let line = if line == 0 { String::new() } else { format!(r#","line":{line}"#) };
        format!(r#"{{"name":{name},"file":{file}{line}}}"#)
    }

    fn line(self, dictionary: &Dictionary) -> String {
        match self {
            Self::Function(Frame { function, file, line, .. }) => {
                let (function, file) = (dictionary.name(function), dictionary.name(file));
                let line = if line == 0 { String::new() } else { format!(":{line}") };
                cell(&format!("{function} ({file}{line})"))
            }
            Self::Waiting(state) => format!("[{}]", state.name()),
            Self::NoStack => NO_STACK.to_owned(),
        }
    }
}

/// `text` without characters that separate frames and lines, or control a terminal.
fn cell(text: &str) -> String {
    text.chars().map(|letter| if letter == ';' || letter.is_control() { '_' } else { letter }).collect()
}

/// The frames of a place, outermost first; none for time without samples.
fn stack(place: Place, dictionary: &Dictionary) -> Vec<Shown> {
    let Some((stack, state)) = place else { return Vec::new() };
    let frames = dictionary.stack(stack).map(|frame| Shown::Function(Frame { caller: StackId::NONE, ..frame }));
    let mut frames: Vec<Shown> = frames.collect();
    frames.reverse();
    match state {
        ThreadState::Running | ThreadState::Unknown if frames.is_empty() => frames.push(Shown::NoStack),
        ThreadState::Running | ThreadState::Unknown => {}
        state => frames.push(Shown::Waiting(state)),
    }
    frames
}

/// Numbers of the frames in a file for speedscope.
#[derive(Debug, Default)]
struct Frames {
    shown: Vec<Shown>,
    numbers: FxHashMap<Shown, usize>,
}

impl Frames {
    fn number(&mut self, frame: Shown) -> usize {
        *self.numbers.entry(frame).or_insert_with(|| {
            self.shown.push(frame);
            self.shown.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(since: u64, at: u64, state: ThreadState) -> HostSample {
        let [since, at] = [since, at].map(Timestamp::from_nanos);
        HostSample { since, at, state, stack: StackId::NONE, ..HostSample::default() }
    }

    #[test]
    fn equal_samples_in_a_row_are_joined_gaps_stay_and_overlaps_are_counted() {
        let mut samples = Samples::default();
        for (since, at, state) in [
            (150, 160, ThreadState::Running),
            (160, 170, ThreadState::Running),
            (180, 190, ThreadState::Sleep),
            (185, 195, ThreadState::Running),
            (150, 170, ThreadState::Running),
        ] {
            samples.push(&sample(since, at, state), Timestamp::from_nanos(100));
        }
        let thread = &samples.threads[&ThreadId(0)];
        let shown = |(place, weight): (u32, u64)| (samples.places[place as usize].map(|(_, state)| state), weight);
        let running = Some(ThreadState::Running);
        let wanted = [(None, 50), (running, 20), (None, 10), (Some(ThreadState::Sleep), 10), (running, 5)];
        assert_eq!(thread.iter().map(shown).collect::<Vec<_>>(), wanted);
        assert_eq!((thread.end, samples.overlapping), (95, 2));
    }

    #[test]
    fn a_name_cannot_end_a_frame_or_a_line() {
        assert_eq!(cell("a;b\nc\u{1b}d e"), "a_b_c_d e");
    }
}
