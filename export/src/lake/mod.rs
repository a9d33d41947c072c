//! The lake: the tables of many runs as Parquet files that query engines read together.
//!
//! The path is `TABLE/date=YYYY-MM-DD/run=NAME/part-HOST-N.parquet`, with the table first, so that Hive,
//! Spark, Trino and Iceberg see one folder per table. A file contains the rows of all ranks that were written
//! together, with the rank as a column: a folder for each of 10,000 ranks would make the files too small for
//! efficient reading. A table without rows has no file.
//!
//! Reading order: `place` (names of folders and files), `part` (data written together), `add` (traces), `names`
//! (of runs), `read`, `compact`.

mod add;
mod compact;
mod names;
mod part;
mod place;
mod read;

use crate::tables::{Column, ColumnType, Table};

pub use add::{AddOptions, LakeOutcome, Tier, add};
pub use compact::{CompactOptions, Compacted, compact};
pub use names::name_programs;
pub use part::PendingFiles;
pub use place::{Lake, date};
pub use read::visit;

/// Precedes the columns of every table. `date` and `run` are in the path.
pub(crate) const RANK: [Column; 1] =
    [Column { name: "rank", kind: ColumnType::Integer, about: "of the process in its job; 0 when it is in none" }];

/// Sort order of a file's rows: joins then read adjacent data, and columns compress well.
pub(crate) const fn order(table: Table) -> &'static [&'static str] {
    match table {
        Table::Collectives => &["communicator", "function", "ordinal", "rank"],
        Table::Steps | Table::StepLeaves => &["step", "rank", "device"],
        Table::Kernels | Table::Copies | Table::Memsets => &["rank", "device", "start_ns"],
        _ => &["rank"],
    }
}
