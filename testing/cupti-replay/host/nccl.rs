//! A program that communicates: this host calls the profiler plugin as NCCL does, and writes a recording of
//! the kernels that belong to the calls.
//!
//! Stricter than NCCL: each return value is checked, each handle must have been written, and events that NCCL
//! would never send in this order are sent as well.
#![expect(unsafe_code, reason = "loads a library as NCCL does, and calls its functions")]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};
use nccl_sys::abi::{Coll, CollApi, P2p, PluginV4, PluginV5, event};

use crate::recording::{Recording, nanos_now, thread_id};

/// Operations of the first thread, each with its own kernel.
const SINGLE: u64 = 50;
/// Launches of the second thread, on another communicator.
const OTHER: u64 = 20;
/// Operations that are captured into a graph.
const CAPTURED: u64 = 5;
/// Value of a handle before the plugin writes it.
const UNWRITTEN: usize = 0x0bad;

/// The functions of a plugin of any version.
#[derive(Clone, Copy)]
struct Plugin {
    version: u32,
    functions: Functions,
}

#[derive(Clone, Copy)]
enum Functions {
    V4(&'static PluginV4),
    V5(&'static PluginV5),
}

/// A communicator of this program.
#[derive(Clone, Copy)]
struct Communicator(usize);

/// A descriptor, with room for the largest body.
#[repr(C)]
struct Descriptor<T> {
    kind: u64,
    parent: *const c_void,
    rank: c_int,
    body: T,
}

/// Communicates like NCCL with this version of the plugin, and writes the recording to `recording`.
pub fn communicate(version: u32, recording: &std::ffi::OsStr) -> Result<(), String> {
    let plugin = Plugin::find(version)?;
    let mut recorded = Recording::new();
    let (dp, tp) = (plugin.init(Some("dp"), 0xd0_0000_0001, 4)?, plugin.init(None, 0x7_0000_0002, 2)?);
    plugin.wrong_orders(dp)?;
    for sequence in 0..SINGLE {
        plugin.call(dp, false)?;
        plugin.launch(dp, &mut recorded, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", false, || {
            plugin.coll(dp, sequence, 1 << 20)
        })?;
    }
    // A group: three operations, one kernel; then a send and a receive in one.
    plugin.launch(dp, &mut recorded, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", false, || {
        (SINGLE..SINGLE + 3).try_for_each(|sequence| plugin.coll(dp, sequence, 1 << 10))
    })?;
    plugin.launch(dp, &mut recorded, "ncclDevKernel_SendRecv", false, || {
        plugin.p2p(dp, c"Send", 1000)?;
        plugin.p2p(dp, c"Recv", 3000)
    })?;
    for _ in 0..CAPTURED {
        plugin.call(dp, true)?;
    }
    let recorded = std::thread::scope(|scope| {
        let worker = scope.spawn(move || -> Result<Recording, String> {
            let mut recorded = recorded;
            for sequence in 0..OTHER {
                plugin.launch(
                    tp,
                    &mut recorded,
                    "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL",
                    sequence % 2 == 1,
                    || plugin.coll(tp, sequence, 1 << 14),
                )?;
            }
            Ok(recorded)
        });
        worker.join().map_err(|_| "the thread that communicates panicked".to_owned())?
    })?;
    plugin.finalize(tp)?;
    plugin.finalize(dp)?;
    // When both communicators have ended, NCCL unloads the plugin, and loads it again with the next
    // communicator.
    let plugin = Plugin::find(version)?;
    let again = plugin.init(Some("again"), 0xd0_0000_0003, 8)?;
    plugin.finalize(again)?;
    plugin.late(again)?;
    let path = recording.to_string_lossy().into_owned();
    std::fs::write(&path, recorded.bytes()).map_err(|error| format!("{path}: {error}"))
}

fn text(name: &'static std::ffi::CStr) -> *const c_char {
    name.as_ptr()
}

impl Plugin {
    /// Finds the plugin as NCCL does: by the variable, as a bare name.
    fn find(version: u32) -> Result<Self, String> {
        let name = env::var("NCCL_PROFILER_PLUGIN").map_err(|_| "NCCL_PROFILER_PLUGIN is not set".to_owned())?;
        // SAFETY: the library is already loaded, or its initializers are requested.
        let library =
            unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| format!("{name}: {error}"))?;
        let symbol = CString::new(format!("ncclProfiler_v{version}")).map_err(|error| error.to_string())?;
        // SAFETY: each symbol belongs to a struct of this version; the library guarantees that it is never
        // unmapped.
        let functions = unsafe {
            let found = library.get::<*const c_void>(symbol.as_bytes_with_nul());
            let found = found.map_err(|error| format!("{name}: {error}"))?;
            let at = found.into_raw();
            match version {
                4 => Functions::V4(&*at.cast::<PluginV4>()),
                _ => Functions::V5(&*at.cast::<PluginV5>()),
            }
        };
        // As NCCL does when the last communicator is destroyed; here at once.
        drop(library);
        // SAFETY: only finds libraries that are already loaded.
        unsafe { Library::open(Some(&name), RTLD_LAZY | libc::RTLD_NOLOAD) }
            .map_err(|_| format!("{name} was unmapped when it was closed"))?;
        Ok(Self { version, functions })
    }

    fn init(self, name: Option<&str>, id: u64, ranks: c_int) -> Result<Communicator, String> {
        let name = name.map(|name| CString::new(name).unwrap_or_default());
        let pointer = name.as_ref().map_or(null(), |name| name.as_ptr());
        let (mut context, mut mask) = (null_mut(), 0);
        // SAFETY: variables of this function, a text that outlives the call.
        let answer = unsafe {
            match self.functions {
                Functions::V4(v4) => (v4.init)(&raw mut context, &raw mut mask, pointer, id, 1, ranks, 0, null()),
                Functions::V5(v5) => (v5.init)(&raw mut context, id, &raw mut mask, pointer, 1, ranks, 0, null()),
            }
        };
        let expected = [(4, 6), (5, 3590), (6, 7686)].iter().find(|(version, _)| *version == self.version);
        if answer != 0 || context.is_null() || expected.is_none_or(|(_, expected)| mask != *expected) {
            return Err(format!("init answered {answer}, context {context:?}, mask {mask}"));
        }
        Ok(Communicator(context.addr()))
    }

    /// Starts an event. Returns its handle.
    fn start<T>(self, of: Communicator, kind: u64, body: T) -> Result<*mut c_void, String> {
        // In version 4 only the first byte of the event is defined.
        let kind = if self.version == 4 { kind | 0xffff_ff00 } else { kind };
        let descriptor = Descriptor { kind, parent: std::ptr::without_provenance(0x77), rank: 0, body };
        let mut handle: *mut c_void = std::ptr::without_provenance_mut(UNWRITTEN);
        let start = match self.functions {
            Functions::V4(v4) => v4.start,
            Functions::V5(v5) => v5.start,
        };
        let context = std::ptr::without_provenance_mut(of.0);
        // SAFETY: a descriptor of the version, whose texts are constants; a variable of this function.
        let answer = unsafe { start(context, &raw mut handle, (&raw const descriptor).cast()) };
        if answer != 0 || handle.addr() == UNWRITTEN {
            return Err(format!("startEvent({kind}) answered {answer}, handle {handle:?}"));
        }
        Ok(handle)
    }

    fn stop(self, handle: *mut c_void) -> Result<(), String> {
        let (stop, record) = match self.functions {
            Functions::V4(v4) => (v4.stop, v4.record),
            Functions::V5(v5) => (v5.stop, v5.record),
        };
        // SAFETY: handles are the plugin's own, or numbers that it must not dereference.
        let answers = unsafe { [record(handle, 3, null()), stop(handle)] };
        if answers == [0, 0] { Ok(()) } else { Err(format!("recordEventState and stopEvent answered {answers:?}")) }
    }

    /// NCCL ignores events without a handle.
    fn stop_if_any(self, handle: *mut c_void) -> Result<(), String> {
        if handle.is_null() { Ok(()) } else { self.stop(handle) }
    }

    fn coll(self, of: Communicator, sequence: u64, count: usize) -> Result<(), String> {
        let body = Coll {
            sequence,
            function: text(c"AllReduce"),
            send: null(),
            receive: null(),
            count,
            root: 0,
            data_type: text(c"ncclFloat32"),
            channels: 24,
            warps: 16,
            algorithm: text(c"RING"),
            protocol: text(c"SIMPLE"),
        };
        self.stop_if_any(self.start(of, event::COLL, body)?)
    }

    fn p2p(self, of: Communicator, function: &'static std::ffi::CStr, count: usize) -> Result<(), String> {
        let (function, data_type) = (text(function), text(c"ncclInt8"));
        let body = P2p { function, buffer: null(), data_type, count, peer: 3, channels: 2 };
        self.stop_if_any(self.start(of, event::P2P, body)?)
    }

    /// The call of the program, which version 4 does not report.
    fn call(self, of: Communicator, captured: bool) -> Result<(), String> {
        if self.version == 4 {
            return Ok(());
        }
        let body = CollApi {
            function: text(c"AllReduce"),
            count: 1 << 20,
            data_type: text(c"ncclFloat32"),
            root: 0,
            stream: null(),
            captured: captured.into(),
        };
        self.stop_if_any(self.start(of, event::COLL_API, body)?)
    }

    /// Launches a kernel between the start and stop events of its launch, and then reports its operations.
    /// `ended_elsewhere`: another thread reports the end of the launch.
    fn launch(
        self,
        of: Communicator,
        recorded: &mut Recording,
        kernel: &str,
        ended_elsewhere: bool,
        operations: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let launch = if self.version == 4 { null_mut() } else { self.start(of, event::KERNEL_LAUNCH, 0u64)? };
        let begin = nanos_now()?;
        std::thread::sleep(Duration::from_micros(20));
        recorded.launch(thread_id(), begin, nanos_now()?, kernel);
        // A call of another library on this thread, right after the launch.
        if ended_elsewhere {
            let launch = launch.addr();
            let stop = std::thread::spawn(move || self.stop_if_any(std::ptr::without_provenance_mut(launch)));
            stop.join().map_err(|_| "the thread that ends a launch panicked".to_owned())??;
        } else {
            self.stop_if_any(launch)?;
        }
        operations()?;
        let begin = nanos_now()?;
        recorded.launch(thread_id(), begin, begin + 4_000, "gemm");
        Ok(())
    }

    fn finalize(self, of: Communicator) -> Result<(), String> {
        let finalize = match self.functions {
            Functions::V4(v4) => v4.finalize,
            Functions::V5(v5) => v5.finalize,
        };
        // SAFETY: a context is a number that the plugin must not dereference.
        let answer = unsafe { finalize(std::ptr::without_provenance_mut(of.0)) };
        if answer == 0 { Ok(()) } else { Err(format!("finalize answered {answer}")) }
    }

    /// Event orders that NCCL never or should never produce: the plugin must neither fail nor turn them into
    /// operations.
    fn wrong_orders(self, of: Communicator) -> Result<(), String> {
        // Events that were not requested.
        for kind in [1, 8, 16, 32, 64, 128, 256, 8192, 16384, 1 << 40] {
            let handle = self.start(of, kind, [0u64; 12])?;
            if !handle.is_null() {
                return Err(format!("event {kind} has the handle {handle:?}"));
            }
        }
        // A communicator that does not exist, and handles that were never returned.
        self.start(Communicator(0), event::COLL, [0u64; 12])?;
        for handle in [0, 1, 0x4c, usize::MAX, usize::MAX - 0xff + 0x4c, 0x7fff_0000_1234] {
            self.stop(std::ptr::without_provenance_mut(handle))?;
        }
        if self.version > 4 {
            let launch = self.start(of, event::KERNEL_LAUNCH, 0u64)?;
            self.stop(launch)?;
            self.stop(launch)?;
        }
        Ok(())
    }

    /// An event of a communicator that has ended.
    fn late(self, of: Communicator) -> Result<(), String> {
        self.coll(of, 0, 1)?;
        self.finalize(of)
    }
}
