//! `gpuprof analyze`: the rules of `nsys analyze`.
//!
//! Looking and printing are library code (`gpuprof-export`); here are the order of rules, streams and exit codes.

use std::path::PathBuf;

use anyhow::Result;
use gpuprof_export::stats::rules::{self, Request};
use gpuprof_export::stats::{RangeFilter, StatsOptions};

use crate::stats::print;

/// Which rules to check on which trace.
#[derive(Debug)]
pub struct Props {
    /// The trace.
    pub trace: PathBuf,
    /// The range of the program to which the rules are limited.
    pub range: Option<RangeFilter>,
    /// The rules, in their order.
    pub rules: Vec<Request>,
    /// How to print.
    pub options: StatsOptions,
}

/// Prints what the rules find and answers with the exit code.
///
/// # Errors
///
/// When the trace cannot be read or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    print(
        &props.trace,
        props.range.as_ref(),
        props.options,
        &props.rules,
        |trace, request, options, output, progress| rules::analyze(trace, request, options, output, progress),
    )
}
