//! On, off, and who is on the way from one to the other.
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
//! Switching off takes hundreds of calls of CUPTI, and a capture may begin in the middle of them. It must not be
//! refused, and it cannot be carried out beside them: so it calls the leaving thread back, which puts right what it has
//! undone, and waits for that. The wait is that of one step, a call of CUPTI or a pause of milliseconds before one, and
//! has a limit, because the call may in turn wait for something that the waiting thread holds. No lock is held around
//! any call.
//!
//! Nothing of CUPTI is known here, so a model checker can try all orders of two threads (`testing/model`).

use crate::sync::{AtomicU8, BoundedWait, Ordering};

/// The states. `Acquire`/`Release`: whoever sees ON sees what was enabled.
const OFF: u8 = 0;
const TURNING_ON: u8 = 1;
const ON: u8 = 2;
const TURNING_OFF: u8 = 3;
const RECALLED: u8 = 4;

/// How an attempt to switch on ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOutcome<T> {
    /// It is on, by this call.
    Now(T),
    /// It is on, by another thread.
    Already,
    /// Another thread was still switching when the wait ended. It ends with ON, unless CUPTI refuses.
    Later,
}

/// The state. See the [module](self).
#[derive(Debug)]
pub struct TracingSwitch(AtomicU8);

impl TracingSwitch {
    /// Off.
    pub fn new() -> Self {
        Self(AtomicU8::new(OFF))
    }

    /// Whether all that was asked for is on, and stays so until somebody calls [`leave`](Self::leave).
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == ON
    }

    /// Whether nothing is on.
    pub fn is_off(&self) -> bool {
        self.0.load(Ordering::Acquire) == OFF
    }

    /// Switches on with `enable`, or has somebody else do it. From any thread.
    ///
    /// # Errors
    /// That of `enable`; then it is off.
    pub fn on<T, E>(&self, enable: impl FnOnce() -> Result<T, E>) -> Result<SwitchOutcome<T>, E> {
        let mut wait = BoundedWait::new();
        loop {
            match self.0.load(Ordering::Acquire) {
                ON => return Ok(SwitchOutcome::Already),
                OFF if self.step(OFF, TURNING_ON) => return self.carry_out(enable).map(SwitchOutcome::Now),
                TURNING_OFF if self.step(TURNING_OFF, RECALLED) => {}
                // Another thread is at it, or the state has just changed.
                _ => {
                    if !wait.wait() {
                        return Ok(SwitchOutcome::Later);
                    }
                }
            }
        }
    }

    /// From here on it is no longer on, and [`off`](Self::off) is to be called. `false` when it was not on.
    ///
    /// To be decided under whatever lock keeps a capture from beginning meanwhile.
    pub fn leave(&self) -> bool {
        self.step(ON, TURNING_OFF)
    }

    /// After [`leave`](Self::leave), on the same thread: takes the `steps` that switch off, and when it is called back
    /// stops and switches on again with `enable`. Answers whether it is on.
    ///
    /// # Errors
    /// That of `enable`; then it is off.
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
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
