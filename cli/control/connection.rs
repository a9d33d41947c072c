//! Connection to the control socket of one process: sends lines, receives lines of JSON.
//!
//! [`address`], which libprof.so uses too, decides which folders and sockets are trusted. The wait for a
//! response and its length are bounded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpuwhy_inject::control::address::{self, ProcessName};
use gpuwhy_report::text_format::printable;
use serde_json::Value;
use tracing::{debug, info};

use crate::interrupt;
use crate::remote::MAX_LINE;

/// Time limit from the first attempt to connect to the last byte of the response. A process responds within
/// milliseconds, unless it is stopped or starved of CPU time.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit when all processes are queried at once; libprof.so waits 2 s for its own collector.
const ROUND_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between checks for Ctrl-C while waiting for a line.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// This user's processes with their sockets, from all folders: a process may have been started without the
/// variables of this terminal. Skips folders that another user could have created; the second list gives the
/// reasons.
pub fn processes() -> (Vec<(ProcessName, PathBuf)>, Vec<String>) {
    let user = address::user();
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for folder in address::folders(user) {
        match address::check(&folder, user) {
            Ok(()) => found.extend(address::sockets(&folder, user)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => debug!(?folder, "this folder does not exist"),
            Err(error) => refused.push(format!("{}; the folder is not used", printable(&error.to_string()))),
        }
    }
    (found, refused)
}

/// Connection to one process.
pub struct Connection {
    stream: UnixStream,
    /// Bytes received after the last line.
    input: Vec<u8>,
}

impl Connection {
    /// Connects and sends a line; `None` when no process listens.
    pub fn open(socket: &Path, line: &str, deadline: Instant) -> io::Result<Option<Self>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(stream) = address::connect(socket, address::user(), left)? else {
            info!(?socket, removed = !socket.exists(), "no process listens on this socket: its process was killed");
            return Ok(None);
        };
        stream.set_nonblocking(false)?;
        // A new connection has buffer space for these few bytes.
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut connection = Self { stream, input: Vec::new() };
        connection.send(line)?;
        Ok(Some(connection))
    }

    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes())
    }

    /// Next line, without its terminator. `deadline` covers the complete line, however slowly it arrives.
    pub fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.input[seen..].iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=seen + end).collect();
                let line = String::from_utf8(line).map_err(|_| invalid("the response is not UTF-8"))?;
                return Ok(line.trim_end().to_owned());
            }
            seen = self.input.len();
            if seen > MAX_LINE {
                return Err(invalid("the response is incomplete"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for the response"));
            }
            self.read(left.min(SIGNAL_POLL))?;
            if interrupt::state().is_break() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn read(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))?;
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.input.extend_from_slice(&piece[..bytes]);
                Ok(())
            }
            // The read timed out; the caller checks the deadline.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Parses a line as JSON.
pub fn parsed(line: &str) -> io::Result<Value> {
    serde_json::from_str(line).map_err(|_| invalid("the response is not JSON"))
}

/// Response as received and as JSON; `None` when no process listens.
pub type Answered = io::Result<Option<(String, Value)>>;

/// Sends one request to several processes at once and returns their responses in the same order. A stopped
/// process does not delay the others.
pub fn query_all(processes: Vec<(ProcessName, PathBuf)>, line: &str) -> Vec<(ProcessName, Answered)> {
    let deadline = Instant::now() + ROUND_TIMEOUT;
    thread::scope(|scope| {
        let asked: Vec<_> = processes
            .into_iter()
            .map(|(process, socket)| (process, scope.spawn(move || ask_until(&socket, line, deadline))))
            .collect();
        let panicked = || Err(io::Error::other("the query thread panicked"));
        asked.into_iter().map(|(process, asked)| (process, asked.join().unwrap_or_else(|_| panicked()))).collect()
    })
}

/// Sends a request and returns the response; `None` when no process listens.
pub fn ask(socket: &Path, line: &str) -> Answered {
    ask_until(socket, line, Instant::now() + ANSWER_TIMEOUT)
}

fn ask_until(socket: &Path, line: &str, deadline: Instant) -> Answered {
    let Some(mut connection) = Connection::open(socket, line, deadline)? else { return Ok(None) };
    let line = connection.line(deadline)?;
    let answer = parsed(&line)?;
    Ok(Some((line, answer)))
}
