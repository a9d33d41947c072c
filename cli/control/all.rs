//! A command for all processes of this user, here or on other hosts through a launcher.

use std::io::{self, Write};
use std::thread;

use anyhow::Result;

use super::{NO_ANSWER, processes, told};
use crate::hang::output_of;
use crate::message;
use crate::top::remote::Launcher;

/// Sends `command` to all processes; on other hosts `gpuwhy` with `arguments` does. Every answer is a line that begins
/// with the process, or with the host.
///
/// # Errors
///
/// When commands and hosts do not fit together, or stdout cannot be written.
pub(super) fn tell(command: &'static str, arguments: &[&str], via: &[String], hosts: &[String]) -> Result<u8> {
    let launchers = Launcher::all(via, hosts)?;
    let answers = if launchers.is_empty() { here(command) } else { elsewhere(&launchers, arguments) };
    let mut out = io::stdout().lock();
    let mut failed = answers.is_empty();
    for (who, answer) in answers {
        match answer {
            Ok(text) => text.lines().try_for_each(|line| writeln!(out, "{who}: {line}"))?,
            Err(error) => {
                failed = true;
                message::say(&format!("{who}: {error:#}"));
            }
        }
    }
    if failed && launchers.is_empty() {
        message::say("not every process of this user has answered; `gpuwhy status` lists those that run with gpuwhy");
    }
    Ok(if failed { NO_ANSWER } else { 0 })
}

/// All at once, so that their captures begin together.
fn here(command: &'static str) -> Vec<(String, Result<String>)> {
    let found = processes();
    thread::scope(|scope| {
        let told: Vec<_> = found
            .iter()
            .map(|(process, socket)| (process.to_string(), scope.spawn(|| told(*process, socket, command))))
            .collect();
        let answers = told.into_iter().map(|(process, thread)| (process, joined(thread.join())));
        // Whoever finds the socket of a killed process removes it: that process is not missing.
        let sockets = found.iter().map(|(_, socket)| socket);
        let counted = answers.zip(sockets).filter(|((_, answer), socket)| answer.is_ok() || socket.exists());
        counted.map(|(answer, _)| answer).collect()
    })
}

fn elsewhere(launchers: &[Launcher], arguments: &[&str]) -> Vec<(String, Result<String>)> {
    thread::scope(|scope| {
        let ask = |launcher| {
            let text = output_of(launcher, arguments)?;
            // Its complaint is on stderr, which is ours.
            if text.trim().is_empty() { Err(anyhow::anyhow!("no process has answered there")) } else { Ok(text) }
        };
        let told: Vec<_> =
            launchers.iter().map(|launcher| (launcher.host.clone(), scope.spawn(move || ask(launcher)))).collect();
        told.into_iter().map(|(host, thread)| (host, joined(thread.join()))).collect()
    })
}

fn joined(answer: thread::Result<Result<String>>) -> Result<String> {
    answer.unwrap_or_else(|_| Err(anyhow::anyhow!("the question has panicked")))
}
