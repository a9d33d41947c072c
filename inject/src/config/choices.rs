//! Settings that are one of a few words.

use crate::config::value::{is_off, on_or_off};

/// What a record of a CUDA graph is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// A node.
    Nodes,
    /// A launch.
    Whole,
    /// A launch at first, and a node once those are known to be cheap.
    Auto,
}

impl Graphs {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "node" => Some(Self::Nodes),
            "graph" => Some(Self::Whole),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// Whether other tools can use CUPTI: `GPUWHY_CUPTI_SHARING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuptiSharing {
    /// This library keeps CUPTI to the end of the process.
    Exclusive,
    /// Other tools can use CUPTI: this library releases it, and pauses while another tool records.
    Yield,
}

impl CuptiSharing {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "yield" => Some(Self::Yield),
            _ => None,
        }
    }
}

/// Whether the what-if simulation runs beside the accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// Until records come faster than they can be taken in.
    Auto,
    /// Whatever it costs.
    On,
    /// Not at all.
    Off,
}

/// Whether host threads are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// As far as it is possible.
    Auto,
    /// The same, and what is not possible is said at once.
    On,
    /// Not at all.
    Off,
}

/// Whether stacks of host threads have native functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeStacks {
    /// As far as it is possible.
    Auto,
    /// Python functions alone.
    Off,
}

/// How much of the program's command line is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// All but what looks like a secret.
    Full,
    /// The program without its arguments.
    Name,
    /// Nothing.
    Off,
}

impl WhatIf {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            _ => on_or_off(text).map(|on| if on { Self::On } else { Self::Off }),
        }
    }
}

impl Sampling {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            _ => on_or_off(text).map(|on| if on { Self::On } else { Self::Off }),
        }
    }
}

impl NativeStacks {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            _ => is_off(text).then_some(Self::Off),
        }
    }
}

impl ReportStyle {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "summary" | "1" | "on" => Some(Self::Summary),
            "full" => Some(Self::Full),
            _ => is_off(text).then_some(Self::Off),
        }
    }
}

impl CommandLine {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "full" => Some(Self::Full),
            "name" => Some(Self::Name),
            _ => is_off(text).then_some(Self::Off),
        }
    }
}

/// How much is printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportStyle {
    /// Nothing.
    Off,
    /// Verdict, leaves, top kernels.
    Summary,
    /// Everything.
    Full,
}
