//! `gpuwhy doctor`: checks before a run whether it will work, and gives advice where it will not.
//!
//! Every check is one line with a status, a finding, and one piece of advice unless its status is ok. Only a
//! child process calls into libcupti (see [`probe`]): a broken installation may do anything. No
//! check creates a CUDA context, so a busy or full GPU is not disturbed; [`calibrate`] does, in child
//! processes.

pub mod calibrate;
pub mod check;
mod cupti;
pub mod driver;
mod environment;
pub mod probe;

pub use cupti::search;

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use serde::Serialize;

use crate::args::doctor::DoctorArgs;
use check::{Check, FAILED, Status};

/// JSON output.
#[derive(Serialize)]
struct DoctorJson<'a> {
    version: &'static str,
    usable: bool,
    checks: &'a [Check],
}

/// Runs all checks, prints them, and returns the exit code. Fails when stdout cannot be written, or a
/// calibration fails. A failed check is a result, not an error of this command.
pub fn run(args: &DoctorArgs) -> Result<u8> {
    if args.calibrate {
        return calibrate::run(args.cupti.as_deref(), args.json);
    }
    let mut checks = Vec::new();
    let cuda_version = driver::check(&mut checks);
    cupti::check(args.cupti.as_deref(), cuda_version, &mut checks);
    environment::check(&mut checks);

    let usable = checks.iter().all(|check| check.status != Status::Fail);
    let text = if args.json {
        let answer = DoctorJson { version: env!("GPUWHY_VERSION"), usable, checks: &checks };
        serde_json::to_string_pretty(&answer)? + "\n"
    } else {
        text(&checks, console::colors_enabled())
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if usable { 0 } else { FAILED })
}

fn text(checks: &[Check], colored: bool) -> String {
    let mut text = String::new();
    for (index, Check { name, status, finding, advice }) in checks.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  {name:<18} {finding}", status.shown().force_styling(colored));
        // Advice that several findings share is printed after the last one.
        let said_later = checks[index + 1..].iter().any(|later| later.advice == *advice);
        if let Some(advice) = advice.as_ref().filter(|_| !said_later) {
            let _ = writeln!(text, "{:24} -> {advice}", "");
        }
    }
    let count = |wanted| checks.iter().filter(|check| check.status == wanted).count();
    let _ = match (count(Status::Fail), count(Status::Warn)) {
        (0, 0) => writeln!(text, "\nReady: gpuwhy run -- COMMAND"),
        (0, warnings) => writeln!(
            text,
            "\nReady, with {warnings} warning{}: gpuwhy run -- COMMAND",
            if warnings == 1 { "" } else { "s" }
        ),
        (failures, _) => writeln!(text, "\nNot ready: {failures} failed. Without a GPU there is `gpuwhy demo`."),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_its_finding() {
        let checks = [Check::ok("driver", "CUDA 13.0"), Check::fail("device files", "none", "load the module")];
        let text = text(&checks, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ok    driver"));
        assert!(lines[1].starts_with("FAIL  device files") && lines[1].ends_with("none"));
        assert!(lines[2].trim_start().starts_with("-> load the module"));
        assert!(text.contains("1 failed"));
        let [module, files] =
            ["kernel module", "device files"].map(|name| Check::fail(name, "none", "load the module"));
        let text = super::text(&[module, files], false);
        assert_eq!(text.matches("-> load the module").count(), 1, "{text}");
        assert!(text.lines().nth(2).unwrap().contains("->"), "{text}");
    }
}
