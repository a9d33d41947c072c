//! A libnvidia-ml for tests, with one device that has the UUID from `tests/support/libcuda.c`.
//!
//! `REPLAY_NVML` describes it, comma-separated. `busy=34` and `memory=5` (percent) are its utilization rates.
//! `sm=12` (percent) and `pcie=1024` (MiB/s each way) are its counters, without which GPM is not supported;
//! NVLink never is. `power=700000` (mW), `temperature=60`, `hbm=70` (degrees), `clock=1755`,
//! `memory_clock=3201`, `highest=1980` (MHz), `reasons=4`, `used=1e9` (bytes) and `energy=5e6` (mJ, and 1000
//! more each reading) are its readings. `traffic=1e9` bytes go over PCI Express each way between two readings
//! of its counters, which have 32 bits. Values that are not listed are not supported. `generation=5` and
//! `lanes=16` are its best link; `process=812:66:71e9` is another process (id, percent, bytes), and `self` lists this
//! one; `divided`: in MIG mode; `refuses`: `nvmlInit_v2` fails. The rest of NVML is missing.
//!
//! It checks its arguments: a wrong handle, version or order of samples is an invalid argument, as in the
//! real library.
#![expect(unsafe_code, reason = "C functions under NVML's names")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use nvml_sys::{Field, FieldValue, GpmMetricsGet, GpmSupport, Memory, Metric, ProcessInfo, ProcessSample, Utilization};

const SUCCESS: u32 = 0;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const DRIVER_NOT_LOADED: u32 = 9;

const UUID: &CStr = c"GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
/// The handle of the device.
const DEVICE: *mut c_void = std::ptr::without_provenance_mut(0x5a5a);

/// Number of samples taken: a later sample has a larger number.
static READINGS: AtomicU64 = AtomicU64::new(0);
/// Number of readings of energy and of fields.
static ENERGIES: AtomicU64 = AtomicU64::new(0);
static FIELD_READINGS: AtomicU64 = AtomicU64::new(0);

fn list() -> String {
    std::env::var("REPLAY_NVML").unwrap_or_default()
}

fn has(word: &str) -> bool {
    list().split(',').any(|said| said == word)
}

fn number(name: &str) -> Option<f64> {
    list().split(',').find_map(|said| said.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// `nvmlInit_v2`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    if has("refuses") { DRIVER_NOT_LOADED } else { SUCCESS }
}

/// `nvmlDeviceGetHandleByUUID`
///
/// # Safety
/// A NUL-terminated text and a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void) -> u32 {
    // SAFETY: guaranteed by the caller.
    if unsafe { CStr::from_ptr(uuid) } != UUID {
        return NOT_FOUND;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { device.write(DEVICE) };
    SUCCESS
}

/// `nvmlDeviceGetMigMode`
///
/// # Safety
/// Writable pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(device: *mut c_void, current: *mut u32, pending: *mut u32) -> u32 {
    if device != DEVICE {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        current.write(has("divided").into());
        pending.write(has("divided").into());
    }
    SUCCESS
}

/// `nvmlDeviceGetMaxPcieLinkGeneration`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(device: *mut c_void, generation: *mut u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer("generation", device, generation) }
}

/// `nvmlDeviceGetMaxPcieLinkWidth`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(device: *mut c_void, lanes: *mut u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer("lanes", device, lanes) }
}

/// # Safety
/// A writable pointer.
unsafe fn answer(name: &str, device: *mut c_void, to: *mut u32) -> u32 {
    if device != DEVICE {
        return INVALID_ARGUMENT;
    }
    let Some(value) = number(name) else { return NOT_SUPPORTED };
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(value as u32) };
    SUCCESS
}

/// `nvmlDeviceGetPowerUsage`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: *mut c_void, power: *mut u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer("power", device, power) }
}

/// `nvmlDeviceGetTemperature`: temperature of the chip.
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(device: *mut c_void, sensor: u32, temperature: *mut u32) -> u32 {
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { answer("temperature", device, temperature) }
}

/// `nvmlDeviceGetClockInfo`: clocks of multiprocessors (1) and memory (2).
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(device: *mut c_void, which: u32, clock: *mut u32) -> u32 {
    let name = match which {
        1 => "clock",
        2 => "memory_clock",
        _ => return INVALID_ARGUMENT,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { answer(name, device, clock) }
}

/// `nvmlDeviceGetMaxClockInfo`: clock of multiprocessors.
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: *mut c_void, which: u32, clock: *mut u32) -> u32 {
    if which != 1 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { answer("highest", device, clock) }
}

/// # Safety
/// A writable pointer.
unsafe fn answer_long(name: &str, device: *mut c_void, more: u64, to: *mut u64) -> u32 {
    if device != DEVICE {
        return INVALID_ARGUMENT;
    }
    let Some(value) = number(name) else { return NOT_SUPPORTED };
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(value as u64 + more) };
    SUCCESS
}

/// `nvmlDeviceGetCurrentClocksEventReasons`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(device: *mut c_void, reasons: *mut u64) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer_long("reasons", device, 0, reasons) }
}

/// `nvmlDeviceGetTotalEnergyConsumption`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: *mut c_void, energy: *mut u64) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer_long("energy", device, 1000 * ENERGIES.fetch_add(1, Ordering::Relaxed), energy) }
}

/// `nvmlDeviceGetMemoryInfo`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: *mut c_void, memory: *mut Memory) -> u32 {
    let mut used = 0;
    // SAFETY: a pointer to a local.
    let status = unsafe { answer_long("used", device, 0, &raw mut used) };
    if status == SUCCESS {
        // SAFETY: guaranteed by the caller.
        unsafe { memory.write(Memory { total: 150 << 30, free: (150 << 30) - used, used }) };
    }
    status
}

/// `nvmlDeviceGetFieldValues`
///
/// # Safety
/// `fields` points to `count` structs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(device: *mut c_void, count: i32, fields: *mut FieldValue) -> u32 {
    /// `NVML_VALUE_TYPE_UNSIGNED_INT`
    const UNSIGNED_INT: u32 = 1;
    if device != DEVICE || count <= 0 {
        return INVALID_ARGUMENT;
    }
    let reading = FIELD_READINGS.fetch_add(1, Ordering::Relaxed);
    for index in 0..count as usize {
        // SAFETY: guaranteed by the caller.
        let field = unsafe { &mut *fields.add(index) };
        let value = match Field(field.id) {
            // The other half of the union stays unwritten.
            Field::PCIE_SENT | Field::PCIE_RECEIVED => {
                number("traffic").map(|bytes| (bytes as u64 * reading) & u64::from(u32::MAX) | 0xdead_beef << 32)
            }
            Field::MEMORY_TEMPERATURE => number("hbm").map(|degrees| degrees as u64),
            _ => None,
        };
        field.kind = UNSIGNED_INT;
        field.status = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
        field.value = value.unwrap_or(0);
    }
    SUCCESS
}

/// Id, percent and bytes of the other process.
fn other_process() -> Option<[u64; 3]> {
    let text = list();
    let said = text.split(',').find_map(|said| said.strip_prefix("process="))?;
    let numbers: Vec<f64> = said.split(':').filter_map(|number| number.parse().ok()).collect();
    Some(<[f64; 3]>::try_from(numbers).ok()?.map(|number| number as u64))
}

/// `nvmlDeviceGetComputeRunningProcesses_v2`
///
/// # Safety
/// `rows` has room for as many structs as `count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: *mut c_void,
    count: *mut u32,
    rows: *mut ProcessInfo,
) -> u32 {
    let Some([pid, _, memory]) = other_process() else { return NOT_SUPPORTED };
    let other = ProcessInfo { pid: pid as u32, memory, instances: [u32::MAX; 2] };
    let own = ProcessInfo { pid: std::process::id(), memory: 1 << 30, ..other };
    let listed = if has("self") { vec![own, other] } else { vec![other] };
    // SAFETY: guaranteed by the caller.
    if device != DEVICE || (unsafe { count.read() } as usize) < listed.len() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        count.write(listed.len() as u32);
        listed.iter().enumerate().for_each(|(index, row)| rows.add(index).write(*row));
    }
    SUCCESS
}

/// `nvmlDeviceGetProcessUtilization`
///
/// # Safety
/// `rows` has room for as many structs as `count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: *mut c_void,
    rows: *mut ProcessSample,
    count: *mut u32,
    _since: u64,
) -> u32 {
    let Some([pid, busy, _]) = other_process() else { return NOT_SUPPORTED };
    // SAFETY: guaranteed by the caller.
    if device != DEVICE || unsafe { count.read() } == 0 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        count.write(1);
        rows.write(ProcessSample { pid: pid as u32, at: 1, busy: busy as u32, others: [0; 3] });
    }
    SUCCESS
}

/// `nvmlDeviceGetUtilizationRates`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: *mut c_void, rates: *mut Utilization) -> u32 {
    if device != DEVICE {
        return INVALID_ARGUMENT;
    }
    let Some(busy) = number("busy") else { return NOT_SUPPORTED };
    let memory = number("memory").unwrap_or(0.0);
    // SAFETY: guaranteed by the caller.
    unsafe { rates.write(Utilization { gpu: busy as u32, memory: memory as u32 }) };
    SUCCESS
}

/// `nvmlGpmQueryDeviceSupport`
///
/// # Safety
/// A pointer to a struct that states its version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: *mut c_void, support: *mut GpmSupport) -> u32 {
    // SAFETY: guaranteed by the caller.
    let support = unsafe { &mut *support };
    if device != DEVICE || support.version != 1 {
        return INVALID_ARGUMENT;
    }
    support.is_supported = number("sm").is_some().into();
    SUCCESS
}

/// `nvmlGpmSampleAlloc`
///
/// # Safety
/// A writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut *mut c_void) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { sample.write(Box::into_raw(Box::new(0u64)).cast()) };
    SUCCESS
}

/// `nvmlGpmSampleFree`
///
/// # Safety
/// A sample of this library, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: *mut c_void) -> u32 {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(sample.cast::<u64>()) });
    SUCCESS
}

/// `nvmlGpmSampleGet`
///
/// # Safety
/// A sample of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(device: *mut c_void, sample: *mut c_void) -> u32 {
    if device != DEVICE {
        return INVALID_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { sample.cast::<u64>().write(1 + READINGS.fetch_add(1, Ordering::Relaxed)) };
    SUCCESS
}

/// `nvmlGpmMetricsGet`
///
/// # Safety
/// A request with two samples of this library and the stated number of rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut GpmMetricsGet) -> u32 {
    // SAFETY: guaranteed by the caller.
    let request = unsafe { &mut *request };
    // SAFETY: guaranteed by the caller.
    let [earlier, later] = [request.earlier, request.later].map(|sample| unsafe { sample.cast::<u64>().read() });
    if request.version != 1 || earlier == 0 || later <= earlier {
        return INVALID_ARGUMENT;
    }
    for row in request.metrics.iter_mut().take(request.count as usize) {
        let value = match Metric(row.id) {
            Metric::GRAPHICS_UTIL => number("busy"),
            Metric::SM_UTIL | Metric::SM_OCCUPANCY => number("sm"),
            Metric::PCIE_TX_PER_SEC | Metric::PCIE_RX_PER_SEC => number("pcie"),
            _ => None,
        };
        row.status = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
        row.value = value.unwrap_or(f64::NAN);
    }
    SUCCESS
}
