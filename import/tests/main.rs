//! A file of any format is opened only once, and reading stops when the caller requests it.

#[cfg(feature = "source")]
mod source;

use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gpuwhy_import::{Input, OpenError, Request, TraceFile, unwatched};
use tempfile::TempDir;

/// A Kineto trace with `kernels` launches and kernels.
fn kineto(kernels: u32) -> String {
    let mut text = String::from(r#"{"schemaVersion": 1, "traceEvents": ["#);
    for number in 1..=kernels {
        let comma = if number > 1 { "," } else { "" };
        let at = number * 10;
        text += &format!(
            r#"{comma}{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {at}, "dur": 2, "args": {{"correlation": {number}}}}},
            {{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {}, "dur": 3, "args": {{"device": 0, "stream": 7, "correlation": {number}}}}}"#,
            at + 4
        );
    }
    text + "]}"
}

/// The same run as JSON and as a trace, each uncompressed and compressed.
fn files(kernels: u32) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let json = kineto(kernels);
    let mut trace = Vec::new();
    gpuwhy_import::translate_kineto(json.as_bytes(), &mut trace).unwrap();
    let mut paths = Vec::new();
    for (name, bytes) in [("run.json", json.as_bytes()), ("run.gpuwhy", &trace)] {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        for (path, bytes) in [(name.to_owned(), bytes), (format!("{name}.gz"), &packed.finish().unwrap())] {
            paths.push(folder.path().join(path));
            fs::write(paths.last().unwrap(), bytes).unwrap();
        }
    }
    (folder, paths)
}

/// Number of kernels that a pass sees.
fn kernels(trace: &TraceFile) -> usize {
    let mut kernels = 0;
    let passed = trace.pass(&mut unwatched, |item, _| {
        kernels +=
            usize::from(matches!(item, gpuwhy_trace::event::Event::Record(gpuwhy_trace::record::Record::Kernel(_))));
        Ok::<_, OpenError>(())
    });
    assert!(passed.unwrap().damaged().is_empty());
    kernels
}

#[test]
fn a_file_removed_after_opening_can_be_read_repeatedly() {
    let (_folder, paths) = files(30);
    for path in &paths {
        let trace = TraceFile::open(path).unwrap();
        let input = Input::open(path).unwrap();
        let part = Input::open(path).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!([kernels(&trace), kernels(&trace)], [30, 30], "{}", path.display());
        let report = input.report(Request::default(), &mut unwatched).unwrap();
        assert_eq!(report.devices[0].kernels[0].durations.count(), 30, "{}", path.display());
        let window = Some((std::time::Duration::ZERO, std::time::Duration::from_micros(100)));
        let part = part.report(Request { window, ..Request::default() }, &mut unwatched);
        assert_eq!(part.is_ok(), !path.to_string_lossy().contains("json"), "{part:?}");
    }
}

#[test]
fn json_with_a_byte_order_mark_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    fs::write(&path, format!("\u{feff}{}", kineto(3))).unwrap();
    assert_eq!(kernels(&TraceFile::open(&path).unwrap()), 3);
    assert!(gpuwhy_import::open(&path).is_ok());
}

#[test]
fn the_caller_can_interrupt_reading_at_any_time() {
    // Enough records that processing them also calls the progress callback.
    let (_folder, paths) = files(10_000);
    for path in &paths {
        let run = |after: u32, work: &dyn Fn(&mut gpuwhy_import::Progress<'_>) -> Option<OpenError>| {
            let mut calls = 0;
            let error = work(&mut |_, _| {
                calls += 1;
                if calls > after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (calls, error)
        };
        let report = |path: &Path| {
            let path = path.to_owned();
            move |progress: &mut gpuwhy_import::Progress<'_>| gpuwhy_import::open_watched(&path, None, progress).err()
        };
        let trace = |path: &Path| {
            let path = path.to_owned();
            move |progress: &mut gpuwhy_import::Progress<'_>| TraceFile::open_process(&path, None, progress).err()
        };
        for work in [&report(path) as &dyn Fn(&mut gpuwhy_import::Progress<'_>) -> _, &trace(path)] {
            let (whole, error) = run(u32::MAX, work);
            assert!(error.is_none(), "{error:?}");
            for after in [0, whole / 2, whole - 1] {
                let (_, error) = run(after, work);
                assert!(error.is_some_and(|error| error.is_interrupted()), "{} after {after}", path.display());
            }
        }
    }
}

#[test]
fn errors_print_as_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "no trace\n").unwrap();
    let error = gpuwhy_import::open(&path).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(error.to_string(), format!("{}: not a gpuwhy trace: at byte 0 it looks like text", path.display()));
    assert_eq!(error.path(), path);
}
