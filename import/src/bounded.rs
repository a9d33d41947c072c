//! Limits on decompressed bytes, in proportion to the compressed bytes read.
//!
//! gzip can expand one byte to a thousand. A trace is read as a stream, but its contents are kept, so a small
//! file could exhaust memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Decompressed bytes that are always allowed.
const ALWAYS: u64 = 16 << 20;
/// Decompressed bytes allowed per compressed byte. Traces compress to between a tenth and a thirtieth.
const RATIO: u64 = 200;
/// Absolute limit on decompressed bytes.
const AT_ALL: u64 = 256 << 30;

#[derive(Debug)]
pub struct Counted<R> {
    source: R,
    count: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    /// Adds the bytes read from `source` to `count`.
    pub fn new(source: R, count: Rc<Cell<u64>>) -> Self {
        Self { source, count }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}

/// Output of a decompressor. Fails once it is out of proportion to the input.
#[derive(Debug)]
pub struct Unpacked<R> {
    source: R,
    packed: Rc<Cell<u64>>,
    bytes: u64,
}

impl<R> Unpacked<R> {
    /// `packed` is the count of the [`Counted`] below the decompressor.
    pub fn new(source: R, packed: Rc<Cell<u64>>) -> Self {
        Self { source, packed, bytes: 0 }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.bytes += count as u64;
        let packed = self.packed.get();
        if self.bytes > ALWAYS.saturating_add(packed.saturating_mul(RATIO)).min(AT_ALL) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{packed} packed bytes make more than {} MB, which is over the limit of {RATIO} bytes for each and {} MB \
                     more; unpack the file by hand (gzip -dk) if it is to be trusted",
                    self.bytes / 1_000_000,
                    ALWAYS / 1_000_000
                ),
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_proportion_is_an_error() {
        let unpacked = |packed: u64, bytes: u64| {
            let mut source = Unpacked::new(io::repeat(7).take(bytes), Rc::new(Cell::new(packed)));
            io::copy(&mut source, &mut io::sink()).map_err(|error| error.to_string())
        };
        assert_eq!(unpacked(1, ALWAYS + RATIO), Ok(ALWAYS + RATIO));
        let error = unpacked(1, ALWAYS + RATIO + 1).unwrap_err();
        assert!(error.starts_with("1 packed bytes make more than 16 MB") && error.contains("gzip -dk"), "{error}");
        let packed = Rc::new(Cell::new(0));
        io::copy(&mut Counted::new(&b"12345"[..], Rc::clone(&packed)), &mut io::sink()).unwrap();
        assert_eq!(packed.get(), 5);
    }
}
