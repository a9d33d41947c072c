//! Modules beside a trace: lines as CUPTI tells them, hostile modules, and where they are found.

use std::fs;
use std::path::Path;

use gpuwhy_import::cubin::{Lines, Modules, Sass, file_of};
use profiler_core::kernels::source::{PcFunction, PcWindow, Place, SourceMap as _};

/// `gather` and `copy` of `tests/support/gather.cu`, by nvrtc of CUDA 13.0 for compute capability 9.0 with
/// `--generate-line-info`.
fn gather() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/fixtures/gather.cubin")).unwrap()
}
/// Offset and line in `gather`, by `cuptiGetSassToSourceCorrelation` of CUPTI 13.0.85.
const BY_CUPTI: &[(u64, u32)] = &[
    (0x0, 9),
    (0x10, 10),
    (0x20, 11),
    (0x50, 10),
    (0x80, 5),
    (0x90, 5),
    (0xb0, 4),
    (0xc0, 5),
    (0x160, 10),
    (0x180, 5),
    (0x500, 5),
    (0x1070, 4),
    (0x11c0, 13),
    (0x1270, 13),
];

#[test]
fn lines_are_those_that_cupti_tells() {
    let lines = Lines::of(&gather());
    for &(offset, line) in BY_CUPTI {
        assert_eq!(lines.place("gather", offset), Some(("/src/gather.cu", line)), "{offset:#x}");
    }
    assert_eq!(lines.place("copy", 0).map(|(_, line)| line), Some(15));
    assert_eq!((lines.place("gather", 1 << 20), lines.place("other", 0)), (None, None), "behind the end; nowhere");
}

#[test]
fn what_is_cut_or_changed_tells_less_and_harms_nobody() {
    let whole = gather();
    for length in (0..whole.len()).step_by(97) {
        let _ = Lines::of(&whole[..length]);
    }
    assert!(Lines::of(&whole[..200]).is_empty() && Lines::of(b"\x7fELF").is_empty());
    let mut seed = 1_u64;
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(seed >> 33).unwrap() % bytes.len();
            bytes[at] = (seed >> 17) as u8;
        }
        let _ = Lines::of(&bytes).place("gather", 0xc0);
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
    let text = |file: &Path, line| modules.text(&Place { file: file.to_string_lossy().into_owned(), line });
    assert_eq!((text(&source, 2).as_deref(), text(&source, 3), text(&source, 0)), (Some("second"), None, None));
    assert_eq!(text(Path::new("/dev/zero"), 1), None, "no ordinary file");
}
