//! Pairs of runs, and what they say about a change.

pub mod gain;
pub mod output;
pub mod pairs;
