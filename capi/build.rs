//! CUPTI calls into this library from threads of its own until the process is gone, so it must never be unmapped.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
