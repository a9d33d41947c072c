//! Captures: the plan of what is recorded and when, and its execution.

pub mod controller;
pub mod cupti_sharing;
pub mod drain;
pub mod plan;
pub mod state;
