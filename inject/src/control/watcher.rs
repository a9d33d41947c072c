//! What `gpuwhy run` learns about the program that it has become: a process beside the program waits for its end, and
//! libprof.so tells that process how far it came. Both sides use this file.
//!
//! A message is a datagram of one byte to an abstract socket: sending never waits, and nothing is left behind if
//! either side is killed. Processes in another network namespace cannot send.

use std::env;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::config::WATCHER;
use crate::sys::{clock, process, sockets};

/// Progress of a process, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// The driver has loaded libprof.so: the process uses CUDA.
    Loaded,
    /// Measuring has begun.
    Measuring,
    /// There is a trace, or the process has ended regularly and libprof.so has printed its result.
    Done,
}

const ALL: [(u8, Progress); 3] = [(b'l', Progress::Loaded), (b'm', Progress::Measuring), (b'd', Progress::Done)];

/// Tells the watcher named in the environment, if there is one.
pub fn tell(progress: Progress) {
    if let Some(name) = env::var_os(WATCHER).filter(|name| !name.is_empty()) {
        // It may be gone, or in another namespace.
        let _ = send(name.as_bytes(), progress);
    }
}

/// Tells the watcher with this name that nothing is to be said.
pub fn end(name: &str) {
    let _ = send(name.as_bytes(), Progress::Done);
}

fn send(name: &[u8], progress: Progress) -> io::Result<()> {
    let byte = ALL.iter().find(|(_, known)| *known == progress).map_or(0, |(byte, _)| *byte);
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(&[byte], &SocketAddr::from_abstract_name(name)?).map(drop)
}

/// The watcher's side.
#[derive(Debug)]
pub struct Watch {
    socket: UnixDatagram,
    /// A descriptor of the process, readable when that has ended.
    end: OwnedFd,
}

impl Watch {
    /// Watches this process, also after it has become another program. Returns the name for [`WATCHER`] too. Fails if
    /// the kernel cannot: before Linux 5.3.
    pub fn of_this_process() -> io::Result<(Self, String)> {
        let name = format!("gpuwhy-run-{}-{}", std::process::id(), clock::wall_clock().nanos());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok((Self { socket, end: process::descriptor()? }, name))
    }

    /// Socket and descriptor of the process, to be passed to another process.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, OwnedFd) {
        (self.socket.into(), self.end)
    }

    /// The inverse of [`into_parts`](Self::into_parts).
    #[must_use]
    pub fn from_parts(socket: OwnedFd, end: OwnedFd) -> Self {
        Self { socket: socket.into(), end }
    }

    /// Waits until the process has ended, a message comes, or `at_most` is over. True if the process has ended.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        sockets::wait_for_sockets(&[(self.socket.as_raw_fd(), false), (self.end.as_raw_fd(), false)], at_most)
    }

    /// The most advanced progress among the messages that have come since the last call.
    pub fn progress(&self) -> Option<Progress> {
        let mut most = None;
        let mut byte = [0];
        self.socket.set_nonblocking(true).ok()?;
        while self.socket.recv(&mut byte).is_ok() {
            most = most.max(ALL.iter().find(|(known, _)| *known == byte[0]).map(|(_, progress)| *progress));
        }
        most
    }
}
