//! The program's side: copies of NVTX as the header makes them, without the header.
//!
//! Each copy has its own tables of function pointers, offers them through `GetExportTable`, and calls the
//! functions in them, as `nvtxInit.h` and `nvtxImplCore.h` of version 3 do. For tests, and for a host that
//! stands in for a program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::abi::{
    EventAttributes, ExportTableCallbacks, ExportTableVersionInfo, FunctionTable, GetExportTable, core, core2,
    export_table, module,
};

/// `InitializeInjectionNvtx2`
pub type Initialize = unsafe extern "C" fn(Option<GetExportTable>) -> c_int;

/// A handle of a domain or a registered string.
pub type Handle = *const c_void;

/// The copy with this number, 0 or 1, independent of the other as if in a separate library.
#[derive(Clone, Copy, Debug)]
pub struct Program<const COPY: usize>;

#[derive(Debug)]
struct Globals {
    core: [AtomicPtr<c_void>; core::SIZE],
    core2: [AtomicPtr<c_void>; core2::SIZE],
    tool_version: AtomicU32,
}

const fn globals() -> Globals {
    Globals {
        core: [const { AtomicPtr::new(ptr::null_mut()) }; core::SIZE],
        core2: [const { AtomicPtr::new(ptr::null_mut()) }; core2::SIZE],
        tool_version: AtomicU32::new(0),
    }
}

static GLOBALS: [Globals; 2] = [globals(), globals()];

unsafe extern "C" fn get_export_table<const COPY: usize>(table: u32) -> *const c_void {
    static CALLBACKS: [ExportTableCallbacks; 2] = [callbacks::<0>(), callbacks::<1>()];
    static VERSIONS: [ExportTableVersionInfo; 2] = [versions::<0>(), versions::<1>()];
    match table {
        export_table::CALLBACKS => (&raw const CALLBACKS[COPY]).cast(),
        export_table::VERSION_INFO => (&raw const VERSIONS[COPY]).cast(),
        _ => ptr::null(),
    }
}

const fn callbacks<const COPY: usize>() -> ExportTableCallbacks {
    ExportTableCallbacks {
        struct_size: size_of::<ExportTableCallbacks>(),
        get_module_function_table: Some(get_module_function_table::<COPY>),
    }
}

const fn versions<const COPY: usize>() -> ExportTableVersionInfo {
    ExportTableVersionInfo {
        struct_size: size_of::<ExportTableVersionInfo>(),
        version: crate::abi::VERSION,
        reserved: 0,
        set_injection_nvtx_version: Some(set_version::<COPY>),
    }
}

unsafe extern "C" fn set_version<const COPY: usize>(version: u32) {
    GLOBALS[COPY].tool_version.store(version, Ordering::Relaxed);
}

/// The addresses of function pointers, as an array that the tool reads.
struct OwnedTable(Box<[*mut *const c_void]>);
// SAFETY: the addresses are of statics, which are only used as atomics.
unsafe impl Send for OwnedTable {}
// SAFETY: as above; the array itself is never changed.
unsafe impl Sync for OwnedTable {}

unsafe extern "C" fn get_module_function_table<const COPY: usize>(
    module: c_int,
    table: *mut FunctionTable,
    size: *mut c_uint,
) -> c_int {
    static TABLES: [[OnceLock<OwnedTable>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];
    let (functions, which): (&[AtomicPtr<c_void>], _) = match module {
        module::CORE => (&GLOBALS[COPY].core, 0),
        module::CORE2 => (&GLOBALS[COPY].core2, 1),
        _ => return 0,
    };
    // Slot 0 is not a function.
    let address = |function: &AtomicPtr<c_void>| function.as_ptr().cast::<*const c_void>();
    let made = TABLES[COPY][which].get_or_init(|| {
        OwnedTable(
            functions.iter().enumerate().map(|(at, f)| if at == 0 { ptr::null_mut() } else { address(f) }).collect(),
        )
    });
    // SAFETY: the tool passes the addresses of its variables.
    unsafe {
        *table = made.0.as_ptr().cast_mut();
        *size = c_uint::try_from(functions.len()).unwrap_or(0);
    }
    1
}

/// Defines the functions of the header: as there, the pointer is called if the tool has set it.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident in $table:ident[$at:expr] ($($argument:ident: $type:ty),*) -> $answer:ty = $otherwise:expr;)*) => {
        impl<const COPY: usize> Program<COPY> {$(
            $(#[$doc])*
            /// # Safety
            /// As for NVTX: pointers are null, or to NUL-terminated strings, or to attributes of the size
            /// that they state.
            pub unsafe fn $name(self, $($argument: $type),*) -> $answer {
                type Function = unsafe extern "C" fn($($type),*) -> $answer;
                let function = GLOBALS[COPY].$table[$at].load(Ordering::Acquire);
                // SAFETY: null is `None`, and otherwise the tool has stored a function of this type here.
                let function = unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(function) };
                // SAFETY: the caller guarantees the arguments.
                function.map_or($otherwise, |function| unsafe { function($($argument),*) })
            }
        )*}
    };
}

functions! {
    /// `nvtxMarkA`
    mark_a in core[core::MARK_A] (text: *const c_char) -> () = ();
    /// `nvtxMarkW`
    mark_w in core[core::MARK_W] (text: *const u32) -> () = ();
    /// `nvtxMarkEx`
    mark_ex in core[core::MARK_EX] (event: *const EventAttributes) -> () = ();
    /// `nvtxRangePushA`
    push_a in core[core::RANGE_PUSH_A] (text: *const c_char) -> c_int = -2;
    /// `nvtxRangePushEx`
    push_ex in core[core::RANGE_PUSH_EX] (event: *const EventAttributes) -> c_int = -2;
    /// `nvtxRangePop`
    pop in core[core::RANGE_POP] () -> c_int = -2;
    /// `nvtxRangeStartA`
    start_a in core[core::RANGE_START_A] (text: *const c_char) -> u64 = 0;
    /// `nvtxRangeEnd`
    end in core[core::RANGE_END] (range: u64) -> () = ();
    /// `nvtxNameOsThreadA`
    name_os_thread_a in core[core::NAME_OS_THREAD_A] (thread: u32, name: *const c_char) -> () = ();
    /// `nvtxNameOsThreadW`
    name_os_thread_w in core[core::NAME_OS_THREAD_W] (thread: u32, name: *const u32) -> () = ();
    /// `nvtxDomainCreateA`
    domain_create_a in core2[core2::DOMAIN_CREATE_A] (name: *const c_char) -> Handle = ptr::null();
    /// `nvtxDomainRegisterStringA`
    register_string_a in core2[core2::DOMAIN_REGISTER_STRING_A] (domain: Handle, text: *const c_char) -> Handle = ptr::null();
    /// `nvtxDomainNameCategoryA`
    name_category_a in core2[core2::DOMAIN_NAME_CATEGORY_A] (domain: Handle, category: u32, name: *const c_char) -> () = ();
    /// `nvtxDomainMarkEx`
    domain_mark_ex in core2[core2::DOMAIN_MARK_EX] (domain: Handle, event: *const EventAttributes) -> () = ();
    /// `nvtxDomainRangePushEx`
    domain_push_ex in core2[core2::DOMAIN_RANGE_PUSH_EX] (domain: Handle, event: *const EventAttributes) -> c_int = -2;
    /// `nvtxDomainRangePop`
    domain_pop in core2[core2::DOMAIN_RANGE_POP] (domain: Handle) -> c_int = -2;
    /// `nvtxDomainRangeStartEx`
    domain_start_ex in core2[core2::DOMAIN_RANGE_START_EX] (domain: Handle, event: *const EventAttributes) -> u64 = 0;
    /// `nvtxDomainRangeEnd`
    domain_end in core2[core2::DOMAIN_RANGE_END] (domain: Handle, range: u64) -> () = ();
    /// `nvtxDomainResourceCreate`, which this crate's tool leaves unset
    resource_create in core2[core2::DOMAIN_RESOURCE_CREATE] (domain: Handle, attributes: *mut c_void) -> Handle = ptr::null();
}

impl<const COPY: usize> Program<COPY> {
    /// Lets the tool set this copy's functions. Returns the tool's return value.
    ///
    /// # Safety
    /// `initialize` is a tool's `InitializeInjectionNvtx2`, which is never unloaded.
    pub unsafe fn initialize(self, initialize: Initialize) -> c_int {
        // SAFETY: the caller guarantees the function, and it gets the argument that NVTX would pass.
        unsafe { initialize(Some(get_export_table::<COPY>)) }
    }

    /// The function that offers this copy's tables.
    pub fn export_tables(self) -> GetExportTable {
        get_export_table::<COPY>
    }

    /// The version that the tool has reported; 0 if it has not.
    pub fn tool_version(self) -> u32 {
        GLOBALS[COPY].tool_version.load(Ordering::Relaxed)
    }

    /// `nvtxRangePushA` with a text.
    pub fn push(self, text: &CStr) -> c_int {
        // SAFETY: a `CStr` ends with NUL.
        unsafe { self.push_a(text.as_ptr()) }
    }

    /// `nvtxMarkA` with a text.
    pub fn mark(self, text: &CStr) {
        // SAFETY: as above.
        unsafe { self.mark_a(text.as_ptr()) }
    }

    /// `nvtxRangeStartA` with a text.
    #[must_use]
    pub fn start(self, text: &CStr) -> u64 {
        // SAFETY: as above.
        unsafe { self.start_a(text.as_ptr()) }
    }
}

impl EventAttributes {
    /// `nvtxEventAttributes_t` after `{0}` with `version` and `size` set.
    pub const fn new() -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "48")]
        let size = size_of::<Self>() as u16;
        Self {
            version: 3,
            size,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: 0,
            message: ptr::null(),
        }
    }

    /// Attributes with this text.
    pub const fn text(text: &CStr) -> Self {
        Self { message_type: crate::abi::message_type::ASCII, message: text.as_ptr(), ..Self::new() }
    }
}

impl Default for EventAttributes {
    fn default() -> Self {
        Self::new()
    }
}
