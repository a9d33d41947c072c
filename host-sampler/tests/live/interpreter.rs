//! Interpreters installed on this machine, and programs that run in them.
//!
//! A program describes itself in lines on its standard output and then waits for a line on its standard
//! input: `ready THREAD`, then any number of lines, then `.`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use gpuwhy_trace::record::ThreadState;
use host_sampler::process::Process;
use host_sampler::python::Python;
use host_sampler::thread::Thread;

/// Minor versions of CPython 3 supported by the reader.
const KNOWN: std::ops::RangeInclusive<u32> = 9..=14;

pub struct Interpreter {
    pub version: String,
    program: PathBuf,
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPython {} ({})", self.version, self.program.display())
    }
}

/// One interpreter of each installed version; prints which ones are missing.
pub fn interpreters() -> Vec<Interpreter> {
    let mut found = BTreeMap::new();
    let pyenv = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let versions = pyenv.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let installed = versions.map(|version| version.path().join("bin/python3"));
    let named = KNOWN.map(|minor| PathBuf::from(format!("python3.{minor}")));
    for program in named.chain([PathBuf::from("python3")]).chain(installed) {
        if let Some((minor, program)) = ask(&program) {
            found.entry(minor).or_insert(Interpreter { version: format!("3.{minor}"), program });
        }
    }
    for minor in KNOWN.filter(|minor| !found.contains_key(minor)) {
        println!("SKIPPED: no CPython 3.{minor} on this machine");
    }
    found.into_values().collect()
}

/// Minor version and file of an interpreter that the reader should support.
fn ask(program: &Path) -> Option<(u32, PathBuf)> {
    const QUESTION: &str = "import sys, platform; print(platform.python_implementation(), \
                            getattr(sys, '_is_gil_enabled', lambda: True)(), sys.version_info[1], sys.executable)";
    let output = Command::new(program).args(["-c", QUESTION]).stderr(Stdio::null()).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    let mut words = answer.trim().splitn(4, ' ');
    (words.next() == Some("CPython") && words.next() == Some("True")).then_some(())?;
    let minor = words.next()?.parse().ok().filter(|minor| KNOWN.contains(minor))?;
    Some((minor, PathBuf::from(words.next()?)))
}

/// A running program.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_thread: u32,
}

impl Program {
    pub fn start(interpreter: &Interpreter, script: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live").join(script);
        let mut child = Command::new(&interpreter.program)
            .arg("-S")
            .arg(script)
            .env("PYTHONIOENCODING", "utf-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, last_thread: 0 }
    }

    /// Attaches the reader once the interpreter has started.
    pub fn attach(&mut self) -> Python {
        // The program prints its first line after the interpreter has started.
        let ready = self.output.fill_buf().unwrap();
        assert!(!ready.is_empty(), "the program has ended");
        Python::find(&Process::with_id(self.child.id())).unwrap()
    }

    /// Next output of the program, once the thread that it names sleeps. `None` if the program has ended.
    pub fn blocked(&mut self) -> Option<(u32, Vec<String>)> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                assert!(lines.is_empty() && self.child.wait().unwrap().success());
                return None;
            }
            match line.trim_end() {
                "." => break,
                line => lines.push(line.to_owned()),
            }
        }
        let head = lines.remove(0);
        let thread: u32 = head.strip_prefix("ready ").unwrap().parse().unwrap();
        self.last_thread = thread;
        self.settle();
        Some((thread, lines))
    }

    fn settle(&self) {
        let thread = Thread::open(&Process::with_id(self.child.id()), self.last_thread).unwrap();
        let mut still = 0;
        for _ in 0..60_000 {
            // Before the actual wait, a thread may briefly sleep for the interpreter lock.
            still = if thread.state().unwrap() == ThreadState::Io { still + 1 } else { 0 };
            if still == 5 {
                return;
            }
            sleep(Duration::from_millis(1));
        }
        panic!("the program does not wait for its input");
    }

    /// Lets the program continue.
    pub fn release(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
