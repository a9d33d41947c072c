//! The report of a trace from all of its records, on two threads.
//!
//! Taking blocks apart (checksums, decompression, columns) is about a third of the work and accounting for what is in
//! them two thirds, and they need nothing from each other but the blocks in their order. So the calling thread, whose
//! file need not be `Send`, reads ahead by a few blocks, and another one runs the engine; neither holds more than
//! these. The engine itself knows of no thread.

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{panic, thread};

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{Assembly, Block, BlockReader, TraceError, TraceReader};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::Timestamp;

use crate::window::Window;

/// Blocks are handed over together until they take so much memory, bytes, some 4,000 records: waking a thread for each
/// flush mark costs more than these.
const TOGETHER: usize = 360_000;
/// Times that are done ahead: usually up to a block of 16,384 records more than that, 1.4 MB.
const AHEAD: usize = 2;

/// What is known of a run at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The engine.
    pub captures: &'a Captures,
    /// Who was traced.
    pub session: &'a ProcessInfo,
    /// All names and configurations so far.
    pub dictionary: &'a Dictionary,
}

impl Seen<'_> {
    /// The report of that moment, as the program itself would have made it then.
    #[must_use]
    pub fn report(&self) -> Report {
        self.captures.report(self.session, self.dictionary, End::Abrupt, Vec::new())
    }
}

/// Follows the records of a trace while its report is made, on the thread that runs the engine.
pub trait Observer: Send {
    /// Before the first event: what the engine is to note.
    fn begin(&mut self, captures: &mut Captures);

    /// An event of the trace, which the engine takes next.
    fn event(&mut self, _event: &Event, _dictionary: &Dictionary) {}

    /// Everything up to `at` has come, and the engine has taken it.
    fn flushed(&mut self, _at: Timestamp, _seen: Seen<'_>) {}

    /// The engine has taken the events of some blocks. `is_last`: nothing more comes.
    fn taken(&mut self, captures: &mut Captures, dictionary: &Dictionary, is_last: bool);

    /// Who was traced and the names for the words of the report, in place of those of the trace: ids must stand for the
    /// same things. Nothing that is computed depends on it. Asked once, when all records are taken; `None` keeps both.
    fn words(&mut self, _session: &ProcessInfo, _dictionary: &Dictionary) -> Option<(ProcessInfo, Arc<Dictionary>)> {
        None
    }
}

/// Makes the report of what `reader` has not given yet, about one capture of a run in pieces or the newest.
pub(crate) fn report_from(reader: TraceReader<impl Read>, capture: Option<u32>) -> Result<Report, TraceError> {
    report_of_part(reader, capture, None, None)
}

/// As [`report_from`], of what `window` holds alone.
pub(crate) fn report_of_part(
    reader: TraceReader<impl Read>,
    capture: Option<u32>,
    window: Option<Window>,
    observer: Option<&mut dyn Observer>,
) -> Result<Report, TraceError> {
    let (mut blocks, assembly, first) = reader.into_halves();
    let (sender, receiver) = sync_channel(AHEAD);
    // Memory goes back to where it is filled.
    let (emptied, empty) = channel();
    let (accounts, stopped) = thread::scope(|scope| {
        let accounting = thread::Builder::new()
            .name("gpuwhy-account".to_owned())
            .spawn_scoped(scope, move || {
                let mut accounts = Accounts::new(assembly, capture, window, observer);
                accounts.take(first);
                accounts.take_all(&receiver, &emptied);
                accounts
            })
            .map_err(|source| TraceError::Io { offset: blocks.offset(), source })?;
        let stopped = hand_over(&mut blocks, sender, &empty);
        let accounts = accounting.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        Ok((accounts, stopped))
    })?;
    let Accounts { mut captures, assembly, end, last, window, observer } = accounts;
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
    Ok(captures.report(session, dictionary, end, notes))
}

/// Gives all blocks away, and answers why there are no more when the file has more.
fn hand_over(
    blocks: &mut BlockReader<impl Read>,
    to: SyncSender<Vec<Block>>,
    empty: &Receiver<Vec<Event>>,
) -> Option<String> {
    let (mut together, mut memory) = (Vec::new(), 0);
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
            memory = 0;
            if to.send(std::mem::take(&mut together)).is_err() {
                return None; // The other thread has panicked, which its end tells.
            }
            empty.try_iter().for_each(|events| blocks.reuse(events));
        }
    };
    // As above.
    let _ = to.send(together);
    stopped
}

/// What the blocks so far come to.
struct Accounts<'a> {
    captures: Captures,
    assembly: Assembly,
    end: End,
    last: Timestamp,
    /// The part that the report is about.
    window: Option<Window>,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a> Accounts<'a> {
    fn new(
        assembly: Assembly,
        capture: Option<u32>,
        window: Option<Window>,
        mut observer: Option<&'a mut dyn Observer>,
    ) -> Self {
        let mut captures = Captures::new(capture);
        captures.set_calibrations(assembly.session());
        // Kernels are measured late, and what steps gain from them is asked at the end.
        captures.keep_simulated_events();
        if let Some(observer) = &mut observer {
            observer.begin(&mut captures);
        }
        Self { captures, assembly, end: End::Abrupt, last: Timestamp::ZERO, window, observer }
    }

    /// Accounts for all blocks that come; their memory goes to `emptied`.
    fn take_all(&mut self, blocks: &Receiver<Vec<Block>>, emptied: &Sender<Vec<Event>>) {
        for block in blocks.iter().flatten() {
            let events = self.assembly.take(block);
            let events = self.take(events);
            // There may be nothing left to fill it.
            let _ = emptied.send(events);
        }
    }

    /// Accounts for the events, and gives their memory back.
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
                self.captures.event(&event, session, dictionary);
            }
            match *event {
                Event::Flush(at) => {
                    self.last = self.last.max(at);
                    if let Some(observer) = &mut self.observer {
                        observer.flushed(at, Seen { captures: &self.captures, session, dictionary });
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
