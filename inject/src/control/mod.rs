//! Live control: a Unix socket on which this user's other processes can query, start and stop.

pub mod address;
#[cfg(not(feature = "testing"))]
mod client;
#[cfg(feature = "testing")]
pub mod client;
pub mod last_numbers;
pub(crate) mod server;
pub mod watcher;
