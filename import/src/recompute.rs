//! Makes the report of a trace from all of its records, on two threads.
//!
//! Decoding blocks (checksums, decompression, columns) is about a third of the work and attribution two
//! thirds. They are independent except for the order of the blocks. So the calling thread, whose file need
//! not be `Send`, reads ahead by a few blocks, and a second thread runs the engine; neither holds more than
//! these blocks. The engine is unaware of threads.

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{panic, thread};

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{Assembly, Block, BlockReader, TraceError, TraceReader};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::Timestamp;

use crate::operators::Recorder;
use crate::request::Request;
use crate::window::Window;

/// Memory of the blocks that are handed over together, bytes; some 4,000 records. Waking a thread for each
/// flush mark would cost more than processing it.
const TOGETHER: usize = 360_000;
/// Memory of the blocks that are read ahead, the one being processed included, bytes: four blocks of 16,384
/// records. A larger block is read ahead alone.
const AHEAD: usize = 6 << 20;

/// State of a run at one moment.
#[derive(Clone, Copy, Debug)]
pub struct RunState<'a> {
    /// The engine.
    pub captures: &'a Captures,
    /// The traced process.
    pub session: &'a ProcessInfo,
    /// All names and configurations up to this moment.
    pub dictionary: &'a Dictionary,
}

impl RunState<'_> {
    /// Makes the report that the program itself would have made at this moment.
    pub fn report(&self) -> Report {
        self.captures.report(self.session, self.dictionary, End::Abrupt, Vec::new())
    }
}

/// Follows the records of a trace while its report is made, on the thread that runs the engine.
pub trait Observer: Send {
    /// Called before the first event, to configure the engine.
    fn begin(&mut self, captures: &mut Captures);

    /// Called with each event of the trace, before the engine takes it.
    fn event(&mut self, _event: &Event, _dictionary: &Dictionary) {}

    /// Called once the engine has taken everything up to `at`.
    fn flushed(&mut self, _at: Timestamp, _seen: RunState<'_>) {}

    /// Called once the engine has taken the events of some blocks. `is_last`: these were the last ones.
    fn taken(&mut self, captures: &mut Captures, dictionary: &Dictionary, is_last: bool);

    /// Returns the process and the names for the text of the report, in place of those of the trace: ids must
    /// refer to the same things. They do not affect any result. Called once, after all records; `None` keeps
    /// both.
    fn words(&mut self, _session: &ProcessInfo, _dictionary: &Dictionary) -> Option<(ProcessInfo, Arc<Dictionary>)> {
        None
    }
}

/// Makes the report of the rest of `reader`, about one capture of a run in pieces or the newest.
pub(crate) fn report_from(reader: TraceReader<impl Read>, capture: Option<u32>) -> Result<Report, TraceError> {
    report_of_part(reader, Request { capture, ..Request::default() }, None, None)
}

/// Makes what is `request`ed of the rest of `reader`, restricted to `window`.
pub(crate) fn report_of_part(
    reader: TraceReader<impl Read>,
    request: Request,
    window: Option<Window>,
    observer: Option<&mut dyn Observer>,
) -> Result<Report, TraceError> {
    let (mut blocks, assembly, first) = reader.into_halves();
    let (sender, receiver) = channel();
    // Returns memory to the thread that fills it.
    let (emptied, empty) = channel();
    let (accounts, stopped) = thread::scope(|scope| {
        let accounting = thread::Builder::new()
            .name("gpuwhy-account".to_owned())
            .spawn_scoped(scope, move || {
                let mut accounts = Accounts::new(assembly, request, window, observer);
                accounts.take(first);
                accounts.take_all(&receiver, &emptied);
                accounts
            })
            .map_err(|source| TraceError::Io { offset: blocks.offset(), source })?;
        let stopped = hand_over(&mut blocks, sender, &empty);
        let accounts = accounting.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        Ok((accounts, stopped))
    })?;
    let Accounts { mut captures, assembly, end, last, window, observer, operators } = accounts;
    let end = window.as_ref().map_or(end, |window| window.ends(end));
    let last = window.as_ref().map_or(last, |window| window.end().min(last));
    captures.finish(last, assembly.session(), assembly.dictionary());
    let mut words = None;
    if let Some(observer) = observer {
        observer.taken(&mut captures, assembly.dictionary(), true);
        words = observer.words(assembly.session(), assembly.dictionary());
    }
    let mut notes = assembly.damage(blocks.damage()).sentences();
    notes.extend(stopped);
    let (session, dictionary) = match &words {
        Some((session, dictionary)) => (session, &**dictionary),
        None => (assembly.session(), assembly.dictionary()),
    };
    let mut report = captures.report(session, dictionary, end, notes);
    report.operators = operators.and_then(|operators| operators.operators(assembly.dictionary()));
    Ok(report)
}

/// Sends all blocks to the other thread. Returns the error if reading ended before the end of the file.
fn hand_over(
    blocks: &mut BlockReader<impl Read>,
    to: Sender<Vec<Block>>,
    empty: &Receiver<(usize, Vec<Event>)>,
) -> Option<String> {
    let (mut together, mut memory, mut ahead) = (Vec::new(), 0, 0);
    let stopped = loop {
        match blocks.next_block() {
            Ok(Some(block)) => {
                memory += block.memory();
                together.push(block);
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("reading stopped early: {error}")),
        }
        if memory >= TOGETHER {
            while ahead > 0 && ahead + memory > AHEAD {
                // Fails only if the other thread panicked; joining it reports that.
                let (bytes, events) = empty.recv().ok()?;
                ahead -= bytes;
                blocks.reuse(events);
            }
            ahead += std::mem::take(&mut memory);
            if to.send(std::mem::take(&mut together)).is_err() {
                return None; // As above.
            }
        }
    };
    // As above.
    let _ = to.send(together);
    stopped
}

/// Results of the blocks taken.
struct Accounts<'a> {
    captures: Captures,
    assembly: Assembly,
    end: End,
    last: Timestamp,
    /// The part that the report is about.
    window: Option<Window>,
    observer: Option<&'a mut dyn Observer>,
    operators: Option<Recorder>,
}

impl<'a> Accounts<'a> {
    fn new(
        assembly: Assembly,
        request: Request,
        window: Option<Window>,
        mut observer: Option<&'a mut dyn Observer>,
    ) -> Self {
        let mut captures = Captures::new(request.capture);
        captures.set_calibrations(assembly.session());
        #[cfg(feature = "source")]
        captures.read_code_with(gpuwhy_report::run::remedies::CodeReader::new(crate::python::code));
        // Kernels are measured late, and the simulation of their effect on steps runs at the end.
        captures.options.simulated_events = true;
        if let Some(observer) = &mut observer {
            observer.begin(&mut captures);
        }
        let operators = request.operators.map(|by| Recorder::new(by, request.capture));
        Self { captures, assembly, end: End::Abrupt, last: Timestamp::ZERO, window, observer, operators }
    }

    /// Takes all blocks that arrive; returns their memory through `emptied`.
    fn take_all(&mut self, blocks: &Receiver<Vec<Block>>, emptied: &Sender<(usize, Vec<Event>)>) {
        for block in blocks.iter().flatten() {
            let memory = block.memory();
            let events = self.assembly.take(block);
            let events = self.take(events);
            // The reading thread may have finished.
            let _ = emptied.send((memory, events));
        }
    }

    /// Takes the events, and returns their memory.
    fn take(&mut self, events: Vec<Event>) -> Vec<Event> {
        let (session, dictionary) = (self.assembly.session(), self.assembly.dictionary());
        for event in &events {
            if let Some(observer) = &mut self.observer {
                observer.event(event, dictionary);
            }
            let part = match &mut self.window {
                Some(window) => window.part_of(event),
                None => Some(Cow::Borrowed(event)),
            };
            if let Some(event) = part {
                if let Some(operators) = &mut self.operators {
                    operators.event(&event, dictionary);
                }
                self.captures.event(&event, session, dictionary);
            }
            match *event {
                Event::Flush(at) => {
                    self.last = self.last.max(at);
                    if let Some(observer) = &mut self.observer {
                        observer.flushed(at, RunState { captures: &self.captures, session, dictionary });
                    }
                }
                Event::End(how, at) => {
                    self.end = how;
                    self.last = self.last.max(at);
                }
                _ => {}
            }
        }
        if let Some(observer) = &mut self.observer {
            observer.taken(&mut self.captures, dictionary, false);
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuwhy_trace::format::TraceWriter;
    use gpuwhy_trace::record::{ApiCall, Loss, Record};

    use super::*;

    #[test]
    fn blocks_are_read_ahead_up_to_a_number_of_bytes() {
        let dictionary = Dictionary::new();
        let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
        let call = Event::Record(Record::Api(ApiCall::default()));
        // More than twice what may be read ahead.
        let calls = 2 * AHEAD / size_of::<Event>() + 16_384;
        (0..calls).for_each(|_| writer.event(&call, &dictionary).unwrap());
        let bytes = writer.finish(End::Clean, Timestamp::ZERO, &Loss::default(), &dictionary).unwrap();
        let (sender, receiver) = channel();
        let (emptied, empty) = channel();
        thread::scope(|scope| {
            let bytes = &bytes[..];
            scope.spawn(move || hand_over(&mut BlockReader::new(bytes).unwrap(), sender, &empty));
            let (mut kept, mut memory, mut all) = (Vec::new(), 0, 0);
            let mut next = receiver.recv().ok();
            // Nothing more comes until blocks are returned; a slow reader only has sent less by then.
            while let Some(blocks) = next.take() {
                memory += blocks.iter().map(Block::memory).sum::<usize>();
                kept.push(blocks);
                assert!(memory <= AHEAD, "{memory}");
                next = receiver.recv_timeout(Duration::from_secs(1)).ok();
            }
            let give_back = |blocks: Vec<Block>| {
                let memory = blocks.iter().map(Block::memory).sum::<usize>();
                // The reading thread may have finished.
                blocks.iter().for_each(|block| drop(emptied.send((block.memory(), Vec::new()))));
                memory
            };
            all += kept.into_iter().map(give_back).sum::<usize>();
            for blocks in receiver {
                all += give_back(blocks);
            }
            assert!(all >= calls * size_of::<Event>(), "everything comes");
        });
    }
}
