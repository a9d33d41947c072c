//! Contents of a callback about a kernel launch: the kernel and its launch configuration.
//!
//! The parameters of a call arrive as the struct that CUPTI's `generated_cuda*_meta.h` declares for it. The
//! functions that launch use four such structs, unchanged since CUDA 11.6; callback ids never change.

use std::ffi::{CStr, c_void};

use crate::abi::{ApiCallbackData, CallbackSite, Domain};
use crate::counters::range::ContextHandle;

/// Layout of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameters {
    /// `cuLaunchKernel`: grid, block and shared memory follow the function.
    Driver,
    /// `cudaLaunchKernel`: grid and block follow the function, shared memory follows the arguments.
    Runtime,
    /// `cuLaunchKernelEx`, `cudaLaunchKernelExC`: the address of a configuration.
    Configured,
}

/// Functions that launch one kernel, not cooperatively: domain, callback id, name.
pub const LAUNCHES: [(Domain, u32, &str); 10] = [
    (Domain::DRIVER, 307, "cuLaunchKernel"),
    (Domain::DRIVER, 442, "cuLaunchKernel_ptsz"),
    (Domain::DRIVER, 652, "cuLaunchKernelEx"),
    (Domain::DRIVER, 653, "cuLaunchKernelEx_ptsz"),
    (Domain::RUNTIME, 211, "cudaLaunchKernel_v7000"),
    (Domain::RUNTIME, 214, "cudaLaunchKernel_ptsz_v7000"),
    (Domain::RUNTIME, 430, "cudaLaunchKernelExC_v11060"),
    (Domain::RUNTIME, 431, "cudaLaunchKernelExC_ptsz_v11060"),
    (Domain::RUNTIME, 505, "__cudaLaunchKernel_v13000"),
    (Domain::RUNTIME, 506, "__cudaLaunchKernel_ptsz_v13000"),
];

const fn parameters(domain: Domain, callback: u32) -> Option<Parameters> {
    match (domain, callback) {
        (Domain::DRIVER, 307 | 442) => Some(Parameters::Driver),
        (Domain::DRIVER, 652 | 653) | (Domain::RUNTIME, 430 | 431) => Some(Parameters::Configured),
        (Domain::RUNTIME, 211 | 214 | 505 | 506) => Some(Parameters::Runtime),
        _ => None,
    }
}

/// True if this callback reports a launch.
pub(super) const fn is_launch(domain: Domain, callback: u32) -> bool {
    parameters(domain, callback).is_some()
}

/// Entry to or exit from a kernel launch.
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch<'a> {
    /// The domain of the function.
    pub domain: Domain,
    /// Entry or exit.
    pub site: CallbackSite,
    /// Correlation id of the call: the same at entry and exit.
    pub correlation: u32,
    /// Mangled name of the kernel, if CUPTI provides it.
    pub symbol: Option<&'a CStr>,
    /// Context of the launch.
    pub context: ContextHandle,
    /// Id of the context, as in records.
    pub context_id: u32,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// True for a cooperative launch, where all blocks must be resident at once.
    pub cooperative: bool,
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const COOPERATIVE: u32 = 2;
/// Size of a `CUlaunchAttribute` in bytes: id, padding, 64 bytes of value.
const ATTRIBUTE: usize = 72;
/// Maximum number of attributes examined.
const MOST_ATTRIBUTES: u32 = 64;

/// Reads a 32-bit number at an offset.
///
/// # Safety
/// Four bytes are readable there.
unsafe fn number(base: *const c_void, offset: usize) -> u32 {
    // SAFETY: guaranteed by the caller; `read_unaligned` needs no alignment.
    unsafe { base.byte_add(offset).cast::<u32>().read_unaligned() }
}

/// Reads three 32-bit numbers at an offset.
///
/// # Safety
/// Twelve bytes are readable there.
unsafe fn three(base: *const c_void, offset: usize) -> [u32; 3] {
    // SAFETY: guaranteed by the caller.
    unsafe { [number(base, offset), number(base, offset + 4), number(base, offset + 8)] }
}

/// Reads an address at an offset.
///
/// # Safety
/// Eight bytes are readable there.
unsafe fn address(base: *const c_void, offset: usize) -> *const c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { base.byte_add(offset).cast::<*const c_void>().read_unaligned() }
}

/// The launch that a callback reports; `None` if CUPTI provides no parameters.
///
/// # Safety
/// `data` is what CUPTI passes to a callback with this id, and lives until the callback returns.
pub(super) unsafe fn launch<'a>(domain: Domain, callback: u32, data: &'a ApiCallbackData) -> Option<KernelLaunch<'a>> {
    let layout = parameters(domain, callback)?;
    let base = data.parameters;
    if base.is_null() {
        return None;
    }
    // SAFETY: the parameters are the struct of this function, laid out as in CUPTI's generated headers; its
    // configuration points to memory of the program that lives as long as the call.
    let (grid, block, shared_bytes, cooperative) = unsafe {
        match layout {
            Parameters::Driver => (three(base, 8), three(base, 20), number(base, 32), false),
            Parameters::Runtime => (three(base, 8), three(base, 20), number(base, 40), false),
            Parameters::Configured => {
                let config = address(base, 0);
                if config.is_null() {
                    return None;
                }
                (three(config, 0), three(config, 12), number(config, 24), is_cooperative(config))
            }
        }
    };
    // SAFETY: NULL, or a NUL-terminated string of the loaded module.
    let symbol = (!data.symbol.is_null()).then(|| unsafe { CStr::from_ptr(data.symbol) });
    Some(KernelLaunch {
        domain,
        site: data.site,
        correlation: data.correlation,
        symbol,
        context: ContextHandle::new(data.context),
        context_id: data.context_id,
        grid,
        block,
        shared_bytes,
        cooperative,
    })
}

/// True if the attributes of a launch configuration request a cooperative launch.
///
/// # Safety
/// `config` points to a `CUlaunchConfig` or a `cudaLaunchConfig_t`, which have their attributes at the same
/// place.
unsafe fn is_cooperative(config: *const c_void) -> bool {
    // SAFETY: guaranteed by the caller; the configuration holds the number of its attributes.
    unsafe {
        let (attributes, count) = (address(config, 40), number(config, 48));
        !attributes.is_null()
            && (0..count.min(MOST_ATTRIBUTES) as usize).any(|index| {
                number(attributes, index * ATTRIBUTE) == COOPERATIVE && number(attributes, index * ATTRIBUTE + 8) != 0
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn read(domain: Domain, callback: u32, parameters: &[u64]) -> Option<KernelLaunch<'static>> {
        let data = ApiCallbackData {
            site: CallbackSite::EXIT,
            function: ptr::null(),
            parameters: parameters.as_ptr().cast(),
            result: ptr::null_mut(),
            symbol: c"_Z1kv".as_ptr(),
            context: ptr::without_provenance_mut(0x70),
            context_id: 3,
            correlation_data: ptr::null_mut(),
            correlation: 99,
        };
        // SAFETY: the data belongs to this call, and its pointers are to statics or to memory of the caller.
        let launch = unsafe { launch(domain, callback, &data) }?;
        assert_eq!(
            (launch.symbol.map(CStr::to_bytes), launch.context_id, launch.correlation),
            (Some(&b"_Z1kv"[..]), 3, 99)
        );
        Some(KernelLaunch { symbol: None, ..launch })
    }

    fn two(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    #[test]
    fn every_kind_of_parameters_is_read() {
        // Function, grid x y, grid z and block x, block y z, shared memory and padding.
        let driver = [0x1000, two(10, 11), two(12, 32), two(4, 2), two(4_096, 7), 0, 0];
        // Function, the same, arguments, shared memory.
        let runtime = [0x1000, two(10, 11), two(12, 32), two(4, 2), 0xdead, 4_096, 0];
        let config = [two(10, 11), two(12, 32), two(4, 2), two(4_096, 9), 0, 0, 0];
        let configured = [ptr::from_ref(&config).addr() as u64, 0, 0];
        // The code under test reads the address back from an integer.
        let _ = ptr::from_ref(&config).expose_provenance();
        for (domain, callback, name) in LAUNCHES {
            let parameters: &[u64] = match name {
                name if name.contains("Ex") => &configured,
                name if name.starts_with("cu") && !name.starts_with("cuda") => &driver,
                _ => &runtime,
            };
            let launch = read(domain, callback, parameters).unwrap();
            assert_eq!((launch.grid, launch.block, launch.shared_bytes), ([10, 11, 12], [32, 4, 2], 4_096), "{name}");
            assert!(!launch.cooperative);
        }
        assert!(read(Domain::DRIVER, 1, &driver).is_none(), "no launch");
        assert!(read(Domain::DRIVER, 652, &[0, 0]).is_none(), "no configuration");
    }

    #[test]
    fn a_cooperative_launch_is_reported() {
        let attribute = |number: u32, value: u32| [two(number, 0), u64::from(value), 0, 0, 0, 0, 0, 0, 0];
        for (value, expected) in [(1, true), (0, false)] {
            let attributes = [attribute(4, 1), attribute(COOPERATIVE, value)];
            let address = attributes.as_ptr().expose_provenance() as u64;
            let config = [0, 0, 0, 0, 0, address, 2];
            let configured = [config.as_ptr().expose_provenance() as u64, 0];
            assert_eq!(read(Domain::RUNTIME, 430, &configured).unwrap().cooperative, expected);
        }
    }
}
