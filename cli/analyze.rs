//! `gpuwhy analyze`: the rules of `nsys analyze`.
//!
//! Looking and printing are library code (`gpuwhy-export`); here are the order of rules, streams and exit codes.

use anyhow::Result;
use gpuwhy_export::stats::rules::{self, Request};

use crate::stats::Tables;

/// Which rules to check on which traces.
#[derive(Debug)]
pub struct Props {
    /// The traces, and how to print.
    pub tables: Tables,
    /// The rules, in their order.
    pub rules: Vec<Request>,
}

/// Prints what the rules find and answers with the exit code.
///
/// # Errors
///
/// When a trace cannot be read or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    props.tables.print(&props.rules, rules::analyze)
}
