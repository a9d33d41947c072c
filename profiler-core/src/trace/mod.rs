//! The trace file: chunked, checksummed, columnar.
