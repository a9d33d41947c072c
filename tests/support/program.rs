//! A recorded program that runs as long as a test needs it, and commands for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{END, GPUWHY, Stage, stays, stderr};

/// A program that runs until it is released, with a separate folder for sockets.
pub struct Program {
    pub stage: Stage,
    pub child: Child,
}

impl Program {
    pub fn start(variables: &[(&str, &str)]) -> Self {
        Self::playing("multi_stream", &[], variables)
    }

    /// Starts a program that also pauses at these times, each with a name, until it is released.
    pub fn playing(fixture: &str, stops: &[(u64, &str)], variables: &[(&str, &str)]) -> Self {
        let stage = Stage::new();
        let mut host = stage.host(fixture);
        host.env("GPUWHY_REPLAY_SPEED", "1");
        for &(at, name) in [stops, &[(END, "end")]].concat().iter() {
            stays(&mut host, at, name);
        }
        host.arg("--counts").envs(variables.iter().copied()).stderr(Stdio::piped()).stdout(Stdio::null());
        let child = host.spawn().unwrap();
        let program = Self { stage, child };
        program.wait_for(|| program.socket().exists());
        program
    }

    #[track_caller]
    pub fn wait_for(&self, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.stage.socket(self.child.id())
    }

    pub fn gpuwhy(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(GPUWHY);
        command.args(arguments).env("GPUWHY_CONTROL", self.stage.sockets()).output().unwrap()
    }

    /// Output of a command for this program.
    pub fn tell(&self, command: &str) -> String {
        let output = self.gpuwhy(&[command, &self.child.id().to_string()]);
        assert!(output.status.success(), "{command}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    pub fn ask(&self, line: &str) -> Value {
        let mut stream = self.connect();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// Lets the program end; returns its stderr.
    pub fn end(mut self) -> (Stage, String) {
        self.stage.go_on("end");
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        (self.stage, text)
    }
}
