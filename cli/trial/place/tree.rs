//! Two copies of the working tree, one with the user's diff: nothing is applied to the user's files, and no run of
//! the program writes to them.
//!
//! A copy has what git tracks and untracked files that git does not ignore, as they are now. git only lists files, and
//! applies the diff in the copy: no hook, filter or file monitor of the user's runs, and the index stays as it is.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::interrupt;

/// Most bytes and files of a folder that is no git repository: it may be anything.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 20_000;
/// Distance of a place from a changed line at which they are about the same, in lines.
const NEAR: u64 = 3;
/// Parts of git's message that say most, the first before the others.
const TELLING: [&str; 6] =
    ["beyond a symbolic link", "invalid path", "full index line", "patch failed", "already exists", ""];

/// The working tree of the program.
#[derive(Debug)]
pub struct Tree {
    /// The top folder, without symbolic links.
    root: PathBuf,
    /// The working directory, relative to it.
    work: PathBuf,
    /// Paths that the copies share with the user's tree, relative to it.
    links: Vec<PathBuf>,
    is_git: bool,
}

/// The copies: unchanged, and with the diff.
#[derive(Debug)]
pub struct Copies {
    tree: Tree,
    sides: [PathBuf; 2],
    /// The diff.
    pub diff: Vec<u8>,
    changed: Vec<ChangedFile>,
    /// Number of files in each, and bytes of both.
    files: usize,
    bytes: u64,
}

/// A file that the diff changes, with its changed places before and after: the first line, and how many. Without any,
/// it is the line before.
#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    hunks: Vec<[(u64, u64); 2]>,
}

impl ChangedFile {
    /// The changed lines.
    fn lines(&self, side: usize) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.hunks.iter().map(move |hunk| hunk[side].0..=hunk[side].0 + hunk[side].1.max(1) - 1)
    }

    /// The lines where `line` is after the change; `None` if it is deleted.
    fn moved(&self, line: u64) -> Option<(u64, u64)> {
        let mut moved = line;
        for &[(first, count), (new, new_count)] in &self.hunks {
            if (first..first + count).contains(&line) {
                return (new_count > 0).then(|| (new, new + new_count - 1));
            }
            if first < line {
                moved = moved + new_count - count;
            }
        }
        Some((moved, moved))
    }
}

/// git in `folder`, as if nobody had set anything for this process.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    git.arg("-C").arg(folder).args(["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"]);
    git.args(["-c", "core.hooksPath=/dev/null"]).env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C").stdin(Stdio::null());
    git
}

/// Without settings of anybody, and in no repository, although the folder for temporary files may be in one.
fn alone(git: &mut Command) -> &mut Command {
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_ATTR_NOSYSTEM", "1");
    git.env("GIT_DIR", "/dev/null")
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().context("--patch needs git, which cannot be started")
}

/// The first message of git on stderr.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("fatal: ") || line.starts_with("error: "));
    line.and_then(|line| line.split_once(": ")).map_or("it says nothing", |(_, words)| words).to_owned()
}

/// The path that a line of output ends with.
fn line(output: &Output) -> PathBuf {
    OsStr::from_bytes(output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout)).into()
}

impl Tree {
    /// The tree of the working directory: that of git, or the folder itself.
    ///
    /// # Errors
    /// Without git, outside of a working tree of a repository, and for links that are not in the tree.
    pub fn of_work(links: &[PathBuf]) -> Result<Self> {
        let work = fs::canonicalize(".").context("the working directory")?;
        let asked = output(git(&work).args(["rev-parse", "--is-inside-work-tree"]))?;
        let is_git = asked.status.success();
        if is_git && !asked.stdout.starts_with(b"true") {
            bail!("{}: this is no working tree of its git repository: run the command in one", work.display());
        }
        if !is_git && !said(&asked).starts_with("not a git repository") {
            bail!("{}: git cannot read its repository: {}", work.display(), said(&asked));
        }
        let root = match is_git {
            true => fs::canonicalize(line(&output(git(&work).args(["rev-parse", "--show-toplevel"]))?))?,
            false => work.clone(),
        };
        let relative = work.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
        let links = links.iter().map(|link| {
            let parent = link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let path = link.file_name().and_then(|name| Some(fs::canonicalize(parent).ok()?.join(name)));
            let path = path.or_else(|| fs::canonicalize(link).ok()).unwrap_or_default();
            if fs::symlink_metadata(&path).is_err() {
                bail!("--link {}: there is no such file or folder", link.display());
            }
            match path.strip_prefix(&root) {
                Ok(inside) if !relative.starts_with(inside) => Ok(inside.to_owned()),
                _ => bail!("--link {}: it names no part of {}", link.display(), work.display()),
            }
        });
        let links = links.collect::<Result<_>>()?;
        Ok(Self { root, work: relative, links, is_git })
    }

    /// The folder that paths of a diff are relative to, and whether it is a repository's.
    pub fn root(&self) -> (&Path, bool) {
        (&self.root, self.is_git)
    }

    /// Makes the copies in `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or written, the folder without git is too large, or a signal came.
    pub fn copied(self, folder: &Path) -> Result<Copies> {
        let mut names = BTreeSet::new();
        if self.is_git {
            listed(&self.root, Path::new(""), &mut names)?;
        } else {
            walked(&self.root, Path::new(""), &mut names, &mut 0)?;
        }
        let folder = fs::canonicalize(folder)?;
        // Some programs use the name of their folder.
        let name = self.root.file_name().unwrap_or(OsStr::new("tree"));
        let sides = ["a", "b"].map(|side| folder.join("copies").join(side).join(name));
        let (mut links, mut bytes) = (HashSet::new(), 0);
        for name in &names {
            if interrupt::exit_code().is_some() {
                bail!("interrupted");
            }
            let is_linked = |path: &Path| links.contains(path) || self.links.iter().any(|link| link == path);
            if !name.ancestors().any(is_linked) {
                let copied = self.copy(name, &sides, &mut links);
                bytes += copied.with_context(|| format!("cannot copy {} to {}", name.display(), folder.display()))?;
            }
        }
        for side in &sides {
            for link in &self.links {
                let to = side.join(link);
                fs::create_dir_all(to.parent().unwrap_or(side))?;
                symlink(self.root.join(link), &to).with_context(|| format!("cannot link {}", link.display()))?;
            }
            fs::create_dir_all(side.join(&self.work))?;
        }
        Ok(Copies { tree: self, sides, diff: Vec::new(), changed: Vec::new(), files: names.len(), bytes })
    }

    /// Copies `name` to both sides, and returns the bytes.
    fn copy(&self, name: &Path, sides: &[PathBuf; 2], links: &mut HashSet<PathBuf>) -> Result<u64> {
        let from = self.root.join(name);
        // Tracked, and deleted in the working tree.
        let Ok(about) = fs::symlink_metadata(&from) else { return Ok(0) };
        let mut bytes = 0;
        for side in sides {
            let to = side.join(name);
            fs::create_dir_all(to.parent().unwrap_or(side))?;
            if about.is_symlink() {
                symlink(self.target(&from, side)?, &to)?;
                links.insert(name.to_owned());
            } else if about.is_dir() {
                fs::create_dir_all(&to)?;
            } else if about.is_file() {
                // The second copy is one of the first: somebody may be editing the file.
                let first = sides[0].join(name);
                bytes += fs::copy(if *side == sides[0] { &from } else { &first }, &to)?;
                // Builds go by the times of files. Only the owner of an unreadable file cannot set it.
                let _ = File::open(&to).and_then(|file| file.set_modified(about.modified()?));
            }
        }
        Ok(bytes)
    }

    /// The target of a symbolic link in a copy: within the copy if it was within the tree.
    fn target(&self, link: &Path, side: &Path) -> Result<PathBuf> {
        let target = fs::read_link(link)?;
        let whole = normal(&link.parent().unwrap_or(&self.root).join(&target));
        Ok(match whole.strip_prefix(&self.root) {
            Ok(inside) if target.is_absolute() => side.join(inside),
            Ok(_) => target,
            Err(_) => whole,
        })
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
        whole
    })
}

/// Adds the files of a working tree of git, with those of submodules and of repositories in it.
fn listed(folder: &Path, below: &Path, names: &mut BTreeSet<PathBuf>) -> Result<()> {
    let list = output(git(folder).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    if !list.status.success() {
        bail!("git cannot list the files of {}: {}", folder.display(), said(&list));
    }
    for name in list.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(OsStr::from_bytes(name));
        let inner = folder.join(name);
        if fs::symlink_metadata(&inner).is_ok_and(|about| about.is_dir()) && inner.join(".git").exists() {
            listed(&inner, &below.join(name), names)?;
        } else {
            names.insert(below.join(name).components().collect());
        }
    }
    Ok(())
}

/// Adds the files of a folder without git.
fn walked(root: &Path, below: &Path, names: &mut BTreeSet<PathBuf>, bytes: &mut u64) -> Result<()> {
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (name, about) = (below.join(entry.file_name()), entry.metadata()?);
        if about.is_dir() && entry.file_name() != ".git" {
            walked(root, &name, names, bytes)?;
        } else if about.is_file() || about.is_symlink() {
            *bytes += about.len();
            names.insert(name);
        }
        if *bytes > MOST_BYTES || names.len() > MOST_FILES {
            bail!(
                "{}: more than {} MiB or {MOST_FILES} files, and no git repository that says which of them to copy: run \
                 the command in the folder of the program, or `git init` there",
                root.display(),
                MOST_BYTES >> 20
            );
        }
    }
    Ok(())
}

impl Copies {
    /// Applies the diff to the second copy. `name` is that of its file.
    ///
    /// # Errors
    /// When it does not apply exactly.
    pub fn apply(&mut self, diff: &[u8], name: &str) -> Result<()> {
        let [_, side] = &self.sides;
        let file = self.sides[1].parent().unwrap_or(side).with_file_name("diff");
        fs::write(&file, diff)?;
        self.diff = diff.to_vec();
        let work = side.join(&self.tree.work);
        let mut complaints = Vec::new();
        for (at, strip) in [(side, "-p1"), (&work, "-p1"), (side, "-p0"), (&work, "-p0")] {
            let names = output(self.applying(at).args([strip, "--numstat", "-z"]).arg(&file))?;
            let applied = output(self.applying(at).arg(strip).arg(&file))?;
            if !applied.status.success() {
                complaints.push(said(&applied));
                let back = output(self.applying(at).args([strip, "--check", "--reverse"]).arg(&file))?;
                if back.status.success() {
                    bail!(
                        "--patch {name}: the files have this change already; take it back first (git apply -R {name})"
                    );
                }
                continue;
            }
            // Added and deleted lines, and the name: of one that is renamed, the new one.
            let names = names.stdout.split(|byte| *byte == 0);
            let names = names.filter_map(|row| row.splitn(3, |byte| *byte == b'\t').nth(2).map(OsStr::from_bytes));
            let below = at.strip_prefix(side).unwrap_or(Path::new(""));
            self.changed = names.map(|name| self.compared(normal(&below.join(name)))).collect::<Result<_>>()?;
            return Ok(());
        }
        if complaints.iter().all(|words| words.contains("No valid patches in input")) {
            bail!("--patch {name}: this is no diff, or an empty one");
        }
        let rank = |words: &String| TELLING.iter().position(|part| words.contains(part));
        let why = complaints.iter().min_by_key(|words| rank(words)).map_or("", String::as_str);
        let missing = if why.ends_with("No such file or directory") {
            " (the diff is applied to what git tracks or does not ignore)"
        } else {
            ""
        };
        bail!("--patch {name}: it does not apply to the files as they are: {why}{missing}")
    }

    /// `git apply` in a copy, without settings of the user's but those of line ends.
    fn applying(&self, folder: &Path) -> Command {
        let mut apply = git(folder);
        for setting in ["core.autocrlf", "core.eol"] {
            let Ok(value) = output(git(&self.tree.root).args(["config", "--get", setting])) else { continue };
            if value.status.success() {
                apply.arg("-c").arg(format!("{setting}={}", line(&value).display()));
            }
        }
        alone(&mut apply).args(["apply", "--whitespace=nowarn"]);
        apply
    }

    /// A changed file with its lines.
    fn compared(&self, path: PathBuf) -> Result<ChangedFile> {
        let there = |side: &PathBuf| Some(side.join(&path)).filter(|file| file.is_file());
        let [before, after] = self.sides.each_ref().map(|side| there(side).unwrap_or_else(|| "/dev/null".into()));
        let mut compare = git(&self.sides[0]);
        alone(&mut compare)
            .args(["diff", "--no-index", "--no-ext-diff", "--no-textconv", "-U0", "--"])
            .args([before, after]);
        let text = output(&mut compare)?.stdout;
        let range = |text: &str| {
            let (first, count) = text.get(1..)?.split_once(',').unwrap_or((&text[1..], "1"));
            Some((first.parse().ok()?, count.parse().ok()?))
        };
        let hunks = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let hunk = std::str::from_utf8(line.strip_prefix(b"@@ ")?.split(|byte| *byte == b'@').next()?).ok()?;
            let (before, after) = hunk.trim().split_once(' ')?;
            Some([range(before)?, range(after)?])
        });
        Ok(ChangedFile { path, hunks: hunks.collect() })
    }

    /// How the loop of the steps, as the Python side knows it, is known with the diff. Its file is below the top.
    pub fn changed_loop(&self, key: &Value) -> Value {
        let place = key["file"].as_str().map(|file| normal(Path::new(file))).zip(key["line"].as_u64());
        let moved = place.and_then(|(path, line)| self.changed.iter().find(|file| file.path == path)?.moved(line));
        let mut key = key.clone();
        if let Some((first, last)) = moved {
            key["lines"] = json!([first, last]);
        }
        key
    }

    /// The top folder of a copy.
    pub fn root(&self, is_changed: bool) -> &Path {
        &self.sides[usize::from(is_changed)]
    }

    /// The working directory in a copy.
    pub fn work(&self, is_changed: bool) -> PathBuf {
        self.root(is_changed).join(&self.tree.work)
    }

    /// `text` with absolute paths in the tree as paths in a copy.
    pub fn mapped(&self, is_changed: bool, text: &OsStr) -> OsString {
        let side = &self.sides[usize::from(is_changed)];
        // A path may have any name; one of several, or one that does not exist yet, ends at these letters.
        if fs::symlink_metadata(text).is_ok() {
            return self.in_copy(side, text.as_bytes()).into();
        }
        let ends = |byte: &u8| b"=:;,&|<>()`'\" \t\n".contains(byte);
        let mapped = text.as_bytes().split_inclusive(ends).flat_map(|part| {
            let end = part.len() - usize::from(part.last().is_some_and(ends));
            [self.in_copy(side, &part[..end]).into_os_string().into_vec(), part[end..].to_vec()].concat()
        });
        OsString::from_vec(mapped.collect())
    }

    /// The same path in a copy, if it is absolute and in the tree, by whatever symbolic links.
    fn in_copy(&self, side: &Path, path: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path));
        let real = path.is_absolute().then(|| {
            let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)))?;
            Some(there.1.join(path.strip_prefix(there.0).ok()?))
        });
        let inside = real.flatten().and_then(|real| Some(real.strip_prefix(&self.tree.root).ok()?.to_owned()));
        inside.map_or_else(|| path.to_owned(), |inside| side.join(inside))
    }

    /// What a program of a copy printed, with the paths of the user's tree.
    pub fn mapped_back(&self, is_changed: bool, text: &str) -> String {
        let [from, to] = [&self.sides[usize::from(is_changed)], &self.tree.root].map(|path| path.to_string_lossy());
        text.replace(&*from, &to)
    }

    /// The program in a copy. One of a virtual environment that git ignores is that of the user's tree.
    ///
    /// # Errors
    /// For another file that the copy has not.
    pub fn program(&self, is_changed: bool, word: &OsStr) -> Result<OsString> {
        if !word.as_bytes().contains(&b'/') {
            return Ok(word.to_owned());
        }
        let path = self.work(is_changed).join(self.mapped(is_changed, word));
        let own = self.tree.root.join(&self.tree.work).join(word);
        if path.exists() || !own.is_file() {
            return Ok(path.into());
        }
        let is_environment = own.ancestors().nth(2).is_some_and(|folder| folder.join("pyvenv.cfg").exists());
        if !is_environment {
            bail!(
                "{}: git ignores it, so the copies of the tree do not have it: --build COMMAND makes it in each copy, \
                 --link PATH uses the one that is there",
                word.display()
            );
        }
        Ok(own.into())
    }

    /// The changed lines, for the settings of a run: `{file: [[first, last], ...]}`, also of the user's own files if
    /// the diff is applied.
    pub fn changed_lines(&self, is_changed: bool) -> Value {
        let row = |root: &Path, file: &ChangedFile, side: usize| {
            let lines: Vec<_> = file.lines(side).map(|lines| [*lines.start(), *lines.end()]).collect();
            (root.join(&file.path).to_string_lossy().into_owned(), json!(lines))
        };
        let side = usize::from(is_changed);
        let own = self.changed.iter().filter(|_| is_changed).map(|file| row(&self.tree.root, file, 0));
        self.changed.iter().map(|file| row(&self.sides[side], file, side)).chain(own).collect()
    }

    /// Why a run with the diff tells nothing, from the files that it `used`, as the Python side has them.
    pub fn unused(&self, used: &Value) -> Option<String> {
        let used: Vec<_> = used.as_array()?.iter().filter_map(Value::as_str).map(Path::new).collect();
        let is_used = |root: &Path, file: &&ChangedFile| used.iter().any(|path| **path == root.join(&file.path));
        if let Some(own) = self.changed.iter().find(|file| is_used(&self.tree.root, file)) {
            return Some(format!(
                "the program loads {} of the user's own tree instead of the copy with the diff, as an editable install \
                 does; set PYTHONPATH to the folder that has the package, which is mapped into the copy",
                own.path.display()
            ));
        }
        let are_python = self.changed.iter().all(|file| file.path.extension().is_some_and(|end| end == "py"));
        if !are_python || self.changed.is_empty() || self.changed.iter().any(|file| is_used(&self.sides[1], &file)) {
            return None;
        }
        let names: Vec<_> = self.changed.iter().map(|file| file.path.display().to_string()).collect();
        Some(format!("the program loads none of the changed files ({})", names.join(", ")))
    }

    /// True if `place`, such as `train.py:7 (main)`, is about a changed line.
    pub fn is_changed_near(&self, place: &str) -> bool {
        let place = place.split_once(" (").map_or(place, |(place, _)| place);
        let Some((file, number)) = place.rsplit_once(':') else { return false };
        let Ok(number) = number.parse::<u64>() else { return false };
        let is_near =
            |lines: RangeInclusive<u64>| number + NEAR >= *lines.start() && number <= lines.end().saturating_add(NEAR);
        let is_file = |changed: &&ChangedFile| changed.path.ends_with(file) || Path::new(file).ends_with(&changed.path);
        self.changed.iter().filter(is_file).any(|changed| changed.lines(0).any(is_near))
    }

    /// What there is before the runs.
    pub fn words(&self) -> String {
        let files = if self.files == 1 { "1 file".to_owned() } else { format!("{} files", self.files) };
        let mib = Some(self.bytes >> 20).filter(|&mib| mib > 0).map(|mib| format!(", together {mib} MiB"));
        let ignored = if self.tree.is_git { ", without files that git ignores" } else { "" };
        format!("both run in copies of {} ({files}{}){ignored}", self.tree.root.display(), mib.unwrap_or_default())
    }

    /// What may be the reason for which the unchanged program failed with `errors`.
    pub fn hint(&self, errors: &str) -> String {
        if !self.tree.is_git {
            return String::new();
        }
        let words = errors.split(|letter: char| letter.is_whitespace() || "'\"`:,()[]".contains(letter));
        let own = words.filter(|word| !word.is_empty()).filter_map(|word| {
            let path = normal(&self.tree.root.join(&self.tree.work).join(word));
            Some(path.strip_prefix(&self.tree.root).ok()?.to_owned())
        });
        let is_missing = |path: &Path| !self.sides[0].join(path).exists() && self.tree.root.join(path).exists();
        let missing = own.rev().find(|path| is_missing(path));
        // The top folder of those that are missing.
        let missing =
            missing.and_then(|path| path.ancestors().filter(|path| is_missing(path)).last().map(Path::to_owned));
        let add = missing.map_or("--link PATH adds more".to_owned(), |path| {
            let shown = path.strip_prefix(&self.tree.work).map_or_else(|_| self.tree.root.join(&path), Path::to_owned);
            format!("they lack {0}, which --link {0} adds", shown.display())
        });
        format!("\nThe copies have what git tracks or does not ignore, and are no repository; {add}.")
    }
}

/// Reads the diff; `-` is standard input.
///
/// # Errors
/// When it cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>> {
    let mut diff = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut diff),
        false => File::open(file).and_then(|mut file| file.read_to_end(&mut diff)),
    };
    read.map(|_| diff).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("--patch {}: there is no such file", file.display()),
        _ => anyhow::anyhow!("--patch {}: {error}", file.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_after_the_change() {
        // Two lines inserted after line 3, lines 6 and 7 replaced by one, line 9 deleted.
        let hunks = vec![[(3, 0), (4, 2)], [(6, 2), (8, 1)], [(9, 1), (9, 0)]];
        let file = ChangedFile { path: PathBuf::new(), hunks };
        let moved: Vec<_> = [3, 4, 6, 7, 8, 9, 10].into_iter().map(|line| file.moved(line)).collect();
        let at = |line| Some((line, line));
        assert_eq!(moved, [at(3), at(6), at(8), at(8), at(9), None, at(10)]);
    }
}
