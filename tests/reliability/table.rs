//! Tables in tests/reliability/faults.md with the observations of the tests.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Compares the table `name` with `rows`, or updates it when GPUWHY_BLESS is set. Prints it in any case.
pub fn check(name: &str, head: &[&str], rows: &[Vec<String>]) {
    let mut table = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    println!("{name}\n{table}");

    // Tests of this process share the file.
    static FILE: Mutex<()> = Mutex::new(());
    // A table that differs fails its own test, not those that come after it.
    let _one_at_a_time = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reliability/faults.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) =
        text.split_once(&open).unwrap_or_else(|| panic!("{open} is not in tests/reliability/faults.md"));
    let (kept, after) =
        rest.split_once(&close).unwrap_or_else(|| panic!("{close} is not in tests/reliability/faults.md"));
    if std::env::var_os("GPUWHY_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{open}{table}{close}{after}")).unwrap();
    } else {
        assert_eq!(kept, table, "run the tests with GPUWHY_BLESS=1 to renew {name} in tests/reliability/faults.md");
    }
}
