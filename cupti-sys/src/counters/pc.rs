//! PC sampling: where in kernels warps are, and what they wait for, in samples of each multiprocessor.
//!
//! Uses continuous mode with start and stop, never the mode that serializes kernels: with that mode a program
//! of many small kernels did not end (H200, CUPTI 13.0). The period must be long: at CUPTI's default, 2^11
//! cycles there, its buffer of 512 MB was full within seconds. Never call [`PcSampler::open`] while PM
//! sampling runs in this process: CUPTI allows it, and crashes later. After ranges were measured in a
//! process, samples had no program counters (seen once).

use std::ffi::{CStr, c_char};
use std::fmt;

use super::abi::{
    CONTINUOUS, GetCubinCrc, PcAttribute, PcConfiguration, PcCounter, PcData, PcDisable, PcEnable, PcGetData,
    PcGetStallReasonCount, PcGetStallReasons, PcStart, PcStop, ProfilerGetCounterAvailability, STALL_REASON_BYTES,
    StallReason, attribute,
};
use super::range::ContextHandle;
use super::{Counters, text};
use crate::abi::{Context, CuptiResult};
use crate::cupti::{Cupti, Error, absent, check};
use crate::driver;

/// Maximum number of program counters per fetch.
const AT_ONCE: usize = 8_192;
/// Maximum number of stall reasons that a library may have; CUDA 13.0 has 40.
const MAX_REASONS: usize = 256;
/// Size in bytes of the buffer that CUPTI decodes into.
const SCRATCH_BYTES: u64 = 16 << 20;
/// Maximum number of calls that fetch the remaining samples, [`AT_ONCE`] program counters each.
const MAX_FETCHES: usize = 64;

/// Settings of PC sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcSettings {
    /// Sampling period of a multiprocessor as a power of two of cycles: 5 to 31.
    pub period: u32,
}

/// Samples of one program counter.
#[derive(Clone, Copy, Debug)]
pub struct PcSample<'a> {
    /// Checksum of the module, as [`Counters::module_checksum`] computes it.
    pub module: u64,
    /// Mangled name of the function.
    pub function: &'a str,
    /// Offset in bytes from the start of the function.
    pub offset: u64,
    /// Stall reasons and their numbers of samples.
    pub reasons: &'a [StallReason],
}

/// Result of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Samples that the hardware took, including those in the next two fields.
    pub samples: u64,
    /// Samples that the hardware dropped.
    pub dropped: u64,
    /// Samples in kernels that do not belong to the program.
    pub foreign: u64,
    /// True if the hardware buffer is full: no more samples will arrive.
    pub full: bool,
}

impl Fetched {
    fn add(&mut self, data: &PcData) {
        self.samples += data.samples;
        self.dropped += data.dropped;
        self.foreign += data.not_of_program;
        self.full |= data.buffer_full != 0;
    }
}

/// Storage for program counters, which CUPTI fills in.
struct Room {
    data: Box<PcData>,
    /// Target of the pointer in the data; these point to `reasons` in turn.
    counters: Vec<PcCounter>,
    _reasons: Vec<StallReason>,
}

impl Room {
    fn new(reasons: usize) -> Self {
        let mut room = vec![StallReason::default(); AT_ONCE * reasons];
        let base = room.as_mut_ptr();
        let counters = (0..AT_ONCE).map(|index| PcCounter {
            // SAFETY: within the length of the storage.
            reasons: unsafe { base.add(index * reasons) },
            ..PcCounter::new()
        });
        let mut counters: Vec<_> = counters.collect();
        let data = PcData { capacity: AT_ONCE, counters: counters.as_mut_ptr(), ..PcData::new() };
        Self { data: Box::new(data), counters, _reasons: room }
    }

    /// Passes on what CUPTI has stored, and clears it.
    fn take(&mut self, most_reasons: usize, take: &mut impl FnMut(PcSample<'_>)) {
        let stored = self.data.count.min(self.counters.len());
        for counter in self.counters.iter_mut().take(stored) {
            let count = counter.reason_count.min(most_reasons);
            let reasons = match counter.reasons.is_null() {
                true => &[],
                // SAFETY: there is initialized room for `count` reasons, and CUPTI has filled in at most
                // these.
                false => unsafe { std::slice::from_raw_parts(counter.reasons, count) },
            };
            let function = text(counter.function);
            take(PcSample { module: counter.cubin_crc, function: &function, offset: counter.offset, reasons });
            // The name is not freed: CUPTI returns the same memory for every program counter of a function,
            // and shares it with activity records (`cupti_pcsampling.h`). Freeing it for each one crashed the
            // program (H100).
            counter.function = std::ptr::null_mut();
            counter.reason_count = 0;
        }
        self.data.count = 0;
    }
}

/// PC sampling of one context. Closed on drop.
pub struct PcSampler {
    counters: &'static Counters,
    context: ContextHandle,
    reasons: Vec<(u32, String)>,
    /// Used by CUPTI from opening to closing.
    own: Option<Room>,
    room: Option<Room>,
    period: u64,
    is_started: bool,
    /// True while sampling is enabled in the context and the context still exists.
    is_enabled: bool,
}

// SAFETY: its raw pointers are to its own storage. CUPTI keeps no per-thread state of PC sampling: it was
// enabled on one thread, fetched on another and disabled on a third (H200, CUPTI 13.0). Only one thread owns
// the value at a time.
unsafe impl Send for PcSampler {}

impl fmt::Debug for PcSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcSampler").field("context", &self.context).field("is_started", &self.is_started).finish()
    }
}

impl PcSampler {
    /// Prepares a context for sampling. After [`Counters::initialize`], while no other thread of this process
    /// samples or measures ranges. First checks that the counters are free. Takes some 100 ms; the first
    /// launches afterwards wait up to 330 ms (H200, CUPTI 13.0).
    ///
    /// # Errors
    /// [`CuptiResult::HARDWARE_BUSY`] while another tool has the counters,
    /// [`CuptiResult::INSUFFICIENT_PRIVILEGES`] if only administrators may use them, and others; see
    /// [`Refusal`](super::refusal::CounterError).
    pub fn open(counters: &'static Counters, context: ContextHandle, settings: PcSettings) -> Result<Self, Error> {
        let functions = &counters.functions;
        let raw = context.raw();
        let mut asked = ProfilerGetCounterAvailability { context: raw, ..ProfilerGetCounterAvailability::new() };
        // SAFETY: without an image the only pointer in the struct is the context, which CUPTI has named.
        unsafe { functions.availability.call(&mut asked) }?;
        let mut enable = PcEnable { context: raw, ..PcEnable::new() };
        // SAFETY: as above.
        unsafe { functions.pc_enable.call(&mut enable) }?;
        // From here on `drop` releases what was taken.
        let mut sampler = Self {
            counters,
            context,
            reasons: Vec::new(),
            own: None,
            room: None,
            period: 1 << settings.period.min(63),
            is_started: false,
            is_enabled: true,
        };
        sampler.reasons = sampler.stall_reasons()?;
        sampler.own = Some(Room::new(sampler.reasons.len()));
        sampler.room = Some(Room::new(sampler.reasons.len()));
        sampler.configure(settings)?;
        Ok(sampler)
    }

    fn stall_reasons(&self) -> Result<Vec<(u32, String)>, Error> {
        let functions = &self.counters.functions;
        let context = self.context.raw();
        let mut count = 0_usize;
        let mut asked = PcGetStallReasonCount { context, count: &raw mut count, ..PcGetStallReasonCount::new() };
        // SAFETY: the context is alive, and `count` is a live `usize`.
        unsafe { functions.pc_reason_count.call(&mut asked) }?;
        if count == 0 || count > MAX_REASONS {
            return Err(Error { function: functions.pc_reason_count.name(), code: CuptiResult::NOT_SUPPORTED });
        }
        let mut indices = vec![0_u32; count];
        let mut names = vec![[0 as c_char; STALL_REASON_BYTES]; count];
        let mut places: Vec<_> = names.iter_mut().map(|name| name.as_mut_ptr()).collect();
        let mut asked = PcGetStallReasons {
            context,
            count,
            indices: indices.as_mut_ptr(),
            names: places.as_mut_ptr(),
            ..PcGetStallReasons::new()
        };
        // SAFETY: the context is alive, and there is room for that many indices and names.
        unsafe { functions.pc_reasons.call(&mut asked) }?;
        let mut reasons = Vec::new();
        for (index, mut name) in indices.into_iter().zip(names) {
            name[STALL_REASON_BYTES - 1] = 0;
            // SAFETY: NUL-terminated above.
            let name = unsafe { CStr::from_ptr(name.as_ptr()) };
            reasons.push((index, name.to_string_lossy().into_owned()));
        }
        Ok(reasons)
    }

    fn configure(&mut self, settings: PcSettings) -> Result<(), Error> {
        let mut indices: Vec<u32> = self.reasons.iter().map(|&(index, _)| index).collect();
        let own = self.own.as_mut().map_or(std::ptr::null_mut(), |own| std::ptr::from_mut(&mut *own.data));
        let number = |kind, value| PcAttribute { kind, status: 0, value: [value, 0, 0] };
        // CUPTI uses the address of the buffer from here on.
        let reasons = [indices.len() as u64, indices.as_mut_ptr().expose_provenance() as u64, 0];
        let mut attributes = [
            PcAttribute { kind: attribute::STALL_REASONS, status: 0, value: reasons },
            number(attribute::MODE, CONTINUOUS.into()),
            number(attribute::PERIOD, settings.period.into()),
            number(attribute::START_STOP, 1),
            number(attribute::SCRATCH_BUFFER, SCRATCH_BYTES),
            number(attribute::DATA_BUFFER, own.expose_provenance() as u64),
        ];
        let mut parameters = PcConfiguration {
            context: self.context.raw(),
            count: attributes.len(),
            attributes: attributes.as_mut_ptr(),
            ..PcConfiguration::new()
        };
        // SAFETY: the context is alive; the attributes and the indices of reasons are live locals that are
        // read during the call; the data buffer is part of this value and is neither moved nor freed until
        // sampling is disabled.
        unsafe { self.counters.functions.pc_set.call(&mut parameters) }
    }

    /// Indices and names of stall reasons.
    #[must_use]
    pub fn reasons(&self) -> &[(u32, String)] {
        &self.reasons
    }

    /// Cycles between two samples of a multiprocessor.
    #[must_use]
    pub const fn period_cycles(&self) -> u64 {
        self.period
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn start(&mut self) -> Result<(), Error> {
        let mut parameters = PcStart { context: self.context.raw(), ..PcStart::new() };
        // SAFETY: the context is alive.
        unsafe { self.counters.functions.pc_start.call(&mut parameters) }?;
        self.is_started = true;
        Ok(())
    }

    /// Stops sampling; samples taken before can still be fetched.
    ///
    /// # Errors
    /// If CUPTI refuses, which is normal once the driver has shut down.
    pub fn stop(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_started) {
            return Ok(());
        }
        let mut parameters = PcStop { context: self.context.raw(), ..PcStop::new() };
        // SAFETY: the context is alive.
        unsafe { self.counters.functions.pc_stop.call(&mut parameters) }
    }

    /// Fetches the samples that have arrived and passes them to `take`. A program counter may occur several
    /// times, with further samples.
    ///
    /// # Errors
    /// If CUPTI refuses. A full hardware buffer is not an error: see [`Fetched::full`].
    pub fn fetch(&mut self, mut take: impl FnMut(PcSample<'_>)) -> Result<Fetched, Error> {
        let mut fetched = Fetched::default();
        let Some(room) = &mut self.room else { return Ok(fetched) };
        for _ in 0..MAX_FETCHES {
            let data = std::ptr::from_mut(&mut *room.data);
            let mut parameters = PcGetData { context: self.context.raw(), data: data.cast(), ..PcGetData::new() };
            // SAFETY: the context is alive, and the data states its capacity.
            let answer = unsafe { self.counters.functions.pc_get_data.call(&mut parameters) };
            match answer {
                Ok(()) => {}
                Err(error) if error.code == CuptiResult::OUT_OF_MEMORY => fetched.full = true,
                Err(error) => return Err(error),
            }
            fetched.add(&room.data);
            let (had, remaining) = (room.data.count, room.data.remaining);
            room.take(self.reasons.len(), &mut take);
            if remaining == 0 || had == 0 || answer.is_err() {
                break;
            }
        }
        Ok(fetched)
    }

    /// Ends sampling for good, and passes the samples that CUPTI still held to `take`.
    ///
    /// # Errors
    /// If CUPTI refuses, which is normal once the driver has shut down.
    pub fn close(mut self, mut take: impl FnMut(PcSample<'_>)) -> Result<Fetched, Error> {
        let _ = self.stop();
        self.disable()?;
        let mut fetched = Fetched::default();
        if let Some(own) = &mut self.own {
            fetched.add(&own.data);
            own.take(self.reasons.len(), &mut take);
        }
        Ok(fetched)
    }

    /// For a context that was destroyed, and with it CUPTI's state: calls no function any more. Leaks the
    /// memory that CUPTI may still write to.
    pub fn abandon(mut self) {
        self.is_enabled = false;
        std::mem::forget(self.own.take());
    }

    fn disable(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_enabled) {
            return Ok(());
        }
        let mut parameters = PcDisable { context: self.context.raw(), ..PcDisable::new() };
        // SAFETY: the context is alive.
        let disabled = unsafe { self.counters.functions.pc_disable.call(&mut parameters) };
        if disabled.is_err() {
            // CUPTI may still write to it.
            std::mem::forget(self.own.take());
        }
        disabled
    }
}

impl Drop for PcSampler {
    fn drop(&mut self) {
        if self.is_enabled {
            // Errors are ignored: the driver may have shut down.
            let _ = self.stop();
            let _ = self.disable();
        }
    }
}

/// Keeps a context current on this thread until dropped.
#[derive(Debug)]
pub struct CurrentContext(Option<PopCurrent>);

type PushCurrent = unsafe extern "C" fn(Context) -> i32;
type PopCurrent = unsafe extern "C" fn(*mut Context) -> i32;

impl ContextHandle {
    /// Makes the context current on this thread, which must be the profiler's, if the driver allows it: CUPTI
    /// reads the current context as long as PC sampling is enabled. Not in a callback.
    #[must_use]
    pub fn make_current(self) -> CurrentContext {
        let pushed = driver::mapped().and_then(|driver| {
            // SAFETY: the names belong to C functions of these types; the copies outlive the handle, because
            // the driver is never unloaded.
            let functions = unsafe {
                let push = driver.get::<PushCurrent>("cuCtxPushCurrent_v2").ok().map(|symbol| *symbol);
                push.zip(driver.get::<PopCurrent>("cuCtxPopCurrent_v2").ok().map(|symbol| *symbol))
            };
            let (push, pop) = functions?;
            // SAFETY: CUPTI has named the context and has not reported its end; the driver refuses an unknown
            // context.
            (unsafe { push(self.raw()) } == 0).then_some(pop)
        });
        CurrentContext(pushed)
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        if let Some(pop) = self.0.take() {
            let mut context = std::ptr::null_mut();
            // SAFETY: pushed on this thread, and `context` is a live local.
            let _ = unsafe { pop(&raw mut context) };
        }
    }
}

impl Counters {
    /// Checksum that identifies a module (cubin) in samples. Needs no GPU.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn module_checksum(&self, module: &[u8]) -> Result<u64, Error> {
        let mut parameters =
            GetCubinCrc { cubin_size: module.len(), cubin: module.as_ptr().cast(), ..GetCubinCrc::new() };
        // SAFETY: the slice has that many bytes.
        unsafe { self.functions.cubin_crc.call(&mut parameters) }?;
        Ok(parameters.crc)
    }
}

impl Cupti {
    /// Id of a context's device, as in records.
    ///
    /// # Errors
    /// If the context no longer exists, or the library does not report it.
    pub fn device_of(&self, context: ContextHandle) -> Result<u32, Error> {
        let name = "cuptiGetDeviceId";
        let function = self.symbols.get_device_id.ok_or(absent(name))?;
        let mut device = 0;
        // SAFETY: CUPTI has named the context, and checks it against those that it knows; `device` is a live
        // `u32`.
        check(name, unsafe { function(context.raw(), &raw mut device) }).map(|()| device)
    }
}
