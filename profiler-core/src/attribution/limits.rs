//! How many records may wait in the engine.

/// Operations that may wait for the watermark (some 112 bytes each). When there are more, the flush mark alone decides:
/// bounded memory goes before exact order, and what then comes late is counted. Only programs that launch large graphs
/// far ahead get here: a graph does not say how many records it will leave, so all that ran since the launch of the oldest
/// unfinished one would wait, a million operations a second.
pub(super) const PENDING_LIMIT: usize = 1 << 17;

/// Records that may wait: operations for the watermark, and as many records of each of two flushes.
pub(super) const WAITING_LIMIT: usize = 3 * PENDING_LIMIT;
