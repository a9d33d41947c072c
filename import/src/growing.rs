//! A trace that is still being written, read as it grows.
//!
//! One thread waits for bytes and takes blocks apart, the caller's thread puts them together: it is never kept from
//! other work by a program that is silent. Only traces of gpuwhy can grow, and they are not packed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use profiler_core::dictionary::Dictionary;
use profiler_core::process_info::{End, ProcessInfo};
use profiler_core::record::Loss;
use profiler_core::trace::{Block, BlockReader, Damage, Item, TraceReader};

use crate::error::OpenError;
use crate::trace_file::{Passed, Scope};

/// Read at once, bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// Blocks that are done ahead, some 1.4 MB each at most.
const AHEAD: usize = 2;
/// Between two looks whether the file has grown, and the longest time without a word to the visitor.
const TICK: Duration = Duration::from_millis(100);

/// What comes next of a growing trace.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// An item of the trace.
    Item(&'a Item),
    /// Nothing has come for a moment.
    Silence,
}

/// Hands everything that the trace at `path` has and gets to `visit`, in the order of the file, and
/// [`Arrival::Silence`] ten times a second while nothing comes. Ends with the end of the trace, or where `more` breaks,
/// which is asked whenever the file has no more bytes: then as if the file ended there.
///
/// # Errors
///
/// When the file cannot be opened, is no trace, ends before anything was recorded, and when `visit` fails.
pub fn follow<E: From<OpenError>>(
    path: &Path,
    more: impl Fn() -> ControlFlow<()> + Sync,
    mut visit: impl FnMut(Arrival<'_>, &Scope<'_>) -> Result<(), E>,
) -> Result<Passed, E> {
    let file = File::open(path).map_err(|error| OpenError::io(path, error))?;
    let abandoned = AtomicBool::new(false);
    let tail = Tail { file, more: &more, abandoned: &abandoned };
    let reader = TraceReader::new(BufReader::with_capacity(BUFFER_BYTES, tail));
    let (blocks, mut assembly, first) = reader.map_err(|error| OpenError::trace(path, error))?.into_halves();
    let (sender, receiver) = sync_channel(AHEAD);
    let (mut loss, mut end, ended) = (Loss::default(), End::Abrupt, Cell::new(false));
    let (damage, stopped) = thread::scope(|scope| {
        let reading = thread::Builder::new()
            .name("gpuwhy-follow".to_owned())
            .spawn_scoped(scope, move || hand_over(blocks, &sender))
            .map_err(|error| OpenError::io(path, error))?;
        let mut take = |items: &[Item], session: &ProcessInfo, dictionary: &Dictionary| -> Result<(), E> {
            for item in items {
                match item {
                    Item::Loss(newer) => loss = *newer,
                    Item::End(how, _) => {
                        end = *how;
                        ended.set(true);
                    }
                    _ => {}
                }
                visit(Arrival::Item(item), &Scope { session, dictionary })?;
            }
            if items.is_empty() { visit(Arrival::Silence, &Scope { session, dictionary }) } else { Ok(()) }
        };
        let mut taken = take(&first, assembly.session(), assembly.dictionary());
        while taken.is_ok() && !ended.get() {
            let items = match receiver.recv_timeout(TICK) {
                Ok(block) => assembly.take(block),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            taken = take(&items, assembly.session(), assembly.dictionary());
        }
        // The other thread may wait for bytes.
        abandoned.store(true, Ordering::Relaxed);
        drop(receiver);
        let read = reading.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        taken.map(|()| read)
    })?;
    let damage = assembly.damage(&damage);
    let (session, dictionary) = assembly.into_parts();
    Ok(Passed { session, dictionary, loss, end, damage, stopped })
}

/// Gives all blocks away; answers what the file lacks, and why reading stopped early if it did.
fn hand_over(mut blocks: BlockReader<impl Read>, to: &SyncSender<Block>) -> (Damage, Option<String>) {
    let stopped = loop {
        match blocks.next_block() {
            Ok(Some(block)) => {
                if to.send(block).is_err() {
                    break None; // Nobody wants more.
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("reading stopped early: {error}")),
        }
    };
    (*blocks.damage(), stopped)
}

/// A file that ends when it is said to.
struct Tail<'a, M> {
    file: File,
    more: &'a M,
    abandoned: &'a AtomicBool,
}

impl<M: Fn() -> ControlFlow<()>> Read for Tail<'_, M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read(buffer)?;
            if count > 0 || self.abandoned.load(Ordering::Relaxed) || (self.more)().is_break() {
                return Ok(count);
            }
            thread::sleep(TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use profiler_core::record::Timestamp;
    use profiler_core::trace::TraceWriter;

    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// A trace with a flush mark at each of these times.
    fn trace(flushes: &[u64]) -> Vec<u8> {
        let session = ProcessInfo { process_id: 7, ..ProcessInfo::default() };
        let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
        for &nanos in flushes {
            writer.flush(at(nanos), &Loss::default(), &Dictionary::new()).unwrap();
        }
        writer.finish(End::Clean, at(99), &Loss::default(), &Dictionary::new()).unwrap()
    }

    #[test]
    fn what_is_written_later_comes_later_and_the_end_of_the_trace_is_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gpuwhy");
        let bytes = trace(&[10, 20, 30]);
        // Within a block.
        let (begin, rest) = bytes.split_at(bytes.len() / 2 + 3);
        fs::write(&path, begin).unwrap();
        let rest = RefCell::new(Some(rest));
        let mut flushes = Vec::new();
        let passed = follow(
            &path,
            || ControlFlow::Continue(()),
            |arrival, scope| {
                assert_eq!(scope.session.process_id, 7);
                match arrival {
                    Arrival::Item(Item::Flush(at)) => flushes.push(at.nanos()),
                    Arrival::Item(_) => {}
                    Arrival::Silence => {
                        if let Some(rest) = rest.take() {
                            OpenOptions::new().append(true).open(&path).unwrap().write_all(rest).unwrap();
                        }
                    }
                }
                Ok::<_, OpenError>(())
            },
        );
        let passed = passed.unwrap();
        assert_eq!((flushes.as_slice(), passed.end), (&[10, 20, 30][..], End::Clean));
        assert!(passed.damaged().is_empty() && rest.take().is_none(), "{:?}", passed.damaged());
    }

    #[test]
    fn a_trace_that_nobody_writes_any_more_ends_where_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gpuwhy");
        let bytes = trace(&[10, 20, 30]);
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        let nothing = |_: Arrival<'_>, _: &Scope<'_>| Ok::<_, OpenError>(());
        let passed = follow(&path, || ControlFlow::Break(()), nothing).unwrap();
        assert_eq!(passed.end, End::Abrupt);
        fs::write(&path, &bytes[..4]).unwrap();
        let error = follow(&path, || ControlFlow::Break(()), nothing).err().unwrap().to_string();
        assert!(error.contains("a.gpuwhy"), "{error}");
        // An error of the visitor ends the reading, also while the file has no more.
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        let fails = |arrival: Arrival<'_>, _: &Scope<'_>| match arrival {
            Arrival::Silence => Err(OpenError::interrupted(&path)),
            Arrival::Item(_) => Ok(()),
        };
        assert!(follow(&path, || ControlFlow::Continue(()), fails).err().unwrap().is_interrupted());
    }
}
