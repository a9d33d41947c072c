//! The connection: one thread reads and answers what needs no trace, the calling thread runs tools, one after another.
//!
//! So a `ping` and a cancellation arrive while a large trace is read. Calls that came before the end of the input are
//! still answered, for a minute; when the output is closed, the call in progress stops and the server ends.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use gpuwhy_report::text_format::printable_json;
use parking_lot::Mutex;
use serde_json::Value;

use super::context::{Call, Context};
use super::protocol::{Incoming, Request};
use super::tools;

/// Longest message of a client, bytes.
const LONGEST_LINE: u64 = 1 << 20;
/// Calls that wait for the one in progress; a client that sends more has to wait.
const WAITING_CALLS: usize = 64;
/// Time for the calls that are not answered at the end of the input: a query that takes too long gets its answer.
const AFTER_INPUT: Duration = Duration::from_secs(65);
/// Time between two looks whether they are answered.
const POLL: Duration = Duration::from_millis(5);

/// A call of a tool, with the flag that cancels it.
type ToolCall = (Request, Arc<AtomicBool>);

/// Serves until `input` ends. Fails when `input` cannot be read, or `output` cannot be written.
pub fn serve<R, W>(input: R, output: W, mut context: Context) -> io::Result<()>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let output = Arc::new(Mutex::new(output));
    let (sender, calls) = sync_channel(WAITING_CALLS);
    let reader = {
        let (output, tools) = (Arc::clone(&output), tools::listed(&context.allowed));
        thread::spawn(move || read(input, &output, &tools, &sender))
    };
    for (request, cancelled) in calls {
        if cancelled.load(Ordering::Relaxed) {
            continue;
        }
        let answer = tools::called(&mut context, &request, &cancelled);
        if !cancelled.load(Ordering::Relaxed) {
            send(&output, &answer)?;
        }
        // It is no longer open.
        context.call = Call::begun(&Arc::default());
    }
    reader.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads stdin panicked")))
}

/// Reads messages, answers all but calls of tools, and passes those on.
fn read(input: impl Read, output: &Mutex<impl Write>, tools: &Value, calls: &SyncSender<ToolCall>) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut open: Vec<(Value, Arc<AtomicBool>)> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            let end = Instant::now() + AFTER_INPUT;
            while open.iter().any(is_unanswered) && Instant::now() < end {
                thread::sleep(POLL);
            }
            open.iter().for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
            return Ok(());
        }
        if bytes as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            // The start of a longer message is no JSON, which the answer says.
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match Incoming::parse(&line) {
            Incoming::Request(request) => match request.answered(tools, tools::INSTRUCTIONS) {
                Some(answer) => send(output, &answer)?,
                None => {
                    open.retain(is_unanswered);
                    let cancelled = Arc::new(AtomicBool::new(false));
                    open.push((request.id.clone(), Arc::clone(&cancelled)));
                    if calls.send((request, cancelled)).is_err() {
                        return Ok(());
                    }
                }
            },
            Incoming::Cancelled(id) => {
                open.iter().filter(|(of, _)| *of == id).for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
            }
            Incoming::Ignored => {}
            Incoming::Invalid(answer) => send(output, &answer)?,
        }
    }
}

/// Only the other side of an unanswered call holds the flag too.
fn is_unanswered((_, flag): &(Value, Arc<AtomicBool>)) -> bool {
    Arc::strong_count(flag) > 1
}

/// Writes a message as one line, in which no name from a trace can control a terminal.
fn send(output: &Mutex<impl Write>, message: &Value) -> io::Result<()> {
    let line = printable_json(&message.to_string()).into_owned() + "\n";
    let mut output = output.lock();
    output.write_all(line.as_bytes())?;
    output.flush()
}
