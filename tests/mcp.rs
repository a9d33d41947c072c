//! `gpuwhy mcp` as a process: its pipes, its end, and lines that are no requests. `python/tests/test_mcp.py` calls the
//! tools with a client of the protocol.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::GPUWHY;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/traces");

fn server(folder: &Path) -> Command {
    let mut command = Command::new(GPUWHY);
    command.arg("mcp").arg(folder).env("GPUWHY_HISTORY", "off");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Output of the server for these lines, after which its input ends.
fn told(folder: &Path, lines: &str) -> (Output, Vec<Value>) {
    let mut server = server(folder).spawn().unwrap();
    server.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = server.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let answers = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    let answers = answers.collect();
    (output, answers)
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string() + "\n"
}

#[test]
fn what_was_asked_before_the_end_of_the_input_is_answered() {
    let initialize =
        r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}"#;
    let calls =
        call(2, "report", &json!({"trace": "sleeper.gpuwhy"})) + &call(3, "explain", &json!({"word": "launch"}));
    let (output, answers) = told(Path::new(TRACES), &format!("{initialize}\n\n{calls}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[1]["result"]["structuredContent"]["cause"], "host_cpu");
    assert!(answers[1]["result"].get("resultType").is_none(), "a field of a later revision");
}

#[test]
fn lines_that_are_no_requests_do_not_end_the_server() {
    let long = format!("{{\"jsonrpc\": \"{}\"}}", "x".repeat(3 << 20));
    let unknown = call(7, "rm", &json!({}));
    let lines = format!("{{\n{long}\n\u{fffd}\n[]\n{unknown}{{\"id\": 8, \"method\": \"resources/list\"}}\n");
    let (output, answers) = told(Path::new(TRACES), &(lines + r#"{"jsonrpc": "2.0", "id": 9, "method": "ping"}"#));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    codes.sort();
    let expected = [None, Some(-32700), Some(-32700), Some(-32700), Some(-32602), Some(-32601), Some(-32600)];
    assert_eq!(codes, expected, "{answers:?}");
    let refused = answers.iter().find(|answer| answer["id"] == 7).unwrap();
    assert!(refused["error"]["message"].as_str().unwrap().contains("list_traces"), "{refused}");
}

#[test]
fn a_folder_is_asked_without_links_out_of_it_and_files_that_are_no_traces() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir_all(root.join("below")).unwrap();
    fs::copy(format!("{TRACES}/sleeper.gpuwhy"), root.join("sleeper.gpuwhy")).unwrap();
    fs::write(root.join("foreign.gpuwhy"), "no trace").unwrap();
    for link in ["link.gpuwhy", "below/link.gpuwhy"] {
        symlink(format!("{TRACES}/numpy_post.gpuwhy"), root.join(link)).unwrap();
    }
    let sql = "SELECT count(*) AS n FROM kernels";
    let asked = |id, traces: &[&str]| call(id, "query", &json!({"sql": sql, "traces": traces}));
    let calls = [
        call(1, "list_traces", &json!({})),
        call(2, "query", &json!({"sql": sql})),
        asked(3, &["foreign.gpuwhy"]),
        asked(4, &["below"]),
    ];
    let (_, answers) = told(&root, &calls.concat());
    let [listed, all, named, none] = [0, 1, 2, 3].map(|at| &answers[at]["result"]);
    let facts = &listed["structuredContent"];
    let traces: Vec<_> = facts["traces"].as_array().unwrap().iter().map(|row| &row["trace"]).collect();
    assert!(!traces.contains(&&"link.gpuwhy".into()) && facts["folders"] == json!([]), "{listed}");
    assert!(facts["left_out"][0].as_str().unwrap().contains("link.gpuwhy: skipped, as it is a link out"), "{listed}");
    let facts = &all["structuredContent"];
    assert_eq!(facts["traces"], json!(["sleeper.gpuwhy"]), "{all}");
    let left_out = facts["left_out"].to_string();
    assert!(left_out.contains("link.gpuwhy: skipped") && left_out.contains("foreign.gpuwhy: "), "{all}");
    assert!(named["isError"] == true && named.to_string().contains("foreign.gpuwhy"), "{named}");
    assert!(none["isError"] == true && none.to_string().contains("a link out of the folder"), "{none}");
}

/// A server whose answers are read one by one.
struct Talk {
    server: Child,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    fn begin() -> Self {
        Self::with(&mut server(Path::new(TRACES)))
    }

    fn with(server: &mut Command) -> Self {
        let mut server = server.spawn().unwrap();
        let answers = BufReader::new(server.stdout.take().unwrap());
        Self { server, answers }
    }

    fn say(&mut self, line: &str) {
        self.server.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

#[test]
fn a_cancelled_call_gets_no_answer_and_others_do_not_wait_for_it() {
    let mut talk = Talk::begin();
    // Without a limit this query would not end.
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n, kernels";
    talk.say(&call(1, "query", &json!({"sql": endless, "traces": ["graph_inference.gpuwhy"]})));
    talk.say("{\"jsonrpc\": \"2.0\", \"id\": 2, \"method\": \"ping\"}\n");
    assert_eq!(talk.answer(), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    talk.say(&format!("{cancelled}\n"));
    talk.say(&call(3, "explain", &json!({"word": "launch"})));
    assert_eq!(talk.answer()["id"], 3);
    drop(talk.server.stdin.take());
    assert!(talk.server.wait().unwrap().success());
}

/// Computes for minutes within one step of SQLite.
const ENDLESS_STEP: &str = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1') AS x";

fn ask_endless(talk: &mut Talk) {
    talk.say(&call(1, "query", &json!({"sql": ENDLESS_STEP, "traces": ["sleeper.gpuwhy"]})));
}

/// The child of `process`, once it has one.
fn child_of(process: u32) -> u32 {
    loop {
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut all = all.filter(|id| parent(*id) == Some(process));
        if let Some(child) = all.next() {
            return child;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The parent of a process that runs.
fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = status.rsplit(')').next()?.split_whitespace();
    let is_running = words.next() != Some("Z");
    words.next()?.parse().ok().filter(|_| is_running)
}

#[test]
fn a_query_is_stopped_within_a_function() {
    let mut talk = Talk::begin();
    ask_endless(&mut talk);
    let worker = child_of(talk.server.id());
    talk.say("{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\", \"params\": {\"requestId\": 1}}\n");
    talk.say(&call(2, "explain", &json!({"word": "launch"})));
    assert_eq!(talk.answer()["id"], 2);
    assert_eq!(parent(worker), None);
    drop(talk.server.stdin.take());
    assert!(talk.server.wait().unwrap().success());
}

#[test]
fn a_query_ends_with_its_client_and_with_the_server() {
    let mut talk = Talk::begin();
    ask_endless(&mut talk);
    let worker = child_of(talk.server.id());
    let Talk { mut server, answers } = talk;
    let stdin = server.stdin.take();
    drop(answers);
    assert_eq!(server.wait().unwrap().code(), Some(0), "although its input is open");
    assert_eq!(parent(worker), None);
    drop(stdin);
    let mut talk = Talk::begin();
    ask_endless(&mut talk);
    let worker = child_of(talk.server.id());
    talk.server.kill().unwrap();
    talk.server.wait().unwrap();
    while parent(worker).is_some() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_query_that_needs_too_much_memory_fails_alone() {
    let large = "SELECT length(hex(zeroblob(450000000))) AS n";
    let small = "SELECT length(hex(zeroblob(45000000))) AS n";
    let asked = |id, sql| call(id, "query", &json!({"sql": sql, "traces": ["sleeper.gpuwhy"]}));
    let (output, answers) = told(Path::new(TRACES), &(asked(1, large) + &asked(2, small)));
    assert!(output.status.success(), "{output:?}");
    let refused = &answers[0]["result"];
    assert!(refused["isError"] == true && refused.to_string().contains("memory"), "{refused}");
    assert_eq!(answers[1]["result"]["structuredContent"]["rows"], json!([{"n": 90_000_000}]));
}

#[test]
fn a_change_is_measured_only_if_the_user_allows_to_run_commands() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), "value 1\n").unwrap();
    let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-value 1\n+value 2\n";
    fs::write(folder.path().join("old.diff"), diff.replace("value 1", "value 7")).unwrap();
    let asked = |id, arguments: Value| call(id, "try", &arguments);
    let command = json!(["cat", "x"]);
    let calls = [
        asked(1, json!({"command": command, "patch_text": diff, "remedies": ["file_output"]})),
        asked(2, json!({"command": command, "patch": "old.diff"})),
        asked(3, json!({"command": command, "patch": "../old.diff"})),
        asked(4, json!({"command": command, "env": ["A=1"], "budget_s": 60})),
    ];
    let (_, refused) = told(folder.path(), &calls[0]);
    assert!(refused[0]["result"]["isError"] == true && refused[0].to_string().contains("--allow-run"), "{refused:?}");
    let mut talk = Talk::with(server(folder.path()).arg("--allow-run"));
    talk.say(&calls.concat());
    let [tried, old, outside, variable] = [(); 4].map(|()| talk.answer()["result"].take());
    let row = &tried["structuredContent"]["remedies"][0];
    assert_eq!((&row["id"], &row["output_changed"]), (&"file_output".into(), &"value 2".into()), "{tried}");
    assert_eq!(fs::read_to_string(folder.path().join("x")).unwrap(), "value 1\n");
    assert!(old["isError"] == true && old.to_string().contains("old.diff: it does not apply"), "{old}");
    assert!(outside["isError"] == true, "{outside}");
    assert_eq!(variable["structuredContent"]["remedies"][0]["id"], "env A", "{variable}");
    drop(talk.server.stdin.take());
    assert!(talk.server.wait().unwrap().success());
}

#[test]
fn a_measurement_ends_with_its_call_and_with_the_server() {
    for is_cancelled in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        let mut talk = Talk::with(server(folder.path()).arg("--allow-run").env("TMPDIR", &temporary));
        let script = "setsid sleep 1000 & echo $! > child; sleep 1000";
        talk.say(&call(1, "try", &json!({"command": ["sh", "-c", script], "env": ["A=1"]})));
        let child = loop {
            match fs::read_to_string(folder.path().join("child")).unwrap_or_default().trim().parse() {
                Ok(child) => break child,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        if is_cancelled {
            talk.say(
                "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\", \"params\": {\"requestId\": 1}}\n",
            );
            talk.say(&call(2, "explain", &json!({"word": "launch"})));
            assert_eq!(talk.answer()["id"], 2);
        } else {
            talk.server.kill().unwrap();
        }
        while parent(child).is_some() || fs::read_dir(&temporary).unwrap().count() > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        drop(talk.server.stdin.take());
        talk.server.wait().unwrap();
    }
}

#[test]
fn the_server_ends_when_its_reader_is_gone() {
    let Talk { mut server, answers } = Talk::begin();
    drop(answers);
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(call(1, "explain", &json!({})).as_bytes()).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0), "although its input is open");
    drop(stdin);
}

#[test]
fn a_folder_that_is_none_is_refused() {
    let output = server(Path::new("/nowhere")).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere: cannot read this folder"), "{output:?}");
}
