//! Queries on several threads, each with its own connection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::source::Source;
use crate::error::ExportError;
use gpuwhy_import::Progress;

/// Maximum number of queries at a time: each may hold the values of a median.
const THREADS: usize = 4;
/// Interval between two calls of a [`Progress`].
const POLL: Duration = Duration::from_millis(20);

/// Does `work` for each job number below `jobs`, and returns the results in this order. The jobs read each of `sources`
/// about `scans` times.
pub fn parallel<T: Send>(
    sources: &[Arc<Source>],
    scans: u64,
    jobs: usize,
    work: impl Fn(usize) -> Result<T, ExportError> + Sync,
    progress: &mut Progress<'_>,
) -> Result<Vec<T>, ExportError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(jobs);
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let (sender, receiver) = channel();
    let stop = || sources.iter().fold(None, |_, source| Some(source.stop()));
    thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            let started = thread::Builder::new().name("gpuwhy-query".to_owned()).spawn_scoped(scope, move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    // Nobody receives after an error.
                    if job >= jobs || sender.send((job, work(job))).is_err() {
                        return;
                    }
                }
            });
            started.map_err(|error| ExportError::io(Path::new("a thread for queries"), error))?;
        }
        drop(sender);
        let mut results: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
        loop {
            match receiver.recv_timeout(POLL) {
                Ok((job, Ok(result))) => results[job] = Some(result),
                Ok((_, Err(error))) => {
                    stop();
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let (read, size) =
                sources.iter().map(|source| source.progress()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            if progress(read.min(size * scans), size * scans).is_break()
                && let Some(error) = stop()
            {
                return Err(error);
            }
        }
        Ok(results.into_iter().flatten().collect())
    })
}
