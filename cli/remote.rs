//! Runs `gpuwhy` on other hosts through a launcher, such as ssh or srun. No port is opened.

use std::io::{self, BufRead, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::message;

/// Longest response, bytes; libprof.so never sends more than a quarter of this.
pub const MAX_LINE: usize = 1 << 20;
/// Placeholder for the host in the launcher's command.
const PLACE: &str = "{host}";
/// Time limit for a launcher, after which it is killed: nodes of a hanging job may not respond either.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for a launcher to exit after it closed its output. After that it is killed and counts as
/// failed.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum output of a launcher, bytes.
const LARGEST: u64 = 64 << 20;
/// Maximum number of stderr lines of a launcher that are printed, maximum characters of one, and the time to
/// wait for the last of them.
const COMPLAINTS: u64 = 20;
const COMPLAINT: usize = 400;
const COMPLAINTS_TIMEOUT: Duration = Duration::from_secs(1);

/// One host, and the command that runs `gpuwhy` there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Name of the host in the display.
    pub host: String,
    /// The command and its arguments, up to and including `gpuwhy`.
    words: Vec<String>,
}

impl Launcher {
    /// Launchers for `--via` and `--host`: one for each host, or for each command that names its host itself.
    /// Words are separated by spaces; no shell parses them. Fails when commands and hosts do not fit
    /// together.
    pub fn all(via: &[String], hosts: &[String]) -> Result<Vec<Self>> {
        let mut launchers = Vec::new();
        let ssh = [format!("ssh -o BatchMode=yes {PLACE}")];
        let via = if via.is_empty() && !hosts.is_empty() { &ssh[..] } else { via };
        for command in via {
            if !command.contains(PLACE) {
                // The last word is the host, as in `ssh node7`.
                let mut words = command.split_whitespace().filter(|word| !is_gpuwhy(word));
                launchers.push(Self::of(command, words.next_back().unwrap_or("?"))?);
                continue;
            }
            if hosts.is_empty() {
                bail!("--via '{command}' names {PLACE}: say which hosts with --host");
            }
            for host in hosts {
                let usual = |letter: char| letter.is_ascii_alphanumeric() || "._-@:[]".contains(letter);
                if host.is_empty() || host.starts_with('-') || !host.chars().all(usual) {
                    bail!("--host '{host}': expected the name of a host");
                }
                launchers.push(Self::of(&command.replace(PLACE, host), host)?);
            }
        }
        if !hosts.is_empty() && !via.iter().any(|command| command.contains(PLACE)) {
            bail!("--host needs {PLACE} in the command of --via, as in --via 'srun -w {PLACE}'");
        }
        Ok(launchers)
    }

    fn of(command: &str, host: &str) -> Result<Self> {
        let mut words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        let Some(last) = words.last() else { bail!("--via is empty: expected a command such as 'ssh node7'") };
        // The command may end with the path of gpuwhy on that host.
        if !is_gpuwhy(last) {
            words.push("gpuwhy".to_owned());
        }
        Ok(Self { host: host.to_owned(), words })
    }

    /// Command that runs `gpuwhy` with these arguments on the host.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(arguments).stdin(Stdio::null());
        // A password prompt would overwrite the display, so prompts are disabled; ssh with a key needs none.
        command.env("SSH_ASKPASS_REQUIRE", "force").env("SSH_ASKPASS", "/bin/false");
        command
    }

    /// Output of `gpuwhy` with these arguments on the host, and true if it reports success. Fails when the launcher
    /// cannot be started, or prints nothing and does not end in time.
    pub fn output(&self, arguments: &[&str]) -> Result<(String, bool)> {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let out = child.stdout.take().context("its output")?;
        let complained = child.stderr.take().map(|complaints| relay(complaints, &self.host));
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let read = out.take(LARGEST).read_to_string(&mut text);
            // The receiver may have stopped waiting.
            let _ = sender.send(read.map(|_| text));
        });
        let read = receiver.recv_timeout(PATIENCE);
        // The launcher has closed its output, so it is about to end. One that continues after that gets only a
        // short wait.
        let ended = read.is_ok() && ends_within(&mut child, GRACE);
        let _ = child.kill();
        let status = child.wait();
        // Processes that the launcher started may hold its stderr open.
        complained.map(|all| all.recv_timeout(COMPLAINTS_TIMEOUT));
        match read {
            Ok(text) => Ok((text?, ended && status.is_ok_and(|status| status.success()))),
            Err(_) => bail!("no answer within {} s", PATIENCE.as_secs()),
        }
    }
}

/// True if a word of a launcher's command is the program to run.
fn is_gpuwhy(word: &str) -> bool {
    word.rsplit('/').next() == Some("gpuwhy")
}

/// Prints the stderr of a launcher, escaped and bounded. The receiver is closed after the last line.
fn relay(complaints: ChildStderr, host: &str) -> Receiver<()> {
    let (sender, all) = channel();
    let host = host.to_owned();
    thread::spawn(move || {
        let _sender: Sender<()> = sender;
        let mut reader = BufReader::new(complaints);
        let mut beyond = 0_u64;
        for number in 0.. {
            let Ok(Some(line)) = line(&mut reader) else { break };
            if number >= COMPLAINTS {
                beyond += 1;
                continue;
            }
            let line: String = String::from_utf8_lossy(&line).trim_end().chars().take(COMPLAINT).collect();
            message::say(&format!("{host}: {line}"));
        }
        if beyond > 0 {
            message::say(&format!("{host}: ... {beyond} more lines"));
        }
    });
    all
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Reads a line and truncates it to a bounded length; `None` at the end.
pub fn line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    while line.len() >= MAX_LINE && !line.ends_with(b"\n") {
        let mut rest = Vec::new();
        if reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut rest)? == 0 || rest.ends_with(b"\n") {
            break;
        }
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launchers(via: &[&str], hosts: &[&str]) -> Result<Vec<Launcher>> {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Launcher::all(&owned(via), &owned(hosts))
    }

    #[test]
    fn commands_and_hosts_give_launchers() {
        let all = launchers(&["srun --overlap -w {host}"], &["a", "b"]).unwrap();
        assert_eq!(all.iter().map(|launcher| launcher.host.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all[1].words, ["srun", "--overlap", "-w", "b", "gpuwhy"]);
        let named = launchers(&["ssh node7 /opt/bin/gpuwhy", "ssh node8"], &[]).unwrap();
        assert_eq!(named[0].words.last().unwrap(), "/opt/bin/gpuwhy");
        assert_eq!([&named[0].host, &named[1].host], ["node7", "node8"]);
        assert_eq!(named[1].words, ["ssh", "node8", "gpuwhy"]);
        assert_eq!(launchers(&[], &["c"]).unwrap()[0].words, ["ssh", "-o", "BatchMode=yes", "c", "gpuwhy"]);
        assert_eq!(launchers(&[], &[]).unwrap(), []);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (via, hosts) in [
            (&["ssh {host}"][..], &[][..]),
            (&["ssh node7"], &["a"]),
            (&[""], &[]),
            (&["ssh {host}"], &["-oProxyCommand=x"]),
            (&["ssh {host}"], &["a b"]),
        ] {
            assert!(launchers(via, hosts).is_err(), "{via:?} {hosts:?}");
        }
    }
}
