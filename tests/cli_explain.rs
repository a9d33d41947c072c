//! `gpuwhy report --explain`: terms of the report, their spellings, the message for unknown ones, and color.

use std::process::{Command, Output};

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(["report", "--explain"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_word_is_explained_with_how_it_is_measured() {
    let output = explain(&["dispatch"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let said = text(&output.stdout);
    assert!(said.contains("Counts as: launch") && said.contains("100 us"), "{said}");
    assert!(!said.contains('\x1b') && said.lines().all(|line| line.chars().count() <= 100), "{said}");
    assert_eq!(explain(&["data_loading"]).stdout, explain(&["Data", "loading"]).stdout);
}

#[test]
fn without_a_word_all_are_listed() {
    let output = explain(&[]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    for word in ["(gpu_compute)", "sync_drain", "no_syncs"] {
        assert!(said.contains(word), "{word} is missing: {said}");
    }
}

#[test]
fn remedies_are_listed_and_explained() {
    let said = text(&explain(&["remedies"]).stdout);
    assert!(said.contains("tf32") && said.contains("fused_optimizer"), "{said}");
    let said = text(&explain(&["sdpa"]).stdout);
    for words in ["scaled_dot_product_attention", "Recognized by: ", "Gain: ", "Not when: ", "https://"] {
        assert!(said.contains(words), "{words} is missing: {said}");
    }
}

#[test]
fn an_unknown_word_is_answered_with_the_nearest_one() {
    let output = explain(&["no_sinks"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && text(&output.stderr).contains("did you mean `no_syncs`?"));
}

#[test]
fn output_to_a_pipe_has_color_on_demand_only() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/traces/numpy_post.gpuwhy");
    for words in [&["report", "--explain", "launch"][..], &["report", trace]] {
        for (force, is_colored) in [("0", false), ("1", true)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
            let output = command.args(words).env("CLICOLOR_FORCE", force).output().unwrap();
            let said = text(&output.stdout);
            assert_eq!(said.contains("\x1b[1m"), is_colored, "{words:?} {force}: {said}");
        }
    }
}
