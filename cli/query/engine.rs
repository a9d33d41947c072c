//! Query engines as child processes. They are found at run time: none is built in, and SQLite needs none.

use std::env;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use gpuwhy_export::lake::Lake;
use gpuwhy_export::named::duckdb;
use gpuwhy_export::tables::Table;
use serde_json::{Map, Value, json};
use tracing::info;

use crate::interrupt;

/// Query for another program.
#[derive(Debug)]
pub struct Question<'a> {
    pub sql: &'a str,
    pub tables: &'a [Table],
    /// The program; `None` to search for it.
    pub program: Option<&'a Path>,
}

/// Python script that runs the query; see `ask.py`.
const ASK: &str = include_str!("ask.py");
/// Number of lines of an engine's error output that are shown: the last ones, which have the reason.
const SHOWN_LINES: usize = 12;
/// Interval between checks for the end and for an interruption.
const POLL: Duration = Duration::from_millis(20);

impl Question<'_> {
    /// Queries a lake with DuckDB. Fails when DuckDB is missing or fails.
    pub fn duckdb(&self, lake: &Lake) -> Result<Vec<Map<String, Value>>> {
        let views = duckdb::views(lake, self.tables)?;
        let program = match self.program {
            Some(program) => program.to_owned(),
            None => on_path("duckdb").unwrap_or_else(|| "python3".into()),
        };
        if is_python(&program) {
            let hint =
                "install it (pip install duckdb), put the command duckdb on the PATH, or name one: --with PROGRAM";
            return python(&program, &json!({"views": views, "sql": self.sql}), hint);
        }
        let mut command = Command::new(&program);
        // Ignores the user's settings, which may print more or change the format.
        command.args(["-init", "/dev/null", "-batch", "-jsonlines"]);
        rows(command, &format!("{views}{};\n", self.sql), "is this the command of DuckDB?")
    }
}

/// True for a Python interpreter, as opposed to an engine's own command.
fn is_python(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn python(program: &Path, request: &Value, hint: &str) -> Result<Vec<Map<String, Value>>> {
    let mut file = tempfile::Builder::new().prefix("gpuwhy-ask-").suffix(".py").tempfile()?;
    file.write_all(ASK.as_bytes())?;
    let mut command = Command::new(program);
    command.arg(file.path());
    rows(command, &format!("{request}\n"), hint)
}

/// Process group that ends with this process, even if that is killed. Its leader is a shell that waits for
/// the end of a pipe which only this process holds open.
struct Group(Child);

impl Group {
    fn new() -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read -r _; kill 0"]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self).context("sh: cannot be started")
    }

    /// Starts a program in the group.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.process_group(self.0.id().cast_signed()).spawn()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // This closes the pipe. An error means that the shell is gone.
        let _ = self.0.wait();
    }
}

/// Runs a program that prints rows as lines of JSON. The program ends with this process at the latest.
fn rows(mut command: Command, input: &str, hint: &str) -> Result<Vec<Map<String, Value>>> {
    interrupt::watch()?;
    let name = command.get_program().to_string_lossy().into_owned();
    info!(program = %name, "asks");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let group = Group::new()?;
    let mut child = group.spawn(&mut command).with_context(|| format!("{name}: cannot be started; {hint}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before reading its input prints the reason on stderr.
        let _ = stdin.write_all(input.as_bytes());
    }
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| name.clone())? {
            break status;
        }
        if interrupt::state().is_break() {
            drop(group);
            // The child may ignore the signal to the group.
            let _ = child.kill();
            let _ = child.wait();
            bail!("{name}: interrupted");
        }
        thread::sleep(POLL);
    };
    let [stdout, stderr] = [stdout, stderr].map(|thread| thread.join().unwrap_or_default());
    if !status.success() {
        let complaint = String::from_utf8_lossy(&stderr);
        let lines: Vec<&str> = complaint.lines().filter(|line| !line.trim().is_empty()).collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        let hint = if complaint.contains("ModuleNotFoundError") { format!("\n{hint}") } else { String::new() };
        bail!("{name}: it failed ({status}):\n  {shown}{hint}");
    }
    let text = String::from_utf8(stdout).with_context(|| format!("{name}: its answer is not UTF-8"))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("{name}: this line of its answer is no JSON: {line}"))
        })
        .collect()
}

/// Reads a stream to its end on a separate thread, so that no pipe fills up.
fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error, the bytes read before it are used.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_reported_with_the_end_of_its_complaint() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo 'Error: no such view' >&2; exit 3"]);
        let error = rows(command, "input", "hint").unwrap_err().to_string();
        assert!(
            error.contains("no such view") && error.contains("exit status: 3") && !error.contains("hint"),
            "{error}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{\"a\": 1}'; echo; echo '{\"a\": null}'"]);
        let found = rows(command, "", "hint").unwrap();
        assert_eq!(found.iter().map(|row| row["a"].clone()).collect::<Vec<_>>(), [json!(1), json!(null)]);
        let error = format!("{:#}", rows(Command::new("/no/such/program"), "", "install it").unwrap_err());
        assert!(error.contains("/no/such/program") && error.contains("install it"), "{error}");
    }
}
