//! A redacted page reveals no private data of its user, and has the same numbers.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use gpuwhy_page::Options;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, CorrelationId, Frame, HostSample, Kernel, LaunchConfig, Loss, RangeEvent,
    RangeEventKind, Record, StackId, StreamId, ThreadId, ThreadName, ThreadState,
};
use serde_json::Value;

use crate::page::{Page, Stage, at, options};

/// Texts that a redacted page must not contain.
const SECRETS: [&str; 7] =
    ["alice", "node7.example", "secret_project", "--token=abc", "train a secret", "Secrets", "the secret thread"];

const CODE: &str = "/home/alice/secret_project/train.py";

/// 200 steps with ranges, and a thread that computes in a file of Alice's between launches.
fn program(code: &str) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let [kernel, call, step, secret, domain, function, file, torch, thread, empty] = [
        "my_gemm",
        "cudaLaunchKernel",
        "step 1",
        "train a secret",
        "Secrets",
        "augment",
        code,
        "/home/alice/venv/lib/python3.11/site-packages/torch/nn/module.py",
        "the secret thread",
        "",
    ]
    .map(|name| dictionary.intern_name(name));
    let config = dictionary.intern_launch_config(LaunchConfig { name: kernel, ..LaunchConfig::default() });
    let function_id =
        dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name: call });
    let outer = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 42 });
    let stack = dictionary.intern_frame(Frame { caller: outer, function, file: torch, line: 7 });
    dictionary.add_thread_name(ThreadName { thread: ThreadId(9), name: thread });
    let session = ProcessInfo {
        process_id: 4711,
        command: ["python", "/home/alice/secret_project/train.py", "--token=abc"].map(str::to_owned).into(),
        host: "node7.example".into(),
        start: at(0),
        notes: vec!["no stacks of /home/alice/x on node7.example".into()],
        cupti_path: "/home/alice/venv/lib/libcupti.so".into(),
        gpuwhy_version: "0.2.0".into(),
        rank_variables: vec![("RANK".into(), "3".into()), ("SLURM_JOB_NAME".into(), "secret_project".into())],
        ..ProcessInfo::default()
    };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    for number in 0..200_u32 {
        let begin = u64::from(number) * 1_000;
        let (thread, correlation) = (ThreadId(9), CorrelationId(number + 1));
        let range = |kind, message, micros| {
            let at = at(begin + micros);
            Record::Range(RangeEvent { kind, at, thread, message, domain, category: empty, ..RangeEvent::default() })
        };
        let (since, state) = (at(begin.saturating_sub(600)), ThreadState::Running);
        let on_cpu = at(begin + 400).since(since);
        let sample = HostSample { since, at: at(begin + 400), thread, state, stack, on_cpu, ..HostSample::default() };
        let (start, end) = (at(begin + 800), at(begin + 805));
        let call = ApiCall { start, end, thread, correlation, function: function_id, return_value: 0 };
        let (start, end) = (at(begin + 810), at(begin + 960));
        let kernel = Kernel { start, end, stream: StreamId(7), correlation, config, ..Kernel::default() };
        for record in [
            range(RangeEventKind::Push, step, 1),
            range(RangeEventKind::Push, secret, 2),
            Record::Sample(sample),
            Record::Api(call),
            Record::Kernel(kernel),
            range(RangeEventKind::Pop, empty, 970),
            range(RangeEventKind::Pop, empty, 980),
        ] {
            writer.event(&Event::Record(record), &dictionary).unwrap();
        }
    }
    writer.finish(End::Clean, at(200_000), &Loss::default(), &dictionary).unwrap()
}

/// Complete contents of a page: its text, and its decoded blocks.
fn everything(page: &Page) -> String {
    let mut all = page.text.clone();
    for part in page.text.split("id=\"gpuwhy-").skip(1) {
        let name = &part[..part.find('"').unwrap()];
        all.push_str(&String::from_utf8_lossy(&page.block(name)));
    }
    all
}

#[test]
fn a_page_for_strangers_tells_nothing_of_its_user() {
    let stage = Stage::of(&program(CODE));
    let open = everything(&stage.page(&options()));
    for secret in SECRETS {
        assert!(open.contains(secret), "the test has no {secret}");
    }
    let page = stage.page(&Options { redact: true, ..options() });
    let reported = everything(&page);
    for secret in SECRETS {
        let place = reported.find(secret).map(|at| &reported[at.saturating_sub(200)..reported.len().min(at + 80)]);
        assert_eq!(place, None, "{secret}");
    }
    for kept in ["my_gemm", "cudaLaunchKernel", "augment", "/site-packages/torch/nn/module.py"] {
        assert!(reported.contains(kept), "{kept}");
    }
    assert!(reported.contains("/train.py") && reported.contains("<range 1>") && reported.contains("&lt;command&gt;"));
}

/// Steps are detected by ranges, and lines by folders: neither depends on the placeholders.
#[test]
fn marks_change_no_number() {
    let stage = Stage::of(&program(CODE));
    let [open, marked] = [false, true].map(|redact| stage.page(&Options { redact, ..options() }).manifest());
    assert!(open["report"]["devices"][0]["steps"]["seen"].as_u64().unwrap() > 100);
    assert!(open["report"]["host"]["lines"].as_array().is_some_and(|lines| !lines.is_empty()));
    let without_texts = |manifest: &Value| {
        fn numbers(value: &Value, into: &mut Vec<String>) {
            match value {
                Value::Array(rows) => rows.iter().for_each(|row| numbers(row, into)),
                Value::Object(fields) => fields.values().for_each(|field| numbers(field, into)),
                Value::String(_) => {}
                other => into.push(other.to_string()),
            }
        }
        let mut all = Vec::new();
        numbers(&manifest["report"], &mut all);
        // Packed names have different lengths, so blocks may have different numbers; the events are the same.
        let lanes = manifest["timeline"]["lanes"].as_array().unwrap();
        all.extend(lanes.iter().map(|lane| format!("{} {} {}", lane["kind"], lane["events"], lane["embedded"])));
        all
    };
    assert_eq!(without_texts(&open), without_texts(&marked));
}

#[test]
fn source_code_is_shown_only_if_asked_for_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    let rows: Vec<String> = (1..=60).map(|number| format!("\tcode_{number}(\"<b>\")")).collect();
    fs::write(&path, rows.join("\n")).unwrap();
    let stage = Stage::of(&program(path.to_str().unwrap()));
    let wanted = Options { sources: true, ..options() };
    // It is newer than the run.
    let page = stage.page(&wanted);
    assert!(!everything(&page).contains("code_42") && page.outcome.left_out[0].contains("after the run began"));
    let older = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(older).unwrap();
    let page = stage.page(&wanted);
    let excerpts = &page.manifest()["sources"];
    assert_eq!((&excerpts[0]["line"], &excerpts[0]["first"]), (&Value::from(42), &Value::from(39)));
    assert_eq!(excerpts[0]["text"].as_array().unwrap().len(), 7);
    assert!(page.text.contains("&gt;    42      code_42(&quot;&lt;b&gt;&quot;)"), "the static page has it");
    assert!(!everything(&page).contains("code_46"), "three lines around");
    for options in [options(), Options { redact: true, ..wanted }] {
        assert!(!everything(&stage.page(&options)).contains("code_42"));
    }
}
