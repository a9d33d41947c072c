//! Processing of untrusted bytes: shared by the fuzzers of `testing/fuzz/fuzz_targets` and by the bounded run
//! of `tests/hostile`, which needs no nightly toolchain.
//!
//! Any input may be refused; none may cause a panic, a hang, or a read outside it.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::ptr;
use std::sync::Once;
use std::time::{Duration, Instant};

use cupti_replay::recording::RecordingReader;
use cupti_sys::record::Activity;
use cupti_sys::{CompletedBuffer, Kind, RecordSizes};
use gpuwhy_inject::control::client::Client;
use nvtx_sys::abi::{EventAttributes, message_type};
use nvtx_sys::program::Program;

/// A trace file: read, accounted and printed.
pub fn trace(bytes: &[u8]) {
    if let Ok(report) = gpuwhy::read(bytes) {
        std::hint::black_box((report.summary(), report.full()));
    }
}

/// A trace of torch.profiler.
pub fn kineto(bytes: &[u8]) {
    if let Ok(report) = gpuwhy::import_kineto(bytes) {
        std::hint::black_box((report.summary(), report.full()));
    }
}

/// A recording of activity buffers.
pub fn recording(bytes: &[u8]) {
    let Ok(reader) = RecordingReader::new(bytes) else { return };
    let sections = reader.map_while(Result::ok);
    // Each section takes at least a byte, so the loop terminates; counting consumes the iterator.
    std::hint::black_box(sections.count());
}

/// Record sizes of CUPTI 13.0, and two sets of impossible sizes.
const SIZES: &[(Kind, u32)] = &[
    (Kind::MEMCPY, 96),
    (Kind::MEMSET, 88),
    (Kind::DRIVER, 40),
    (Kind::RUNTIME, 40),
    (Kind::DEVICE, 200),
    (Kind::CONTEXT, 32),
    (Kind::CONCURRENT_KERNEL, 216),
    (Kind::OVERHEAD, 56),
    (Kind::MEMCPY2, 88),
    (Kind::SYNCHRONIZATION, 48),
    (Kind::CUDA_EVENT, 8),
    (Kind::GRAPH_TRACE, 16),
];

/// An activity buffer: steps over and reads every record.
pub fn walk(bytes: &[u8]) {
    let Some(buffer) = CompletedBuffer::from_bytes(bytes, 0, 0) else { return };
    let sizes = RecordSizes::from_pairs(SIZES);
    let mut records = buffer.records(&sizes);
    let mut walked = 0;
    for record in &mut records {
        walked += record.bytes().len();
        let read = match record.activity() {
            Activity::Kernel(kernel) => {
                assert!(kernel.name().is_none(), "an address from outside was followed");
                kernel.start() ^ kernel.end() ^ u64::from(kernel.correlation_id()) ^ u64::from(kernel.grid()[0])
            }
            Activity::Memcpy(copy) => copy.start() ^ copy.byte_count() ^ u64::from(copy.graph_id()),
            Activity::MemcpyP2p(copy) => copy.start() ^ copy.byte_count() ^ u64::from(copy.source_device_id()),
            Activity::Memset(memset) => memset.start() ^ memset.byte_count() ^ u64::from(memset.value()),
            Activity::Api(call) => call.start() ^ call.end() ^ u64::from(call.return_value()),
            Activity::Sync(sync) => sync.start() ^ u64::from(sync.event_id()),
            Activity::CudaEvent(event) => u64::from(event.event_id()) ^ event.event_sync_id().unwrap_or(0),
            Activity::Overhead(overhead) => overhead.start() ^ u64::from(overhead.correlation_id().unwrap_or(0)),
            Activity::Device(device) => device.global_memory_size(),
            Activity::Context(context) => u64::from(context.context_id()),
            _ => 0,
        };
        std::hint::black_box(read);
    }
    let left = records.remainder().map_or(0, |broken| broken.bytes);
    assert_eq!(walked + left, buffer.bytes().len(), "every byte is in a record or said to be broken");
}

/// An untrusted client of the control socket: sends these bytes, some at a time, and reads a few now and
/// then.
struct OtherTool<'a> {
    sent: &'a [u8],
    at_a_time: usize,
    reads: usize,
}

impl Read for OtherTool<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (now, later) = self.sent.split_at(self.at_a_time.min(self.sent.len()));
        let (now, kept) = now.split_at(buffer.len().min(now.len()));
        buffer.get_mut(..now.len()).unwrap_or_default().copy_from_slice(now);
        self.sent = if kept.is_empty() { later } else { self.sent.get(now.len()..).unwrap_or_default() };
        Ok(now.len())
    }
}

impl Write for OtherTool<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.reads == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(bytes.len().min(self.reads)) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection of the control socket: reads it to its end and replies to every command. The first two bytes
/// set how much the client sends and reads at a time.
pub fn control(bytes: &[u8]) {
    let [first, second, sent @ ..] = bytes else { return };
    let other_tool = OtherTool { sent, at_a_time: usize::from(*first) + 1, reads: usize::from(*second) };
    let mut client = Client::new(other_tool);
    let now = Instant::now();
    // Each round takes a command, bytes, or neither while replies wait to be read; then the connection ends
    // as idle.
    for look in 0..bytes.len() * 2 + 8 {
        if !client.is_alive(now) {
            return;
        }
        if client.command().is_some() {
            client.answer("{}");
        }
        let _ = client.due_lines(now + Duration::from_millis(look as u64));
        client.write();
    }
    assert!(client.has_output() || client.stream().sent.is_empty(), "bytes are left that nobody looks at");
    assert!(!client.is_alive(now + Duration::from_secs(120)), "a connection on which nothing goes is closed");
}

/// Size of one NVTX call in bytes.
const CALL: usize = 40;

/// NVTX calls decoded from the bytes, into libprof.so's own receiver. Texts end with NUL, as NVTX demands of
/// a program; all numbers, sizes and handles are untrusted.
#[expect(unsafe_code, reason = "C functions that take pointers")]
pub fn nvtx(bytes: &[u8]) {
    const PROGRAM: Program<0> = Program;
    static ATTACHED: Once = Once::new();
    // SAFETY: a tool's function, which is never unloaded.
    ATTACHED.call_once(|| assert_eq!(unsafe { PROGRAM.initialize(gpuwhy_inject::session_functions().nvtx) }, 1));
    for call in bytes.chunks_exact(CALL) {
        let number =
            |at: usize| call.get(at..at + 4).map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap_or_default()));
        let long = |at: usize| u64::from(number(at)) << 32 | u64::from(number(at + 4));
        let letters = call.iter().copied().filter(|&letter| letter != 0).collect::<Vec<_>>();
        let narrow = CString::new(letters.repeat(1 + number(0) as usize % 200)).unwrap_or_default();
        let wide: Vec<u32> = (0..CALL / 4).map(|at| number(at * 4) | 1).chain([0]).collect();
        let kind = (number(4) % 5).cast_signed();
        let event = EventAttributes {
            version: (number(4) >> 16) as u16,
            size: number(8) as u16,
            category: number(8) >> 16,
            color_type: (number(12) % 3).cast_signed(),
            color: number(12),
            payload_type: (number(16) % 9).cast_signed(),
            reserved: 0,
            payload: long(20),
            message_type: kind,
            message: match kind {
                message_type::ASCII => narrow.as_ptr(),
                message_type::UNICODE => wide.as_ptr().cast(),
                message_type::REGISTERED => ptr::without_provenance(number(28) as usize % 64),
                _ => ptr::null(),
            },
        };
        let domain = ptr::without_provenance(number(32) as usize % 64);
        // SAFETY: texts end with NUL, the attributes are complete regardless of the size they state, and
        // handles are only numbers.
        unsafe {
            match number(36) % 16 {
                0 => PROGRAM.mark_ex(&raw const event),
                1 => drop(PROGRAM.push_ex(&raw const event)),
                2 => drop(PROGRAM.pop()),
                3 => PROGRAM.domain_mark_ex(domain, &raw const event),
                4 => drop(PROGRAM.domain_push_ex(domain, &raw const event)),
                5 => drop(PROGRAM.domain_pop(domain)),
                6 => PROGRAM.domain_end(domain, long(20)),
                7 => PROGRAM.end(PROGRAM.domain_start_ex(domain, &raw const event)),
                8 => PROGRAM.end(long(20)),
                9 => drop(PROGRAM.domain_create_a(narrow.as_ptr())),
                10 => drop(PROGRAM.register_string_a(domain, narrow.as_ptr())),
                11 => PROGRAM.name_category_a(domain, number(8), narrow.as_ptr()),
                12 => PROGRAM.name_os_thread_w(number(8), wide.as_ptr()),
                13 => PROGRAM.mark_w(wide.as_ptr()),
                14 => PROGRAM.name_os_thread_a(number(8), ptr::null()),
                _ => drop(PROGRAM.push_ex(ptr::null())),
            }
        }
    }
}
