//! The parts of libprof.so in which threads meet without a lock, compiled with the atomics of loom in place of the
//! standard ones: `tests` tries every order in which two threads can take their steps, and every value that a load may
//! see. The files are those of `inject`, which know their atomics as `crate::sync`.
#![expect(clippy::new_without_default, reason = "the types are private in libprof.so, where nobody needs a default")]

pub mod sync;

#[path = "../../../inject/src/nvtx/ring.rs"]
pub mod ring;
#[path = "../../../inject/src/cupti/toggle.rs"]
pub mod toggle;
