//! The table of known bugs of CUPTI in the documentation.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use gpuwhy_report::cupti::{Bug, Source, name};

#[test]
fn the_documentation_has_the_table_of_bugs() {
    const BEGIN: &str = "<!-- bugs of CUPTI: begin -->\n";
    const END: &str = "<!-- bugs of CUPTI: end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/design/reliability.md");
    let mut table = "| versions | CUPTI | source |\n|---|---|---|\n".to_owned();
    for bug in Bug::ALL {
        let versions = match (bug.from, bug.before) {
            (0, before) => format!("before {}", name(before)),
            (from, u32::MAX) => format!("{} and later", name(from)),
            (from, before) => format!("{}, before {}", name(from), name(before)),
        };
        let source = match bug.source {
            Source::ReleaseNotes => format!("release notes of {}", name(bug.before)),
            Source::Measured(section) => {
                format!("[measured]({})", section.replace("docs/design/", "").replace("reliability.md#", "#"))
            }
        };
        let _ = writeln!(table, "| {versions} | {} | {source} |", bug.effect);
    }
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("GPUWHY_BLESS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(found, table, "GPUWHY_BLESS=1 renews the table in {}", path.display());
    }
}
