//! All that CUPTI calls, and all that it is asked for.

pub mod callbacks;
pub mod decode;
pub mod flush_backlog;
pub mod graphs;
pub mod kernel_names;
pub mod kinds;
pub mod other_tool;
pub mod ownership;
pub mod pcie_links;
pub mod pool;
pub mod recorder;
pub mod toggle;
