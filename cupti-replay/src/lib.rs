//! A libcupti that plays recorded activity buffers.
