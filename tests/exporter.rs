//! `gpuwhy exporter` end to end: recorded programs through the real libprof.so, scraped and written to a
//! file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{END, GPUWHY, Stage, stays, stderr, sum};

/// A recorded program that runs until it is released, with a separate folder for sockets.
struct Program {
    stage: Stage,
    child: Child,
}

impl Program {
    fn start(variables: &[(&str, &str)]) -> Self {
        Self::stopping(&[], variables)
    }

    /// Starts a program that also pauses at these times, each with a name, until it is released.
    fn stopping(stops: &[(u64, &str)], variables: &[(&str, &str)]) -> Self {
        let stage = Stage::new();
        let mut host = stage.host("multi_stream");
        for name in ["RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR"] {
            host.env_remove(name);
        }
        for &(at, name) in [stops, &[(END, "end")]].concat().iter() {
            stays(&mut host, at, name);
        }
        host.env("GPUWHY_REPLAY_SPEED", "1");
        host.envs(variables.iter().copied()).stderr(Stdio::null()).stdout(Stdio::null());
        let child = host.spawn().unwrap();
        let program = Self { stage, child };
        wait_for("the socket", || program.stage.socket(program.child.id()).exists());
        program
    }

    fn end(mut self) -> Stage {
        self.stage.go_on("end");
        assert!(self.child.wait().unwrap().success());
        self.stage
    }
}

/// An exporter that runs until it is dropped.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let mut command = Command::new(GPUWHY);
        command.arg("exporter").args(arguments).env("GPUWHY_CONTROL", stage.sockets());
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut address = String::new();
        if arguments.contains(&"--listen") {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            address =
                line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}")).split('/').next().unwrap().into();
        }
        // Drains further output, which must not fill the pipe.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Self { child, address }
    }

    fn scrape(&self) -> Page {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        Page::of(body)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Values by name and labels.
struct Page(BTreeMap<String, f64>);

impl Page {
    fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
        Self(lines.map(|line| pair(line).unwrap()).collect())
    }

    /// Sum of the values of a metric whose labels contain all of these, for the run of these tests.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let start = format!("gpuwhy_{name}{{");
        let all =
            self.0.iter().filter(|(key, _)| key.starts_with(&start) && labels.iter().all(|label| key.contains(label)));
        all.filter(|(key, _)| key.contains("run=\"job-7\"")).map(|(_, value)| value).sum()
    }

    fn state(&self, state: &str) -> f64 {
        self.sum("process_state", &[&format!("state=\"{state}\"")])
    }
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        thread::sleep(Duration::from_millis(50));
    }
}

const RANK: [(&str, &str); 3] = [("RANK", "3"), ("WORLD_SIZE", "8"), ("TORCHELASTIC_RUN_ID", "job-7")];

#[test]
fn a_scrape_has_what_the_report_has_and_the_last_numbers_stay() {
    let program = Program::start(&RANK);
    let exporter = Exporter::start(&program.stage, &["--listen", "127.0.0.1:0", "--leaves"]);
    let mut before = 0.0;
    wait_for("kernels", || {
        let kernels = exporter.scrape().sum("kernels_total", &["run=\"job-7\",rank=\"3\",Hostname=\""]);
        assert!(kernels >= before, "a counter went back");
        before = kernels;
        kernels > 10.0
    });
    assert_eq!(exporter.scrape().state("capturing"), 1.0);
    let stage = program.end();
    wait_for("the end", || exporter.scrape().state("ended") == 1.0);
    let report = stage.report();
    let page = exporter.scrape();
    let seconds = |of: &serde_json::Value| sum(of) as f64 / 1e9;
    let all: f64 = report["devices"].as_array().unwrap().iter().map(|device| seconds(&device["leaves"])).sum();
    assert!(all > 0.0);
    for name in ["device_seconds_total", "device_leaf_seconds_total"] {
        let shown = page.sum(name, &["rank=\"3\""]);
        assert!((shown - all).abs() < 1e-6, "{name}: {shown} s instead of {all} s");
    }
    let kernels = report["completeness"]["records"]["kernels"].as_f64().unwrap();
    assert_eq!(page.sum("kernels_total", &[]), kernels);
    assert_eq!(page.sum("bottleneck", &[]), 1.0, "one cause");
    assert_eq!(page.sum("process_info", &["program=\"gpuwhy-replay-host\"", "mode=\"light\""]), 1.0);
    let left: Vec<_> = fs::read_dir(stage.sockets()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "the announcement and the last numbers: {left:?}");
    assert!(left.iter().all(|path| fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0), "{left:?}");
}

#[test]
fn nothing_is_left_behind_without_an_exporter() {
    let stage = Program::start(&RANK).end();
    assert_eq!(fs::read_dir(stage.sockets()).unwrap().count(), 0);
}

#[test]
fn counters_go_on_over_captures() {
    let variables = [("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi"), RANK[0], RANK[2]];
    let program = Program::stopping(&[(400, "first"), (800, "second")], &variables);
    let exporter = Exporter::start(&program.stage, &["--listen", "127.0.0.1:0"]);
    let tell = |verb: &str| {
        let mut command = Command::new(GPUWHY);
        command.args([verb, &program.child.id().to_string()]).env("GPUWHY_CONTROL", program.stage.sockets());
        assert!(command.output().unwrap().status.success());
    };
    assert_eq!(exporter.scrape().state("waiting"), 1.0);
    let mut kernels = 0.0;
    for (capture, stop) in [(1, "first"), (2, "second")] {
        tell("start");
        program.stage.go_on(stop);
        wait_for("kernels of the capture", || exporter.scrape().sum("kernels_total", &[]) > kernels + 5.0);
        tell("stop");
        wait_for("the count of captures", || exporter.scrape().sum("captures_total", &[]) == f64::from(capture));
        kernels = exporter.scrape().sum("kernels_total", &[]);
    }
    drop(program.end());
}

#[test]
fn a_killed_process_is_lost_and_a_stopped_one_silent() {
    let mut program = Program::start(&RANK);
    let exporter = Exporter::start(&program.stage, &["--listen", "127.0.0.1:0"]);
    wait_for("kernels", || exporter.scrape().sum("kernels_total", &[]) > 0.0);
    let signal = |name: &str| {
        let id = program.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-STOP");
    wait_for("silence", || exporter.scrape().state("silent") == 1.0);
    assert!(exporter.scrape().sum("kernels_total", &[]) > 0.0, "its newest numbers stay");
    signal("-CONT");
    wait_for("an answer", || exporter.scrape().state("capturing") == 1.0);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    wait_for("the loss", || exporter.scrape().state("lost") == 1.0);
}

#[test]
fn a_restarted_rank_is_counted_once_and_nothing_is_left_behind() {
    let program = Program::start(&RANK);
    let sockets = program.stage.sockets().to_owned();
    let mut exporter = Exporter::start(&program.stage, &["--listen", "127.0.0.1:0"]);
    let _first = program.end();
    wait_for("the end", || exporter.scrape().state("ended") == 1.0);
    let second = Stage::new();
    let mut host = second.host("multi_stream");
    host.envs(RANK).env("GPUWHY_CONTROL", &sockets).stderr(Stdio::null()).stdout(Stdio::null());
    assert!(host.status().unwrap().success());
    // Both have left their last numbers, and the second one has the labels of the first.
    let left = fs::read_dir(&sockets)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "last"));
    assert_eq!(left.count(), 2);
    let kernels = second.report()["completeness"]["records"]["kernels"].as_f64().unwrap();
    wait_for("the second one", || exporter.scrape().sum("kernels_total", &[]) == kernels);
    let page = exporter.scrape();
    assert_eq!((page.sum("process_info", &[]), page.sum("process_info", &["process="])), (1.0, 0.0));
    let id = exporter.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(exporter.child.wait().unwrap().success());
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
}

#[test]
fn node_exporter_gets_a_whole_file() {
    let program = Program::start(&RANK);
    let folder = tempfile::tempdir().unwrap();
    let exporter =
        Exporter::start(&program.stage, &["--textfile", folder.path().to_str().unwrap(), "--interval", "1s"]);
    let file = folder.path().join("gpuwhy.prom");
    wait_for("the file", || file.exists());
    let first = fs::metadata(&file).unwrap().ino();
    wait_for("the next file", || fs::metadata(&file).unwrap().ino() != first);
    assert_eq!(Page::of(&fs::read_to_string(&file).unwrap()).state("capturing"), 1.0);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    drop(exporter);
    let missing = Command::new(GPUWHY).args(["exporter", "--textfile", "/nonexistent/folder"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("/nonexistent/folder/gpuwhy.prom cannot be written"), "{}", stderr(&missing));
    drop(program.end());
}

#[test]
fn ranks_of_one_run_and_children_of_a_rank_are_distinguished() {
    let first = Program::start(&RANK);
    let sockets = first.stage.sockets().to_owned();
    // A second process of rank 3, and one of rank 4, with the sockets of the first one.
    let other = |rank: &str| {
        let stage = Stage::new();
        let mut host = stage.host("multi_stream");
        stays(&mut host, END, "end").envs(RANK).env("RANK", rank).env("GPUWHY_CONTROL", &sockets);
        (host.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap(), stage)
    };
    let mut others = [other("3"), other("4")];
    let exporter = Exporter::start(&first.stage, &["--listen", "127.0.0.1:0"]);
    wait_for("three processes", || exporter.scrape().sum("process_info", &["run=\"job-7\""]) == 3.0);
    let page = exporter.scrape();
    assert_eq!(page.sum("process_info", &["rank=\"4\""]), 1.0);
    assert_eq!(page.sum("process_info", &["rank=\"3\"", "process=\"2\""]), 1.0);
    for (child, _) in &mut others {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut first = first;
    first.child.kill().unwrap();
    first.child.wait().unwrap();
}

#[test]
fn collectives_have_the_operations_and_bytes_that_nccl_reported_and_their_exposed_time() {
    let stage = Stage::new();
    let exporter = Exporter::start(&stage, &["--listen", "127.0.0.1:0"]);
    wait_for("the announcement", || stage.sockets().join("exporter").exists());
    let mut host = stage.host("multi_stream");
    host.env("GPUWHY_REPLAY", stage.path("nccl.cupti")).env("NCCL_PROFILER_PLUGIN", "libprof.so");
    host.args(["--nccl", "5"]).envs(RANK);
    assert!(host.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    wait_for("the end", || exporter.scrape().state("ended") == 1.0);
    let page = exporter.scrape();
    let report = stage.report();
    let rows = report["collectives"]["rows"].as_array().unwrap();
    let total = |field: &str, function: Option<&str>| -> f64 {
        let of = rows.iter().filter(|row| function.is_none_or(|function| row["function"] == function));
        of.map(|row| row[field].as_f64().unwrap_or(0.0)).sum()
    };
    assert!(total("operations", None) > 70.0 && total("bytes", None) > f64::from(50 << 22), "{rows:?}");
    for (metric, field, unit) in [
        ("collective_operations_total", "operations", 1.0),
        ("collective_bytes_total", "bytes", 1.0),
        ("collective_exposed_seconds_total", "exposed_ns", 1e-9),
    ] {
        for (labels, function) in [(&[][..], None), (&["function=\"all_reduce\""], Some("all_reduce"))] {
            let (shown, expected) = (page.sum(metric, labels), total(field, function) * unit);
            assert!((shown - expected).abs() <= expected * 1e-9, "{metric} {function:?}: {shown} {expected}");
        }
    }
    let sent = page.sum("collective_bytes_total", &["function=\"send_recv\""]);
    assert_eq!(sent, total("bytes", Some("send_receive")), "both directions are one function");
}

#[test]
fn processes_that_the_exporter_cannot_ask_are_said_and_counted() {
    let program = Program::start(&[]);
    let elsewhere = Stage::new();
    let mut command = Command::new(GPUWHY);
    let output = command.args(["exporter", "--once"]).env("GPUWHY_CONTROL", elsewhere.sockets()).output().unwrap();
    assert!(output.status.success() && stderr(&output).contains("with gpuwhy cannot be asked"), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    let own = page.lines().find_map(|line| line.strip_prefix("gpuwhy_exporter_unreachable_processes{user=\"own\"} "));
    // Other tests have programs, too.
    assert!(own.unwrap().parse::<usize>().unwrap() >= 1, "{page}");
    program.end();
}
