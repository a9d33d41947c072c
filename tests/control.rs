//! Live control end to end: a recorded program is queried, started and stopped from outside while it runs.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::program::Program;
use crate::support::{END, GPUWHY, Stage, counted, report, stays, stderr};
use serde_json::Value;
use tempfile::TempDir;

const DORMANT: (&str, &str) = ("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi");

#[test]
fn captures_begin_and_end_ten_times_in_one_run() {
    let program = Program::start(&[DORMANT, ("GPUWHY_REPLAY_SPEED", "0.1")]);
    assert_eq!(program.ask("status")["state"], "waiting");
    for number in 1..=10 {
        assert_eq!(program.tell("start"), format!("capture {number} has begun\n"));
        assert!(program.tell("start").starts_with("nothing changed"), "it has begun already");
        assert_eq!(program.ask("status")["state"], "capturing");
        assert_eq!(program.tell("stop"), format!("capture {number} has ended\n"));
        assert!(program.tell("stop").starts_with("nothing changed"));
    }
    let (stage, text) = program.end();
    assert_eq!(text.matches("trace: ").count(), 1, "{text}");
    let (code, report) = report(&stage.path("trace.gpuwhy"));
    let captures = report["captures"].as_array().unwrap();
    assert_eq!((code, captures.len()), (0, 10));
    for pair in captures.windows(2) {
        assert!(pair[0]["end_unix_ns"].as_u64() <= pair[1]["begin_unix_ns"].as_u64(), "captures do not overlap");
    }
    assert!(captures.iter().all(|capture| capture["trigger"] == "command"));
}

#[test]
fn monitor_mode_waits_for_its_captures_too() {
    let program = Program::start(&[("GPUWHY_MODE", "monitor"), ("GPUWHY_CAPTURE_RANGE", "command")]);
    assert_eq!(program.ask("status")["state"], "waiting");
    assert_eq!(program.tell("start"), "capture 1 has begun\n");
    assert_eq!(program.ask("status")["state"], "capturing");
    assert_eq!(program.tell("stop"), "capture 1 has ended\n");
    assert_eq!(program.ask("status")["state"], "waiting");
    program.end();
}

#[test]
fn a_whole_run_can_be_stopped_and_a_second_capture_taken() {
    let program = Program::start(&[]);
    assert_eq!(program.ask("status")["state"], "capturing");
    program.wait_for(|| program.ask("status")["kernels"].as_u64().unwrap() > 10);
    assert_eq!(program.ask("stop")["changed"], true);
    assert_eq!(program.ask("status")["state"], "waiting");
    assert_eq!(program.ask("start")["captures"], 2);
    let (stage, _) = program.end();
    let captures = report(&stage.path("trace.gpuwhy")).1["captures"].clone();
    assert_eq!((&captures[0]["trigger"], &captures[1]["trigger"]), (&"start".into(), &"command".into()));
    assert!(captures[0]["kernels"].as_u64().unwrap() > 10, "{captures}");
}

#[test]
fn a_process_can_be_reported_to_let_others_have_cupti() {
    // CUPTI is released 0.2 s of play after the stop.
    let program = Program::playing("multi_stream", &[(600, "told"), (900, "released")], &[]);
    program.wait_for(|| program.ask("status")["kernels"].as_u64().unwrap() > 10);
    let output = program.gpuwhy(&["stop", "--release", &program.child.id().to_string()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("CUPTI is released"), "{}", stderr(&output));
    program.stage.go_on("told");
    program.wait_for(|| program.ask("status")["holds_cupti"] == false);
    assert_eq!(program.tell("start"), "capture 2 has begun\n");
    let status = program.ask("status");
    assert_eq!((&status["holds_cupti"], &status["unobserved_ns"]), (&false.into(), &0.into()), "{status}");
    program.stage.go_on("released");
    let (stage, _) = program.end();
    let captures = report(&stage.path("trace.gpuwhy")).1["captures"].clone();
    assert!(captures[1]["kernels"].as_u64().unwrap() > 10, "{captures}");
}

#[test]
fn cupti_that_is_left_to_others_records_nodes_of_graphs() {
    // 500 launches of graphs with 40 nodes, recorded as complete graphs at first.
    let released = || {
        let variables =
            [("GPUWHY_CUDA_GRAPH_TRACE", "graph"), ("GPUWHY_REPLAY_VERSION", "130200"), ("GPUWHY_REPORT", "full")];
        // CUPTI is released 0.2 s of play after the stop.
        let program = Program::playing("graph_torch", &[(550, "told"), (770, "released")], &variables);
        program.wait_for(|| program.ask("status")["kernels"].as_u64().unwrap() > 10);
        assert_eq!(program.ask("release")["changed"], true);
        program.stage.go_on("told");
        program.wait_for(|| program.ask("status")["holds_cupti"] == false);
        program
    };
    let program = released();
    program.stage.go_on("released");
    let (_, text) = program.end();
    // There would be 1,360 records if recording had continued to the end at 1,090 ms.
    assert!(counted(&text, "delivered") < 1_100, "whole graphs are recorded on and on: {text}");

    let program = released();
    assert_eq!(program.tell("start"), "capture 2 has begun\n");
    program.stage.go_on("released");
    let (stage, text) = program.end();
    let captures = report(&stage.path("trace.gpuwhy")).1["captures"].clone();
    let kernels = [0, 1].map(|capture| captures[capture]["kernels"].as_u64().unwrap());
    assert!(kernels[0] < 500 && kernels[1] > 2_000, "{kernels:?} {text}");
    let text: Vec<_> = text.split_whitespace().collect();
    assert!(text.join(" ").contains("node by node since CUPTI was shared with other tools"), "{text:?}");
}

#[test]
fn status_lists_all_processes_and_passes_over_dead_ones() {
    let first = Program::start(&[]);
    let folder = first.stage.sockets();
    // Another process, one that was killed, and one that does not respond.
    let mut second = first.stage.host("multi_stream");
    let mut second = stays(&mut second, END, "end").stderr(Stdio::null()).spawn().unwrap();
    drop(UnixListener::bind(folder.join("999999.sock")).unwrap());
    first.wait_for(|| folder.join(format!("{}.sock", second.id())).exists());

    let listed = || -> Vec<u64> {
        let output = first.gpuwhy(&["top", "--json"]).stdout;
        let lines = output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let mut processes: Vec<_> =
            lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()["pid"].as_u64().unwrap()).collect();
        processes.sort_unstable();
        processes
    };
    let mut expected = [first.child.id(), second.id()].map(u64::from);
    expected.sort_unstable();
    // A process without a free core responds too late for one request.
    first.wait_for(|| listed() == expected);
    assert!(!folder.join("999999.sock").exists(), "what a killed process left behind is removed");
    let table = || String::from_utf8(first.gpuwhy(&["top", "--once"]).stdout).unwrap();
    let capturing = |text: &str, process: u64| {
        let begin = format!("{process:>7} ");
        text.lines().any(|line| line.starts_with(&begin) && line.contains(" capturing "))
    };
    first.wait_for(|| expected.iter().all(|&process| capturing(&table(), process)));
    first.wait_for(|| {
        let text = table();
        text.starts_with("    PID ") && text.contains("  captures: 1, trace: /")
    });
    let missing = first.gpuwhy(&["start", "999999"]);
    assert_eq!(missing.status.code(), Some(1));

    second.kill().unwrap();
    second.wait().unwrap();
    let _ = first.gpuwhy(&["top", "--once"]);
    assert!(!folder.join(format!("{}.sock", second.id())).exists());
    let socket = first.socket();
    let _ = first.end();
    assert!(!socket.exists(), "removed at the end of the process");
}

#[test]
fn a_follower_gets_lines_until_the_end_and_the_report_so_far_is_one() {
    // Pauses after 600 of 800 kernels, most of which are final then.
    let program = Program::playing("multi_stream", &[(1_200, "go")], &[]);
    program.wait_for(|| program.ask("status")["kernels"].as_u64().unwrap() > 300);
    let id = program.child.id().to_string();
    let report = String::from_utf8(program.gpuwhy(&["top", "--report", &id]).stdout).unwrap();
    assert!(report.starts_with("gpuwhy: process") && report.contains("Bottleneck: "), "{report}");
    assert!(report.contains("trace: ") && report.contains("The trace has no end"), "{report}");
    let mut follower = Command::new(GPUWHY);
    follower.args(["top", "--follow", &id]).env("GPUWHY_CONTROL", program.stage.sockets());
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let reader = BufReader::new(follower.stdout.take().unwrap()).lines();
    let lines = reader.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut lines = lines.filter(|line| line["type"] == "live");
    let mut kernels = || {
        let line = lines.next()?;
        let early = line["line"].as_str().unwrap().ends_with("starting up");
        assert!(line["state"] != "capturing" || (line["bottleneck"] == "starting_up") == early, "{line}");
        Some(line["kernels"].as_u64().unwrap())
    };
    // Twice while the program is paused, then until the number of kernels grows, then to the end.
    let first = kernels().unwrap();
    let mut newest = kernels().unwrap();
    program.stage.go_on("go");
    while newest == first {
        newest = kernels().unwrap();
    }
    program.stage.go_on("end");
    while let Some(next) = kernels() {
        assert!(next >= newest, "{next} after {newest}");
        newest = next;
    }
    assert!(newest > first, "{first} {newest}");
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    let _ = program.end();
    let gone = Command::new(GPUWHY).args(["top", "--follow", "999999"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1), "{}", stderr(&gone));
}

#[test]
fn hostile_clients_neither_block_nor_harm() {
    let program = Program::start(&[]);
    // The maximum number of clients: some send nothing, some send without end, some send requests and never
    // read.
    let mut clients: Vec<UnixStream> = (0..8).map(|_| program.connect()).collect();
    for client in &mut clients[..3] {
        client.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        // Refused or cut off: both are right.
        let _ = client.write_all(&vec![b'x'; 1 << 20]);
    }
    for client in &mut clients[3..6] {
        client.set_nonblocking(true).unwrap();
        for _ in 0..10_000 {
            if client.write_all(b"snapshot\n").is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                break;
            }
        }
    }
    // The clients that sent without end are disconnected, so there is room again.
    program.wait_for(|| {
        let mut stream = program.connect();
        let mut answer = String::new();
        let _ = stream.write_all(b"status\nfly\n");
        BufReader::new(stream).read_line(&mut answer).is_ok_and(|bytes| bytes > 0)
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 1 << 20, "{resident}");
    let (stage, _) = program.end();
    assert_eq!(report(&stage.path("trace.gpuwhy")).1["completeness"]["end"], "clean");
}

#[test]
fn nobody_else_can_listen_and_it_can_be_switched_off() {
    let program = Program::start(&[]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(program.stage.sockets()), mode(&program.socket())), (0o700, 0o600));
    let _ = program.end();

    // Location of the default folder of the user.
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    stays(&mut host, END, "end").env("XDG_RUNTIME_DIR", stage.folder.path()).env("GPUWHY_CONTROL", "on");
    let child = host.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let program = Program { stage, child };
    let folder = program.stage.path("gpuwhy");
    let socket = folder.join(format!("{}.sock", program.child.id()));
    program.wait_for(|| socket.exists());
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    let _ = program.end();

    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    host.env("XDG_RUNTIME_DIR", stage.folder.path()).env("GPUWHY_CONTROL", "off");
    assert!(host.output().unwrap().status.success());
    assert!(!stage.path("gpuwhy").exists());

    // Neither side uses a folder that is open to others, and the program is not affected.
    let stage = Stage::new();
    std::fs::create_dir(stage.path("gpuwhy")).unwrap();
    std::fs::set_permissions(stage.path("gpuwhy"), Permissions::from_mode(0o777)).unwrap();
    let mut host = stage.host("multi_stream");
    host.env("XDG_RUNTIME_DIR", stage.folder.path()).env("GPUWHY_CONTROL", "on");
    assert!(host.output().unwrap().status.success());
    assert_eq!(std::fs::read_dir(stage.path("gpuwhy")).unwrap().count(), 0);
}

/// `gpuwhy top` for a folder of sockets: its exit code, stdout and stderr.
fn top(runtime: &Path, arguments: &[&str], user: Option<u32>) -> (Option<i32>, String, String) {
    let mut command = Command::new(GPUWHY);
    command.arg("top").args(arguments).env("XDG_RUNTIME_DIR", runtime);
    if let Some(user) = user {
        command.uid(user);
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
}

/// A folder for sockets with this mode, in which a listener on `1.sock` calls `answer` for every connection.
fn answering(mode: u32, answer: impl Fn(UnixStream) + Send + 'static) -> TempDir {
    let runtime = tempfile::tempdir().unwrap();
    let folder = runtime.path().join("gpuwhy");
    std::fs::create_dir(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("1.sock")).unwrap();
    std::fs::set_permissions(folder.join("1.sock"), Permissions::from_mode(0o777)).unwrap();
    std::fs::write(folder.join("77.sock"), "precious").unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Read the command first: a client cannot finish sending it to a closed socket.
            let _ = stream.read(&mut [0; 256]);
            answer(stream);
        }
    });
    runtime
}

const FAKE: &[u8] =
    b"{\"pid\":1,\"command\":\"\\u001b]0;PWNED\\u0007 train.py\",\"state\":\"capturing\",\"captures\":1}\n";

#[test]
fn a_folder_that_others_can_write_to_is_not_looked_into() {
    let runtime = answering(0o777, |mut stream| drop(stream.write_all(FAKE)));
    let (code, out, said) = top(runtime.path(), &["--once"], None);
    assert!(code == Some(0) && !out.contains("train.py"), "{out}");
    assert!(said.contains("open to other users (mode 777") && said.contains("gpuwhy"), "{said}");
    assert!(runtime.path().join("gpuwhy/77.sock").exists());
}

#[test]
fn a_folder_of_another_user_is_not_looked_into() {
    const NOBODY: u32 = 65_534;
    let runtime = answering(0o755, |mut stream| drop(stream.write_all(FAKE)));
    if chown(runtime.path(), Some(NOBODY), None).is_err() {
        println!("SKIPPED: only root can make folders of two users");
        return;
    }
    if Command::new(GPUWHY).arg("--version").uid(NOBODY).output().is_err() {
        println!("SKIPPED: {GPUWHY} cannot be executed by another user");
        return;
    }
    let (code, out, said) = top(runtime.path(), &["--once"], Some(NOBODY));
    assert!(code == Some(0) && !out.contains("train.py"), "{out}");
    assert!(said.contains("belongs to user 0"), "{said}");
    // A folder of this user, in which another user listens.
    let folder = runtime.path().join("gpuwhy");
    chown(&folder, Some(NOBODY), None).unwrap();
    chown(folder.join("1.sock"), Some(NOBODY), None).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let (_, out, said) = top(runtime.path(), &["--once"], Some(NOBODY));
    assert!(!out.contains("train.py") && said.contains("answered by another user"), "{out} {said}");
    assert!(folder.join("77.sock").exists());
}

#[test]
fn answers_are_bounded_and_cannot_control_the_terminal() {
    let escapes = answering(0o700, |mut stream| drop(stream.write_all(FAKE)));
    for arguments in [["--once"], ["--json"]] {
        let (code, out, said) = top(escapes.path(), &arguments, None);
        assert!(code == Some(0) && out.contains("PWNED") && !out.contains('\x1b'), "{out:?} {said}");
    }
    assert!(escapes.path().join("gpuwhy/77.sock").exists(), "no socket, so nothing that was left behind");

    // Runs on the listener's thread: the write ends when the client disconnects.
    let endless = answering(0o700, |mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
    let (_, _, said) = top(endless.path(), &["--once"], None);
    assert!(said.contains("process 1: the response is incomplete"), "{said}");
    // Each byte arrives well within the time limit of a complete response.
    let slow = answering(0o700, |mut stream| {
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let (_, _, said) = top(slow.path(), &["--once"], None);
    assert!(said.contains("process 1: timed out"), "{said}");
}

#[test]
fn a_process_whose_id_is_taken_in_a_shared_folder_gets_another_name() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    stays(&mut host, END, "end");
    // The process id is known before the process becomes the program, as for the first process of a second
    // container.
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec \"$0\" \"$@\""])
        .arg(host.get_program())
        .args(host.get_args())
        .envs(host.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(stage.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let taken = stage.socket(child.id());
    let listener = UnixListener::bind(&taken).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();

    let program = Program { stage, child };
    let name = format!("{}-2", program.child.id());
    let second = program.stage.sockets().join(format!("{name}.sock"));
    program.wait_for(|| second.exists());
    let output = program.gpuwhy(&["stop", &name]);
    assert!(output.status.success(), "{}", stderr(&output));
    let Program { stage, mut child } = program;
    stage.go_on("end");
    assert!(child.wait().unwrap().success());
    assert_eq!((taken.exists(), second.exists()), (true, false), "each removes its own");
    drop(listener);
}

#[test]
fn the_folder_of_another_user_is_left_alone() {
    let stage = Stage::new();
    let runtime = tempfile::tempdir().unwrap();
    if chown(runtime.path(), Some(65_534), None).is_err() {
        println!("SKIPPED: only root can make folders of two users");
        return;
    }
    // As under `sudo -E`, with the variables of the user.
    let mut host = stage.host("multi_stream");
    stays(&mut host, END, "end").env("XDG_RUNTIME_DIR", runtime.path()).env("GPUWHY_CONTROL", "on");
    let child = host.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let program = Program { stage, child };
    let socket = PathBuf::from(format!("/tmp/gpuwhy-0/{}.sock", program.child.id()));
    program.wait_for(|| socket.exists());
    let (_, text) = program.end();
    assert!(!text.contains("no live control"), "{text}");
    assert_eq!(std::fs::read_dir(runtime.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_process_id_is_said_in_words() {
    let output = Command::new(GPUWHY).args(["start", "abc"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected a process id, as `gpuwhy top` lists them"), "{}", stderr(&output));
}

#[test]
fn all_processes_are_reported_at_once_here_and_through_a_launcher() {
    let waiting = ("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi");
    let first = Program::start(&[waiting]);
    let other = Stage::new();
    let mut host = other.host("multi_stream");
    stays(&mut host, END, "end").env("GPUWHY_CONTROL", first.stage.sockets()).envs([waiting]);
    let mut second = host.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    first.wait_for(|| first.stage.socket(second.id()).exists());
    let reported = |arguments: &[&str]| {
        let output = first.gpuwhy(arguments);
        let mut lines: Vec<_> = String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        (output.status.code(), lines, stderr(&output))
    };
    let mut ids = [first.child.id(), second.id()];
    ids.sort_by_key(|id| id.to_string());
    let (code, lines, _) = reported(&["start", "--all"]);
    assert_eq!((code, lines), (Some(0), ids.map(|id| format!("{id}: capture 1 has begun")).to_vec()));
    // `env` serves as the launcher.
    let via = format!("env {GPUWHY}");
    let (code, lines, said) = reported(&["stop", "--all", "--via", &via]);
    assert_eq!((code, lines.len()), (Some(0), 2), "{said}");
    assert!(lines.iter().all(|line| line.starts_with("env: ") && line.ends_with("capture 1 has ended")), "{lines:?}");
    let (code, lines, said) = reported(&["start", "--all", "--via", "false x"]);
    assert_eq!((code, lines.len()), (Some(1), 0));
    assert!(said.contains("x: no process has answered there"), "{said}");
    assert_eq!(reported(&["start"]).0, Some(2), "nobody is meant");
    assert_eq!(reported(&["start", "7", "--all"]).0, Some(2));
    second.kill().unwrap();
    second.wait().unwrap();
    let mut first = first;
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let (code, _, said) = nobody_notified(&first);
    assert_eq!(code, Some(1), "{said}");
}

fn nobody_notified(program: &Program) -> (Option<i32>, Vec<u8>, String) {
    let output = program.gpuwhy(&["start", "--all"]);
    (output.status.code(), output.stdout.clone(), stderr(&output))
}

#[test]
fn a_process_of_an_older_gpuwhy_begins_no_capture() {
    let runtime = answering(0o700, |mut stream| {
        let _ = stream.write_all(b"{\"type\":\"error\",\"message\":\"commands: status\"}\n");
    });
    let mut command = Command::new(GPUWHY);
    let output =
        command.args(["start", "1", "--at-step", "7"]).env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap();
    let why = stderr(&output);
    assert!(
        output.status.code() == Some(1) && why.contains("does not know this command: its gpuwhy has another"),
        "{why}"
    );
}
