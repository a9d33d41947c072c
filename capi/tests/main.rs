//! Sessions from C.

mod header;
mod program;
