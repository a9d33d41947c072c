//! What is printed.

pub mod cost;
pub mod text;
