//! Modules next to a trace: their lines agree with CUPTI's, malicious modules do no harm, and modules are found.

use std::fs;
use std::path::Path;

use gpuwhy_import::cubin::{LineTable, Modules, Sass, file_of};
use gpuwhy_report::kernels::source::{SourceLine, SourceMap as _};
use gpuwhy_trace::kernels::{PcFunction, PcWindow};

/// Reads a file of the recorded modules.
fn fixture(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../testing/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn gather() -> Vec<u8> {
    fixture("gather.cubin")
}

#[test]
fn lines_are_those_that_cupti_tells_by_nvrtc_and_by_triton() {
    let reported = String::from_utf8(fixture("cubin_lines.txt")).unwrap();
    let mut reported = reported.lines().filter(|line| !line.starts_with('#')).peekable();
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let mut compared = 0;
    while let Some(head) = reported.next() {
        let [module, function, size] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let lines = LineTable::of(&fixture(module));
        while let Some(row) = reported.next_if(|row| row.starts_with("0x")) {
            let [offset, file, line] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
            let next = reported.peek().filter(|row| row.starts_with("0x")).and_then(|row| row.split(' ').next());
            for offset in (number(offset)..next.map_or(number(size), number)).step_by(16) {
                assert_eq!(lines.place(function, offset), Some((file, line.parse().unwrap())), "{head}: {offset:#x}");
                compared += 1;
            }
        }
        assert_eq!((lines.place(function, number(size)), lines.place("other", 0)), (None, None), "behind the end");
    }
    assert_eq!(compared, (0x1280 + 0x200 + 0x1a00) / 16);
}

#[test]
fn what_is_cut_or_changed_tells_less_and_harms_nobody() {
    let whole = gather();
    for length in (0..whole.len()).step_by(97) {
        let _ = LineTable::of(&whole[..length]);
    }
    assert!(LineTable::of(&whole[..200]).is_empty() && LineTable::of(b"\x7fELF").is_empty());
    let mut seed = 1_u64;
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(seed >> 33).unwrap() % bytes.len();
            bytes[at] = (seed >> 17) as u8;
        }
        let _ = LineTable::of(&bytes).place("gather", 0xc0);
    }
}

#[test]
fn modules_are_found_beside_the_trace_with_the_text_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("4711.gpuwhy");
    let window = PcWindow {
        functions: [7, 8].map(|module| PcFunction { module, symbol: "gather".to_owned() }).into(),
        ..PcWindow::default()
    };
    let path = file_of(&trace, 7);
    assert!(path.ends_with("4711.gpuwhy.cubins/0000000000000007.cubin"));
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, gather()).unwrap();
    let mut modules = Modules::beside(&trace, [&window].into_iter());
    assert_eq!(modules.files().map(|(module, _)| module).collect::<Vec<_>>(), [7]);
    modules.set_sass(7, Sass::of("\t.section\t.text.gather,\"ax\"\n/*00c0*/ LDG.E R0 ;\n"));
    assert_eq!(modules.instruction(7, "gather", 0xc0).as_deref(), Some("LDG.E R0"));
    assert!(modules.place(7, "gather", 0xc0).is_some() && modules.place(8, "gather", 0xc0).is_none());
    let source = folder.path().join("x.cu");
    fs::write(&source, "first\n   second  \n").unwrap();
    let text = |file: &Path, line| modules.text(&SourceLine { file: file.to_string_lossy().into_owned(), line });
    assert_eq!((text(&source, 2).as_deref(), text(&source, 3), text(&source, 0)), (Some("second"), None, None));
    assert_eq!(text(Path::new("/dev/zero"), 1), None, "no ordinary file");
}
