//! Registers and stack of a running thread, as the kernel copies them: perf events on threads of this
//! process.
//!
//! The event counts the thread's CPU time (`PERF_COUNT_SW_TASK_CLOCK`, a timer and not a hardware counter)
//! and takes a sample after each period. The kernel copies the registers of the thread's own code and the
//! newest part of the stack into a ring that is mapped here; the thread gets no signal and is not stopped. It
//! pays for the timer's interrupt and the copy. If `kernel.perf_event_paranoid` is 2 and the process has no
//! privilege, no sample is taken while the thread is inside the kernel.
//!
//! The kernel overwrites the oldest samples (`write_backward`), so the newest one is always available, and no
//! reader has to keep up. The descriptor is closed at once: the mapping keeps the event alive, and a program
//! that closes descriptors that it does not know cannot end it, nor can its own descriptors be taken for it.
#![expect(unsafe_code, reason = "calls of the C library, and memory that the kernel writes")]

use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use host_sampler::native::Registers;

use crate::sys::threads;

/// Bytes of the stack that are copied. PyTorch operators are some fifty frames above Python.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of the ring: the newest sample, one that is being written, and room for one that starts meanwhile.
const RING_BYTES: usize = 64 << 10;
/// Maximum size of a sample: the stack, the registers and the numbers around them.
const MAX_RECORD: usize = STACK_BYTES as usize + 512;

/// `struct perf_event_attr` up to its fifth version (Linux 4.1), as the kernel declares it.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u32,
}

const _: () = assert!(size_of::<Attributes>() == 112);

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
/// `PERF_SAMPLE_READ | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER`
const SAMPLE: u64 = 1 << 4 | 1 << 12 | 1 << 13;
/// `exclude_hv`, `write_backward`
const FLAGS: u64 = 1 << 6 | 1 << 27;
/// `exclude_kernel`: no samples while the thread is inside the kernel.
const OWN_CODE_ONLY: u64 = 1 << 5;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_ulong = 8;
const PERF_RECORD_SAMPLE: u32 = 9;
/// Offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
/// The kernel's order of registers (`enum perf_event_x86_regs`), each with its DWARF number: ax, bx, cx, dx,
/// si, di, bp, sp, ip, then r8 to r15; r8 has the kernel's number 16.
const REGISTERS: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
const REGISTER_MASK: u64 = 0x00ff_01ff;

/// Samples of one thread; the newest one can be read.
#[derive(Debug)]
pub struct ThreadSamples {
    ring: NonNull<u8>,
    length: usize,
    page: usize,
    buffer: Vec<u8>,
    clock: EventClock,
}

// SAFETY: the mapping belongs to this value alone and is only read through it; the kernel writes to it from
// any CPU.
unsafe impl Send for ThreadSamples {}

/// A thread at one moment.
#[derive(Debug)]
pub struct CopiedThread<'a> {
    pub registers: Registers,
    /// Newest part of its stack, from the stack pointer on.
    pub stack: &'a [u8],
    /// CPU time of the thread since then.
    pub age: Duration,
}

/// Offset of the thread's clock from the event's, which started later and omits a part of each context
/// switch. The least difference observed recently is that of a sample that had just been taken.
#[derive(Debug)]
struct EventClock {
    least: Duration,
    /// Least difference of the samples since.
    next: Duration,
    seen: u32,
}

impl EventClock {
    /// Number of samples after which an older difference no longer counts.
    const KEPT: u32 = 64;

    fn starting_at(clock: Duration) -> Self {
        Self { least: clock, next: Duration::MAX, seen: 0 }
    }

    /// Age of a sample with the event's count `counted`, while the thread's clock is at `now`.
    fn age(&mut self, counted: Duration, now: Duration) -> Duration {
        let difference = now.saturating_sub(counted);
        self.next = self.next.min(difference);
        self.least = self.least.min(difference);
        self.seen += 1;
        if self.seen == Self::KEPT {
            (self.least, self.next, self.seen) = (self.next, Duration::MAX, 0);
        }
        difference - self.least
    }
}

impl ThreadSamples {
    /// Starts sampling a thread of this process by its kernel id, after each `period` of CPU time; 0 is the
    /// calling thread. Fails if the kernel or a filter of system calls does not allow it, or if there is no
    /// such thread.
    pub fn start(thread: u32, period: Duration) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let clock = threads::thread_cpu_time(if thread == 0 { threads::thread_id() } else { thread });
        let descriptor = open(thread, period, FLAGS).or_else(|_| open(thread, period, FLAGS | OWN_CODE_ONLY))?;
        let page = crate::sys::memory::page_bytes() as usize;
        let length = page + RING_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let ring = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0) };
        let failed = (ring == libc::MAP_FAILED).then(io::Error::last_os_error);
        // SAFETY: opened above, and not used anywhere else.
        unsafe { libc::close(descriptor) };
        match (failed, NonNull::new(ring.cast())) {
            (None, Some(ring)) => {
                let clock = EventClock::starting_at(clock.unwrap_or_default());
                Ok(Self { ring, length, page, buffer: vec![0; MAX_RECORD], clock })
            }
            (error, _) => Err(error.unwrap_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))),
        }
    }

    /// Returns the newest sample, while the thread's clock is at `now`; `None` if there is none, or if it was
    /// overwritten while it was read.
    pub fn newest(&mut self, now: Duration) -> Option<CopiedThread<'_>> {
        let head = self.head();
        let header = self.copy(head, 8);
        let [kind, size] =
            [0, 6].map(|at| header.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])));
        let size = usize::from(size?);
        if head == 0 || u32::from(kind?) != PERF_RECORD_SAMPLE || !(8..=MAX_RECORD).contains(&size) {
            return None;
        }
        self.copy(head, size);
        // The copy comes before the second look at the head, also on a processor that may reorder loads.
        fence(Ordering::Acquire);
        // The ring is written toward lower addresses: this much since then, and one more may be in progress.
        let written = usize::try_from(head.wrapping_sub(self.head())).ok()?;
        if written + MAX_RECORD + size > RING_BYTES {
            return None;
        }
        let (counted, registers, stack) = parse(self.buffer.get(..size)?)?;
        Some(CopiedThread { registers, stack, age: self.clock.age(counted, now) })
    }

    fn head(&self) -> u64 {
        // SAFETY: inside the first page of the mapping, which lives as long as this value, and aligned; the
        // kernel writes it atomically. There are no writes through this reference.
        let head = unsafe { AtomicU64::from_ptr(self.ring.as_ptr().add(DATA_HEAD).cast()) };
        head.load(Ordering::Acquire)
    }

    /// Copies `length` bytes of the ring, at most [`MAX_RECORD`], from a position of the kernel.
    fn copy(&mut self, position: u64, length: usize) -> &[u8] {
        let length = length.min(MAX_RECORD);
        let at = position as usize % RING_BYTES;
        let first = length.min(RING_BYTES - at);
        // SAFETY: `at + first` and `length - first` are at most the bytes of the ring, which follows the
        // first page of the mapping and lives as long as this value; `length` is at most that of the buffer.
        // The caller detects bytes that the kernel overwrites meanwhile, and any byte values are valid.
        unsafe {
            let ring = self.ring.as_ptr().add(self.page);
            ptr::copy_nonoverlapping(ring.add(at), self.buffer.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(ring, self.buffer.as_mut_ptr().add(first), length - first);
        }
        self.buffer.get(..length).unwrap_or_default()
    }
}

impl Drop for ThreadSamples {
    fn drop(&mut self) {
        // SAFETY: mapped by `start` with this length, and no reference to it remains. The event ends with it.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.length) };
    }
}

/// True if a filter of system calls applies to this process. It may respond to `perf_event_open` by ending
/// the process, as that of a systemd service with `SystemCallFilter=` does.
pub fn calls_are_filtered() -> bool {
    let is_free = |line: &str| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "0");
    !fs::read_to_string("/proc/self/status").is_ok_and(|status| status.lines().any(is_free))
}

/// Opens the event of a thread; returns its descriptor.
fn open(thread: u32, period: Duration, flags: u64) -> io::Result<i32> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PERF_COUNT_SW_TASK_CLOCK,
        sample_period: period.as_nanos() as u64,
        sample_type: SAMPLE,
        flags,
        sample_regs_user: REGISTER_MASK,
        sample_stack_user: STACK_BYTES,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads as many bytes of the structure as its size field states, and returns a
    // descriptor or an error.
    let descriptor = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, thread, -1_i32, -1_i32, CLOSE_ON_EXEC)
    };
    if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(descriptor as i32) }
}

/// Parses a record: header, the event's count, the registers after a number that shows whether there are any,
/// the size of the stack, the stack, and the number of its bytes copied.
fn parse(record: &[u8]) -> Option<(Duration, Registers, &[u8])> {
    const COUNT: usize = 8;
    const REGISTERS_BEGIN: usize = 24;
    const STACK_SIZE: usize = REGISTERS_BEGIN + REGISTERS.len() * 8;
    let word = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    // `PERF_SAMPLE_REGS_ABI_64`
    if word(REGISTERS_BEGIN - 8)? != 2 {
        return None;
    }
    let mut registers = Registers::default();
    for (index, number) in REGISTERS.into_iter().enumerate() {
        // Older versions of Linux use all ones for registers that they do not know inside the kernel.
        registers.set(number, Some(word(REGISTERS_BEGIN + index * 8)?).filter(|&value| value != u64::MAX));
    }
    let size = usize::try_from(word(STACK_SIZE)?).ok()?;
    let begin = STACK_SIZE + 8;
    let copied = if size == 0 { 0 } else { usize::try_from(word(begin.checked_add(size)?)?).ok()? };
    let stack = record.get(begin..begin.checked_add(copied.min(size))?)?;
    Some((Duration::from_nanos(word(COUNT)?), registers, stack))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::time::Instant;
    use std::{hint, thread};

    use super::*;
    use crate::sys::threads;

    const PERIOD: Duration = Duration::from_millis(5);

    #[test]
    fn a_running_thread_is_copied_at_its_stack() {
        // `tests/sampling` reports if perf events are not allowed.
        if ThreadSamples::start(0, PERIOD).is_err() {
            return;
        }
        let (tell, id) = mpsc::channel();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let here = 0_u64;
                tell.send((threads::thread_id(), ptr::from_ref(&here).addr())).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
            let (id, local) = id.recv().unwrap();
            let mut samples = ThreadSamples::start(id, PERIOD).unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            let (mut seen, mut wrong) = (0, 0);
            while seen < 100 && Instant::now() < deadline {
                if let Some(copied) = samples.newest(threads::thread_cpu_time(id).unwrap()) {
                    let sp = copied.registers.get(7).unwrap_or(0) as usize;
                    let is_complete = copied.registers.get(16).is_some() && copied.age < Duration::from_secs(1);
                    wrong += u32::from(!is_complete || !(sp..sp + copied.stack.len()).contains(&local));
                    seen += 1;
                }
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!((seen, wrong), (100, 0));
        });
        assert!(ThreadSamples::start(u32::MAX >> 1, PERIOD).is_err());
    }

    #[test]
    fn a_thread_inside_the_kernel_is_copied_where_that_is_allowed() {
        let period = PERIOD / 5;
        let Ok(descriptor) = open(0, period, FLAGS) else { return };
        // SAFETY: opened above, and not used anywhere else.
        unsafe { libc::close(descriptor) };
        let (tell, id) = mpsc::channel();
        let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Some 80 ms of one call, independent of the load of the machine.
                let mut random = File::open("/dev/urandom").unwrap();
                let mut bytes = vec![0; 31 << 20];
                tell.send(threads::thread_id()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    calls.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(random.read(&mut bytes).unwrap(), bytes.len());
                }
            });
            let id = id.recv().unwrap();
            let mut samples = ThreadSamples::start(id, period).unwrap();
            let (deadline, before) = (Instant::now() + Duration::from_secs(60), calls.load(Ordering::Relaxed));
            let passed = |calls: u64| calls - before;
            while passed(calls.load(Ordering::Relaxed)) < 5 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            let bytes = samples.head().wrapping_neg();
            let header = samples.copy(samples.head(), 8);
            let size = u64::from(u16::from_le_bytes([header[6], header[7]]));
            let newest = samples.newest(threads::thread_cpu_time(id).unwrap());
            assert!(newest.is_some_and(|copied| copied.registers.get(16).is_some()));
            stop.store(true, Ordering::Relaxed);
            // If only the thread's own code were sampled, there would be one or two per call.
            let (calls, samples) = (passed(calls.load(Ordering::Relaxed)) + 1, bytes / size.max(1));
            assert!(samples > 3 * calls, "{samples} samples of {calls} calls");
        });
    }

    #[test]
    fn records_that_are_cut_or_have_no_registers_are_none() {
        let mut record = vec![0_u8; 400];
        record[16] = 2;
        record[8] = 40;
        // Sixteen bytes of stack, eight of them copied.
        record[160] = 16;
        record[184] = 8;
        let (counted, _, stack) = parse(&record).unwrap();
        assert_eq!((stack.len(), counted), (8, Duration::from_nanos(40)));
        assert!(parse(&record[..188]).is_none());
        record[162] = 1;
        assert!(parse(&record).is_none(), "the stack ends behind the record");
        record[16] = 0;
        assert!(parse(&record).is_none());
    }

    #[test]
    fn the_clock_of_an_event_may_fall_behind() {
        let micros = Duration::from_micros;
        let mut clock = EventClock::starting_at(micros(500));
        assert_eq!(clock.age(micros(100), micros(700)), micros(100));
        for step in 0..200 {
            // The clock loses a microsecond with each sample, which is some microseconds old.
            let age = clock.age(micros(step * 999), micros(500 + step * 1000 + step % 7));
            assert!(age < micros(140), "{step} {age:?}");
        }
    }
}
