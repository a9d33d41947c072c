//! The devices as the driver describes them, for a program that is not traced from its start: CUPTI describes
//! a device once, when CUDA starts, and only to a client that had subscribed by then.
//!
//! `cuDeviceGet*` look up constants. They need CUDA to be initialized, no context, and may be called from any
//! thread. PCI Express is not among them, so it is read from the kernel. `testing/layout-check` compares the
//! attribute numbers with cudarc.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use libloading::os::unix::Library;

use crate::driver;

/// The driver's description of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverDevice {
    /// Ordinal in this process.
    pub ordinal: u32,
    /// Product name.
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Global memory in bytes.
    pub memory_bytes: u64,
    /// Compute capability: major, minor.
    pub compute_capability: [u32; 2],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Maximum number of resident threads per multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Maximum number of resident blocks per multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// 32-bit registers per multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Shared memory per multiprocessor in bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Core clock in kHz.
    pub core_clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Link to the host, if the kernel reports it.
    pub link: Option<DeviceLink>,
}

/// The best that a device's PCI Express link can do in its slot: the limit of device and upstream port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLink {
    /// PCI Express generation.
    pub generation: u32,
    /// Millions of transfers per second on each lane.
    pub megatransfers: u32,
    /// Number of lanes.
    pub lanes: u32,
}

impl DeviceLink {
    /// Rates of generations 1 to 6 in millions of transfers per second (PCI Express Base Specification).
    const RATES: [u32; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];

    /// Link of this generation with this number of lanes; `None` for 0 lanes or a generation whose rate is
    /// unknown.
    pub fn of_generation(generation: u32, lanes: u32) -> Option<Self> {
        let (generation, megatransfers) = (1..).zip(Self::RATES).find(|&(known, _)| known == generation)?;
        (lanes > 0).then_some(Self { generation, megatransfers, lanes })
    }
}

/// Numbers of `CUdevice_attribute`.
pub mod attribute {
    #![expect(
        missing_docs,
        reason = "each is CU_DEVICE_ATTRIBUTE_... of its name: rates in kHz, widths in bits, memory in bytes"
    )]
    pub const CLOCK_RATE: i32 = 13;
    pub const MULTIPROCESSOR_COUNT: i32 = 16;
    pub const MEMORY_CLOCK_RATE: i32 = 36;
    pub const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: i32 = 82;
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: i32 = 106;
}

type GetCount = unsafe extern "C" fn(*mut i32) -> i32;
type Get = unsafe extern "C" fn(*mut i32, i32) -> i32;
type GetAttribute = unsafe extern "C" fn(*mut i32, i32, i32) -> i32;
type GetText = unsafe extern "C" fn(*mut u8, i32, i32) -> i32;
type TotalMemory = unsafe extern "C" fn(*mut usize, i32) -> i32;
type GetPrimaryState = unsafe extern "C" fn(i32, *mut u32, *mut i32) -> i32;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], i32) -> i32;

/// Devices that this process can use. Empty if CUDA is not initialized here or there is no driver: this
/// neither loads nor initializes anything.
pub fn driver_devices() -> Vec<DriverDevice> {
    let Some(libcuda) = driver::mapped() else { return Vec::new() };
    handles(&libcuda).filter_map(|(ordinal, handle)| device(&libcuda, ordinal, handle)).collect()
}

/// Bit mask of the devices below 64 whose primary context exists: the context that the CUDA runtime, and so
/// nearly every program, uses. 0 if CUDA is not initialized here.
pub fn devices_in_use() -> u64 {
    let Some(libcuda) = driver::mapped() else { return 0 };
    let Some(state) = function::<GetPrimaryState>(&libcuda, c"cuDevicePrimaryCtxGetState") else { return 0 };
    handles(&libcuda).take(u64::BITS as usize).fold(0, |mask, (ordinal, handle)| {
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: a handle of the driver, and pointers to locals.
        let code = unsafe { state(handle, &raw mut flags, &raw mut is_active) };
        mask | u64::from(code == 0 && is_active != 0) << ordinal
    })
}

/// Ordinals and driver handles. Empty before `cuInit`.
fn handles(libcuda: &Library) -> impl Iterator<Item = (u32, i32)> {
    let mut count = 0;
    let is_known = function::<GetCount>(libcuda, c"cuDeviceGetCount")
        // SAFETY: a pointer to a local; before `cuInit` the call returns an error.
        .is_some_and(|get| unsafe { get(&raw mut count) } == 0);
    let get = function::<Get>(libcuda, c"cuDeviceGet").filter(|_| is_known);
    (0..count).filter_map(move |ordinal| {
        let mut handle = 0;
        // SAFETY: a pointer to a local.
        let code = unsafe { get?(&raw mut handle, ordinal) };
        u32::try_from(ordinal).ok().filter(|_| code == 0).map(|ordinal| (ordinal, handle))
    })
}

fn function<F: Copy>(libcuda: &Library, name: &CStr) -> Option<F> {
    // SAFETY: callers name the type of the C function.
    unsafe { libcuda.get::<F>(name.to_bytes_with_nul()).ok().map(|found| *found) }
}

fn device(libcuda: &Library, ordinal: u32, handle: i32) -> Option<DriverDevice> {
    let get = function::<GetAttribute>(libcuda, c"cuDeviceGetAttribute")?;
    // 0 if this driver does not know the attribute, as in CUPTI's record.
    let attribute = |number| {
        let mut value = 0;
        // SAFETY: as above; an unknown number is an error.
        let code = unsafe { get(&raw mut value, number, handle) };
        u32::try_from(value).ok().filter(|_| code == 0).unwrap_or(0)
    };
    let text = |name: &CStr| -> Option<String> {
        let mut text = [0; 256];
        // SAFETY: the memory has at least the size passed, and the driver writes a NUL within it.
        let code = unsafe { function::<GetText>(libcuda, name)?(text.as_mut_ptr(), 255, handle) };
        let text = CStr::from_bytes_until_nul(&text).ok().filter(|_| code == 0)?;
        Some(text.to_string_lossy().into_owned())
    };
    let (mut memory, mut uuid) = (0_usize, [0; 16]);
    if let Some(total) = function::<TotalMemory>(libcuda, c"cuDeviceTotalMem_v2") {
        // SAFETY: a pointer to a local; on an error it stays 0.
        unsafe { total(&raw mut memory, handle) };
    }
    if let Some(get) = function::<GetUuid>(libcuda, c"cuDeviceGetUuid") {
        // SAFETY: 16 bytes, which is what a `CUuuid` is.
        unsafe { get(&raw mut uuid, handle) };
    }
    let link = text(c"cuDeviceGetPCIBusId")
        .and_then(|place| link(&Path::new("/sys/bus/pci/devices").join(place.to_lowercase()).canonicalize().ok()?));
    Some(DriverDevice {
        ordinal,
        name: text(c"cuDeviceGetName").unwrap_or_default(),
        uuid,
        memory_bytes: memory as u64,
        compute_capability: [attribute::COMPUTE_CAPABILITY_MAJOR, attribute::COMPUTE_CAPABILITY_MINOR].map(attribute),
        multiprocessors: attribute(attribute::MULTIPROCESSOR_COUNT),
        threads_per_multiprocessor: attribute(attribute::MAX_THREADS_PER_MULTIPROCESSOR),
        blocks_per_multiprocessor: attribute(attribute::MAX_BLOCKS_PER_MULTIPROCESSOR),
        registers_per_multiprocessor: attribute(attribute::MAX_REGISTERS_PER_MULTIPROCESSOR),
        shared_bytes_per_multiprocessor: attribute(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        core_clock_khz: attribute(attribute::CLOCK_RATE),
        memory_clock_khz: attribute(attribute::MEMORY_CLOCK_RATE),
        memory_bus_bits: attribute(attribute::GLOBAL_MEMORY_BUS_WIDTH),
        link,
    })
}

/// Link of the PCI device in this folder of `/sys`: the best that both it and its upstream port support.
/// `None` if either is not reported, as in most virtual machines.
fn link(device: &Path) -> Option<DeviceLink> {
    let read = |folder: &Path| {
        let text = |name| fs::read_to_string(folder.join(name)).ok();
        let speed = text("max_link_speed")?;
        // `32.0 GT/s PCIe`
        let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
        let lanes: u32 = text("max_link_width")?.trim().parse().ok()?;
        Some(((transfers * 1e3) as u32, lanes))
    };
    let ((ours, our_lanes), (ports, port_lanes)) = (read(device)?, read(device.parent()?)?);
    let (megatransfers, lanes) = (ours.min(ports), our_lanes.min(port_lanes));
    let generation = (1..).zip(DeviceLink::RATES).find(|&(_, rate)| rate == megatransfers)?.0;
    DeviceLink::of_generation(generation, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_what_both_ends_can_do() {
        let port = std::env::temp_dir().join(format!("gpuwhy-link-{}", std::process::id()));
        let device = port.join("0000:1b:00.0");
        fs::create_dir_all(&device).unwrap();
        let write = |folder: &Path, speed: &str, width: &str| {
            fs::write(folder.join("max_link_speed"), speed).unwrap();
            fs::write(folder.join("max_link_width"), width).unwrap();
        };
        write(&device, "32.0 GT/s PCIe\n", "16\n");
        assert_eq!(link(&device), None, "the port says nothing");
        write(&port, "16.0 GT/s PCIe\n", "16\n");
        assert_eq!(link(&device), Some(DeviceLink { generation: 4, megatransfers: 16_000, lanes: 16 }));
        assert_eq!(link(&device), DeviceLink::of_generation(4, 16));
        assert_eq!(DeviceLink::of_generation(7, 16).or(DeviceLink::of_generation(5, 0)), None);
        write(&port, "Unknown\n", "63\n");
        assert_eq!(link(&device), None);
        fs::remove_dir_all(&port).unwrap();
    }
}
