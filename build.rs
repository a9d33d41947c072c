//! Puts the version that `gpuwhy --version` prints into `GPUWHY_VERSION`: the package version and, in a git
//! checkout of this project, the commit.
//!
//! A build without git, or from an unpacked archive, gets the package version alone. The commit is not marked when
//! the tree has uncommitted changes: cargo would have to run this script after every edit to keep that true.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let package = std::env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let version = match commit(&root) {
        Some(commit) => format!("{package} ({commit})"),
        None => package,
    };
    println!("cargo::rustc-env=GPUWHY_VERSION={version}");
}

/// The commit of the checkout at `root`, shortened, or `None` when `root` is not the top of one.
///
/// The comparison with the top level keeps the commit of an unrelated repository out: a copy of the sources that
/// somebody vendored lies inside theirs.
fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // The log of HEAD grows with every commit, checkout and reset, so its change is what makes the commit stale.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

/// The trimmed output of a git command, or `None` when git is missing, fails, or says nothing.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
