//! Where the runs take place: the temporary folder, and copies of the user's working tree.

pub mod folder;
pub mod tree;
