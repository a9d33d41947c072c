//! What is measured, and when: the plan, and who carries it out.

pub mod controller;
pub mod cupti_sharing;
pub mod drain;
pub mod plan;
pub mod state;
