//! Gives every nanosecond of device time one cause.
