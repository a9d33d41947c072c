//! One question, on a terminal: whether remedies that change last digits are tried too.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Result;
use gpuwhy_report::run::Results;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::candidates::Candidate;
use crate::args::trial::TryArgs;
use crate::{interrupt, message};

/// Longest wait for the answer; without one it is no.
const LONGEST: Duration = Duration::from_secs(30);

/// Asks, if somebody can answer and there is such a remedy. Fails after a signal.
pub fn is_answered_yes(args: &TryArgs, wanted: &[Candidate]) -> Result<bool> {
    let names: Vec<_> =
        wanted.iter().filter(|one| one.results == Results::Rounding).map(|one| one.change.id()).collect();
    let can_answer = io::stdin().is_terminal() && io::stderr().is_terminal() && !message::is_quiet();
    if args.json || !args.allow.is_empty() || names.is_empty() || !can_answer {
        return Ok(false);
    }
    let (those, seconds) = (names.join(", "), LONGEST.as_secs());
    message::note(&format!("also try {those}, which change last digits? [y/N] (no after {seconds} s)"));
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    // An interrupted wait is no answer; the signal is seen next.
    let is_there = poll(&mut asked, Some(&Timespec { tv_sec: LONGEST.as_secs() as i64, tv_nsec: 0 })).unwrap_or(0) > 0;
    if interrupt::exit_code().is_some() {
        anyhow::bail!("interrupted");
    }
    let mut answer = String::new();
    if is_there {
        stdin.read_line(&mut answer)?;
    }
    Ok(answer.trim().to_ascii_lowercase().starts_with('y'))
}
