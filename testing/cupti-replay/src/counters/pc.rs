//! The C functions of PC sampling, and those about modules.
//!
//! While a function runs, another thread launches, as threads of programs do; see `launch_beside`.
//!
//! Strict about order: enabled, configured, started, stopped, disabled, each in an existing context. Samples
//! arrive once for each start, a few program counters per call, and each call reports the remaining number.
//! After a range was measured they have no program counters, and enabling PC sampling while the counters are
//! in use is a violation: as on an H200 with CUPTI 13.0.
#![expect(unsafe_code, reason = "a C library is made of unmangled functions that take pointers")]

use std::ffi::c_char;
use std::ptr;

use cupti_sys::CuptiResult;
use cupti_sys::abi::Context;
use cupti_sys::counters::abi::{
    CONTINUOUS, GetCubinCrc, PcConfiguration, PcCounter, PcData, PcDisable, PcEnable, PcGetData, PcGetStallReasonCount,
    PcGetStallReasons, PcStart, PcStop, STALL_REASON_BYTES, attribute,
};

use super::parameters::{bytes, checked_anywhere};
use super::unit::PcObject;
use crate::ffi;
use crate::instance::answer;
use crate::player::Player;
use crate::violation::Rule;

/// Stall reasons; each exists a second time for samples in which no instruction was issued.
const REASONS: [&str; 4] = ["selected", "long_scoreboard", "wait", "barrier"];
const PREFIX: &str = "smsp__pcsamp_warps_issue_stalled_";
const NOT_ISSUED: &str = "_not_issued";
/// First index of a reason: indices are not positions in the list.
const FIRST: u32 = 5;
/// Maximum number of program counters per call.
const AT_ONCE: usize = 3;
/// The shortest period, as a power of two of cycles, that stops no program.
const SHORTEST: u64 = 14;

fn need(condition: bool, otherwise: CuptiResult) -> Result<(), CuptiResult> {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// The context that a handle names.
fn context(player: &Player, handle: Context) -> Result<usize, CuptiResult> {
    let id = ffi::id_of(handle).ok_or(CuptiResult::INVALID_PARAMETER)?;
    need(player.session.contexts().any(|known| known == id), CuptiResult::INVALID_PARAMETER)?;
    if player.unit.objects().gone.contains(&handle.addr()) {
        player.violations.note(Rule::GoneContext, || format!("context {id}"));
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    Ok(handle.addr())
}

fn name(index: u32) -> String {
    let place = (index - FIRST) as usize;
    let subset = if place < REASONS.len() { "" } else { NOT_ISSUED };
    format!("{PREFIX}{}{subset}", REASONS[place % REASONS.len()])
}

/// `cuptiGetDeviceId`
///
/// # Safety
/// `device` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetDeviceId(handle: Context, device: *mut u32) -> CuptiResult {
    answer("cuptiGetDeviceId", |player| {
        context(player, handle)?;
        need(!device.is_null(), CuptiResult::INVALID_PARAMETER)?;
        // SAFETY: not NULL, so valid as guaranteed by the caller.
        unsafe { device.write(0) };
        Ok(())
    })
}

/// `cuptiGetCubinCrc`
///
/// # Safety
/// NULL or a struct with a module of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCubinCrc(parameters: *mut GetCubinCrc) -> CuptiResult {
    answer("cuptiGetCubinCrc", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, GetCubinCrc::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let module = unsafe { bytes(parameters.cubin.cast(), parameters.cubin_size) }?;
        let known = player.unit.recorded()?.modules.iter().find(|(_, known)| known == module);
        parameters.crc = known.ok_or(CuptiResult::INVALID_PARAMETER)?.0;
        Ok(())
    })
}

/// `cuptiPCSamplingEnable`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingEnable(parameters: *mut PcEnable) -> CuptiResult {
    answer("cuptiPCSamplingEnable", |player| {
        player.launch_beside("cuptiPCSamplingEnable");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcEnable::SIZE) }?;
        player.unit.recorded()?;
        let context = context(player, parameters.context)?;
        let mut objects = player.unit.objects();
        if objects.is_taken() {
            player.violations.note(Rule::ProgramCountersInBetween, || format!("context {context:#x}"));
        }
        need(!objects.program_counters.contains_key(&context), CuptiResult::INVALID_OPERATION)?;
        objects.program_counters.insert(context, PcObject::default());
        Ok(())
    })
}

/// `cuptiPCSamplingDisable`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingDisable(parameters: *mut PcDisable) -> CuptiResult {
    answer("cuptiPCSamplingDisable", |player| {
        player.launch_beside("cuptiPCSamplingDisable");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcDisable::SIZE) }?;
        let context = context(player, parameters.context)?;
        let removed = player.unit.objects().program_counters.remove(&context);
        removed.map(drop).ok_or(CuptiResult::INVALID_OPERATION)
    })
}

/// `cuptiPCSamplingGetNumStallReasons`
///
/// # Safety
/// NULL or a struct with a pointer to a writable count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetNumStallReasons(parameters: *mut PcGetStallReasonCount) -> CuptiResult {
    answer("cuptiPCSamplingGetNumStallReasons", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcGetStallReasonCount::SIZE) }?;
        context(player, parameters.context)?;
        need(!parameters.count.is_null(), CuptiResult::INVALID_PARAMETER)?;
        // SAFETY: not NULL, so valid as guaranteed by the caller.
        unsafe { parameters.count.write(REASONS.len() * 2) };
        Ok(())
    })
}

/// `cuptiPCSamplingGetStallReasons`
///
/// # Safety
/// NULL or a struct with room for the stated number of indices and names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetStallReasons(parameters: *mut PcGetStallReasons) -> CuptiResult {
    answer("cuptiPCSamplingGetStallReasons", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcGetStallReasons::SIZE) }?;
        context(player, parameters.context)?;
        let has_room = !parameters.indices.is_null() && !parameters.names.is_null();
        need(has_room && parameters.count >= REASONS.len() * 2, CuptiResult::INVALID_PARAMETER)?;
        for (place, index) in (FIRST..).take(REASONS.len() * 2).enumerate() {
            let text: Vec<c_char> = name(index).bytes().chain([0]).map(|byte| c_char::from_ne_bytes([byte])).collect();
            // SAFETY: within the count that the caller guarantees; the names are shorter than the room.
            unsafe {
                parameters.indices.add(place).write(index);
                let room = parameters.names.add(place).read();
                room.copy_from_nonoverlapping(text.as_ptr(), text.len().min(STALL_REASON_BYTES));
            }
        }
        Ok(())
    })
}

/// `cuptiPCSamplingSetConfigurationAttribute`: all attributes in one call.
///
/// # Safety
/// NULL or a struct with the stated number of attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingSetConfigurationAttribute(parameters: *mut PcConfiguration) -> CuptiResult {
    answer("cuptiPCSamplingSetConfigurationAttribute", |player| {
        player.launch_beside("cuptiPCSamplingSetConfigurationAttribute");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcConfiguration::SIZE) }?;
        let context = context(player, parameters.context)?;
        need(!parameters.attributes.is_null(), CuptiResult::INVALID_PARAMETER)?;
        // SAFETY: the caller guarantees this number.
        let attributes = unsafe { std::slice::from_raw_parts(parameters.attributes, parameters.count) };
        let value = |kind| attributes.iter().find(|of| of.kind == kind).map(|of| of.value);
        let mode = value(attribute::MODE).map_or(0, |value| value[0]);
        let period = value(attribute::PERIOD).map_or(0, |value| value[0]);
        if mode != u64::from(CONTINUOUS) || period < SHORTEST {
            player.violations.note(Rule::HarmfulProgramCounters, || format!("mode {mode}, period 2^{period}"));
        }
        let buffer = value(attribute::DATA_BUFFER).map_or(0, |value| value[0]);
        let is_complete = (5..=31).contains(&period) && buffer != 0 && value(attribute::START_STOP).is_some();
        let [count, address, _] = value(attribute::STALL_REASONS).ok_or(CuptiResult::INVALID_PARAMETER)?;
        need(is_complete && count > 0 && address != 0, CuptiResult::INVALID_PARAMETER)?;
        let numbers = ptr::with_exposed_provenance::<u32>(address as usize);
        // SAFETY: the caller guarantees this number.
        let reasons = unsafe { std::slice::from_raw_parts(numbers, count as usize) }.to_vec();
        let known = FIRST..FIRST + 2 * REASONS.len() as u32;
        need(reasons.iter().all(|index| known.contains(index)), CuptiResult::INVALID_PARAMETER)?;
        let mut objects = player.unit.objects();
        need(!objects.program_counters(context)?.is_started, CuptiResult::INVALID_OPERATION)?;
        need(!objects.is_taken(), CuptiResult::HARDWARE_BUSY)?;
        objects.program_counters(context)?.reasons = reasons;
        Ok(())
    })
}

/// `cuptiPCSamplingStart`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingStart(parameters: *mut PcStart) -> CuptiResult {
    answer("cuptiPCSamplingStart", |player| {
        player.launch_beside("cuptiPCSamplingStart");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcStart::SIZE) }?;
        let context = context(player, parameters.context)?;
        let mut objects = player.unit.objects();
        let object = objects.program_counters(context)?;
        need(!object.is_started && !object.reasons.is_empty(), CuptiResult::INVALID_OPERATION)?;
        (object.is_started, object.has_samples, object.next) = (true, true, 0);
        objects.has_sampled = true;
        Ok(())
    })
}

/// `cuptiPCSamplingStop`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingStop(parameters: *mut PcStop) -> CuptiResult {
    answer("cuptiPCSamplingStop", |player| {
        player.launch_beside("cuptiPCSamplingStop");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcStop::SIZE) }?;
        let context = context(player, parameters.context)?;
        let started = std::mem::take(&mut player.unit.objects().program_counters(context)?.is_started);
        need(started, CuptiResult::INVALID_OPERATION)
    })
}

/// `cuptiPCSamplingGetData`
///
/// # Safety
/// NULL or a struct with data, which have the stated capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPCSamplingGetData(parameters: *mut PcGetData) -> CuptiResult {
    answer("cuptiPCSamplingGetData", |player| {
        player.launch_beside("cuptiPCSamplingGetData");
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, PcGetData::SIZE) }?;
        let context = context(player, parameters.context)?;
        // SAFETY: guaranteed by the caller.
        let data = unsafe { checked_anywhere(parameters.data.cast::<PcData>(), PcData::SIZE) }?;
        need(!data.counters.is_null() && data.capacity > 0, CuptiResult::INVALID_PARAMETER)?;
        let recorded = player.unit.recorded()?;
        let mut objects = player.unit.objects();
        let has_measured = objects.has_measured;
        let object = objects.program_counters(context)?;
        need(!object.reasons.is_empty(), CuptiResult::INVALID_OPERATION)?;
        *data = PcData { capacity: data.capacity, counters: data.counters, ..PcData::new() };
        if !object.has_samples {
            return Ok(());
        }
        let left = recorded.program_counters.get(object.next..).unwrap_or_default();
        if has_measured {
            data.samples = left.iter().map(|of| u64::from(of.samples)).sum();
            (data.not_of_program, object.next) = (data.samples, recorded.program_counters.len());
            return Ok(());
        }
        for (place, of) in left.iter().take(AT_ONCE.min(data.capacity)).enumerate() {
            // SAFETY: within the capacity that the caller guarantees.
            let room = unsafe { &mut *data.counters.add(place) };
            need(room.struct_size >= PcCounter::SIZE && !room.reasons.is_null(), CuptiResult::INVALID_PARAMETER)?;
            (room.cubin_crc, room.offset, room.function_index) = (of.module, of.offset, 0);
            // The same memory for every program counter of a function, as in CUPTI: a client that frees it
            // frees memory in use.
            room.function = of.function.as_ptr().cast_mut();
            let wanted = object.reasons.iter().copied();
            let known = wanted.filter(|&index| name(index).ends_with(&format!("stalled_{}", of.reason)));
            room.reason_count = 0;
            for index in known {
                // SAFETY: there is room for as many reasons as were configured.
                let reason = unsafe { &mut *room.reasons.add(room.reason_count) };
                (reason.index, reason.samples) = (index, of.samples);
                room.reason_count += 1;
            }
            data.count += 1;
            data.samples += u64::from(of.samples);
        }
        object.next += data.count;
        data.remaining = left.len() - data.count;
        Ok(())
    })
}
