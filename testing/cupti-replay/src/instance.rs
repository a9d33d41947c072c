//! The only player of this process, and the rules for its use.
//!
//! A libcupti has no "open": everything must be ready at the first call of any function. So the recording
//! named by `GPUWHY_REPLAY` is loaded then. If that fails, every function returns what a CUPTI without a
//! driver returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use cupti_sys::CuptiResult;

use crate::clock::Speed;
use crate::counters::{COUNTERS, recorded};
use crate::fault::{BadFault, CallFault, Faults};
use crate::load;
use crate::player::Player;

/// The recording to play.
pub const RECORDING: &str = "GPUWHY_REPLAY";
/// Speed of play: `max`, or seconds of the recording per second.
pub const SPEED: &str = "GPUWHY_REPLAY_SPEED";
/// Injected faults, see [`fault`](crate::fault).
pub const FAULT: &str = "GPUWHY_REPLAY_FAULT";

static PLAYER: OnceLock<Result<Player, String>> = OnceLock::new();
/// Id of the process that loaded the recording; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Number of calls from forked children. A separate atomic, because a lock may be held forever in a child.
static CALLS_AFTER_FORK: AtomicU64 = AtomicU64::new(0);

/// Loads this recording instead of the one that the environment names. Only before the first call.
///
/// # Errors
/// If the library is already in use, or the recording cannot be played.
pub fn open(path: PathBuf, speed: &str) -> Result<(), String> {
    let mut first = false;
    let player = PLAYER.get_or_init(|| {
        first = true;
        start(Some(path), speed)
    });
    if first {
        player.as_ref().map(drop).map_err(Clone::clone)
    } else {
        Err("the library is in use already".to_owned())
    }
}

/// The player.
///
/// # Errors
/// Why there is none.
pub fn player() -> Result<&'static Player, &'static str> {
    let from_environment = || {
        let speed = std::env::var(SPEED).unwrap_or_default();
        start(std::env::var_os(RECORDING).map(PathBuf::from), &speed)
    };
    PLAYER.get_or_init(from_environment).as_ref().map_err(String::as_str)
}

fn start(path: Option<PathBuf>, speed: &str) -> Result<Player, String> {
    OWNER.store(process::id(), Ordering::SeqCst);
    let speed: Speed = speed.parse()?;
    let path = path.ok_or_else(|| format!("{RECORDING} is not set: name the recording to play"))?;
    let faults: Faults = std::env::var(FAULT).unwrap_or_default().parse().map_err(|bad: BadFault| bad.to_string())?;
    let mut player = Player::new(load::session(&path)?, speed, faults);
    let mut beside = path.into_os_string();
    beside.push(".counters");
    let named = std::env::var_os(COUNTERS).map(PathBuf::from);
    if let Some(path) = named.or_else(|| Some(PathBuf::from(beside)).filter(|path| path.exists())) {
        player.unit.recorded = Some(recorded::load(&path)?);
    }
    Ok(player)
}

/// True if this process is a forked child of the process that loaded the recording.
#[must_use]
pub fn is_forked() -> bool {
    let owner = OWNER.load(Ordering::SeqCst);
    owner != 0 && owner != process::id()
}

/// Number of calls made in this process although it is a forked child.
#[must_use]
pub fn calls_after_fork() -> u64 {
    if is_forked() { CALLS_AFTER_FORK.load(Ordering::SeqCst) } else { 0 }
}

/// Runs a call of the C interface: with the player, without panics.
///
/// A fault of `function` that the session requests is triggered here, before any other work.
pub fn answer(function: &str, call: impl FnOnce(&'static Player) -> Result<(), CuptiResult>) -> CuptiResult {
    if is_forked() {
        CALLS_AFTER_FORK.fetch_add(1, Ordering::SeqCst);
        return CuptiResult::NOT_INITIALIZED;
    }
    let guarded = AssertUnwindSafe(|| match player() {
        Ok(player) => match player.faults.call(function) {
            Some(CallFault::Answer(code)) => Err(code),
            Some(CallFault::Hang) => loop {
                thread::park();
            },
            Some(CallFault::Slow(time)) => {
                thread::sleep(time);
                call(player)
            }
            None => call(player),
        },
        Err(_) => Err(CuptiResult::NOT_INITIALIZED),
    });
    match catch_unwind(guarded) {
        Ok(Ok(())) => CuptiResult::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CuptiResult::UNKNOWN,
    }
}
