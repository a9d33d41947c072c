//! `gpuwhy top` end to end: recorded programs through the real libprof.so, on a tmux terminal if available.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{END, GPUWHY, Stage, report, stays, stderr, sum};

/// A recorded program that runs until it is released, with a separate folder for sockets.
struct Program {
    stage: Stage,
    child: Child,
}

impl Program {
    fn start(fixture: &str, speed: &str) -> Self {
        let stage = Stage::new();
        let mut host = stage.host(fixture);
        stays(&mut host, END, "end").env("GPUWHY_REPLAY_SPEED", speed);
        host.stderr(Stdio::null()).stdout(Stdio::null());
        let child = host.spawn().unwrap();
        let program = Self { stage, child };
        wait_for("the socket", || program.socket().exists());
        program
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn socket(&self) -> PathBuf {
        self.stage.socket(self.child.id())
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        BufReader::new(stream)
    }

    fn live(&self) -> Value {
        let mut stream = self.connect();
        stream.get_mut().write_all(b"live\n").unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        assert!(answer.len() <= 64 << 10, "{} bytes", answer.len());
        serde_json::from_str(&answer).unwrap()
    }

    fn top(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(GPUWHY);
        command.arg("top").args(arguments).env("GPUWHY_CONTROL", self.stage.sockets()).stdin(Stdio::null());
        command
    }

    /// Starts a program that plays longer than the test, unless the machine is busy.
    fn start_long() -> Self {
        Self::start("multi_stream", "0.05")
    }

    fn stop(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) -> Stage {
        self.stage.go_on("end");
        assert!(self.child.wait().unwrap().success());
        self.stage
    }
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_live_state_adds_up_and_costs_what_is_allowed() {
    let program = Program::start_long();
    wait_for("kernels", || program.live()["kernels"].as_u64().unwrap() > 100);
    let live = program.live();
    assert_eq!((&live["type"], &live["state"]), (&"live".into(), &"capturing".into()));
    let device = &live["devices"][0];
    assert_eq!(sum(&device["leaves"]), device["window_ns"].as_u64().unwrap(), "every nanosecond has one cause");
    for window in device["windows"].as_array().unwrap() {
        assert_eq!(window.as_array().unwrap().len(), 1 + live["causes"].as_array().unwrap().len());
    }
    let (cost, pause) = (live["cost_ns"].as_u64().unwrap(), live["pause_ms"].as_u64().unwrap());
    assert!(cost > 0 && pause >= 1_000 && cost * 500 <= (pause + 1) * 1_000_000, "{cost} ns every {pause} ms");
    let kernels: u64 = device["leaves"]["compute"].as_u64().unwrap();
    assert!(kernels > 0 && !live["top_kernels"].as_array().unwrap().is_empty(), "{live}");
    program.stop();
}

#[test]
fn eight_viewers_share_one_state_a_second() {
    let program = Program::start_long();
    let begun = Instant::now();
    let mut viewers: Vec<_> = (0..8).map(|_| program.connect()).collect();
    for viewer in &mut viewers {
        viewer.get_mut().write_all(b"live 1\n").unwrap();
    }
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        for viewer in &mut viewers {
            let mut line = String::new();
            viewer.read_line(&mut line).unwrap();
            assert!(line.ends_with('\n') && line.contains("\"type\":\"live\""), "{line}");
            seen.insert(line);
        }
    }
    // 24 lines were read; at most one state is made per second, however long that took.
    let most = begun.elapsed().as_secs() as usize + 1;
    assert!(seen.len() <= most, "{} states in {most} s", seen.len());
    drop(viewers);
    program.stop();
}

#[test]
fn processes_are_listed_as_a_table_and_as_lines() {
    let program = Program::start_long();
    wait_for("kernels", || program.live()["kernels"].as_u64().unwrap() > 100);
    let table = program.top(&["--once", &program.id()]).output().unwrap();
    let text = String::from_utf8(table.stdout.clone()).unwrap();
    assert!(table.status.success() && text.contains(" capturing "), "{text}");
    assert!(text.starts_with("    PID ") && text.lines().count() == 4, "{text}");
    // Without a terminal this is the output.
    let piped = program.top(&[&program.id()]).output().unwrap();
    assert!(String::from_utf8_lossy(&piped.stdout).starts_with("    PID "), "{}", stderr(&piped));
    let lines = lines(&program.top(&["--json", &program.id()]).output().unwrap());
    assert_eq!((lines.len(), &lines[0]["process"], &lines[0]["on"]), (1, &program.id().into(), &"".into()));
    let none = program.top(&["--once", "999999"]).output().unwrap();
    assert!(stderr(&none).contains("no process 999999"), "{}", stderr(&none));
    program.stop();
}

#[test]
fn lines_follow_until_a_process_ends_and_ctrl_c() {
    let program = Program::start("multi_stream", "0.5");
    let mut follower = program.top(&["--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(follower.stdout.take().unwrap());
    let mut kinds = Vec::new();
    while kinds.last().map(String::as_str) != Some("ended") {
        if ["live", "host"].iter().all(|seen| kinds.iter().any(|kind| kind == seen)) {
            program.stage.go_on("end");
        }
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{kinds:?}");
        let json: Value = serde_json::from_str(&line).unwrap();
        kinds.push(json["type"].as_str().unwrap().to_owned());
    }
    assert!(kinds.iter().any(|kind| kind == "live") && kinds.iter().any(|kind| kind == "host"), "{kinds:?}");
    interrupt(&follower);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest.is_empty() || rest.ends_with('\n'), "lines are whole: {rest}");
    assert_eq!(follower.wait().unwrap().code(), Some(143));
    drop(program.end());
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn another_host_is_reached_through_its_launcher() {
    let program = Program::start_long();
    wait_for("kernels", || program.live()["kernels"].as_u64().unwrap() > 100);
    // The launcher sees the sockets of the program, the calling command does not.
    let elsewhere = tempfile::tempdir().unwrap();
    let via = format!("env GPUWHY_CONTROL={} NODE={{host}} {GPUWHY}", program.stage.sockets().display());
    let mut command = Command::new(GPUWHY);
    let arguments = ["top", "--json", "--via", &via, "--host", "node7"];
    command.args(arguments).env("GPUWHY_CONTROL", elsewhere.path().join("gpuwhy")).stdin(Stdio::null());
    let lines = lines(&command.output().unwrap());
    let ours = lines.iter().find(|line| line["process"] == program.id().as_str());
    assert_eq!(ours.unwrap()["on"], "node7", "{lines:?}");
    let failing = ["top", "--once", "--via", "false {host}", "--host", "node8"];
    let output = Command::new(GPUWHY).args(failing).stdin(Stdio::null()).output().unwrap();
    assert!(stderr(&output).contains("node8: exit status: 1"), "{}", stderr(&output));
    program.stop();
}

#[test]
fn a_trace_plays_back_to_what_its_report_says() {
    let stage = Stage::new();
    assert!(stage.host("mlp").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let trace = stage.path("trace.gpuwhy");
    let report = report(&trace).1;
    let output = Command::new(GPUWHY).args(["top", "--json"]).arg(&trace).stdin(Stdio::null()).output().unwrap();
    let lines = lines(&output);
    let [live] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(live["bottleneck"], report["bottleneck"]["cause"]);
    assert_eq!(live["kernels"], report["completeness"]["records"]["kernels"]);
    assert_eq!(live["observed_ns"], report["observed_ns"]);
    let leaves = live["devices"][0]["leaves"].as_object().unwrap();
    for (name, nanos) in report["devices"][0]["leaves"].as_object().unwrap() {
        assert_eq!(leaves.get(name).and_then(Value::as_u64).unwrap_or(0), nanos.as_u64().unwrap(), "{name}");
    }
    let followed = Command::new(GPUWHY).args(["top", "--follow", "--speed", "1000"]).arg(&trace).output().unwrap();
    let followed = self::lines(&followed);
    assert_eq!(followed.last(), Some(live), "it ends with the whole run");
    let missing = Command::new(GPUWHY).args(["top", "missing.gpuwhy"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("missing.gpuwhy"), "{}", stderr(&missing));
}

/// A process that sends its own responses.
fn impostor(stage: &Stage, name: &str, answer: impl Fn(&str, &mut UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(stage.sockets().join(format!("{name}.sock"))).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut writer = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                answer(&line, &mut writer);
            }
        }
    });
}

#[test]
fn old_libraries_and_hostile_ones_are_shown_as_far_as_they_go() {
    let stage = Stage::new();
    impostor(&stage, "4242", |line, stream| {
        let answer = match line.split(' ').next().unwrap() {
            "watch" => "{\"type\":\"bottleneck\",\"pid\":4242,\"state\":\"capturing\",\"command\":\"old\"}\n",
            _ => "{\"type\":\"error\",\"message\":\"commands: status\"}\n",
        };
        let _ = stream.write_all(answer.as_bytes());
    });
    impostor(&stage, "4343", |_, stream| drop(stream.write_all(&[0xff; 100_000])));
    impostor(&stage, "4444", |_, stream| {
        let _ = stream
            .write_all(b"{\"type\":\"live\",\"command\":\"\\u001b[2J\\u202e\",\"devices\":[1,{}],\"steps\":[]}\n");
    });
    let mut follower = Command::new(GPUWHY)
        .args(["top", "--follow", "4242", "4444"])
        .env("GPUWHY_CONTROL", stage.sockets())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(follower.stdout.take().unwrap());
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{seen:?}");
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
        let json: Value = serde_json::from_str(&line).unwrap();
        if let (Some("bottleneck" | "live"), Some(process)) = (json["type"].as_str(), json["process"].as_str()) {
            seen.insert(process.to_owned());
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    let arguments = ["top", "--once", "4343", "4444"];
    let once = Command::new(GPUWHY).args(arguments).env("GPUWHY_CONTROL", stage.sockets()).output().unwrap();
    let text = String::from_utf8(once.stdout.clone()).unwrap();
    let silent = text.lines().any(|line| line.contains("   4343 ") && line.contains(" silent "));
    assert!(silent && !text.contains('\u{1b}'), "{text} {}", stderr(&once));
}

/// A tmux terminal; `None` if tmux is missing.
struct Tmux {
    name: String,
    folder: tempfile::TempDir,
}

impl Tmux {
    fn start(name: &str, size: (u16, u16), variables: &[(&str, &Path)], command: &str) -> Option<Self> {
        if !Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: tmux is not installed (tests/terminal.sh fetches it)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let tmux = Self { name: format!("gpuwhy-{name}-{}", std::process::id()), folder };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let mut start = tmux.command(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, command]);
        start.envs(variables.iter().copied()).env("LANG", "C.UTF-8").env_remove("NO_COLOR").env_remove("LC_ALL");
        let output = start.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.env("TMUX_TMPDIR", self.folder.path()).args(["-L", &self.name]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait_while(text, |screen| !screen.contains(text))
    }

    /// Closes the view that shows `text`. No other key may follow until it is gone: a terminal's Escape and
    /// the next letter, read together, are Alt and that letter.
    #[track_caller]
    fn close(&self, text: &str) {
        self.press("Escape");
        self.wait_while(text, |screen| screen.contains(text));
    }

    #[track_caller]
    fn wait_while(&self, text: &str, waits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let screen = self.screen();
            if !waits(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "waited for {text:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// A command that shows the state of the terminal after it ends.
fn with_epilogue(command: &str) -> String {
    format!("{command}; echo \"left with $?\"; stty -a | tr ';' '\\n' | grep -cw -e '-icanon' -e '-echo'; sleep 600")
}

#[test]
fn a_terminal_shows_steers_resizes_and_is_given_back() {
    let program = Program::start("multi_stream", "0.05");
    let folder = program.stage.folder.path();
    let variables = [("GPUWHY_CONTROL", program.stage.sockets()), ("XDG_CACHE_HOME", folder)];
    let command = with_epilogue(&format!("{GPUWHY} top {}", program.id()));
    let Some(tmux) = Tmux::start("steers", (80, 24), &variables, &command) else { return };
    let screen = tmux.wait_for("capturing");
    assert!(screen.starts_with("gpuwhy top  this host   1 process"), "{screen}");
    assert!(screen.lines().count() == 24 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    tmux.run(&["resize-window", "-x", "120", "-y", "40"]);
    tmux.wait_for("── ranges, GPU time within ");
    tmux.press("?");
    tmux.wait_for("Keys and letters");
    tmux.close("Keys and letters");
    tmux.wait_for("── ranges, GPU time within ");
    tmux.press("n");
    let report = format!("report of {}", program.id());
    tmux.wait_for(&report);
    tmux.close(&report);
    tmux.press("s");
    tmux.wait_for("capture 1 has ended");
    tmux.wait_for(" waiting ");
    tmux.press("s");
    tmux.wait_for("capture 2 has begun");
    tmux.press("C-c");
    let screen = tmux.wait_for("left with 0");
    assert!(!screen.contains("capturing"), "the display is gone: {screen}");
    tmux.wait_for("\n0\n");
    drop(program.end());
}

#[test]
fn a_process_that_is_killed_stays_on_the_display() {
    let mut program = Program::start("multi_stream", "0.05");
    let variables = [("GPUWHY_CONTROL", program.stage.sockets())];
    let command = with_epilogue(&format!("{GPUWHY} top {}", program.id()));
    let Some(tmux) = Tmux::start("killed", (100, 30), &variables, &command) else { return };
    tmux.wait_for("capturing");
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    tmux.wait_for(" ended ");
    tmux.press("s");
    tmux.wait_for("this process has ended");
    tmux.press("q");
    tmux.wait_for("left with 0");
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("GPUWHY_CONTROL", folder.path()), ("GPUWHY_TOP_PANIC", Path::new("1"))];
    let Some(tmux) = Tmux::start("panics", (100, 30), &variables, &with_epilogue(&format!("{GPUWHY} top 1"))) else {
        return;
    };
    let screen = tmux.wait_for("left with 101");
    assert!(screen.contains("asked to panic"), "{screen}");
    tmux.wait_for("\n0\n");
    assert_eq!(tmux.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
}

#[test]
fn a_terminal_that_goes_away_ends_the_display() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // With and without the signal about the closed terminal.
    for trap in ["", "trap '' HUP; "] {
        let command = format!("{trap}sh -c 'echo $$ >{}; exec {GPUWHY} top 1'; sleep 600", pid.display());
        let variables = [("GPUWHY_CONTROL", folder.path())];
        let Some(tmux) = Tmux::start("hangs-up", (80, 24), &variables, &command) else { return };
        tmux.wait_for("No process of this user");
        let id = std::fs::read_to_string(&pid).unwrap();
        let process = PathBuf::from("/proc").join(id.trim());
        assert!(process.exists());
        drop(tmux);
        wait_for("the end of the display", || !process.exists());
    }
}

#[test]
fn a_signal_ends_the_display_and_no_color_is_respected() {
    let stage = Stage::new();
    assert!(stage.host("mlp").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let pid = stage.path("pid");
    let trace = stage.path("trace.gpuwhy");
    let play = format!("sh -c 'echo $$ >{}; exec {GPUWHY} top --speed 100 {}'", pid.display(), trace.display());
    let command = with_epilogue(&format!("NO_COLOR=1 {play}"));
    let Some(tmux) = Tmux::start("colors", (80, 24), &[], &command) else { return };
    // The text may be captured while it is drawn.
    for text in ["finished", "launch 58 %", "CUDA graph"] {
        tmux.wait_for(text);
    }
    // 39 and 49 are the terminal's own colors.
    let colored = |text: &str| {
        let codes =
            text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split('m').next()).flat_map(|codes| codes.split(';'));
        let mut codes = codes.filter_map(|code| code.parse::<u32>().ok());
        codes.any(|code| matches!(code, 30..=38 | 40..=48 | 90..=107))
    };
    let escaped = tmux.run(&["capture-pane", "-p", "-e"]);
    assert!(!colored(&escaped), "{escaped:?}");
    let id = std::fs::read_to_string(&pid).unwrap();
    assert!(Command::new("kill").args(["-TERM", id.trim()]).status().unwrap().success());
    tmux.wait_for("left with 143");
    tmux.wait_for("\n0\n");
    let command = with_epilogue(&format!("{GPUWHY} top --speed 100 {}", trace.display()));
    let tmux = Tmux::start("colored", (80, 24), &[], &command).unwrap();
    tmux.wait_for("finished");
    assert!(colored(&tmux.run(&["capture-pane", "-p", "-e"])), "with colors unless they are not wanted");
    tmux.press("q");
    tmux.wait_for("left with 0");
}
