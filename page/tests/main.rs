//! Pages of traces: what is in them is what the report says.

mod losses;
mod page;
mod programs;
mod ranks;
mod redact;
mod statics;
mod timeline;
