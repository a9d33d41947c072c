//! File descriptors of this library, in a process whose program may close any of them.
//!
//! Daemons close all unknown descriptors, and files that the program opens next get the same numbers. Each
//! descriptor of this library is therefore moved above the standard streams when it is created, and compared
//! with the file originally opened before each use: a descriptor that no longer belongs to this library is
//! neither read, written nor closed. Another thread can still close it between the comparison and the use, in
//! less than a microsecond.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// Highest number of a standard stream.
const STDERR: RawFd = 2;

/// Device and inode of an open file or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Inode number on that device.
    pub inode: u64,
}

/// Determines the identity of an open file or socket; `None` if its descriptor is closed.
pub type Identify<T> = fn(&T) -> Option<Identity>;

/// An open file or socket that belongs to this library.
#[derive(Debug)]
pub struct Own<T: AsFd> {
    /// Always set until dropped.
    opened: Option<T>,
    identity: Identity,
    identify: Identify<T>,
}

impl Own<File> {
    /// Takes over a file.
    ///
    /// # Errors
    /// If no other descriptor is available.
    pub fn of_file(file: File) -> io::Result<Self> {
        Self::new(file, |file| file.metadata().ok().map(|found| Identity { device: found.dev(), inode: found.ino() }))
    }
}

impl<T: AsFd + From<OwnedFd>> Own<T> {
    /// Takes over a file or socket that was just opened, under a number above those of the standard streams.
    /// The parent of the program may have closed these; otherwise the program's output would go into a file
    /// of this library.
    ///
    /// # Errors
    /// If no other descriptor is available.
    pub fn new(opened: T, identify: Identify<T>) -> io::Result<Self> {
        let opened = if opened.as_fd().as_raw_fd() > STDERR {
            opened
        } else {
            // The standard library returns no number below 3 here; `tests/reliability/host.rs` checks it.
            T::from(opened.as_fd().try_clone_to_owned()?)
        };
        let identity = identify(&opened).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { opened: Some(opened), identity, identify })
    }
}

impl<T: AsFd> Own<T> {
    /// The open file or socket, if its descriptor still belongs to this library.
    ///
    /// # Errors
    /// If the program has closed it, and possibly opened another file under its number.
    pub fn get(&self) -> io::Result<&T> {
        let same = |opened: &&T| (self.identify)(opened) == Some(self.identity);
        self.opened.as_ref().filter(same).ok_or_else(closed)
    }

    /// Like [`get`](Self::get) but without the comparison: for the later ones of a series of reads at fixed
    /// offsets, which do not affect a file of the program.
    ///
    /// # Errors
    /// If it has been dropped, which is impossible for callers.
    pub fn unchecked(&self) -> io::Result<&T> {
        self.opened.as_ref().ok_or_else(closed)
    }

    /// Descriptor number, and the identity that it must have.
    pub fn descriptor(&self) -> Option<(RawFd, Identity)> {
        self.opened.as_ref().map(|opened| (opened.as_fd().as_raw_fd(), self.identity))
    }
}

fn closed() -> io::Error {
    io::Error::other("the program has closed this descriptor")
}

impl<T: AsFd> Drop for Own<T> {
    fn drop(&mut self) {
        if self.get().is_err() {
            // The number may belong to a file of the program by now.
            mem::forget(self.opened.take());
        }
    }
}

impl<T: AsFd> Read for Own<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut opened = self.get()?;
        opened.read(bytes)
    }
}

impl<T: AsFd> Write for Own<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut opened = self.get()?;
        opened.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut opened = self.get()?;
        opened.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_not_ours_any_more_is_neither_used_nor_closed() {
        let path = std::env::temp_dir().join(format!("gpuwhy-own-{}", std::process::id()));
        let mut own = Own::of_file(File::create(&path).unwrap()).unwrap();
        own.write_all(b"ours").unwrap();
        // As if the program had closed it and opened another file under the same number.
        own.identity.inode += 1;
        assert!(own.write_all(b"more").unwrap_err().to_string().contains("has closed"));
        let (number, _) = own.descriptor().unwrap();
        drop(own);
        assert!(fs::metadata(format!("/proc/self/fd/{number}")).is_ok(), "not ours to close");
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        fs::remove_file(path).unwrap();
    }
}
