//! The static part of a page: the whole answer, nothing that runs but the page's own script, no network.

use gpuwhy_import::unwatched;
use profiler_core::report::json::Document;
use serde_json::Value;

use crate::page::{Stage, launches, options};

#[test]
fn the_answer_is_there_without_scripts() {
    let stage = Stage::of(&launches(1000, "my_kernel", "train"));
    let page = stage.page(&options());
    let report = stage.file().report(None, &mut unwatched).unwrap();
    let visible = &page.text[..page.text.find("id=\"gpuwhy-").unwrap()];
    for wanted in [&report.conclusion()[..40], "my_kernel", "cudaLaunchKernel", "Nothing is missing from the trace."] {
        assert!(visible.contains(wanted), "{wanted}");
    }
    let document: Value = serde_json::to_value(Document::new(&report)).unwrap();
    assert_eq!(page.manifest()["report"], document);
    assert!(page.outcome.damage.is_empty());
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let stage = Stage::of(&launches(300, "my_kernel", "train"));
    assert_eq!(stage.page(&options()).text, stage.page(&options()).text);
}

/// Names come from the traced program, which may not be a friend.
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

#[test]
fn an_empty_trace_gives_a_page() {
    let page = Stage::of(&launches(0, "k", "c")).page(&options());
    assert!(page.text.contains("No GPU work"));
    let one = Stage::of(&launches(1, "k", "c")).page(&options());
    assert!(one.text.contains("GPU 0"));
}
