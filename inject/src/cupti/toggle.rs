//! State of the records, on or off, and the transitions between them.
//!
//! ```text
//!              on                       enabled
//!     OFF ────────────> TURNING_ON ────────────────> ON
//!      ^ <───────────── refused                      │ leave
//!      │ disabled                                    v
//!      └────────────────────────────────────── TURNING_OFF
//!                                                    │ on: called back
//!     ON <──────────── enabled again ──────────── RECALLED
//! ```
//! Switching off takes hundreds of CUPTI calls, and a capture may start in the middle of them. It must not be
//! refused, and it cannot be carried out in parallel with them. So it recalls the thread that switches off,
//! which reverts its work, and waits for that. The wait is that of one step, a CUPTI call or a pause of
//! milliseconds before one, and is limited, because the call may in turn wait for a lock that the waiting
//! thread holds. No lock is held during any call.
//!
//! This file does not depend on CUPTI, so a model checker can try all orders of two threads
//! (`testing/model`).

use crate::sync::{AtomicU8, BoundedWait, Ordering};

/// States. `Acquire`/`Release`: a thread that sees ON sees what was enabled. `SeqCst` for the recorder, which also
/// decides by a flag of its own (`has_managed`).
const OFF: u8 = 0;
const TURNING_ON: u8 = 1;
const ON: u8 = 2;
const TURNING_OFF: u8 = 3;
const RECALLED: u8 = 4;

/// Result of an attempt to switch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOutcome<T> {
    /// This call switched it on.
    Now(T),
    /// Another thread switched it on.
    Already,
    /// Another thread was still switching when the wait ended. It ends with ON, unless CUPTI refuses.
    Later,
}

/// The state. See the [module](self).
#[derive(Debug)]
pub struct TracingSwitch(AtomicU8);

impl TracingSwitch {
    /// Creates a switch that is off.
    pub fn new() -> Self {
        Self(AtomicU8::new(OFF))
    }

    /// True if everything requested is on, and stays on until a call of [`leave`](Self::leave).
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == ON
    }

    /// True if everything is off.
    pub fn is_off(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OFF
    }

    /// Switches on with `enable`, or has the thread that is switching do it. From any thread. Fails as `enable`; it is
    /// off then.
    pub fn on<T, E>(&self, enable: impl FnOnce() -> Result<T, E>) -> Result<SwitchOutcome<T>, E> {
        let mut wait = BoundedWait::new();
        loop {
            match self.0.load(Ordering::Acquire) {
                ON => return Ok(SwitchOutcome::Already),
                OFF if self.step(OFF, TURNING_ON) => return self.carry_out(enable).map(SwitchOutcome::Now),
                TURNING_OFF if self.step(TURNING_OFF, RECALLED) => {}
                // Another thread is switching, or the state has just changed.
                _ => {
                    if !wait.wait() {
                        return Ok(SwitchOutcome::Later);
                    }
                }
            }
        }
    }

    /// Leaves the state ON; [`off`](Self::off) must follow. `false` if it was not on.
    ///
    /// Call it under the lock that keeps a capture from starting meanwhile.
    pub fn leave(&self) -> bool {
        self.step(ON, TURNING_OFF)
    }

    /// After [`leave`](Self::leave), on the same thread: runs the `steps` that switch off. If it is recalled,
    /// stops and switches on again with `enable`. Returns true if it is on. Fails as `enable`; it is off then.
    pub fn off<E>(
        &self,
        steps: impl Iterator<Item = impl FnOnce()>,
        enable: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        for step in steps {
            if self.0.load(Ordering::Acquire) == RECALLED {
                break;
            }
            step();
        }
        if self.step(TURNING_OFF, OFF) {
            return Ok(false);
        }
        self.carry_out(enable).map(|()| true)
    }

    fn carry_out<T, E>(&self, enable: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let result = enable();
        self.0.store(if result.is_ok() { ON } else { OFF }, Ordering::Release);
        result
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire).is_ok()
    }
}
