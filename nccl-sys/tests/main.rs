#![allow(unsafe_code, reason = "calls C functions as NCCL does")]
//! Tests of this package, in one binary.

mod calls;
mod layout;
