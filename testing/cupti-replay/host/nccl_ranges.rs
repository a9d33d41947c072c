//! A program in which NCCL has no profiler plugin, so only NCCL's NVTX ranges report its operations.
//!
//! Domain, names, schemas and structs are those of NCCL 2.27 (`nvtx.h`, `nvtx_payload_schemas.h`). Also sends
//! what older and later versions may send.
#![expect(unsafe_code, reason = "calls the functions of NVTX")]

use std::ffi::CStr;
use std::time::Duration;

use nvtx_sys::abi::{EventAttributes, PayloadData, STATIC_SCHEMAS, message_type, payload_type};
use nvtx_sys::program::{Handle, Program};

use crate::ranges;
use crate::recording::{Recording, nanos_now, thread_id};

/// The copy of NVTX in NCCL.
const NCCL: Program<1> = Program;

const ALL_GATHER: u64 = 4;
const ALL_REDUCE: u64 = 5;
const SEND: u64 = 9;
const RECEIVE: u64 = 10;

/// Communicators.
const DP: u64 = 0xd0_0000_0001;
const TP: u64 = 0x7_0000_0002;

const REDUCE_KERNEL: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

/// A payload struct and the size reported with it.
#[derive(Clone, Copy)]
struct Reported {
    schema: u64,
    words: [u64; 3],
    size: usize,
}

impl Reported {
    /// Struct with communicator, bytes, and root, peer or reduction.
    fn numbered(schema: u64, communicator: u64, bytes: u64, number: u32) -> Self {
        Self { schema, words: [communicator, bytes, number.into()], size: 24 }
    }
}

/// The domain, which is a number, not an address.
#[derive(Clone, Copy)]
struct Nccl {
    domain: usize,
}

/// Communicates like NCCL without a plugin, and writes the recording to `recording`.
pub fn communicate(recording: &std::ffi::OsStr) -> Result<(), String> {
    ranges::attach()?;
    // SAFETY: a NUL-terminated string.
    let nccl = Nccl { domain: unsafe { NCCL.domain_create_a(c"NCCL".as_ptr()) }.addr() };
    let mut recorded = Recording::new();
    let reduce = Reported::numbered(ALL_REDUCE, DP, 4 << 20, 3);
    for _ in 0..50 {
        nccl.call(c"ncclAllReduce", Some(reduce), || launch(&mut recorded, REDUCE_KERNEL))?;
        // A launch of another library right afterwards.
        launch(&mut recorded, "gemm")?;
    }
    nccl.group(&[(c"ncclAllReduce", Reported::numbered(ALL_REDUCE, DP, 1 << 10, 3)); 3], || {
        launch(&mut recorded, REDUCE_KERNEL)
    })?;
    let both =
        [(c"ncclSend", Reported::numbered(SEND, DP, 1000, 3)), (c"ncclRecv", Reported::numbered(RECEIVE, DP, 3000, 3))];
    nccl.group(&both, || launch(&mut recorded, "ncclDevKernel_SendRecv"))?;
    // Two communicators in a group, with one kernel each.
    let two = [DP, TP].map(|communicator| (c"ncclAllReduce", Reported::numbered(ALL_REDUCE, communicator, 8, 3)));
    nccl.group(&two, || (0..2).try_for_each(|_| launch(&mut recorded, REDUCE_KERNEL)))?;
    // Without a communicator, as before NCCL 2.25; and with a size that only the schema determines.
    let old = Reported { size: 16, ..Reported::numbered(ALL_REDUCE, 4096, 3, 0) };
    for reported in [old, Reported { size: usize::MAX, ..reduce }] {
        nccl.call(c"ncclAllReduce", Some(reported), || launch(&mut recorded, REDUCE_KERNEL))?;
    }
    let recorded = std::thread::scope(|scope| {
        let worker = scope.spawn(move || -> Result<Recording, String> {
            let gather = Reported { schema: ALL_GATHER, words: [TP, 1 << 14, 0], size: 16 };
            for _ in 0..20 {
                let kernel = "ncclDevKernel_AllGather_RING_LL";
                nccl.call(c"ncclAllGather", Some(gather), || launch(&mut recorded, kernel))?;
            }
            Ok(recorded)
        });
        worker.join().map_err(|_| "the thread that communicates panicked".to_owned())?
    })?;
    let path = recording.to_string_lossy().into_owned();
    std::fs::write(&path, recorded.bytes()).map_err(|error| format!("{path}: {error}"))
}

fn launch(recorded: &mut Recording, kernel: &str) -> Result<(), String> {
    let begin = nanos_now()?;
    std::thread::sleep(Duration::from_micros(20));
    recorded.launch(thread_id(), begin, nanos_now()?, kernel);
    Ok(())
}

impl Nccl {
    /// Makes a call with its range; `inside` does the work of the call.
    fn call(
        self,
        name: &CStr,
        reported: Option<Reported>,
        inside: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let domain: Handle = std::ptr::without_provenance(self.domain);
        // SAFETY: a NUL-terminated string.
        let name = unsafe { NCCL.register_string_a(domain, name.as_ptr()) };
        let plain =
            EventAttributes { message_type: message_type::REGISTERED, message: name.cast(), ..EventAttributes::new() };
        let places = reported.as_ref().map(|reported| {
            let payload = (&raw const reported.words).cast();
            [PayloadData { schema: STATIC_SCHEMAS + reported.schema, size: reported.size, payload }]
        });
        let attributes = match &places {
            None => plain,
            Some(places) => EventAttributes {
                payload_type: payload_type::EXTENDED,
                reserved: 1,
                payload: places.as_ptr().expose_provenance() as u64,
                ..plain
            },
        };
        // SAFETY: the attributes contain their size, and the struct has the size in `reported` or in its schema.
        unsafe { NCCL.domain_push_ex(domain, &raw const attributes) };
        let done = inside();
        // SAFETY: takes a handle.
        unsafe { NCCL.domain_pop(domain) };
        done
    }

    /// Makes `calls` in a group, whose end launches them all.
    fn group(self, calls: &[(&CStr, Reported)], launches: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.call(c"ncclGroupStart", None, || Ok(()))?;
        calls.iter().try_for_each(|(name, reported)| self.call(name, Some(*reported), || Ok(())))?;
        self.call(c"ncclGroupEnd", None, launches)
    }
}
