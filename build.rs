//! Sets `GPUWHY_VERSION`, which `gpuwhy --version` prints: the package version and, in a git checkout of this
//! project, the commit.
//!
//! A build without git, or from an unpacked archive, gets only the package version. Uncommitted changes do
//! not mark the commit: cargo would have to run this script after every edit to keep the mark correct.

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

/// Abbreviated commit of the checkout at `root`, or `None` when `root` is not the top level of a checkout.
///
/// Vendored sources lie inside an unrelated repository. Comparing with the top level avoids using its commit.
fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // Every commit, checkout and reset appends to the log of HEAD, so a change there makes the commit stale.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

/// Trimmed output of a git command, or `None` when git is missing, fails, or prints nothing.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
