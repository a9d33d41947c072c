//! Gauges of a device: power, temperature, clocks and what lowers them, memory, traffic.
//!
//! Each is read by itself, and none excludes another tool or needs rights. What a reading takes is measured in
//! `docs/design/overhead.md`: below a microsecond for those that the driver keeps, some 80 us for the counters of a
//! link, and milliseconds for energy.

use std::ffi::{c_uint, c_void};

use crate::abi::{FieldValue, GetClock, GetLong, GetNumber, Memory};
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

impl Device {
    fn number(&self, function: Option<GetNumber>) -> Result<u32, Status> {
        let mut value = 0;
        // SAFETY: a handle of this library, and a pointer to a local.
        Status::of(unsafe { function.ok_or(Status::FUNCTION_NOT_FOUND)?(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn long(&self, function: Option<GetLong>) -> Result<u64, Status> {
        let mut value = 0;
        // SAFETY: as above.
        Status::of(unsafe { function.ok_or(Status::FUNCTION_NOT_FOUND)?(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn clock(&self, function: Option<GetClock>, which: c_uint) -> Result<u32, Status> {
        let mut value = 0;
        // SAFETY: as above.
        Status::of(unsafe { function.ok_or(Status::FUNCTION_NOT_FOUND)?(self.handle, which, &raw mut value) })?;
        Ok(value)
    }

    /// Power of the board, milliwatts; since Ampere a mean over a second.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn power(&self) -> Result<u32, Status> {
        self.number(self.nvml.gauges.power)
    }

    /// Temperature of the chip, degrees Celsius.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn temperature(&self) -> Result<u32, Status> {
        let mut value = 0;
        let function = self.nvml.gauges.temperature.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and a pointer to a local.
        Status::of(unsafe { function(self.handle, CHIP, &raw mut value) })?;
        Ok(value)
    }

    /// Clock of the multiprocessors, MHz.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn sm_clock(&self) -> Result<u32, Status> {
        self.clock(self.nvml.gauges.clock, SM_CLOCK)
    }

    /// Clock of the memory, MHz.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn memory_clock(&self) -> Result<u32, Status> {
        self.clock(self.nvml.gauges.clock, MEMORY_CLOCK)
    }

    /// The highest clock of the multiprocessors, MHz. Takes about a millisecond.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn highest_sm_clock(&self) -> Result<u32, Status> {
        self.clock(self.nvml.gauges.highest_clock, SM_CLOCK)
    }

    /// Why clocks are lower than they could be: bits of `nvmlClocksEventReasons`.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn clock_reasons(&self) -> Result<u64, Status> {
        self.long(self.nvml.gauges.reasons)
    }

    /// Energy since the driver was loaded, millijoules. Takes 2 to 18 ms.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] before Volta, and others.
    pub fn energy(&self) -> Result<u64, Status> {
        self.long(self.nvml.gauges.energy)
    }

    /// Memory in use by all processes and the driver, bytes.
    ///
    /// # Errors
    /// [`Status::NOT_SUPPORTED`] and others.
    pub fn memory_used(&self) -> Result<u64, Status> {
        let mut memory = Memory::default();
        let function = self.nvml.gauges.memory.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and a pointer to a local of the struct that it fills in.
        Status::of(unsafe { function(self.handle, &raw mut memory) })?;
        Ok(memory.used)
    }

    /// Values of fields, by one call. `None` for one that the device does not have.
    ///
    /// # Errors
    /// When NVML refuses all of them.
    pub fn fields<const N: usize>(&self, asked: [Field; N]) -> Result<[Option<FieldReading>; N], Status> {
        let mut values = asked.map(|field| FieldValue { id: field.0, scope: field.scope(), ..FieldValue::default() });
        let function = self.nvml.gauges.fields.ok_or(Status::FUNCTION_NOT_FOUND)?;
        // SAFETY: a handle of this library, and a pointer to as many live structs as are said.
        Status::of(unsafe { function(self.handle, N as i32, values.as_mut_ptr()) })?;
        Ok(values.map(|field| {
            let is_narrow = field.kind == UNSIGNED_INT;
            // Of a narrow value the other half of the union is not written.
            let value = if is_narrow { field.value & u64::from(u32::MAX) } else { field.value };
            (field.status == 0).then_some(FieldReading { value, is_narrow })
        }))
    }
}

// A handle is passed as a pointer.
const _: () = assert!(size_of::<*mut c_void>() == 8);
