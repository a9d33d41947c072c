//! Readings of a device: power, temperature, clocks and the reasons that lower them, memory, traffic.
//!
//! Each reading is a separate call; none excludes another tool or needs privileges. `docs/design/overhead.md`
//! has the measured durations: below a microsecond for readings that the driver keeps, some 80 us for the
//! counters of a link, and milliseconds for energy. A reading that the device does not have returns
//! [`Status::NOT_SUPPORTED`]; any reading can fail with other codes.

use std::ffi::{c_uint, c_void};

use crate::abi::{FieldValue, GetOfKind, GetProcesses, Memory, ProcessInfo, ProcessSample};
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
    /// If NVML refuses, or there are more than 64 samples.
    pub fn process_samples(&self, since: u64) -> Result<Vec<ProcessSample>, Status> {
        let mut rows = [ProcessSample::default(); PROCESSES];
        let mut count = PROCESSES as c_uint;
        let function = self.nvml.gauges.process_samples.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: as above.
        match Status::of(unsafe { function(self.handle, rows.as_mut_ptr(), &raw mut count, since) }) {
            Ok(()) => Ok(rows[..rows.len().min(count as usize)].to_vec()),
            Err(Status::NOT_FOUND) => Ok(Vec::new()),
            Err(status) => Err(status),
        }
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
