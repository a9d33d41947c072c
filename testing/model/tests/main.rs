//! All orders in which two threads can meet.

mod ring;
mod toggle;
