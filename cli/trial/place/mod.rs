//! Where the runs take place: the temporary folder, copies of the user's working tree, and the processes in them.

pub mod folder;
pub mod processes;
pub mod tree;
