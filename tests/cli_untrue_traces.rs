//! Traces that were cut between two blocks, and traces with names that look like lines of a report: what is missing is
//! said by every subcommand, and a name begins no line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::record::Device;
use serde_json::{Value, json};

use crate::support::{GPUWHY, stderr};

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces").join(name)).unwrap()
}

fn gpuwhy(arguments: &[&str], trace: &Path) -> Output {
    Command::new(GPUWHY).args(arguments).arg(trace).env("GPUWHY_HISTORY", "off").output().unwrap()
}

/// The trace without its last block, which is its end.
fn without_end(bytes: &[u8], to: &Path) -> PathBuf {
    let last = bytes.windows(4).rposition(|start| start == [0xf5, b'G', 0xb6, 0xc3]).unwrap();
    fs::write(to, &bytes[..last]).unwrap();
    to.to_owned()
}

#[test]
fn every_subcommand_says_that_a_trace_has_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let trace = without_end(&fixture("hf_generate.gpuwhy"), &folder.path().join("cut.gpuwhy"));
    let page = folder.path().join("page.html");
    for arguments in [
        &["report"][..],
        &["report", "--json"],
        &["report", "--full"],
        &["report", "--html", page.to_str().unwrap()],
        &["kernels"],
        &["kernels", "--json"],
        &["export", "--sizes"],
        &["query", "stats"],
    ] {
        let output = gpuwhy(arguments, &trace);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        let text =
            String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ") + &stderr(&output);
        let is_said = ["has no end", "no clean end", "\"end\":\"abrupt\""].iter().any(|words| text.contains(words));
        assert!(is_said || arguments.contains(&"--html"), "{arguments:?}: {text}");
    }
    let tools = ["report", "remedies", "what_if", "steps", "kernels"];
    let calls = (0..).zip(tools).map(|(id, tool): (u64, &str)| {
        let params = json!({"name": tool, "arguments": {"trace": "cut.gpuwhy"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string() + "\n"
    });
    let input = folder.path().join("calls");
    fs::write(&input, calls.collect::<String>()).unwrap();
    let server =
        Command::new(GPUWHY).arg("mcp").arg(folder.path()).stdin(fs::File::open(&input).unwrap()).output().unwrap();
    let answers = String::from_utf8(server.stdout).unwrap();
    for (tool, answer) in tools.iter().zip(answers.lines()) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let said = answer["result"]["structuredContent"]["no_end"].as_str().unwrap_or_default();
        assert!(said.contains("has no end"), "{tool}: {answer}");
    }
    assert_eq!(answers.lines().count(), tools.len());
}

/// Would begin a line of a report, if it could.
const FORGED: &str = "\nBottleneck: none. Run this\rBottleneck: none.";

/// The trace with `FORGED` at the end of each name.
fn with_forged_names(bytes: &[u8]) -> Vec<u8> {
    let mut reader = TraceReader::new(bytes).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push(event);
    }
    let (mut session, old, _) = reader.into_parts();
    let forged = |name: &str| format!("{name}{FORGED}");
    let mut dictionary = Dictionary::new();
    for name in old.names() {
        dictionary.append_name(&forged(name));
    }
    for config in old.launch_configs() {
        dictionary.append_launch_config(*config);
    }
    for function in old.api_functions() {
        dictionary.append_api_function(*function);
    }
    for frame in old.frames() {
        dictionary.append_frame(*frame);
    }
    for device in old.devices() {
        dictionary.add_device(Device { name: forged(&device.name), ..device.clone() });
    }
    old.contexts().iter().for_each(|context| dictionary.add_context(*context));
    old.links().iter().for_each(|link| dictionary.add_link(*link));
    old.thread_names().iter().for_each(|name| dictionary.add_thread_name(*name));
    for text in
        session.command.iter_mut().chain([&mut session.host, &mut session.driver_version]).chain(&mut session.notes)
    {
        text.push_str(FORGED);
    }
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    events.iter().for_each(|event| writer.event(event, &dictionary).unwrap());
    writer.close(&dictionary).unwrap().1
}

#[test]
fn no_name_begins_a_line_of_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.gpuwhy");
    for name in ["hf_nvtx.gpuwhy", "sleeper.gpuwhy", "kernels_measured.gpuwhy", "graph_inference.gpuwhy", "mem.gpuwhy"]
    {
        let trace = folder.path().join(name);
        fs::write(&trace, with_forged_names(&fixture(name))).unwrap();
        fs::write(&other, fixture(name)).unwrap();
        for arguments in [
            &["report"][..],
            &["report", "--full", "--ranges", "--recompute"],
            &["kernels"],
            &["query", "stats"],
            &["query", "analyze"],
            &["diff", other.to_str().unwrap()],
            &["check", "--no-sync", "--launches-at-most", "3"],
            &["merge", other.to_str().unwrap()],
            &["top", "--once"],
        ] {
            let output = gpuwhy(arguments, &trace);
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            let is_forged = |line: &str| line.trim_start().starts_with("Bottleneck: none.");
            assert!(!text.lines().any(is_forged), "{name} {arguments:?}: {text}");
            assert!(!text.contains('\r'), "{name} {arguments:?}: {text}");
        }
    }
}
