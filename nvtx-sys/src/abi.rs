//! Numbers and structs of NVTX's `nvtxTypes.h` and `nvToolsExt.h`, versions 2 and 3.
//!
//! NVTX guarantees that these never change: one process contains programs of different ages, each with its
//! own copy of the header. New numbers and members are only added at the end, and structs carry their size.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Returns one of the tables of this copy of NVTX; null if the copy does not have it.
pub type GetExportTable = unsafe extern "C" fn(table: u32) -> *const c_void;

/// Ids of tables for [`GetExportTable`].
pub mod export_table {
    /// Id of [`ExportTableCallbacks`](super::ExportTableCallbacks).
    pub const CALLBACKS: u32 = 1;
    /// Id of [`ExportTableVersionInfo`](super::ExportTableVersionInfo).
    pub const VERSION_INFO: u32 = 3;
}

/// The part of NVTX that a function belongs to.
pub mod module {
    /// Ranges and marks of the default domain, categories, threads.
    pub const CORE: c_int = 1;
    /// The same for domains; registered strings, resources.
    pub const CORE2: c_int = 5;

    use std::ffi::c_int;
}

/// Slots in the table of [`module::CORE`].
pub mod core {
    #![expect(missing_docs, reason = "each is the function nvtx... of its name")]
    pub const MARK_EX: usize = 1;
    pub const MARK_A: usize = 2;
    pub const MARK_W: usize = 3;
    pub const RANGE_START_EX: usize = 4;
    pub const RANGE_START_A: usize = 5;
    pub const RANGE_START_W: usize = 6;
    pub const RANGE_END: usize = 7;
    pub const RANGE_PUSH_EX: usize = 8;
    pub const RANGE_PUSH_A: usize = 9;
    pub const RANGE_PUSH_W: usize = 10;
    pub const RANGE_POP: usize = 11;
    pub const NAME_CATEGORY_A: usize = 12;
    pub const NAME_CATEGORY_W: usize = 13;
    pub const NAME_OS_THREAD_A: usize = 14;
    pub const NAME_OS_THREAD_W: usize = 15;
    /// Number of slots.
    pub const SIZE: usize = 16;
}

/// Slots in the table of [`module::CORE2`].
pub mod core2 {
    #![expect(missing_docs, reason = "each is the function nvtx... of its name")]
    pub const DOMAIN_MARK_EX: usize = 1;
    pub const DOMAIN_RANGE_START_EX: usize = 2;
    pub const DOMAIN_RANGE_END: usize = 3;
    pub const DOMAIN_RANGE_PUSH_EX: usize = 4;
    pub const DOMAIN_RANGE_POP: usize = 5;
    pub const DOMAIN_RESOURCE_CREATE: usize = 6;
    pub const DOMAIN_NAME_CATEGORY_A: usize = 8;
    pub const DOMAIN_NAME_CATEGORY_W: usize = 9;
    pub const DOMAIN_REGISTER_STRING_A: usize = 10;
    pub const DOMAIN_REGISTER_STRING_W: usize = 11;
    pub const DOMAIN_CREATE_A: usize = 12;
    pub const DOMAIN_CREATE_W: usize = 13;
    /// Number of slots.
    pub const SIZE: usize = 16;
}

/// `NvtxFunctionTable`: an array of addresses of function pointers, which the tool sets.
pub type FunctionTable = *mut *mut *const c_void;

/// Access to the function pointers.
#[derive(Debug)]
#[repr(C)]
pub struct ExportTableCallbacks {
    /// Size of this struct in bytes.
    pub struct_size: usize,
    /// Stores the table of a [`module`] and its number of slots; returns 0 if the copy does not have it.
    pub get_module_function_table:
        Option<unsafe extern "C" fn(module: c_int, table: *mut FunctionTable, size: *mut c_uint) -> c_int>,
}

/// Versions of the copy and of the tool.
#[derive(Debug)]
#[repr(C)]
pub struct ExportTableVersionInfo {
    /// Size of this struct in bytes.
    pub struct_size: usize,
    /// Version of the copy.
    pub version: u32,
    /// Unused.
    pub reserved: u32,
    /// Reports the version that the tool was written for.
    pub set_injection_nvtx_version: Option<unsafe extern "C" fn(version: u32)>,
}

/// The version that this crate was written for.
pub const VERSION: u32 = 3;

/// `nvtxEventAttributes_t`: attributes of a range or mark.
///
/// `version` and `size` are the program's; a member beyond `size` does not exist.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventAttributes {
    /// Version of the header.
    pub version: u16,
    /// Size of the struct in bytes.
    pub size: u16,
    /// Id of the category; 0 is none.
    pub category: u32,
    /// 0 none, 1 ARGB.
    pub color_type: i32,
    /// The color.
    pub color: u32,
    /// See [`payload_type`].
    pub payload_type: i32,
    /// Number of entries of an extended payload; otherwise unused.
    pub reserved: i32,
    /// Bits of the payload; 32-bit payloads are in the low half.
    pub payload: u64,
    /// See [`message_type`].
    pub message_type: i32,
    /// `const char*`, `const wchar_t*` or the handle of a registered string.
    pub message: *const c_char,
}

/// Values of [`EventAttributes::color_type`].
pub mod color_type {
    /// `0xAARRGGBB`.
    pub const ARGB: i32 = 1;
}

/// Values of [`EventAttributes::payload_type`].
pub mod payload_type {
    #![expect(missing_docs, reason = "each is the C type of its name")]
    pub const UNSIGNED_INT64: i32 = 1;
    pub const INT64: i32 = 2;
    pub const DOUBLE: i32 = 3;
    pub const UNSIGNED_INT32: i32 = 4;
    pub const INT32: i32 = 5;
    pub const FLOAT: i32 = 6;
    /// An array of [`PayloadData`](super::PayloadData): `NVTX_PAYLOAD_TYPE_EXT` of `nvToolsExtPayload.h`.
    pub const EXTENDED: i32 = 0xDFBD_0009_u32.cast_signed();
}

/// `nvtxPayloadData_t`: a struct of the program whose layout was registered as a schema.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PayloadData {
    /// Id of the schema. The program chooses ids from [`STATIC_SCHEMAS`] on, separately for each domain.
    pub schema: u64,
    /// Size of the struct in bytes; `usize::MAX` if the schema determines it.
    pub size: usize,
    /// The struct.
    pub payload: *const c_void,
}

/// The first schema id that a program can choose: `NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START`.
pub const STATIC_SCHEMAS: u64 = 1 << 24;

/// Values of [`EventAttributes::message_type`].
pub mod message_type {
    /// `const char*`.
    pub const ASCII: i32 = 1;
    /// `const wchar_t*`.
    pub const UNICODE: i32 = 2;
    /// A handle.
    pub const REGISTERED: i32 = 3;
}

const _: () = assert!(size_of::<EventAttributes>() == 48 && size_of::<PayloadData>() == 24);
