//! Inputs that commands accept as a trace: files, pipes, folders, compressed or not; and inputs that they
//! refuse.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{GPUWHY, Stage, stderr};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// A recorded session as a trace, and as an SQLite file.
fn played() -> Stage {
    let stage = Stage::new();
    assert!(stage.host("sync_item").status().unwrap().success());
    let output = gpuwhy(&["export", "--to", "sqlite", "-o", "trace.sqlite", "trace.gpuwhy"], &stage);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stage
}

fn gpuwhy(arguments: &[&str], stage: &Stage) -> Output {
    Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    packed_by(Compression::best(), bytes)
}

fn packed_by(level: Compression, bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Output of `command` for `bytes` from a pipe. `-` among the arguments is the place of the pipe.
fn piped(command: &[&str], bytes: &[u8]) -> Output {
    let mut process = Command::new(GPUWHY);
    process.args(command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // In pieces, as from a slow program; the first is too short to show the format.
        scope.spawn(move || {
            let _ = stdin.write_all(&bytes[..1]).and_then(|()| stdin.write_all(&bytes[1..]));
        });
        process.wait_with_output().unwrap()
    })
}

#[test]
fn opening_tells_how_far_it_is() {
    let stage = played();
    for name in ["trace.gpuwhy", "trace.gpuwhy.gz"] {
        let file = stage.path(name);
        if name.ends_with("gz") {
            fs::write(&file, packed(&fs::read(stage.path("trace.gpuwhy")).unwrap())).unwrap();
        }
        let mut reported = Vec::new();
        gpuwhy::open_watched(&file, None, &mut |done, total| {
            reported.push((done, total));
            ControlFlow::Continue(())
        })
        .unwrap();
        let bytes = fs::metadata(&file).unwrap().len();
        assert!(reported.is_sorted() && reported.iter().all(|&(_, total)| total == bytes), "{reported:?}");
        assert_eq!(reported.last(), Some(&(bytes, bytes)), "{name}");
    }
}

#[test]
fn a_pipe_is_read_like_a_file() {
    let stage = played();
    let commands: [&[&str]; 4] = [
        &["report", "--json"],
        &["query", "cuda_gpu_kern_sum,cuda_gpu_trace", "-f", "csv"],
        &["query", "cuda_api_sync", "-f", "csv"],
        &["query", "-f", "csv"],
    ];
    let sql = ["SELECT name, count(*), sum(duration_ns) FROM kernels GROUP BY name ORDER BY 1"];
    for command in commands {
        let behind: &[&str] = if command == ["query", "-f", "csv"] { &sql } else { &[] };
        let of = |name: &'static str| [command, &[name], behind].concat();
        for (name, bytes) in [
            ("trace.gpuwhy", fs::read(stage.path("trace.gpuwhy")).unwrap()),
            ("trace.sqlite", fs::read(stage.path("trace.sqlite")).unwrap()),
        ] {
            let file = gpuwhy(&of(name), &stage);
            assert_eq!(file.status.code(), Some(0), "{command:?} {name}: {}", stderr(&file));
            for bytes in [&bytes[..], &packed(&bytes)] {
                let pipe = piped(&of("-"), bytes);
                assert_eq!(pipe.status.code(), Some(0), "{command:?} {name}: {}", stderr(&pipe));
                // The notes of an import name the file.
                if command[0] != "report" || name == "trace.gpuwhy" {
                    assert!(pipe.stdout == file.stdout, "{command:?} {name}");
                }
            }
        }
    }
    let text = piped(&["query", "stats", "-"], b"no trace at all\n");
    assert_eq!(text.status.code(), Some(2));
    assert!(
        stderr(&text).contains("/dev/stdin: not a gpuwhy trace: at byte 0 it looks like text"),
        "{}",
        stderr(&text)
    );
    let device = gpuwhy(&["query", "stats", "/dev/zero"], &stage);
    assert!(stderr(&device).contains("/dev/zero: this is a device"), "{}", stderr(&device));
}

#[test]
fn a_part_of_a_packed_trace_is_reported() {
    let stage = played();
    fs::write(stage.path("packed.gpuwhy.gz"), packed(&fs::read(stage.path("trace.gpuwhy")).unwrap())).unwrap();
    let part = |name: &str| gpuwhy(&["report", "--json", "--from", "100ms", "--to", "200ms", name], &stage);
    let (whole, packed) = (part("trace.gpuwhy"), part("packed.gpuwhy.gz"));
    assert_eq!(packed.status.code(), whole.status.code(), "{}", stderr(&packed));
    assert!(!whole.stdout.is_empty() && packed.stdout == whole.stdout);
}

#[test]
fn what_unpacks_out_of_proportion_is_given_up() {
    let stage = played();
    let trace = fs::read(stage.path("trace.gpuwhy")).unwrap();
    // Concatenated compressed files decompress to their concatenated contents.
    let bomb = |beginning: &[u8], filling: u8| [packed(beginning), packed(&vec![filling; 1 << 20]).repeat(50)].concat();
    fs::write(stage.path("bomb.gpuwhy.gz"), bomb(&trace, 0)).unwrap();
    fs::write(stage.path("bomb.json.gz"), bomb(b"{\"traceEvents\": [", b' ')).unwrap();
    for (name, code) in [("bomb.gpuwhy.gz", 1), ("bomb.json.gz", 2)] {
        for command in [&["report", name][..], &["query", "cuda_gpu_kern_sum", name]] {
            let output = gpuwhy(command, &stage);
            assert_eq!(output.status.code(), Some(code), "{command:?}: {}", stderr(&output));
            let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("200 bytes for each") && said.contains("gzip -dk"), "{command:?}: {said}");
        }
    }
}

#[test]
fn several_tables_are_one_document() {
    let stage = played();
    let reports = "cuda_gpu_kern_sum,um_sum,cuda_api_sum";
    let json = gpuwhy(&["query", reports, "-f", "json", "trace.gpuwhy"], &stage);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(document["cuda_gpu_kern_sum"].as_array().is_some_and(|rows| !rows.is_empty()), "{document}");
    assert_eq!(document["um_sum"], Value::Array(Vec::new()));
    let rules = gpuwhy(&["query", "analyze", "-f", "json", "trace.gpuwhy"], &stage);
    let document: Value = serde_json::from_slice(&rules.stdout).unwrap();
    assert!(document["gpu_idle_causes"].as_array().is_some_and(|rows| !rows.is_empty()), "{document}");
    let csv = gpuwhy(&["query", reports, "-f", "csv", "trace.gpuwhy"], &stage);
    let text = String::from_utf8(csv.stdout).unwrap();
    assert_eq!(text.matches("\n\nTime (%)").count(), 1, "{text}");
}

#[test]
fn a_cell_of_any_length_is_printed() {
    let stage = played();
    let asked = |width: &[&str]| {
        let sql = "SELECT hex(zeroblob(40000)) AS zeros, 1 AS one";
        let output = gpuwhy(&[&["query", "trace.gpuwhy", sql], width].concat(), &stage);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let longest = |text: &str| text.lines().map(str::len).max().unwrap();
    assert_eq!(longest(&asked(&["--width", "nolimit"])), 1 + 80_000 + 2 + 3);
    assert_eq!(longest(&asked(&[])), 1 + 100 + 2 + 3);
    assert_eq!(longest(&asked(&["--width", "60"])), 60);
    assert_eq!(longest(&asked(&["-f", "csv"])), 80_000 + 2);
}

#[test]
fn a_folder_stands_for_traces_of_others_too() {
    let stage = Stage::new();
    let folder = stage.path("job");
    fs::create_dir(&folder).unwrap();
    let row = |category: &str, name: &str, start: u64| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": 7, "ts": {start}, "dur": 5,
                "args": {{"device": 0, "stream": 7, "correlation": 1}}}}"#
        )
    };
    let trace = format!(
        r#"{{"deviceProperties": [{{"id": 0, "name": "NVIDIA H200"}}], "traceEvents": [{}, {}]}}"#,
        row("cuda_runtime", "cudaLaunchKernel", 10),
        row("kernel", "gemm", 20)
    );
    write(&folder.join("a.pt.trace.json"), trace.as_bytes());
    write(&folder.join("b.json.gz"), &packed(trace.as_bytes()));
    write(&folder.join("config.json"), b"{\"batch\": 64}");
    let output = gpuwhy(&["query", "-f", "csv", "job", "SELECT run, name FROM kernels ORDER BY 1"], &stage);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run,name\na.pt.trace,gemm\nb,gemm\n");
    assert!(stderr(&output).contains("1 JSON files skipped"), "{}", stderr(&output));
}

fn write(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn devices_that_are_announced_by_the_million_take_no_memory() {
    let stage = Stage::new();
    let (begin, end) = (packed(b"{\"deviceProperties\": ["), packed(b"{}], \"traceEvents\": []}"));
    let devices = packed_by(Compression::none(), &b"{},".repeat(1 << 17)).repeat(76);
    fs::write(stage.path("bomb.json.gz"), [begin, devices, end].concat()).unwrap();
    let limited = format!("ulimit -v 400000; exec {GPUWHY} report bomb.json.gz");
    let output = Command::new("sh").args(["-c", &limited]).current_dir(stage.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("no kernel, copy or memset among the 0 rows"), "{}", stderr(&output));
}
