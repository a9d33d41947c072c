//! Memory for activity records, and its ownership while CUPTI writes.
//!
//! CUPTI receives a raw address and returns it later, on another thread or never. It may also return an
//! address that this library never lent, if another tool registered its callbacks in between. So a list holds
//! every lent address: an address that is not in the list is ignored, and sizes come from the list, not from
//! the caller. The lock of the list is held for one map operation per buffer.

use crate::record::view::Strings;
use crate::walk::{RecordSizes, Records};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Owned memory with the 8-byte alignment that CUPTI demands; its size is a multiple of 8.
pub struct Buffer {
    words: Box<[u64]>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.capacity())
    }
}

impl Buffer {
    /// Zeroed memory of `bytes` rounded up to a multiple of 8. Pages are touched only when written to.
    ///
    /// `None` if the allocation fails or `bytes` is 0: the profiled program must not end because the
    /// profiler runs out of memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let words = bytes.div_ceil(8);
        let layout = Layout::array::<u64>(words).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<u64>();
        let words = NonNull::slice_from_raw_parts(memory, words);
        // SAFETY: allocated just now by the global allocator with the layout of `[u64]`; zero is a valid `u64`.
        Some(Self { words: unsafe { Box::from_raw(words.as_ptr()) } })
    }

    /// Size in bytes.
    pub const fn capacity(&self) -> usize {
        size_of_val::<[u64]>(&*self.words)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `u64` has no padding, and the length is that of the same allocation in bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.capacity()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, any bytes are valid `u64`s, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.capacity()) }
    }

    /// Hands the memory to CUPTI and records it as lent.
    pub(crate) fn lend(self, purpose: Purpose) -> (*mut u8, usize) {
        let words = self.words.len();
        let address = Box::into_raw(self.words).cast::<u64>();
        let mark = MARK.load(Ordering::Relaxed);
        lent().held.insert(address as usize, Lent { words, purpose, mark });
        (address.cast(), words * 8)
    }
}

/// Purpose of a lent buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Its records go to the handler.
    Deliver,
    /// Its records are counted and discarded.
    Discard,
}

struct Lent {
    words: usize,
    purpose: Purpose,
    mark: u64,
}

/// Mark for buffers lent from now on. `Relaxed` suffices: a buffer that still gets the previous mark only
/// appears older than it is, which is conservative.
static MARK: AtomicU64 = AtomicU64::new(0);

/// Sets the mark for buffers lent from now on. Marks must never decrease; the initial mark is 0.
///
/// A flush does not deliver every complete record: CUPTI holds a buffer back while any record in it is
/// incomplete. If marks encode the time of lending, [`oldest_lent`] is a lower bound for the time of the
/// missing records.
pub fn mark_lent(mark: u64) {
    MARK.store(mark, Ordering::Relaxed);
}

/// Oldest mark of the buffers whose records are still to be delivered: CUPTI holds them, or the handler is
/// processing them. `None` if there are no such buffers.
pub fn oldest_lent() -> Option<u64> {
    lent().oldest()
}

struct LentBuffers {
    /// Buffers that CUPTI holds, by address.
    held: BTreeMap<usize, Lent>,
    /// Marks of the buffers that CUPTI has returned and whose handler is still running. Without them, the
    /// records would appear delivered while that handler is preempted.
    returning: Vec<u64>,
}

impl LentBuffers {
    const fn new() -> Self {
        Self { held: BTreeMap::new(), returning: Vec::new() }
    }

    fn oldest(&self) -> Option<u64> {
        let held = self.held.values().filter(|lent| lent.purpose == Purpose::Deliver).map(|lent| lent.mark);
        held.chain(self.returning.iter().copied()).min()
    }

    fn take_back(&mut self, address: usize) -> Option<Lent> {
        let lent = self.held.remove(&address)?;
        self.returning.push(lent.mark);
        Some(lent)
    }

    /// Removes the mark of a buffer whose handler has returned.
    fn delivered(&mut self, mark: u64) {
        if let Some(index) = self.returning.iter().position(|&returning| returning == mark) {
            self.returning.swap_remove(index);
        }
    }
}

static LENT: Mutex<LentBuffers> = Mutex::new(LentBuffers::new());

fn lent() -> MutexGuard<'static, LentBuffers> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of buffers that CUPTI holds or is returning now. Buffers that it never returns at exit are lost.
pub fn lent_buffers() -> usize {
    let buffers = lent();
    buffers.held.len() + buffers.returning.len()
}

/// Abandons the buffers that CUPTI holds, because it will return them to another client. Returns the number
/// of abandoned buffers that were lent for delivery. Their memory is never reused: the client that receives it
/// may write to it or free it.
pub fn forget_lent() -> usize {
    std::mem::take(&mut lent().held).values().filter(|lent| lent.purpose == Purpose::Deliver).count()
}

/// Memory that CUPTI has returned. Until this is dropped, its records count as not yet delivered.
pub(crate) struct Returned {
    pub(crate) purpose: Purpose,
    mark: u64,
}

impl Drop for Returned {
    fn drop(&mut self) {
        lent().delivered(self.mark);
    }
}

/// Takes lent memory back; `None` if this address was never lent.
pub(crate) fn take_back(address: *mut u8) -> Option<(Buffer, Returned)> {
    let Lent { words, purpose, mark } = lent().take_back(address as usize)?;
    let words = std::ptr::slice_from_raw_parts_mut(address.cast::<u64>(), words);
    // SAFETY: the entry was in the list, so address and length are those of a box that `lend` released.
    // The entry was removed under the lock, so it cannot be taken back twice. CUPTI does not write to a
    // buffer that it has returned.
    Some((Buffer { words: unsafe { Box::from_raw(words) } }, Returned { purpose, mark }))
}

/// A buffer that CUPTI has filled.
pub struct CompletedBuffer {
    buffer: Buffer,
    valid: usize,
    context: usize,
    stream: u32,
    strings: Strings,
}

impl fmt::Debug for CompletedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletedBuffer({} of {} bytes)", self.valid, self.buffer.capacity())
    }
}

impl CompletedBuffer {
    /// A buffer from CUPTI, whose records may point to readable strings. `valid` is clamped to the capacity.
    ///
    /// # Safety
    /// The records in the first `valid` bytes were written by a CUPTI that is still loaded.
    pub(crate) unsafe fn from_cupti(buffer: Buffer, valid: usize, context: usize, stream: u32) -> Self {
        let valid = valid.min(buffer.capacity());
        Self { buffer, valid, context, stream, strings: Strings::Readable }
    }

    /// Records from another source, such as a recording. Their string addresses are invalid in this process,
    /// so names are not read, and a kind that is not in the size table ends the walk.
    ///
    /// `None` if the allocation fails or `bytes` is empty.
    pub fn from_bytes(bytes: &[u8], context: usize, stream: u32) -> Option<Self> {
        let mut buffer = Buffer::new(bytes.len())?;
        buffer.bytes_mut().get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { buffer, valid: bytes.len(), context, stream, strings: Strings::Foreign })
    }

    /// The bytes that hold records.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes().get(..self.valid).unwrap_or_default()
    }

    /// Address of the buffer's context, or 0: an id, not to be dereferenced.
    pub const fn context(&self) -> usize {
        self.context
    }

    /// Stream of the buffer, or 0.
    pub const fn stream(&self) -> u32 {
        self.stream
    }

    /// The records, in the order that CUPTI wrote them.
    pub fn records<'a>(&'a self, sizes: &'a RecordSizes) -> Records<'a> {
        Records::new(self.bytes(), self.strings, sizes)
    }

    /// The memory, for reuse.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_rounded_up() {
        let buffer = Buffer::new(1001).unwrap();
        assert_eq!(buffer.capacity(), 1008);
        assert_eq!(buffer.bytes().as_ptr() as usize % 8, 0);
        assert!(buffer.bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_failed_allocation_returns_none() {
        assert!(Buffer::new(0).is_none());
        assert!(Buffer::new(isize::MAX as usize - 7).is_none());
        assert!(Buffer::new(usize::MAX).is_none());
    }

    #[test]
    fn lent_memory_is_taken_back_once_and_foreign_memory_never() {
        let (address, bytes) = Buffer::new(64).unwrap().lend(Purpose::Discard);
        assert_eq!(bytes, 64);
        let (buffer, returned) = take_back(address).unwrap();
        assert_eq!((buffer.capacity(), returned.purpose), (64, Purpose::Discard));
        assert!(take_back(address).is_none());

        let mut foreign = [0_u64; 8];
        assert!(take_back(foreign.as_mut_ptr().cast()).is_none());
        assert!(take_back(std::ptr::null_mut()).is_none());
    }

    #[test]
    fn the_oldest_lent_buffer_is_reported_by_its_mark() {
        mark_lent(7);
        let (old, _) = Buffer::new(64).unwrap().lend(Purpose::Deliver);
        mark_lent(9);
        let (discarded, _) = Buffer::new(64).unwrap().lend(Purpose::Discard);
        let (new, _) = Buffer::new(64).unwrap().lend(Purpose::Deliver);
        let mark = |address: *mut u8| lent().held.get(&(address as usize)).map(|lent| lent.mark);
        assert_eq!([old, discarded, new].map(mark), [Some(7), Some(9), Some(9)]);
        assert!(oldest_lent().is_some_and(|oldest| oldest <= 7));
        [old, discarded, new].into_iter().for_each(|address| drop(take_back(address)));
    }

    #[test]
    fn a_buffer_counts_as_lent_until_its_handler_has_returned() {
        let mut buffers = LentBuffers::new();
        let lent = |mark| Lent { words: 8, purpose: Purpose::Deliver, mark };
        buffers.held.extend([(64, lent(7)), (128, lent(9))]);
        assert!(buffers.take_back(64).is_some() && buffers.take_back(64).is_none());
        assert_eq!(buffers.oldest(), Some(7));
        buffers.delivered(7);
        assert_eq!(buffers.oldest(), Some(9));
    }

    #[test]
    fn a_valid_size_above_the_capacity_is_clamped() {
        let buffer = Buffer::new(16).unwrap();
        // SAFETY: zeroed memory contains no record with a string pointer.
        let completed = unsafe { CompletedBuffer::from_cupti(buffer, 4096, 1, 2) };
        assert_eq!(completed.bytes().len(), 16);
        assert_eq!(completed.into_buffer().capacity(), 16);
    }
}
