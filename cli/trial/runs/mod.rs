//! One run of the program: how it is started and ended, and the time of its steps.

mod drain;
mod end;
mod finished;
pub mod launch;
pub mod measured;
pub mod program;
pub mod recorded;
pub mod steps;
pub mod unit;
