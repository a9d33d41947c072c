//! All interleavings of two threads.

mod ring;
mod toggle;
