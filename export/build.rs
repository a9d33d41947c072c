//! Lists the files of `queries/`, so that a query is its file alone.
#![allow(clippy::disallowed_macros, reason = "prints what cargo reads")]

use std::fmt::Write as _;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=queries");
    let (package, out) = (env::var_os("CARGO_MANIFEST_DIR"), env::var_os("OUT_DIR"));
    let queries = Path::new(&package.expect("cargo sets CARGO_MANIFEST_DIR")).join("queries");
    let mut code = String::new();
    for folder in ["reports", "rules", "recipes", "parts"] {
        let entries = fs::read_dir(queries.join(folder))?;
        let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.sort();
        let _ = writeln!(code, "const {}: &[(&str, &str)] = &[", folder.to_uppercase());
        for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "sql")) {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            let name = name.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '-');
            let _ = writeln!(code, "    ({name:?}, include_str!({file:?})),");
        }
        code.push_str("];\n");
    }
    fs::write(Path::new(&out.expect("cargo sets OUT_DIR")).join("queries.rs"), code)
}
