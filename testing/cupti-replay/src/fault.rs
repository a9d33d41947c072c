//! Faults that a test requests: a CUPTI that refuses, hangs, reports wrong sizes, corrupts records or loses
//! buffers.
//!
//! `GPUWHY_REPLAY_FAULT` lists them, separated by commas: `cuptiActivityFlushAll=999@running,buffers=late`. A
//! fault is `WHAT=HOW`, with `@PHASE` if it is only triggered before play begins (`start`), during it
//! (`running`) or after it (`finish`). An unknown word is an error, so that no test passes because its fault
//! never existed; for the same reason the number of times that a fault is triggered is counted.
//!
//! | WHAT | HOW |
//! |---|---|
//! | a CUPTI function | a result code: not carried out; `hang`: never returns; `200ms`: returns later |
//! | `buffers` | `late`, `twice`, `never`, `torn`, `oversized`, `foreign`, `nested`: see [`BufferFault`] |
//! | `records` | `garbage`, `nameless`, `timeless`, `backwards`, `future`, `unknown`: see [`RecordFault`] |
//! | `sizes` | record sizes that the iterator reports: `48` for all, `+8` too much |

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use cupti_sys::CuptiResult;

/// Phase of play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Before play: the client initializes.
    Start,
    /// During play.
    Running,
    /// After play: the client ends.
    Finish,
}

/// Behavior of a function instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// Returns this code.
    Answer(CuptiResult),
    /// Never returns.
    Hang,
    /// Does its work after this delay.
    Slow(Duration),
}

/// Fault of buffers on their way back to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferFault {
    /// They arrive [`LATE`] later, on a separate thread, even after the flush that should have delivered them
    /// has returned.
    Late,
    /// They are returned once more after the client has them back.
    Twice,
    /// They are never returned.
    Never,
    /// Their valid size ends within a record.
    Torn,
    /// Their valid size is larger than they are.
    Oversized,
    /// They are followed by a buffer that the client never lent.
    Foreign,
    /// Before they are returned, and on the same thread, another one is requested and returned, and a context
    /// is reported.
    Nested,
}

/// Fault of records before they are written into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// Everything is noise except the kind and the addresses of texts, which every reader must dereference.
    Garbage,
    /// No texts.
    Nameless,
    /// All times are 0.
    Timeless,
    /// The end is before the start.
    Backwards,
    /// Times near the end of the clock.
    Future,
    /// A kind that no client knows.
    Unknown,
}

/// Fault of the record sizes that the library reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeFault {
    /// This size in bytes for each kind.
    Is(usize),
    /// This many bytes too much.
    More(usize),
}

/// Delay of [`BufferFault::Late`].
pub const LATE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    Call(String, CallFault),
    Buffers(BufferFault),
    Records(RecordFault),
    Sizes(SizeFault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    effect: Effect,
    phase: Option<Phase>,
}

/// The faults of a session, and its current phase.
#[derive(Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    /// The current [`Phase`] as its number.
    phase: AtomicU8,
    struck: AtomicU64,
}

impl Faults {
    /// Enters another phase of play.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Number of times that a fault was triggered.
    pub fn struck(&self) -> u64 {
        self.struck.load(Ordering::SeqCst)
    }

    /// Fault of this function in the current phase.
    pub fn call(&self, function: &str) -> Option<CallFault> {
        self.find(|effect| match effect {
            Effect::Call(name, fault) if name == function => Some(*fault),
            _ => None,
        })
    }

    /// Fault of a buffer in the current phase.
    pub fn buffer(&self) -> Option<BufferFault> {
        self.find(|effect| if let Effect::Buffers(fault) = effect { Some(*fault) } else { None })
    }

    /// Fault of a record in the current phase.
    pub fn record(&self) -> Option<RecordFault> {
        self.find(|effect| if let Effect::Records(fault) = effect { Some(*fault) } else { None })
    }

    /// Size that the library reports in the current phase for a record of `size` bytes.
    pub fn size(&self, size: usize) -> usize {
        let found = self.find(|effect| if let Effect::Sizes(fault) = effect { Some(*fault) } else { None });
        match found {
            None => size,
            Some(SizeFault::Is(said)) => said,
            Some(SizeFault::More(more)) => size.saturating_add(more),
        }
    }

    fn find<T>(&self, wanted: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        let phase = self.phase.load(Ordering::SeqCst);
        let mut now = self.list.iter().filter(|fault| fault.phase.is_none_or(|when| when as u8 == phase));
        let found = now.find_map(|fault| wanted(&fault.effect))?;
        self.struck.fetch_add(1, Ordering::SeqCst);
        Some(found)
    }
}

/// A fault that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFault(String);

impl fmt::Display for BadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPUWHY_REPLAY_FAULT: {:?} is no fault; give WHAT=HOW[@PHASE]", self.0)
    }
}

impl std::error::Error for BadFault {}

impl FromStr for Faults {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let read = |word: &str| fault(word).ok_or_else(|| BadFault(word.to_owned()));
        Ok(Self { list: words.map(read).collect::<Result<_, _>>()?, ..Self::default() })
    }
}

fn fault(text: &str) -> Option<Fault> {
    let (what, rest) = text.split_once('=')?;
    let (how, phase) = match rest.split_once('@') {
        None => (rest, None),
        Some((how, "start")) => (how, Some(Phase::Start)),
        Some((how, "running")) => (how, Some(Phase::Running)),
        Some((how, "finish")) => (how, Some(Phase::Finish)),
        Some(_) => return None,
    };
    let effect = match what {
        "buffers" => Effect::Buffers(match how {
            "late" => BufferFault::Late,
            "twice" => BufferFault::Twice,
            "never" => BufferFault::Never,
            "torn" => BufferFault::Torn,
            "oversized" => BufferFault::Oversized,
            "foreign" => BufferFault::Foreign,
            "nested" => BufferFault::Nested,
            _ => return None,
        }),
        "records" => Effect::Records(match how {
            "garbage" => RecordFault::Garbage,
            "nameless" => RecordFault::Nameless,
            "timeless" => RecordFault::Timeless,
            "backwards" => RecordFault::Backwards,
            "future" => RecordFault::Future,
            "unknown" => RecordFault::Unknown,
            _ => return None,
        }),
        "sizes" => Effect::Sizes(match how.strip_prefix('+') {
            Some(more) => SizeFault::More(more.parse().ok()?),
            None => SizeFault::Is(how.parse().ok()?),
        }),
        function if function.starts_with("cupti") => Effect::Call(
            function.to_owned(),
            match how.strip_suffix("ms") {
                _ if how == "hang" => CallFault::Hang,
                Some(millis) => CallFault::Slow(Duration::from_millis(millis.parse().ok()?)),
                None => CallFault::Answer(CuptiResult(how.parse().ok().filter(|&code| code != 0)?)),
            },
        ),
        _ => return None,
    };
    Some(Fault { effect, phase })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_strike_in_their_phase_and_are_counted() {
        let faults: Faults = "cuptiSubscribe=39@start, cuptiActivityFlushAll=20ms, sizes=+8@running".parse().unwrap();
        assert_eq!(faults.call("cuptiSubscribe"), Some(CallFault::Answer(CuptiResult(39))));
        assert_eq!(faults.size(48), 48);
        faults.enter(Phase::Running);
        assert_eq!(faults.call("cuptiSubscribe"), None);
        assert_eq!(faults.size(48), 56);
        faults.enter(Phase::Finish);
        assert_eq!(faults.call("cuptiActivityFlushAll"), Some(CallFault::Slow(Duration::from_millis(20))));
        assert_eq!((faults.buffer(), faults.record(), faults.struck()), (None, None, 3));
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        assert!("".parse::<Faults>().unwrap().list.is_empty());
        for bad in ["x", "buffers=lost", "records=late", "sizes=big", "cuptiSubscribe=0", "sizes=8@end", "cuda=hang"] {
            assert!(bad.parse::<Faults>().unwrap_err().to_string().contains(bad), "{bad}");
        }
    }
}
