//! The report of a trace from all of its records, on two threads.
//!
//! Taking blocks apart (checksums, decompression, columns) is about a third of the work and accounting for what is in
//! them two thirds, and they need nothing from each other but the blocks in their order. So the calling thread, whose
//! file need not be `Send`, reads ahead by a few blocks, and another one runs the engine; neither holds more than
//! these. The engine itself knows of no thread.

use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{panic, thread};

use profiler_core::capture::Captures;
use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::{Loss, Timestamp};
use profiler_core::report::Report;
use profiler_core::trace::{Assembly, Block, BlockReader, Item, TraceError, TraceReader};

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
    /// What was lost so far.
    pub loss: &'a Loss,
}

impl Seen<'_> {
    /// The report of that moment, as the program itself would have made it then.
    #[must_use]
    pub fn report(&self) -> Report {
        self.captures.report(self.session, self.dictionary, self.loss, End::Abrupt, Vec::new())
    }
}

/// Follows the records of a trace while its report is made, on the thread that runs the engine.
pub trait Observer: Send {
    /// Before the first item: what the engine is to note.
    fn begin(&mut self, captures: &mut Captures);

    /// An item of the trace, which the engine has taken.
    fn item(&mut self, item: &Item, dictionary: &Dictionary);

    /// Everything up to `at` has come, and the engine has taken it.
    fn flushed(&mut self, _at: Timestamp, _seen: Seen<'_>) {}

    /// The engine has taken the items of some blocks. `is_last`: nothing more comes.
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
    let Accounts { mut captures, assembly, loss, end, last, window, observer } = accounts;
    let end = window.as_ref().map_or(end, |window| window.ends(end));
    let last = window.as_ref().map_or(last, |window| window.end().min(last));
    assembly.kernel_profiles().iter().for_each(|profile| captures.kernel_profile(profile.clone()));
    assembly.pc_windows().iter().for_each(|window| captures.program_counters(window.clone()));
    captures.finish(last, assembly.session(), &loss, assembly.dictionary());
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
    Ok(captures.report(session, dictionary, &loss, end, notes))
}

/// Gives all blocks away, and answers why there are no more when the file has more.
fn hand_over(
    blocks: &mut BlockReader<impl Read>,
    to: SyncSender<Vec<Block>>,
    empty: &Receiver<Vec<Item>>,
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
            empty.try_iter().for_each(|items| blocks.reuse(items));
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
    loss: Loss,
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
        // Measured kernels come last, and what steps gain from them is asked then.
        captures.keep_simulated_events();
        if let Some(observer) = &mut observer {
            observer.begin(&mut captures);
        }
        Self { captures, assembly, loss: Loss::default(), end: End::Abrupt, last: Timestamp::ZERO, window, observer }
    }

    /// Accounts for all blocks that come; their memory goes to `emptied`.
    fn take_all(&mut self, blocks: &Receiver<Vec<Block>>, emptied: &Sender<Vec<Item>>) {
        for block in blocks.iter().flatten() {
            let items = self.assembly.take(block);
            let items = self.take(items);
            // There may be nothing left to fill it.
            let _ = emptied.send(items);
        }
    }

    /// Accounts for the items, and gives their memory back.
    fn take(&mut self, items: Vec<Item>) -> Vec<Item> {
        let (session, dictionary) = (self.assembly.session(), self.assembly.dictionary());
        for item in &items {
            if let Some(observer) = &mut self.observer {
                observer.item(item, dictionary);
            }
            match *item {
                Item::Record(ref record) => {
                    if self.window.as_ref().is_none_or(|window| window.holds(record)) {
                        self.captures.push(record, dictionary);
                    }
                }
                Item::Flush(at) => {
                    self.window.iter_mut().for_each(|window| window.flushed(at));
                    self.captures.flushed(at, dictionary);
                    self.last = self.last.max(at);
                    if let Some(observer) = &mut self.observer {
                        let (captures, loss) = (&self.captures, &self.loss);
                        observer.flushed(at, Seen { captures, session, dictionary, loss });
                    }
                }
                Item::Loss(newer) => self.loss = self.window.as_mut().map_or(newer, |window| window.lost(newer)),
                Item::Capture(mark) => self.captures.mark(mark, session, &self.loss, dictionary),
                // Both are about the run so far, and say nothing of a part of it.
                Item::Cost(_) | Item::Utilization(_) if self.window.is_some() => {}
                Item::Cost(cost) => self.captures.cost(cost),
                Item::Utilization(reading) => self.captures.utilization(reading),
                Item::Collective(ref event) => {
                    // Operations outside would be missed in the part.
                    let inside = |window: &Window| event.at().is_none_or(|at| window.contains(at, at));
                    if self.window.as_ref().is_none_or(inside) {
                        self.captures.collective(event);
                    }
                }
                Item::Counters(ref event) => {
                    let inside = |window: &Window| event.span().is_none_or(|(begin, end)| window.contains(begin, end));
                    if self.window.as_ref().is_none_or(inside) {
                        self.captures.counters(event);
                    }
                }
                Item::End(how, at) => {
                    self.end = how;
                    self.last = self.last.max(at);
                }
            }
        }
        if let Some(observer) = &mut self.observer {
            observer.taken(&mut self.captures, dictionary, false);
        }
        items
    }
}
