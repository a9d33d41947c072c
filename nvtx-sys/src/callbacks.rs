//! The C functions that go into NVTX's tables, one set for each [`Handler`].
//!
//! A panic ends here: the program gets the return value that it would get without a tool.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{EventAttributes, core, core2};
use crate::event::{Attributes, Text};
use crate::handler::{Domain, Handler};

/// Return value of push and pop when the tool does not count: `NVTX_NO_PUSH_POP_TRACKING`.
const NO_TRACKING: c_int = -2;

/// Slot in a table, and the function that goes there.
pub type Slot = (usize, *const c_void);

/// Functions for the table of [`module::CORE`](crate::abi::module::CORE).
pub fn core<H: Handler>() -> [Slot; 15] {
    [
        (core::MARK_EX, mark_ex::<H> as *const c_void),
        (core::MARK_A, mark_a::<H> as *const c_void),
        (core::MARK_W, mark_w::<H> as *const c_void),
        (core::RANGE_START_EX, start_ex::<H> as *const c_void),
        (core::RANGE_START_A, start_a::<H> as *const c_void),
        (core::RANGE_START_W, start_w::<H> as *const c_void),
        (core::RANGE_END, end::<H> as *const c_void),
        (core::RANGE_PUSH_EX, push_ex::<H> as *const c_void),
        (core::RANGE_PUSH_A, push_a::<H> as *const c_void),
        (core::RANGE_PUSH_W, push_w::<H> as *const c_void),
        (core::RANGE_POP, pop::<H> as *const c_void),
        (core::NAME_CATEGORY_A, name_category_a::<H> as *const c_void),
        (core::NAME_CATEGORY_W, name_category_w::<H> as *const c_void),
        (core::NAME_OS_THREAD_A, name_thread_a::<H> as *const c_void),
        (core::NAME_OS_THREAD_W, name_thread_w::<H> as *const c_void),
    ]
}

/// Functions for the table of [`module::CORE2`](crate::abi::module::CORE2).
pub fn core2<H: Handler>() -> [Slot; 11] {
    [
        (core2::DOMAIN_MARK_EX, domain_mark_ex::<H> as *const c_void),
        (core2::DOMAIN_RANGE_START_EX, domain_start_ex::<H> as *const c_void),
        (core2::DOMAIN_RANGE_END, domain_end::<H> as *const c_void),
        (core2::DOMAIN_RANGE_PUSH_EX, domain_push_ex::<H> as *const c_void),
        (core2::DOMAIN_RANGE_POP, domain_pop::<H> as *const c_void),
        (core2::DOMAIN_NAME_CATEGORY_A, domain_name_category_a::<H> as *const c_void),
        (core2::DOMAIN_NAME_CATEGORY_W, domain_name_category_w::<H> as *const c_void),
        (core2::DOMAIN_REGISTER_STRING_A, register_string_a::<H> as *const c_void),
        (core2::DOMAIN_REGISTER_STRING_W, register_string_w::<H> as *const c_void),
        (core2::DOMAIN_CREATE_A, create_domain_a::<H> as *const c_void),
        (core2::DOMAIN_CREATE_W, create_domain_w::<H> as *const c_void),
    ]
}

/// A handle of a domain or a registered string: the number itself, never dereferenced.
type Handle = *const c_void;

fn domain(handle: Handle) -> Domain {
    // A larger handle was never ours; it becomes a number that no handler returns.
    Domain(u32::try_from(handle.addr()).unwrap_or(u32::MAX))
}

fn handle(number: u32) -> Handle {
    ptr::without_provenance(number as usize)
}

fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Defines C functions that call a handler, with their return values after a panic.
macro_rules! callbacks {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $otherwise:expr; $work:expr;)*) => {$(
        /// # Safety
        /// Called by NVTX with the arguments that its documentation demands of programs: strings end with
        /// NUL, attributes have the size that they state, and neither changes during the call.
        unsafe extern "C" fn $name<H: Handler>($($argument: $type),*) -> $answer {
            // SAFETY: the caller guarantees what reading texts and attributes requires.
            guarded($otherwise, || unsafe { $work })
        }
    )*};
}

callbacks! {
    fn mark_ex(event: *const EventAttributes) -> (), (); H::mark(Domain::DEFAULT, &Attributes::read(event));
    fn mark_a(text: *const c_char) -> (), (); H::mark(Domain::DEFAULT, &Attributes::of(Text::narrow(text)));
    fn mark_w(text: *const u32) -> (), (); H::mark(Domain::DEFAULT, &Attributes::of(Text::wide(text)));
    fn start_ex(event: *const EventAttributes) -> u64, 0; H::start(Domain::DEFAULT, &Attributes::read(event));
    fn start_a(text: *const c_char) -> u64, 0; H::start(Domain::DEFAULT, &Attributes::of(Text::narrow(text)));
    fn start_w(text: *const u32) -> u64, 0; H::start(Domain::DEFAULT, &Attributes::of(Text::wide(text)));
    fn push_ex(event: *const EventAttributes) -> c_int, NO_TRACKING; H::push(Domain::DEFAULT, &Attributes::read(event));
    fn push_a(text: *const c_char) -> c_int, NO_TRACKING; H::push(Domain::DEFAULT, &Attributes::of(Text::narrow(text)));
    fn push_w(text: *const u32) -> c_int, NO_TRACKING; H::push(Domain::DEFAULT, &Attributes::of(Text::wide(text)));
    fn name_category_a(category: u32, name: *const c_char) -> (), ();
        H::name_category(Domain::DEFAULT, category, Text::narrow(name));
    fn name_category_w(category: u32, name: *const u32) -> (), ();
        H::name_category(Domain::DEFAULT, category, Text::wide(name));
    fn name_thread_a(thread: u32, name: *const c_char) -> (), (); H::name_thread(thread, Text::narrow(name));
    fn name_thread_w(thread: u32, name: *const u32) -> (), (); H::name_thread(thread, Text::wide(name));
    fn domain_mark_ex(of: Handle, event: *const EventAttributes) -> (), (); H::mark(domain(of), &Attributes::read(event));
    fn domain_start_ex(of: Handle, event: *const EventAttributes) -> u64, 0;
        H::start(domain(of), &Attributes::read(event));
    fn domain_push_ex(of: Handle, event: *const EventAttributes) -> c_int, NO_TRACKING;
        H::push(domain(of), &Attributes::read(event));
    fn domain_name_category_a(of: Handle, category: u32, name: *const c_char) -> (), ();
        H::name_category(domain(of), category, Text::narrow(name));
    fn domain_name_category_w(of: Handle, category: u32, name: *const u32) -> (), ();
        H::name_category(domain(of), category, Text::wide(name));
    fn register_string_a(_of: Handle, text: *const c_char) -> Handle, ptr::null();
        handle(H::register_string(Text::narrow(text)).0);
    fn register_string_w(_of: Handle, text: *const u32) -> Handle, ptr::null();
        handle(H::register_string(Text::wide(text)).0);
    fn create_domain_a(name: *const c_char) -> Handle, ptr::null(); handle(H::create_domain(Text::narrow(name)).0);
    fn create_domain_w(name: *const u32) -> Handle, ptr::null(); handle(H::create_domain(Text::wide(name)).0);
}

extern "C" fn end<H: Handler>(range: u64) {
    guarded((), || H::end(range));
}

extern "C" fn pop<H: Handler>() -> c_int {
    guarded(NO_TRACKING, || H::pop(Domain::DEFAULT))
}

extern "C" fn domain_end<H: Handler>(_of: Handle, range: u64) {
    guarded((), || H::end(range));
}

extern "C" fn domain_pop<H: Handler>(of: Handle) -> c_int {
    guarded(NO_TRACKING, || H::pop(domain(of)))
}
