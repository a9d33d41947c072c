//! Events of NCCL, as words in the ring of their thread.
//!
//! ```text
//! head: kind 4 bits | what 4 | number of the launch 16 | context 32
//! time | for an operation: codes, sequence, count, root or peer
//! ```
//! A launch takes two words, an operation six.

use gpuwhy_trace::collective::{Algorithm, DataType, Execution, Function, Protocol};
use gpuwhy_trace::record::Timestamp;

use crate::rings::packed::NCCL;
use crate::rings::ring::{Fill, Ring};

mod what {
    pub(super) const LAUNCH_BEGIN: u64 = 1;
    pub(super) const LAUNCH_END: u64 = 2;
    pub(super) const OPERATION: u64 = 3;
}

/// Bit of the codes: there is a sequence.
const HAS_SEQUENCE: u64 = 1 << 48;

/// Event of NCCL, with the number of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclEvent {
    /// A kernel is about to be launched.
    LaunchBegin(u32),
    LaunchEnd(u32),
    /// An operation was queued, or captured.
    Operation(u32, OperationWords),
}

/// An operation, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationWords {
    /// Way in which it is executed.
    pub way: Execution,
    pub function: Function,
    /// Type of the elements.
    pub data_type: DataType,
    pub algorithm: Algorithm,
    pub protocol: Protocol,
    /// Number of channels.
    pub channels: u8,
    /// Sequence number, if NCCL counts.
    pub sequence: Option<u64>,
    /// Number of elements.
    pub count: u64,
    /// Root, or the other rank.
    pub root_or_peer: i32,
}

/// An event, with the time and the launch number of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEvent {
    pub at: Timestamp,
    /// Number of launches of the thread, including this one; wraps.
    pub launch: u16,
    pub event: NcclEvent,
}

impl ReadEvent {
    /// Writes the complete event, if there is room.
    pub fn write(&self, ring: &Ring) -> Fill {
        let (what, context, words) = match self.event {
            NcclEvent::LaunchBegin(context) => (what::LAUNCH_BEGIN, context, None),
            NcclEvent::LaunchEnd(context) => (what::LAUNCH_END, context, None),
            NcclEvent::Operation(context, words) => (what::OPERATION, context, Some(words)),
        };
        let head = NCCL | what << 4 | u64::from(self.launch) << 8 | u64::from(context) << 24;
        let Some(words) = words else { return ring.write(&[head, self.at.nanos()], &[]) };
        let way = match words.way {
            Execution::Kernel => 0,
            Execution::Captured => 1,
            Execution::CopyEngine => 2,
        };
        let codes = u64::from(words.function.code())
            | u64::from(words.data_type.code()) << 8
            | u64::from(words.algorithm.code()) << 16
            | u64::from(words.protocol.code()) << 24
            | u64::from(words.channels) << 32
            | way << 40
            | if words.sequence.is_some() { HAS_SEQUENCE } else { 0 };
        let root_or_peer = u64::from(words.root_or_peer.cast_unsigned());
        let all = [head, self.at.nanos(), codes, words.sequence.unwrap_or(0), words.count, root_or_peer];
        ring.write(&all, &[])
    }

    /// Reads the event whose head is at a readable index, and advances the index. `None` for codes that this
    /// version never writes.
    pub fn read(ring: &Ring, at: &mut u64) -> Option<Self> {
        let mut word = || {
            let word = ring.word(*at);
            *at += 1;
            word
        };
        let (head, time) = (word(), word());
        #[expect(clippy::cast_possible_truncation, reason = "each is a part of a word that was made from so many bits")]
        let (launch, context) = ((head >> 8) as u16, (head >> 24) as u32);
        let event = match head >> 4 & 15 {
            what::LAUNCH_BEGIN => NcclEvent::LaunchBegin(context),
            what::LAUNCH_END => NcclEvent::LaunchEnd(context),
            what::OPERATION => {
                let (codes, sequence, count, root_or_peer) = (word(), word(), word(), word());
                let code = |shift: u32| codes >> shift & 0xff;
                let way = match code(40) {
                    1 => Execution::Captured,
                    2 => Execution::CopyEngine,
                    _ => Execution::Kernel,
                };
                #[expect(clippy::cast_possible_truncation, reason = "as above")]
                let words = OperationWords {
                    way,
                    function: Function::from_code(code(0)),
                    data_type: DataType::from_code(code(8)),
                    algorithm: Algorithm::from_code(code(16)),
                    protocol: Protocol::from_code(code(24)),
                    channels: code(32) as u8,
                    sequence: (codes & HAS_SEQUENCE != 0).then_some(sequence),
                    count,
                    root_or_peer: (root_or_peer as u32).cast_signed(),
                };
                NcclEvent::Operation(context, words)
            }
            _ => return None,
        };
        Some(Self { at: Timestamp::from_nanos(time), launch, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let ring = Ring::new();
        let words = OperationWords {
            way: Execution::CopyEngine,
            function: Function::Scatter,
            data_type: DataType::Float8E5m2,
            algorithm: Algorithm::Pat,
            protocol: Protocol::Simple,
            channels: u8::MAX,
            sequence: Some(u64::MAX),
            count: u64::MAX,
            root_or_peer: -1,
        };
        let captured = OperationWords { way: Execution::Captured, sequence: None, root_or_peer: i32::MAX, ..words };
        let events = [
            NcclEvent::LaunchBegin(u32::MAX),
            NcclEvent::LaunchEnd(7),
            NcclEvent::Operation(u32::MAX, words),
            NcclEvent::Operation(1, captured),
        ];
        let at = Timestamp::from_nanos(u64::MAX);
        for event in events {
            assert!(ReadEvent { at, launch: u16::MAX, event }.write(&ring).is_written());
        }
        let mut place = ring.readable().start;
        for event in events {
            assert_eq!(crate::rings::packed::time(&ring, place), Some(at));
            assert_eq!(ReadEvent::read(&ring, &mut place), Some(ReadEvent { at, launch: u16::MAX, event }));
        }
        assert_eq!(place, ring.readable().end);
    }
}
