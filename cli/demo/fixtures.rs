//! Recordings that are delivered with gpuwhy: their names, their order, and descriptions of the programs.
//!
//! A recording is `NAME.cupti.zst`, or `NAME.cupti` as `GPUWHY_RAW_RECORDING` writes it. `index.txt` in the
//! same folder has a line `NAME DESCRIPTION` for each, in the order in which the demo plays them. Recordings
//! without a line come last, sorted by name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::install_paths;

/// Program that plays recordings; an installed one has some next to it.
pub const HOST: &str = "gpuwhy-replay-host";

const SUFFIXES: [&str; 2] = [".cupti.zst", ".cupti"];

/// A recorded session.
#[derive(Debug, PartialEq, Eq)]
pub struct Fixture {
    /// File name without its suffix.
    pub name: String,
    pub path: PathBuf,
    /// Description of the recorded program; empty when the index has none.
    pub description: String,
}

/// Recordings in `from`, or in the first of the default folders that has any. Fails when no folder has one;
/// the error names the folders.
pub fn find(from: Option<&Path>) -> Result<Vec<Fixture>> {
    let folders = from.map_or_else(folders, |folder| vec![folder.to_owned()]);
    for folder in &folders {
        let fixtures = read(folder);
        if !fixtures.is_empty() {
            return Ok(fixtures);
        }
    }
    let looked: Vec<String> = folders.iter().map(|folder| format!("\n  {}", folder.display())).collect();
    bail!(
        "no recordings ({}) found. Looked in{}\nThe wheel, the packages and the source checkout have some; name another \
         folder with `--from DIR`.",
        SUFFIXES.map(|suffix| format!("*{suffix}")).join(", "),
        looked.concat()
    );
}

/// The checkout that this program was built from, then the folder of an installed [`HOST`].
fn folders() -> Vec<PathBuf> {
    let checkouts = install_paths::possible_checkouts().into_iter().map(|checkout| checkout.join("testing/fixtures"));
    let installed = install_paths::next_to_executable(HOST).ok();
    checkouts.chain(installed.map(|host| host.with_file_name("recordings"))).collect()
}

fn read(folder: &Path) -> Vec<Fixture> {
    let index = fs::read_to_string(folder.join("index.txt")).unwrap_or_default();
    let described: Vec<(&str, &str)> = index.lines().filter_map(|line| line.split_once(char::is_whitespace)).collect();
    let mut fixtures: Vec<(usize, Fixture)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let file = path.file_name()?.to_str()?;
            let name = SUFFIXES.iter().find_map(|suffix| file.strip_suffix(suffix))?.to_owned();
            let line = described.iter().position(|(described, _)| *described == name);
            let description = line.map_or("", |line| described[line].1.trim()).to_owned();
            Some((line.unwrap_or(described.len()), Fixture { name, path, description }))
        })
        .collect();
    fixtures.sort_by(|(a, first), (b, second)| (a, &first.name).cmp(&(b, &second.name)));
    fixtures.into_iter().map(|(_, fixture)| fixture).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_orders_and_describes() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["gpt.cupti.zst", "mlp.cupti.zst", "extra.cupti", "README.md"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        fs::write(folder.path().join("index.txt"), "mlp  Small layers\ngpt\tTraining\nlost  Not there\n").unwrap();
        let fixtures = read(folder.path());
        let shown: Vec<_> = fixtures.iter().map(|f| (f.name.as_str(), f.description.as_str())).collect();
        assert_eq!(shown, [("mlp", "Small layers"), ("gpt", "Training"), ("extra", "")]);
    }

    #[test]
    fn a_folder_that_does_not_exist_has_no_recordings() {
        assert!(read(Path::new("/nowhere")).is_empty());
    }
}
