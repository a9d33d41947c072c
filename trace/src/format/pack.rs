//! Compression of a body: one zstd frame in which each large column has its own blocks.
//!
//! A zstd block has one Huffman table for its literals. Columns differ in their data (ids, noise, steps), so a
//! shared table suits none of them: in recorded PyTorch traces, block boundaries between columns save 7 to 14 %
//! of the size. Readers need no support for this because the frame is an ordinary one.

use std::io;

use zstd::bulk::Decompressor;
use zstd::stream::raw::{CParameter, InBuffer, OutBuffer};
use zstd::zstd_safe::{self, CCtx, ResetDirective, zstd_sys::ZSTD_EndDirective};

use super::block::MAX_BODY;
use super::varint::Malformed;

/// Parts below this size, in bytes, share a block with adjacent parts: a separate header and table take some
/// 60 bytes.
const SMALLEST_PART: usize = 1 << 10;
/// Maximum increase of the frame size bound per boundary: the header of a raw block, and rounding.
const BOUNDARY_BYTES: usize = 32;

/// Decompresses the body of a packed block, which consists of the length and one frame.
pub(super) fn unpack(decompressor: &mut Decompressor<'_>, stored: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (length, frame) = stored.split_first_chunk::<4>().ok_or(Malformed)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_BODY {
        return Err(Malformed);
    }
    let body = decompressor.decompress(frame, length).map_err(|_| Malformed)?;
    if body.len() == length { Ok(body) } else { Err(Malformed) }
}

/// A reusable compressor.
pub(super) struct Packer {
    context: CCtx<'static>,
}

impl Packer {
    /// # Errors
    /// If zstd runs out of memory or does not support `level`.
    pub(super) fn new(level: i32) -> io::Result<Self> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(failure)?;
        Ok(Self { context })
    }

    /// Appends `body` as one frame to `out`. `ends` are the ends of its parts, ascending; the bytes after the
    /// last end form another part.
    ///
    /// # Errors
    /// If zstd runs out of memory.
    pub(super) fn pack(&mut self, body: &[u8], ends: &[usize], out: &mut Vec<u8>) -> io::Result<()> {
        self.context.reset(ResetDirective::SessionOnly).map_err(failure)?;
        self.context.set_pledged_src_size(Some(body.len() as u64)).map_err(failure)?;
        let written = out.len();
        out.reserve(zstd_safe::compress_bound(body.len()) + ends.len() * BOUNDARY_BYTES);
        let mut output = OutBuffer::around_pos(out, written);
        let mut from = 0;
        for &to in ends.iter().filter(|&&to| to < body.len()) {
            if to - from >= SMALLEST_PART {
                run(&mut self.context, &body[from..to], ZSTD_EndDirective::ZSTD_e_flush, &mut output)?;
                from = to;
            }
        }
        run(&mut self.context, &body[from..], ZSTD_EndDirective::ZSTD_e_end, &mut output)
    }

    /// Compressed size of `part` in bytes.
    ///
    /// # Errors
    /// If zstd runs out of memory.
    pub(super) fn packed_len(&mut self, part: &[u8]) -> io::Result<usize> {
        let mut packed = Vec::new();
        self.pack(part, &[], &mut packed)?;
        Ok(packed.len())
    }
}

fn run(
    context: &mut CCtx<'static>,
    part: &[u8],
    then: ZSTD_EndDirective,
    output: &mut OutBuffer<'_, Vec<u8>>,
) -> io::Result<()> {
    let mut input = InBuffer::around(part);
    loop {
        let before = (input.pos(), output.pos());
        let left = context.compress_stream2(output, &mut input, then).map_err(failure)?;
        if left == 0 && input.pos() == part.len() {
            return Ok(());
        }
        if before == (input.pos(), output.pos()) {
            return Err(io::Error::other("zstd needs more space than its stated bound"));
        }
    }
}

fn failure(code: zstd_safe::ErrorCode) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_size_come_back_as_one_body() {
        let mut packer = Packer::new(1).unwrap();
        let noise = |bytes: usize| {
            (0..bytes).scan(1u32, |state, _| {
                *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                Some((*state >> 24) as u8)
            })
        };
        let mut body: Vec<u8> = noise(5_000).collect();
        body.extend(std::iter::repeat_n(7, 300_000));
        body.extend(noise(3));
        for ends in [vec![], vec![0, 10, 5_000, 305_000], vec![5_000; 9], vec![305_003], vec![1, 2, 3]] {
            let mut packed = vec![9];
            packer.pack(&body, &ends, &mut packed).unwrap();
            let back = zstd::bulk::decompress(&packed[1..], body.len()).unwrap();
            assert_eq!((packed[0], back == body), (9, true), "{ends:?}");
        }
    }

    #[test]
    fn a_boundary_between_unlike_parts_saves_bytes() {
        let ids = (0..20_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 30) as u8);
        let noise = (0..20_000u32).map(|index| 128 + (index.wrapping_mul(2_246_822_519) >> 25) as u8);
        let body: Vec<u8> = ids.chain(noise).collect();
        let size = |ends: &[usize]| {
            let mut packed = Vec::new();
            Packer::new(1).unwrap().pack(&body, ends, &mut packed).unwrap();
            packed.len()
        };
        assert!(size(&[20_000]) < size(&[]), "{} and {}", size(&[20_000]), size(&[]));
    }
}
