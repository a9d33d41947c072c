//! NCCL finds the loaded library by its name, without a path, if it has one.
//!
//! CUPTI calls into libprof.so from threads of its own until the process is gone, so the library must never be
//! unmapped, not even when somebody closes it.
#![allow(clippy::disallowed_macros, reason = "prints what cargo reads")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Unlike the other kind this one is not handed on to libraries that contain this package.
    println!("cargo::rustc-link-arg=-Wl,-soname,libprof.so");
}
