//! Descriptors: the identity of their file, and closing one that the child of a fork has inherited.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};

use host_sampler::own::Identity;

/// Identity of a descriptor's file; `None` if it is closed. Safe in the child of a process with threads.
pub fn identity(descriptor: RawFd) -> Option<Identity> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes to the struct, which is live, or returns an error; any number is allowed.
    if unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the successful call above.
    let found = unsafe { found.assume_init() };
    Some(Identity { device: found.st_dev, inode: found.st_ino })
}

/// Identity of an open file.
pub fn identity_of<T: AsRawFd>(opened: &T) -> Option<Identity> {
    identity(opened.as_raw_fd())
}

/// Closes a descriptor that the child of a fork has inherited, unless the program has reused its number for
/// another file. Safe in the child of a process with threads.
pub fn close_inherited(descriptor: RawFd, expected: Identity) {
    if identity(descriptor) == Some(expected) {
        // SAFETY: takes a number; the child uses this descriptor nowhere.
        unsafe { libc::close(descriptor) };
    }
}
