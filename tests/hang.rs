//! `gpuwhy hang`: the response of a running process, and the analysis of many responses.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{END, GPUWHY, Stage, stays, stderr};

fn hang(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = Command::new(GPUWHY);
    command.arg("hang").args(arguments).env("GPUWHY_CONTROL", stage.sockets()).current_dir(stage.folder.path());
    command.output().unwrap()
}

/// Response of a rank that has queued `queued` operations and waits in those from `waits` on.
fn answer(rank: u32, queued: u64, waits: u64, line: &str) -> Value {
    let outstanding: Vec<Value> = (waits..queued)
        .map(|number| {
            json!({"number": number, "function": "all_reduce", "count": 100, "data_type": "float32",
                   "age_ns": 90_000_000_000_u64})
        })
        .collect();
    json!({"type": "hang", "pid": 100 + rank, "state": "capturing", "host": "node1", "rank": rank, "line": line,
           "communicators": [{"communicator": "00000000000000a1", "name": "dp", "ranks": 4, "queued": queued,
                              "finished": waits, "outstanding": outstanding}]})
}

#[test]
fn a_running_process_answers_and_the_command_collects_its_answer() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    host.env("GPUWHY_REPLAY", stage.path("nccl.cupti")).env("NCCL_PROFILER_PLUGIN", "libprof.so");
    stays(&mut host, END, "end").args(["--nccl", "5"]).env("GPUWHY_REPLAY_SPEED", "0.02");
    host.env("RANK", "0").env("WORLD_SIZE", "2").env("GPUWHY_RUN", "gpt").stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = host.spawn().unwrap();
    let socket = stage.socket(child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    let ask = || {
        let mut stream = UnixStream::connect(&socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        stream.write_all(b"hang\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str::<Value>(&line).ok()
    };
    let reported = loop {
        let answer = ask().unwrap_or_default();
        if answer["communicators"].as_array().is_some_and(|all| all.iter().any(|one| one["queued"].as_u64() > Some(0)))
        {
            break answer;
        }
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "waited in vain: {answer}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = hang(&stage, &["--answers"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((&reported["type"], &reported["rank"]), (&json!("hang"), &json!(0)));
    assert_eq!((&reported["run"], &reported["world_size"]), (&json!("gpt"), &json!(2)));
    let communicators = reported["communicators"].as_array().unwrap();
    let dp = communicators.iter().find(|one| one["communicator"] == "000000d000000001").unwrap();
    assert!(dp["ranks"].as_u64() > Some(1) && dp["finished"].as_u64() <= dp["queued"].as_u64(), "{dp}");
    for operation in dp["outstanding"].as_array().unwrap() {
        assert!(operation["number"].as_u64() >= dp["finished"].as_u64() && operation["age_ns"].is_u64(), "{operation}");
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Other processes of this user may respond too.
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut answers = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = answers.find(|answer| answer["pid"] == reported["pid"]).unwrap();
    assert_eq!((&own["type"], &own["rank"]), (&json!("hang"), &json!(0)));
}

#[test]
fn answers_of_many_ranks_name_the_one_that_never_came() {
    let stage = Stage::new();
    let lines = [
        // As `srun --label` writes them, with one line that is not a response.
        format!("0: {}", answer(0, 8, 7, "train.py:10 step")),
        format!("1: {}", answer(1, 8, 7, "train.py:10 step")),
        "srun: warning: something".to_owned(),
        format!("3: {}", answer(3, 8, 7, "train.py:10 step")),
    ];
    std::fs::write(stage.path("answers"), lines.join("\n")).unwrap();
    std::fs::create_dir(stage.path("more")).unwrap();
    std::fs::write(stage.path("more/rank2"), answer(2, 7, 7, "train.py:99 save\u{1b}[2J").to_string()).unwrap();
    let output = hang(&stage, &["answers", "more"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(text.contains("communicator dp, all_reduce number 7: ranks 0-1, 3 wait for 90.00 s"), "{text}");
    assert!(text.contains("rank 2 (node1, process 102) at train.py:99 save") && !text.contains('\u{1b}'), "{text}");
    assert!(stderr(&output).contains("answers: line 3"), "{}", stderr(&output));
    let output = hang(&stage, &["--json", "answers", "more"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["findings"][0]["kind"], &found["findings"][0]["culprits"][0]["rank"]),
        (&json!("never_came"), &json!(2))
    );
}

/// Listens but accepts no connection, like a stopped process.
fn stopped(stage: &Stage, process: u32) -> std::os::unix::net::UnixListener {
    std::fs::create_dir_all(stage.sockets()).unwrap();
    std::fs::set_permissions(stage.sockets(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::net::UnixListener::bind(stage.socket(process)).unwrap()
}

#[test]
fn processes_that_do_not_answer_are_a_finding_here_and_elsewhere() {
    let stage = Stage::new();
    let _listeners = [stopped(&stage, 71), stopped(&stage, 72)];
    let output = hang(&stage, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(
        ["process 71", "process 72"].iter().all(|name| text.contains(name)) && !text.contains("none waits"),
        "{text}"
    );
    let via = format!("env {GPUWHY}");
    let found: Value = serde_json::from_slice(&hang(&stage, &["--json", "--via", &via]).stdout).unwrap();
    let silent: Vec<_> = found["silent"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(silent.len() == 2 && silent[0].contains("line 1: process 71 does not respond"), "{silent:?}");
    let files = hang(&stage, &["--answers"]).stdout;
    std::fs::write(stage.path("collected"), [files, answer(0, 8, 8, "").to_string().into_bytes()].concat()).unwrap();
    let output = hang(&stage, &["collected"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("ranks: 1 of 4")
            && text.contains("none of these waits")
            && text.contains("process 72 does not respond"),
        "{text}"
    );
}

#[test]
fn what_a_launcher_complains_of_is_escaped_and_bounded() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    let launcher = stage.path("launcher");
    let script = "#!/bin/sh\nprintf 'evil \\033]0;x\\007 line\\n' >&2\nyes noise | head -n 100000 >&2\nyes greeting | \
                  head -n 100000\necho '7: capture 1 has begun'\n";
    std::fs::write(&launcher, script).unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    for verb in [&["hang"][..], &["start", "--all"], &["stop", "--all"]] {
        let mut command = Command::new(GPUWHY);
        command.args(verb).args(["--via", launcher.to_str().unwrap()]).env("GPUWHY_CONTROL", stage.sockets());
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert!(!said.contains('\u{1b}') && said.contains("line") && said.contains("more lines"), "{verb:?}: {said}");
        if verb.len() > 1 {
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(shown.lines().count() == 1 && shown.contains("7: capture 1 has begun"), "{shown}");
            assert!(said.contains("100000 lines that are not responses"), "{said}");
        }
    }
}

#[test]
fn two_jobs_on_a_node_are_distinguished() {
    let stage = Stage::new();
    let of = |run: &str, rank, queued, waits| {
        let mut answer = answer(rank, queued, waits, "train.py:10 step");
        answer["run"] = json!(run);
        answer["world_size"] = json!(4);
        answer.to_string()
    };
    let mut lines: Vec<String> = (0..4).map(|rank| of("fine", rank, 8, 8)).collect();
    lines.extend((0..3).map(|rank| of("stuck", rank, 8, 7)));
    std::fs::write(stage.path("answers"), lines.join("\n")).unwrap();
    let output = hang(&stage, &["answers"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("run fine, ranks: 4; none waits in a collective"), "{text}");
    assert!(text.contains("run stuck, ranks: 3 of 4, no response from 3"), "{text}");
    let output = hang(&stage, &["--json", "answers"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["ranks"], &found["findings"][0]["run"]), (&json!(7), &json!("stuck")));
    assert_eq!(found["findings"][0]["culprits"][0]["rank"], json!(3));
    assert_eq!(found["runs"][1], json!({"run": "stuck", "ranks": 3, "silent": [3], "without_collectives": []}));
}

#[test]
fn nobody_waits_nobody_answers_and_bad_files_have_their_own_codes() {
    let stage = Stage::new();
    std::fs::write(stage.path("fine"), format!("{}\n{}", answer(0, 8, 8, ""), answer(1, 8, 8, ""))).unwrap();
    let output = hang(&stage, &["fine"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("none waits"));
    let missing = hang(&stage, &["missing"]);
    assert!(missing.status.code() == Some(2) && stderr(&missing).contains("missing: "), "{}", stderr(&missing));
    std::fs::write(stage.path("nccl_trace_rank_1"), b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.").unwrap();
    let evil = hang(&stage, &["nccl_trace_rank_1"]);
    assert!(evil.status.code() == Some(2) && stderr(&evil).contains("makes objects"), "{}", stderr(&evil));
    let host = hang(&stage, &["--via", "false {host}", "--host", "nowhere"]);
    assert!(host.status.code() == Some(2) && stderr(&host).contains("no rank answers"), "{}", stderr(&host));
}

/// Writes values as PyTorch's pickler does (`torch/csrc/jit/serialization/pickler.cpp`, protocol 2): texts and frames,
/// which several operations share, once; then references to them.
#[derive(Default)]
struct Pickler {
    bytes: Vec<u8>,
    stored: Vec<String>,
}

impl Pickler {
    fn dump(value: &Value) -> Vec<u8> {
        let mut pickler = Self { bytes: b"\x80\x02".to_vec(), ..Self::default() };
        pickler.value(value);
        pickler.bytes.push(b'.');
        pickler.bytes
    }

    /// True if the value is stored: only a reference was written.
    fn refers(&mut self, key: &str) -> bool {
        let Some(place) = self.stored.iter().position(|stored| stored == key) else { return false };
        match u8::try_from(place) {
            Ok(place) => self.bytes.extend([b'h', place]),
            Err(_) => self.bytes.extend([&b"j"[..], &(place as u32).to_le_bytes()].concat()),
        }
        true
    }

    fn store(&mut self, key: String) {
        match u8::try_from(self.stored.len()) {
            Ok(place) => self.bytes.extend([b'q', place]),
            Err(_) => self.bytes.extend([&b"r"[..], &(self.stored.len() as u32).to_le_bytes()].concat()),
        }
        self.stored.push(key);
    }

    fn text(&mut self, text: &str) {
        let key = format!("text {text}");
        if !self.refers(&key) {
            self.bytes.extend([&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat());
            self.store(key);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes.push(b'N'),
            Value::Bool(is_true) => self.bytes.push(if *is_true { 0x88 } else { 0x89 }),
            Value::String(text) => self.text(text),
            Value::Number(number) => {
                let number = number.as_i64().unwrap();
                match u8::try_from(number) {
                    Ok(small) => self.bytes.extend([b'K', small]),
                    Err(_) => self.bytes.extend([&b"\x8a\x08"[..], &number.to_le_bytes()].concat()),
                }
            }
            Value::Array(items) => {
                self.bytes.extend(b"](");
                items.iter().for_each(|item| self.value(item));
                self.bytes.push(b'e');
            }
            Value::Object(members) => {
                let is_frame = members.contains_key("filename");
                if is_frame && self.refers(&value.to_string()) {
                    return;
                }
                self.bytes.extend(b"}(");
                for (key, value) in members {
                    self.text(key);
                    self.value(value);
                }
                self.bytes.push(b'u');
                if is_frame {
                    self.store(value.to_string());
                }
            }
        }
    }
}

/// The dump of a rank that has queued these operations, all from the same lines of the program.
fn recorded(numbers: std::ops::Range<i64>, completed: i64) -> Value {
    let entries: Vec<Value> = numbers
        .clone()
        .map(|number| {
            let frames: Vec<Value> = (0..40)
                .map(|depth| json!({"name": format!("f{depth}"), "filename": "/home/u/train.py", "line": 100 + depth}))
                .collect();
            let state = if number <= completed { "completed" } else { "scheduled" };
            json!({"frames": frames, "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"],
                   "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce",
                   "time_created_ns": 1_790_000_000_000_000_000_i64 + number, "input_sizes": [[1024, 64]],
                   "input_dtypes": ["Float"], "output_sizes": [[1024, 64]], "output_dtypes": ["Float"],
                   "state": state, "time_discovered_started_ns": null, "time_discovered_completed_ns": null,
                   "retired": number <= completed, "timeout_ms": 600_000, "is_p2p": false})
        })
        .collect();
    json!({"version": "2.10", "entries": entries,
           "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
           "pg_status": {"0": {"last_enqueued_collective": numbers.end - 1, "last_started_collective": -1,
                               "last_completed_collective": completed}}})
}

#[test]
fn dumps_as_pytorch_writes_them_are_read() {
    let stage = Stage::new();
    for (rank, queued) in [(0, 300), (1, 299)] {
        let dump = Pickler::dump(&recorded(1..queued, 298));
        std::fs::write(stage.path(&format!("nccl_trace_rank_{rank}")), dump).unwrap();
    }
    let output = hang(&stage, &["--json", "nccl_trace_rank_0", "nccl_trace_rank_1"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &found["findings"][0];
    assert_eq!((&finding["culprits"][0]["rank"], &finding["waiting"]), (&json!(1), &json!([0])), "{found}");
    assert_eq!(finding["culprits"][0]["line"], "train.py:100 f0 (its newest operation)", "{found}");
}
