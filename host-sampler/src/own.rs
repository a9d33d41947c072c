//! Descriptors of this library, in a process whose program may close any of them.
//!
//! Daemons close every descriptor that they do not know, and files that the program opens next get the same numbers. So
//! each descriptor of ours is moved above those of the standard streams right after it was made, and before each use it
//! is compared with the file that was opened: what is not ours any more is neither read, written nor closed. Between
//! the comparison and the use, less than a microsecond, another thread can still close it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// The greatest number of a standard stream.
const STDERR: RawFd = 2;

/// The device and the inode of an open file or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Number on that device.
    pub inode: u64,
}

/// How the identity of what was opened is found out; `None` when its descriptor is closed.
pub type Identify<T> = fn(&T) -> Option<Identity>;

/// An open file or socket of ours.
#[derive(Debug)]
pub struct Own<T: AsFd> {
    /// Always there, until it is dropped.
    opened: Option<T>,
    identity: Identity,
    identify: Identify<T>,
}

impl Own<File> {
    /// Takes over a file.
    ///
    /// # Errors
    /// When there is no other descriptor left.
    pub fn of_file(file: File) -> io::Result<Self> {
        Self::new(file, |file| file.metadata().ok().map(|found| Identity { device: found.dev(), inode: found.ino() }))
    }
}

impl<T: AsFd + From<OwnedFd>> Own<T> {
    /// Takes over what was just opened, under a number above those of the standard streams: whoever started the program
    /// may have closed them, and then the program's output would go into a file of ours.
    ///
    /// # Errors
    /// When there is no other descriptor left.
    pub fn new(opened: T, identify: Identify<T>) -> io::Result<Self> {
        let opened = if opened.as_fd().as_raw_fd() > STDERR {
            opened
        } else {
            // The standard library gives no number below 3 here; `tests/reliability/host.rs` would notice.
            T::from(opened.as_fd().try_clone_to_owned()?)
        };
        let identity = identify(&opened).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { opened: Some(opened), identity, identify })
    }
}

impl<T: AsFd> Own<T> {
    /// What was opened, as long as its descriptor is still ours.
    ///
    /// # Errors
    /// When the program has closed it, and perhaps opened something else under its number.
    pub fn get(&self) -> io::Result<&T> {
        let same = |opened: &&T| (self.identify)(opened) == Some(self.identity);
        self.opened.as_ref().filter(same).ok_or_else(closed)
    }

    /// The same without a comparison: for the later ones of a series of reads at given offsets, which do no harm to a
    /// file of the program's.
    ///
    /// # Errors
    /// None; as [`get`](Self::get) for the sake of callers.
    pub fn unchecked(&self) -> io::Result<&T> {
        self.opened.as_ref().ok_or_else(closed)
    }

    /// Its number, and what has to be behind that.
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
            // By now the number may be that of a file of the program's.
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
        // As if the program had closed it and opened a file of its own under the same number.
        own.identity.inode += 1;
        assert!(own.write_all(b"more").unwrap_err().to_string().contains("has closed"));
        let (number, _) = own.descriptor().unwrap();
        drop(own);
        assert!(fs::metadata(format!("/proc/self/fd/{number}")).is_ok(), "not ours to close");
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        fs::remove_file(path).unwrap();
    }
}
