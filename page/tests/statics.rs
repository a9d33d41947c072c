//! The static part of a page: the complete report, no script except the page's own, no network.

use gpuwhy_import::{TraceFile, unwatched};
use gpuwhy_page::write_report;
use gpuwhy_page_reader as read;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Kernel, Loss, RangeEvent, RangeEventKind, Record, StreamId, ThreadId, ThreadName};
use serde_json::Value;

use crate::page::{Stage, at, launches, launches_with, options};

#[test]
fn the_answer_is_there_without_scripts() {
    let stage = Stage::of(&launches(1000, "my_kernel", "train"));
    let page = stage.page(&options());
    let report = stage.file().report(None, &mut unwatched).unwrap();
    let visible = &page.text[..page.text.find("id=\"gpuwhy-").unwrap()];
    for wanted in [&report.conclusion()[..40], "my_kernel", "cudaLaunchKernel", "Nothing is missing from the trace."] {
        assert!(visible.contains(wanted), "{wanted}");
    }
    let document: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(page.manifest()["report"], document);
    assert!(page.outcome.damage.is_empty());
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let stage = Stage::of(&launches(300, "my_kernel", "train"));
    assert_eq!(stage.page(&options()).text, stage.page(&options()).text);
}

/// Names come from the traced program, which may be malicious.
#[test]
fn no_name_leaves_its_place() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u{202e}\0";
    let huge = "k".repeat(1 << 20);
    for name in [hostile, &huge] {
        let stage = Stage::of(&launches(200, name, name));
        let page = stage.page(&options());
        assert!(page.text.len() < 700_000, "{}", page.text.len());
        let own = page.text.matches("<script>").count();
        assert_eq!(own, 1, "one script, that of the page");
        assert!(!page.text.contains("<img") && !page.text.contains('\u{202e}') && !page.text.contains('\0'));
    }
}

#[test]
fn the_policy_allows_one_script_one_style_and_no_network() {
    let page = Stage::of(&launches(10, "k", "c")).page(&options()).text;
    let policy = page.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains("connect-src"), "{policy}");
    assert_eq!(policy.matches("sha256-").count(), 2);
}

#[test]
fn a_trace_that_is_cut_off_gives_a_page_that_says_so() {
    let whole = launches(4000, "my_kernel", "train");
    let page = Stage::of(&whole[..whole.len() * 2 / 3]).page(&options());
    assert!(!page.outcome.damage.is_empty() || page.text.contains("The trace has no end"), "{:?}", page.outcome);
    assert!(page.text.contains("class=\"badge incomplete\""));
}

/// For any damage of a trace, its page is complete or an error names the file.
#[test]
fn damage_anywhere_gives_a_page_that_says_so_or_an_error() {
    let whole = launches(600, "my_kernel", "train");
    let (mut reported, mut refused) = (0, 0);
    for place in (0..whole.len()).step_by(whole.len() / 60) {
        let mut damaged = whole.clone();
        let end = damaged.len().min(place + 9);
        damaged[place..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let stage = Stage::of(&damaged);
        let mut out = Vec::new();
        let file = match TraceFile::open(&stage.trace) {
            Ok(file) => file,
            Err(error) => {
                assert!(error.to_string().contains("trace.gpuwhy"), "{error}");
                refused += 1;
                continue;
            }
        };
        let outcome = write_report(&file, &options(), &mut out, &mut unwatched).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("</html>\n"));
        let manifest: Value = serde_json::from_slice(&read::block(&text, "doc").unwrap()).unwrap();
        let says = !outcome.damage.is_empty() || !manifest["missing"].as_array().unwrap().is_empty();
        assert!(says, "damage at {place} of {} is not told", whole.len());
        reported += 1;
    }
    assert!(reported > 20 && refused > 0, "{reported} pages, {refused} errors");
}

/// A step of the system clock shifts everything after it; the page is complete, and equals the report.
#[test]
fn a_clock_that_steps_gives_a_page() {
    for step in [-1_900_i64, -3, 900_000_000] {
        let stage = Stage::of(&launches_with(400, "my_kernel", "train", |micros| {
            micros.saturating_add_signed(if micros > 2_000 { step } else { 0 })
        }));
        let page = stage.page(&options());
        let manifest = page.manifest();
        let report = stage.file().report(None, &mut unwatched).unwrap();
        let document = serde_json::to_value(&report).unwrap();
        assert_eq!(manifest["report"], document, "{step}");
        let streams = manifest["timeline"]["lanes"].as_array().unwrap().iter().filter(|lane| lane["kind"] == "stream");
        let kernels: u64 = streams.map(|lane| lane["embedded"].as_u64().unwrap()).sum();
        let outside = manifest["timeline"]["lost"]["outside"].as_u64().unwrap();
        assert!(kernels > 100 && kernels + outside >= 400, "{step}: {kernels} shown, {outside} outside");
        let window = manifest["timeline"]["window_ns"].as_u64().unwrap();
        assert!(window > 0 && window <= report.observed_ns, "{step}: {window} of {}", report.observed_ns);
    }
}

#[test]
fn an_empty_trace_gives_a_page() {
    let page = Stage::of(&launches(0, "k", "c")).page(&options());
    assert!(page.text.contains("No GPU work"));
    let one = Stage::of(&launches(1, "k", "c")).page(&options());
    assert!(one.text.contains("GPU 0"));
}

/// A trace names a thread after its first events; ranges say how deep they are nested.
#[test]
fn rows_of_threads_have_their_names() {
    let mut dictionary = Dictionary::new();
    let message = dictionary.intern_name("outer");
    let session = ProcessInfo { process_id: 4711, start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let kernel = Kernel { start: at(1), end: at(9), stream: StreamId(7), ..Kernel::default() };
    writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
    let mut range = |kind, micros, dictionary: &Dictionary| {
        let event = RangeEvent { kind, thread: ThreadId(9), at: at(micros), message, ..RangeEvent::default() };
        writer.event(&Event::Record(Record::Range(event)), dictionary).unwrap();
    };
    range(RangeEventKind::Push, 2, &dictionary);
    range(RangeEventKind::Push, 3, &dictionary);
    range(RangeEventKind::Pop, 4, &dictionary);
    let name = dictionary.intern_name("loader");
    dictionary.add_thread_name(ThreadName { thread: ThreadId(9), name });
    range(RangeEventKind::Pop, 5, &dictionary);
    let trace = writer.finish(End::Clean, at(10), &Loss::default(), &dictionary).unwrap();
    let manifest = Stage::of(&trace).page(&options()).manifest();
    let lanes = manifest["timeline"]["lanes"].as_array().unwrap();
    let lane = lanes.iter().find(|lane| lane["kind"] == "ranges").unwrap();
    assert_eq!((&lane["label"], &lane["levels"]), (&"loader (9)".into(), &2.into()));
}
