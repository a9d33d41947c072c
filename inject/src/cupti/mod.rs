//! All calls to and from CUPTI.

pub mod callbacks;
mod convert;
pub mod decode;
pub mod graphs;
pub mod kinds;
pub mod other_tool;
pub mod ownership;
pub mod recorder;
pub mod toggle;
