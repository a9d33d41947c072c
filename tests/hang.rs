//! `gpuwhy hang`: the response of a running process, and the analysis of many responses.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
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

/// `job.py` beside the dumps says how PyTorch wrote them.
#[test]
fn dumps_that_pytorch_wrote_are_read() {
    let stage = Stage::new();
    let dumps = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/flight_recorder");
    let dump = |rank: u32| dumps.join(format!("nccl_trace_rank_{rank}")).into_os_string().into_string().unwrap();
    let output = hang(&stage, &["--json", &dump(0), &dump(1)]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &found["findings"][0];
    assert_eq!((&finding["number"], &finding["waiting"]), (&json!(441), &json!([0])), "{found}");
    assert_eq!(finding["culprits"][0]["rank"], 1, "{found}");
    assert_eq!(finding["culprits"][0]["line"], "model.py:220 <module> (its newest operation)", "{found}");
}
