//! Readings of a device: power, temperature, clocks and the reasons that lower them, memory, traffic.
//!
//! Each reading is a separate call; none excludes another tool or needs privileges. `docs/design/overhead.md`
//! has the measured durations: below a microsecond for readings that the driver keeps, some 80 us for the
//! counters of a link, and milliseconds for energy. A reading that the device does not have returns
//! [`Status::NOT_SUPPORTED`]; any reading can fail with other codes.

use std::ffi::{c_uint, c_void};

use crate::abi::{FieldValue, GetOfKind, Memory, ProcessInfo, ProcessSample};
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
        let mut rows = [ProcessInfo::default(); PROCESSES];
        let mut count = PROCESSES as c_uint;
        let function = self.nvml.gauges.processes.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and room for as many structs as `count` says.
        Status::of(unsafe { function(self.handle, &raw mut count, rows.as_mut_ptr()) })?;
        Ok(rows[..rows.len().min(count as usize)].to_vec())
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

// A handle is passed as a pointer.
const _: () = assert!(size_of::<*mut c_void>() == 8);
