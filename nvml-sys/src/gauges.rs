//! Gauges of a device: power, temperature, clocks and what lowers them, memory, traffic.
//!
//! Each is read by itself, and none excludes another tool or needs rights. What a reading takes is measured in
//! `docs/design/overhead.md`: below a microsecond for those that the driver keeps, some 80 us for the counters of a
//! link, and milliseconds for energy. A gauge that the device does not have is [`Status::NOT_SUPPORTED`]; any can fail
//! otherwise.

use std::ffi::{c_uint, c_void};

use crate::abi::{FieldValue, GetOfKind, Memory};
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

    /// Power of the board, milliwatts; since Ampere a mean over a second.
    pub fn power(&self) -> Result<u32, Status> {
        self.value(self.nvml.gauges.power)
    }

    /// Temperature of the chip, degrees Celsius.
    pub fn temperature(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.temperature, CHIP)
    }

    /// Clock of the multiprocessors, MHz.
    pub fn sm_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.clock, SM_CLOCK)
    }

    /// Clock of the memory, MHz.
    pub fn memory_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.clock, MEMORY_CLOCK)
    }

    /// The highest clock of the multiprocessors, MHz. Takes about a millisecond.
    pub fn highest_sm_clock(&self) -> Result<u32, Status> {
        self.of_kind(self.nvml.gauges.highest_clock, SM_CLOCK)
    }

    /// Why clocks are lower than they could be: bits of `nvmlClocksEventReasons`.
    pub fn clock_reasons(&self) -> Result<u64, Status> {
        self.value(self.nvml.gauges.reasons)
    }

    /// Energy since the driver was loaded, millijoules; from Volta on. Takes 2 to 18 ms.
    pub fn energy(&self) -> Result<u64, Status> {
        self.value(self.nvml.gauges.energy)
    }

    /// Memory in use by all processes and the driver, bytes.
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
