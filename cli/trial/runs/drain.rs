//! Reads what a program prints, and keeps a bounded part.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// Most bytes that are kept, to compare or show.
const MOST: usize = 4 << 20;
/// Bytes of a read: the size of a pipe.
const READ: usize = 64 << 10;
/// Wait for the end of the stream once the program is gone.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Which part is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    First,
    Last,
}

/// A stream that is read on a thread of its own, so that the program never waits.
pub struct Drain {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl Drain {
    /// Starts reading.
    pub fn begin(mut stream: impl Read + Send + 'static, part: Part) -> Self {
        let (sender, ended) = channel();
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let into = Arc::clone(&kept);
        thread::spawn(move || {
            let mut bytes = vec![0; READ];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                let mut kept = into.lock();
                let room = if part == Part::First { MOST - kept.len() } else { read };
                kept.extend(&bytes[..read.min(room)]);
                let excess = kept.len().saturating_sub(MOST);
                kept.drain(..excess);
            }
            // Nobody waits any more if a process keeps the stream open.
            let _ = sender.send(());
        });
        Self { kept, ended }
    }

    /// What was kept, after the end of the program.
    pub fn text(self) -> String {
        let _ = self.ended.recv_timeout(LONGEST_END);
        let bytes = std::mem::take(&mut *self.kept.lock());
        String::from_utf8_lossy(&Vec::from(bytes)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_or_the_last_bytes_are_kept() {
        let text = (0..MOST + 10).map(|at| b'a' + (at % 26) as u8).collect::<Vec<_>>();
        let kept = |part| Drain::begin(std::io::Cursor::new(text.clone()), part).text().into_bytes();
        assert!(kept(Part::First) == text[..MOST] && kept(Part::Last) == text[10..]);
        assert_eq!(Drain::begin(&b"done\n"[..], Part::Last).text(), "done\n");
    }
}
