//! A call in a process of its own, which can be ended at any time.
//!
//! A function of SQL can compute for hours within one of SQLite's steps, where nothing interrupts it, and take any
//! memory. So the server starts another server, the worker, tells it the one call, and kills it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};

use super::context::Context;
use super::protocol::Request;

/// The option that makes a server a worker.
pub const OPTION: &str = "--worker";
/// Longest time of a call, with reading the traces.
const LONGEST: Duration = Duration::from_secs(60);
/// Most memory of a worker, bytes: a trace takes up to 0.94 GB (`docs/design/reliability.md`).
const MOST_MEMORY: u64 = 1 << 30;
/// Most bytes of a worker's temporary files together.
const MOST_SCRATCH: u64 = 2 << 30;
/// Most bytes of a response that are read; a tool's answer has less than a hundredth.
const MOST_RESPONSE: u64 = 1 << 20;
/// Time for a process to end those that it has started.
const LONGEST_END: Duration = Duration::from_secs(15);
/// Exit code of a worker whose server has ended; nobody reads it.
const ENDED: i32 = 1;
/// Time between two looks at the worker.
const POLL: Duration = Duration::from_millis(20);

/// The response to `request`, made by a worker. Fails when the worker takes too long or too much, and when the call is
/// cancelled.
pub fn asked(context: &mut Context, request: &Request) -> Result<Value> {
    context.call.within(LONGEST);
    // This program, even if its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args([OsStr::new("mcp"), OsStr::new(OPTION), context.folder.path().as_os_str()]);
    let mut worker =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a process for this call")?;
    let (sender, response) = sync_channel(1);
    if let Some(stdout) = worker.stdout.take() {
        thread::spawn(move || {
            let mut line = Vec::new();
            let read = BufReader::new(stdout.take(MOST_RESPONSE)).read_until(b'\n', &mut line);
            // Nobody waits for it after a kill.
            let _ = sender.send(read.map(|_| line));
        });
    }
    let call = json!({"jsonrpc": "2.0", "id": request.id, "method": request.method, "params": request.params});
    // A worker that ended has no response, which is noticed below.
    let told = worker.stdin.as_mut().map(|stdin| stdin.write_all(format!("{call}\n").as_bytes()));
    let line = loop {
        match response.recv_timeout(POLL) {
            Ok(line) => break Ok(line.unwrap_or_default()),
            Err(RecvTimeoutError::Disconnected) => break Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if context.call.state().is_break() {
            let seconds = LONGEST.as_secs();
            break Err(format!("stopped after {seconds} s, or cancelled: ask fewer traces, or less"));
        }
        if scratch_bytes(worker.id()) > MOST_SCRATCH {
            let gib = MOST_SCRATCH >> 30;
            break Err(format!("needs more than {gib} GiB of temporary files: ask fewer traces, or less"));
        }
    };
    // Fails only if it has ended.
    let _ = worker.kill();
    let status = worker.wait()?;
    let line = line.map_err(|why| anyhow::anyhow!("{}: {why}", name(request)))?;
    match serde_json::from_slice(&line) {
        Ok(response) => Ok(response),
        Err(_) if status.core_dumped() || status.signal() == Some(6) => {
            bail!("{}: needs more than {} GiB of memory: ask fewer traces, or less", name(request), MOST_MEMORY >> 30)
        }
        Err(_) => {
            bail!("{}: the process for this call ended without an answer ({status}, {told:?})", name(request))
        }
    }
}

/// What `gpuwhy` with these arguments prints, in the server's folder. Its input ends with the call, the client and the
/// server, after which it ends all processes that it has started.
///
/// # Errors
/// When it cannot be started, takes too long, or the call is cancelled.
pub fn ran(context: &Context, arguments: &[OsString]) -> Result<Output> {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).current_dir(context.folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process for this call")?;
    let (input, process) = (child.stdin.take(), Pid::from_child(&child));
    let (sender, ended) = sync_channel(1);
    // Nobody waits for it after a kill.
    thread::spawn(move || sender.send(child.wait_with_output()));
    loop {
        match ended.recv_timeout(POLL) {
            Ok(output) => return Ok(output?),
            Err(RecvTimeoutError::Disconnected) => bail!("the process for this call was lost"),
            Err(RecvTimeoutError::Timeout) if context.call.state().is_continue() => {}
            Err(RecvTimeoutError::Timeout) => {
                drop(input);
                if ended.recv_timeout(LONGEST_END).is_err() {
                    // It may have ended meanwhile.
                    let _ = kill_process(process, Signal::KILL);
                }
                bail!("stopped, as it took too long or was cancelled: nothing was measured");
            }
        }
    }
}

fn name(request: &Request) -> &str {
    request.params.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Bytes of the open files of `process` that have no name any more.
fn scratch_bytes(process: u32) -> u64 {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return 0 };
    let files = open.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    files.filter(|file| file.is_file() && file.nlink() == 0).map(|file| file.blocks() * 512).sum()
}

/// Bounds the memory of this process, a worker.
///
/// # Errors
/// If the system refuses.
pub fn limit_memory() -> Result<()> {
    // An allocation that fails aborts, which is no reason for a core file.
    for (resource, most) in [(Resource::Data, MOST_MEMORY), (Resource::Core, 0)] {
        let most = getrlimit(resource).maximum.map_or(most, |allowed| most.min(allowed));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).context("cannot limit the memory")?;
    }
    Ok(())
}

/// The input of a worker. Its end is that of the server, and ends the process whatever it is doing.
pub struct UntilServerEnds<R>(pub R);

impl<R: Read> Read for UntilServerEnds<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read(buffer)?;
        if bytes == 0 {
            std::process::exit(ENDED);
        }
        Ok(bytes)
    }
}
