//! The trace file: chunked, checksummed, columnar.
//!
//! A file is a 16-byte header and a sequence of *blocks*. Each block has its own checksums, so a file that
//! was cut, overwritten or never finished still yields every complete block, and the reader reports the
//! missing data ([`Damage`]). Records of all kinds that wait for the same flush share one block, field by
//! field, as small differences to predicted values. `docs/reference/trace-format.md` specifies every byte.
//!
//! Reading order: `block` (framing), `varint`, `split`, `column` (predictors), `row` (which field is which
//! column), `events` and `marks` (a block of rows), `wire`, `entry` (dictionary), `meta` (session, loss,
//! end), `utilization`, `counters`, `kernels`, `collectives`, `graph_nodes`,
//! `stored_report`, `pack`, `writer`, `source` (recovery), `blocks` and `reader`.
//!
//! There is no index and no seeking: a trace is read from front to back.

mod block;
mod blocks;
mod collectives;
mod column;
pub mod compact;
mod counters;
mod entry;
mod error;
mod events;
#[cfg(test)]
mod fixtures_tests;
mod graph_nodes;
mod kernels;
mod marks;
mod memory_calls;
mod meta;
mod pack;
mod reader;
mod row;
mod source;
mod split;
mod stored_report;
mod utilization;
mod varint;
mod wire;
mod writer;

pub use blocks::{Block, BlockReader};
pub use error::{Damage, TraceError};
pub use reader::{Assembly, TraceReader};
pub use stored_report::{STORED_REPORT_FROM, StoredReport};
pub use writer::TraceWriter;
