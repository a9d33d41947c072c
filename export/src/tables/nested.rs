//! Tables that exist only in queries: the ranges of the program around other ranges, and around calls.
//! Producing them requires memory for every range (see `instances`).

use gpuwhy_trace::dictionary::Dictionary;

use super::cell::{Cell, Column, ColumnType};
use super::records::table;
use crate::instances::Instance;

table! {
    /// A row of [`RANGES`]. `numbers` are those of the ranges around it and its own.
    RANGES, range(place: u32, row: &Instance, numbers: &'a str, dictionary: &'a Dictionary) {
        "number" Integer "from 1, in the order of begins, those around others first" = place + 1;
        "start_ns" Integer "begin" = row.begin;
        "end_ns" Integer "end; that of the trace for a range that never ended" = row.end;
        "duration_ns" Integer "end_ns - start_ns" = row.duration();
        "kind" Text "push, start" = if row.started { "start" } else { "push" };
        "thread" Integer "kernel id of the thread that began and ended it" = row.thread.0;
        "domain" Text "empty text: the default domain" = dictionary.name(row.domain);
        "text" Text "its message" = dictionary.name(row.message);
        "parent" Integer "number of the range around it; empty without" = row.parent.map(|parent| parent + 1);
        "level" Integer "ranges around it" = row.level;
        "numbers" Text "of the ranges around it and its own, as :1:2; of more than 128 the innermost" = numbers;
    }
}

table! {
    /// A row of [`CALLS`].
    CALLS, call(place: u32, correlation: u32) {
        "number" Integer "joins with nested_ranges.number" = place + 1;
        "correlation" Integer "joins with api.correlation, kernels.correlation and others" = correlation;
    }
}
