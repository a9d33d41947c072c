//! Unix sockets: connecting without waiting, waiting for several, and the user at the other end.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to a Unix socket without waiting: fails with `WouldBlock` if the other side's queue is full, where
/// `UnixStream::connect` would wait forever. The stream is nonblocking. Returns the system's error, and `InvalidInput`
/// for a path that is too long for a socket.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        // Signed on x86-64, unsigned on Arm.
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes three numbers.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and is not used anywhere else.
    let stream = unsafe { UnixStream::from_raw_fd(descriptor) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: a live address of this family and length.
    let answer = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) };
    if answer == 0 { Ok(stream) } else { Err(io::Error::last_os_error()) }
}

/// Effective user of this process.
pub fn user_id() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// User at the other end of a local connection, as of its creation; `None` if the kernel does not report it.
pub fn peer_user_id(stream: &UnixStream) -> Option<u32> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: both pointers are to live locals, and the second is the size of the first, in bytes.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer != 0 || length as usize != size_of::<libc::ucred>() {
        return None;
    }
    // SAFETY: written completely by the successful call above.
    Some(unsafe { peer.assume_init() }.uid)
}

/// Returns when one of the sockets can be read, or written if requested, or after `wait`. Returns true if the
/// last one is ready.
pub fn wait_for_sockets(sockets: &[(RawFd, bool)], wait: Duration) -> bool {
    let mut ends: Vec<_> = sockets
        .iter()
        .map(|&(fd, writes)| {
            let events = if writes { libc::POLLOUT } else { libc::POLLIN };
            libc::pollfd { fd, events, revents: 0 }
        })
        .collect();
    let millis = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX).max(1);
    let count = libc::nfds_t::try_from(ends.len()).unwrap_or(0);
    // SAFETY: a live array with that length.
    if unsafe { libc::poll(ends.as_mut_ptr(), count, millis) } < 0 {
        // A system call filter of the program may forbid it permanently.
        std::thread::sleep(wait);
    }
    ends.last().is_some_and(|end| end.revents & libc::POLLIN != 0)
}
