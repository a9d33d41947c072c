//! Types of the engine that are written by their name.

use super::by_name;

by_name! {
    crate::attribution::host_cause::HostCause
    crate::attribution::leaf::Group
    crate::attribution::leaf::Leaf
    crate::attribution::leaf::Work
    crate::collective::Basis
    crate::counters::roofs::Limit
    crate::steps::StepSource
    crate::steps::ToldBy
    crate::whatif::ScenarioKind
}
