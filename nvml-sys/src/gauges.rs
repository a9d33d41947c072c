//! Readings of a device: power, temperature, clocks and the reasons that lower them, memory, traffic.
//!
//! Each reading is a separate call; none excludes another tool or needs privileges. `docs/design/overhead.md`
//! has the measured durations: below a microsecond for readings that the driver keeps, some 80 us for the
//! counters of a link, and milliseconds for energy. A reading that the device does not have returns
//! [`Status::NOT_SUPPORTED`]; any reading can fail with other codes.

use std::ffi::{c_uint, c_void};

use crate::abi::{FieldValue, GetOfKind, GetProcessSamples, GetProcesses, Memory, ProcessInfo, ProcessSample};
use crate::gauge_table::{Field, FieldReading};
use crate::{Device, Status};

/// `NVML_TEMPERATURE_GPU`
const CHIP: c_uint = 0;
/// `NVML_CLOCK_SM`
const SM_CLOCK: c_uint = 1;
/// `NVML_CLOCK_MEM`
const MEMORY_CLOCK: c_uint = 2;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`
const UNSIGNED_INT: c_uint = 1;
/// Most processes of a device that are read.
const PROCESSES: usize = 64;
/// Most samples of processes that are read.
const MOST_SAMPLES: c_uint = 4096;
/// Bytes of the longest row that any driver writes for a process: that of version 3 in drivers 535.43 to 535.86.
const LONGEST_ROW: usize = 32;
/// Structs that take the space of the longest rows.
const PROCESS_ROOM: usize = (PROCESSES * LONGEST_ROW).div_ceil(size_of::<ProcessInfo>());

impl Device {
    fn value<T: Default>(
        &self,
        function: Option<unsafe extern "C" fn(*mut c_void, *mut T) -> c_uint>,
    ) -> Result<T, Status> {
        let mut value = T::default();
        // SAFETY: a handle of this library, and a pointer to a local.
        Status::of(unsafe { function.ok_or(Status::FUNCTION_NOT_FOUND)?(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn of_kind(&self, function: Option<GetOfKind>, which: c_uint) -> Result<u32, Status> {
        let mut value = 0;
        // SAFETY: as above.
        Status::of(unsafe { function.ok_or(Status::FUNCTION_NOT_FOUND)?(self.handle, which, &raw mut value) })?;
        Ok(value)
    }

    /// Board power in milliwatts; since Ampere averaged over a second.
    pub fn power(&self) -> Result<u32, Status> {
        self.value(self.nvml.gauges.power)
    }

    /// Temperature of the chip in degrees Celsius.
    pub fn temperature(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.temperature, CHIP)
    }

    /// Clock of the multiprocessors in MHz.
    pub fn sm_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.clock, SM_CLOCK)
    }

    /// Clock of the memory in MHz.
    pub fn memory_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.clock, MEMORY_CLOCK)
    }

    /// The highest clock of the multiprocessors in MHz. Takes about a millisecond.
    pub fn highest_sm_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.highest_clock, SM_CLOCK)
    }

    /// Reasons why clocks are lowered: bits of `nvmlClocksEventReasons`.
    pub fn clock_reasons(&self) -> Result<u64, Status> {
        self.value(self.nvml.gauges.reasons)
    }

    /// Energy in millijoules since the driver was loaded; from Volta on. Takes 2 to 18 ms.
    pub fn energy(&self) -> Result<u64, Status> {
        self.value(self.nvml.gauges.energy)
    }

    /// Memory in bytes in use by all processes and the driver.
    pub fn memory_used(&self) -> Result<u64, Status> {
        let mut memory = Memory::default();
        let function = self.nvml.gauges.memory.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and a pointer to a local of the struct that it fills in.
        Status::of(unsafe { function(self.handle, &raw mut memory) })?;
        Ok(memory.used)
    }

    /// Processes with a compute context, at most 64.
    ///
    /// # Errors
    /// If NVML refuses, or there are more.
    pub fn processes(&self) -> Result<Vec<ProcessInfo>, Status> {
        let function = self.nvml.gauges.processes.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: the driver's function and a handle of this library.
        unsafe { processes(function, self.handle) }
    }

    /// Use of the multiprocessors by each process since `since`, microseconds since the Unix epoch. Empty if
    /// none used them.
    ///
    /// # Errors
    /// If NVML refuses, or wants room for more than 4,096 samples.
    pub fn process_samples(&self, since: u64) -> Result<Vec<ProcessSample>, Status> {
        let function = self.nvml.gauges.process_samples.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: the driver's function and a handle of this library.
        unsafe { process_samples(function, self.handle, since) }
    }

    /// Values of fields, read with one call. `None` for a field that the device does not have.
    ///
    /// # Errors
    /// If NVML refuses all fields.
    pub fn fields<const N: usize>(&self, asked: [Field; N]) -> Result<[Option<FieldReading>; N], Status> {
        let mut values = asked.map(|field| FieldValue { id: field.0, scope: field.scope(), ..FieldValue::default() });
        let function = self.nvml.gauges.fields.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and a pointer to `N` live structs.
        Status::of(unsafe { function(self.handle, N as i32, values.as_mut_ptr()) })?;
        Ok(values.map(|field| {
            let is_narrow = field.kind == UNSIGNED_INT;
            // A narrow value leaves the other half of the union unwritten.
            let value = if is_narrow { field.value & u64::from(u32::MAX) } else { field.value };
            (field.status == 0).then_some(FieldReading { value, is_narrow })
        }))
    }
}

/// Reads samples of the processes of a device.
///
/// # Safety
/// `handle` is valid for `function`, which writes at most as many rows as it is told.
unsafe fn process_samples(
    function: GetProcessSamples,
    handle: *mut c_void,
    since: u64,
) -> Result<Vec<ProcessSample>, Status> {
    // The driver wants room for all samples that it keeps (72 with driver 580), whatever it then returns.
    let mut needed = PROCESSES as c_uint;
    loop {
        let mut rows = vec![ProcessSample::default(); needed as usize];
        let mut count = needed;
        // SAFETY: the handle is valid according to the caller, and there is room for `count` rows.
        match Status::of(unsafe { function(handle, rows.as_mut_ptr(), &raw mut count, since) }) {
            Ok(()) => {
                rows.truncate(count as usize);
                return Ok(rows);
            }
            Err(Status::NOT_FOUND) => return Ok(Vec::new()),
            Err(Status::INSUFFICIENT_SIZE) if (needed + 1..=MOST_SAMPLES).contains(&count) => needed = count,
            Err(status) => return Err(status),
        }
    }
}

/// Reads the processes of a device.
///
/// # Safety
/// `handle` is valid for `function`, which writes at most as many rows as it is told, of at most [`LONGEST_ROW`]
/// bytes.
unsafe fn processes(function: GetProcesses, handle: *mut c_void) -> Result<Vec<ProcessInfo>, Status> {
    let mut rows = [ProcessInfo::default(); PROCESS_ROOM];
    let mut count = PROCESSES as c_uint;
    // SAFETY: the handle is valid according to the caller. The function is told room for `PROCESSES` rows. Version 2
    // writes rows of `ProcessInfo`, 24 bytes in all drivers that have it; the buffer has room for as many rows of
    // `LONGEST_ROW` bytes, so that even the longest rows of version 3 would stay within it. Any bytes are a valid
    // `ProcessInfo`, which has only integers.
    Status::of(unsafe { function(handle, &raw mut count, rows.as_mut_ptr()) })?;
    Ok(rows[..PROCESSES.min(count as usize)].to_vec())
}

const _: () =
    assert!(size_of::<ProcessInfo>() == 24 && size_of::<[ProcessInfo; PROCESS_ROOM]>() >= PROCESSES * LONGEST_ROW);
// A handle is passed as a pointer.
const _: () = assert!(size_of::<*mut c_void>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills in as many rows of `LENGTH` bytes as there is room for.
    unsafe extern "C" fn full<const LENGTH: usize>(_: *mut c_void, count: *mut c_uint, rows: *mut ProcessInfo) -> u32 {
        // SAFETY: `count` is a local of the tested function.
        let rows_asked = unsafe { count.read() } as usize;
        for row in 0..rows_asked {
            // SAFETY: the tested function has room for rows of this length.
            let place = unsafe { rows.byte_add(row * LENGTH).cast::<u32>() };
            for word in 0..LENGTH / 4 {
                // SAFETY: as above.
                unsafe { place.add(word).write(if word == 0 { row as u32 } else { 7 }) };
            }
        }
        0
    }

    /// Wants room for 72 samples, and returns two, as driver 580 does.
    unsafe extern "C" fn wants_room(_: *mut c_void, rows: *mut ProcessSample, count: *mut c_uint, _: u64) -> u32 {
        // SAFETY: `count` is a local of the tested function.
        let room = unsafe { count.replace(if count.read() < 72 { 72 } else { 2 }) };
        if room < 72 {
            return Status::INSUFFICIENT_SIZE.0;
        }
        for pid in 0..2_u32 {
            // SAFETY: there is room for 72 rows.
            unsafe { rows.add(pid as usize).write(ProcessSample { pid, busy: 50, ..ProcessSample::default() }) };
        }
        0
    }

    unsafe extern "C" fn is_never_content(_: *mut c_void, _: *mut ProcessSample, count: *mut c_uint, _: u64) -> u32 {
        // SAFETY: `count` is a local of the tested function.
        unsafe { count.write(count.read().saturating_mul(2)) };
        Status::INSUFFICIENT_SIZE.0
    }

    #[test]
    fn samples_get_the_room_that_the_driver_wants() {
        // SAFETY: the function uses no handle.
        let samples = unsafe { process_samples(wants_room, std::ptr::null_mut(), 0) }.unwrap();
        assert_eq!(samples.iter().map(|sample| (sample.pid, sample.busy)).collect::<Vec<_>>(), [(0, 50), (1, 50)]);
        // SAFETY: as above.
        let refused = unsafe { process_samples(is_never_content, std::ptr::null_mut(), 0) };
        assert_eq!(refused.unwrap_err(), Status::INSUFFICIENT_SIZE);
    }

    #[test]
    fn a_full_list_is_read_and_longer_rows_have_room() {
        // SAFETY: the function uses no handle.
        let listed = unsafe { processes(full::<24>, std::ptr::null_mut()) }.unwrap();
        assert!(listed.iter().map(|process| process.pid).eq(0..64), "{listed:?}");
        assert_eq!(listed[63].instances, [7, 7]);
        // SAFETY: as above.
        let listed = unsafe { processes(full::<LONGEST_ROW>, std::ptr::null_mut()) }.unwrap();
        assert_eq!(listed.len(), 64, "no write out of bounds, although the values are not those of the driver");
    }
}
