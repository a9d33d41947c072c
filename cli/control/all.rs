//! Sends a command to all processes of this user, here or on other hosts through a launcher.

use std::io::{self, Write};
use std::thread;

use anyhow::Result;
use gpuwhy_inject::control::address::ProcessName;
use gpuwhy_report::text_format::printable;

use super::{AT_STEP, CommandReply, NO_ANSWER, answered, processes};
use crate::message;
use crate::remote::Launcher;

/// Maximum number of responses shown per host, and maximum characters of one.
const ANSWERS: usize = 10_000;
const ANSWER: usize = 400;

/// Sends `command` to all local processes, or runs `gpuwhy` with `arguments` on the other hosts. Prints each
/// response as a line that starts with the process or the host. Fails when commands and hosts do not fit
/// together, or stdout cannot be written.
pub(super) fn send(command: &str, arguments: &[&str], via: &[String], hosts: &[String]) -> Result<u8> {
    let launchers = Launcher::all(via, hosts)?;
    let answers = if launchers.is_empty() { here(command) } else { elsewhere(&launchers, arguments) };
    let mut out = io::stdout().lock();
    let (mut silent, mut refused) = (answers.is_empty(), false);
    for (who, answer) in answers {
        match answer {
            Ok(answer) => {
                refused |= answer.refused;
                answer.text.lines().try_for_each(|line| writeln!(out, "{who}: {line}"))?;
            }
            Err(error) => {
                silent = true;
                message::say(&format!("{who}: {error:#}"));
            }
        }
    }
    if refused && command.starts_with(AT_STEP) && launchers.is_empty() {
        message::say("not every process begins at that step; `gpuwhy stop --all` cancels those that do");
    }
    if silent && launchers.is_empty() {
        message::say("not every process of this user has answered; `gpuwhy top` lists those that run with gpuwhy");
    }
    Ok(if silent || refused { NO_ANSWER } else { 0 })
}

/// Sends the command to all processes at once, so that their captures start together.
fn here(command: &str) -> Vec<(String, Result<CommandReply>)> {
    let found = processes();
    thread::scope(|scope| {
        let reported: Vec<_> = found
            .iter()
            .map(|(process, socket)| (process.to_string(), scope.spawn(|| answered(*process, socket, command))))
            .collect();
        let answers = reported.into_iter().map(|(process, thread)| (process, joined(thread.join())));
        // The socket of a killed process is removed by the client that finds it. Such a process is not
        // missing.
        let sockets = found.iter().map(|(_, socket)| socket);
        let counted = answers.zip(sockets).filter(|((_, answer), socket)| answer.is_ok() || socket.exists());
        counted.map(|(answer, _)| answer).collect()
    })
}

fn elsewhere(launchers: &[Launcher], arguments: &[&str]) -> Vec<(String, Result<CommandReply>)> {
    thread::scope(|scope| {
        let ask = |launcher: &Launcher| {
            let (text, succeeded) = launcher.output(arguments)?;
            // The launcher's error messages have already been printed.
            match answers_in(&text, &launcher.host) {
                answers if answers.is_empty() => Err(anyhow::anyhow!("no process has answered there")),
                text => Ok(CommandReply { text, refused: !succeeded }),
            }
        };
        let reported: Vec<_> =
            launchers.iter().map(|launcher| (launcher.host.clone(), scope.spawn(move || ask(launcher)))).collect();
        reported.into_iter().map(|(host, thread)| (host, joined(thread.join()))).collect()
    })
}

/// Lines of `text` that are responses, which start with a process. Other lines, such as a login banner, are
/// counted.
fn answers_in(text: &str, host: &str) -> String {
    let is_answer = |line: &&str| line.split_once(": ").is_some_and(|(who, _)| who.parse::<ProcessName>().is_ok());
    let lines: Vec<_> = text.lines().filter(is_answer).take(ANSWERS).collect();
    let foreign = text.lines().count() - lines.len();
    if foreign > 0 {
        message::say(&format!("{host}: ignored {foreign} lines that are not responses"));
    }
    let shown = |line: &&str| printable(&line.chars().take(ANSWER).collect::<String>()).into_owned();
    lines.iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn joined(answer: thread::Result<Result<CommandReply>>) -> Result<CommandReply> {
    answer.unwrap_or_else(|_| Err(anyhow::anyhow!("the query thread panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_prints_beside_answers_is_left_out() {
        let text = format!("Welcome: \u{1b}]0;x\n7: capture 1\u{1b}[2J has begun\n{}8-2: x\n", "noise\n".repeat(1_000));
        let answers = answers_in(&text, "h");
        assert_eq!(answers.lines().count(), 2, "{answers}");
        assert!(answers.starts_with("7: capture 1") && answers.ends_with("8-2: x") && !answers.contains('\u{1b}'));
        assert!(answers_in(&format!("7: {}", "x".repeat(1 << 20)), "h").len() <= ANSWER);
    }
}
