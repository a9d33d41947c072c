//! The folder of the server: paths are relative to it, and no file outside of it is read.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

use crate::inputs;

/// Endings of source files, in lower case.
const SOURCES: [&str; 31] = [
    "c", "cc", "chpl", "cpp", "cu", "cuf", "cuh", "cxx", "f", "f03", "f90", "f95", "for", "ftn", "go", "h", "hh",
    "hpp", "hxx", "inc", "inl", "ipp", "jl", "lua", "mojo", "py", "pyi", "pyx", "r", "rs", "tpp",
];

/// The folder, without symbolic links in its path.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Fails when `path` is not a folder.
    pub fn open(path: &Path) -> Result<Self> {
        let root = fs::canonicalize(path).with_context(|| format!("{}: cannot read this folder", path.display()))?;
        if !root.is_dir() {
            bail!("{}: this is a file; name the folder with the traces", path.display());
        }
        Ok(Self(root))
    }

    /// Its path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file or folder `name`, without symbolic links. Fails when there is none, it is outside of this folder, or it
    /// is a pipe or a device, which could block.
    pub fn resolved(&self, name: &str) -> Result<PathBuf> {
        let path = fs::canonicalize(self.0.join(name))
            .with_context(|| format!("{name}: cannot be opened; `list_traces` lists the traces below {}", self))?;
        if !path.starts_with(&self.0) {
            bail!("{name}: outside of {self}, the folder of this server: start `gpuwhy mcp` with a folder that has it");
        }
        let kind = fs::metadata(&path).with_context(|| name.to_owned())?;
        if !kind.is_file() && !kind.is_dir() {
            bail!("{name}: this is neither a file nor a folder");
        }
        Ok(path)
    }

    /// The traces in `path`, a folder in this one, and sentences about skipped files, such as links out of this folder.
    /// Fails when `path` cannot be read.
    pub fn traces(&self, path: &Path) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
        inputs::listed(path, &|file| fs::canonicalize(file).is_ok_and(|file| file.starts_with(&self.0)))
    }

    /// `path` relative to this folder.
    pub fn shown(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.0).unwrap_or(path).display().to_string();
        if path.is_empty() { ".".to_owned() } else { path }
    }

    /// The source file that a report of some machine calls `name`: that path, or its longest end that exists here.
    /// `None` if there is none in this folder, and for other files, such as `.env`: a trace can name any.
    pub fn source(&self, name: &str) -> Option<PathBuf> {
        let parts: Vec<_> = Path::new(name).components().collect();
        let ends = (0..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>());
        ends.filter_map(|end| self.resolved(end.to_str()?).ok()).find(|path| path.is_file() && self.is_source(path))
    }

    /// True for a file in this folder with the ending of a source file, if no part of its path is hidden.
    fn is_source(&self, path: &Path) -> bool {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let parts = path.strip_prefix(&self.0).into_iter().flat_map(|path| path.components());
        let is_hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
        SOURCES.contains(&ending.to_ascii_lowercase().as_str()) && !parts.into_iter().any(is_hidden)
    }
}

impl std::fmt::Display for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_the_folder_are_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/train.py"), "").unwrap();
        fs::write(place.path().join("secret"), "").unwrap();
        symlink(place.path().join("secret"), root.join("link")).unwrap();
        let folder = Folder::open(&root).unwrap();
        assert_eq!(folder.shown(&folder.resolved("src/../src/train.py").unwrap()), "src/train.py");
        for name in ["../secret", "link", place.path().join("secret").to_str().unwrap()] {
            let error = format!("{:#}", folder.resolved(name).unwrap_err());
            assert!(error.contains("outside of") && error.starts_with(name), "{error}");
        }
        let error = format!("{:#}", folder.resolved("none.gpuwhy").unwrap_err());
        assert!(error.contains("none.gpuwhy") && error.contains("list_traces"), "{error}");
        // Links within the folder are followed.
        symlink(place.path().join("secret"), root.join("a.gpuwhy")).unwrap();
        symlink(root.join("src/train.py"), root.join("b.gpuwhy")).unwrap();
        symlink(place.path().join("secret"), root.join("c.json")).unwrap();
        let (traces, skipped) = folder.traces(&folder.0).unwrap();
        assert_eq!(traces, [folder.0.join("b.gpuwhy")]);
        assert!(skipped.len() == 2 && skipped[0].ends_with("a.gpuwhy: skipped, as it is a link out of the folder"));
        // The path of another machine.
        assert_eq!(folder.source("/workspace/app/src/train.py"), Some(folder.0.join("src/train.py")));
        assert_eq!(folder.source("/workspace/other.py"), None);
        assert_eq!(folder.source("../secret"), None);
        // Files that a trace of somebody else may name.
        fs::create_dir(root.join(".git")).unwrap();
        for name in [".env", ".git/config", ".git/hook.py", ".hidden.py", "src/password.txt", "src/key", "Kernel.CU"] {
            fs::write(root.join(name), "").unwrap();
        }
        symlink(root.join(".env"), root.join("src/env.py")).unwrap();
        for name in [".env", ".git/config", ".git/hook.py", ".hidden.py", "src/password.txt", "src/key", "src/env.py"] {
            assert_eq!(folder.source(name), None, "{name}");
        }
        assert_eq!(folder.source("/build/Kernel.CU"), Some(folder.0.join("Kernel.CU")));
        assert!(format!("{:#}", Folder::open(&root.join("src/train.py")).unwrap_err()).contains("this is a file"));
    }
}
