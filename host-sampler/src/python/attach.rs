//! Locates the interpreter in the process.
//!
//! `_PyRuntime` is exported by libpython, or by the program itself if it is linked statically. From 3.13 on,
//! it starts with the interpreter's description of its own structures. Earlier versions are determined from
//! `Py_Version` (3.11 and 3.12) or from the file name (3.9 and 3.10, which have no symbol for it).

use std::fmt;
use std::io;

use super::debug_offsets;
use super::layout::Layout;
use super::object::Types;
use super::stack::Walker;
use super::threads::Threads;
use super::{Frame, Lock, Miss, Sample};
use crate::image::Image;
use crate::maps::{self, Mapped};
use crate::memory::Memory;
use crate::process::Process;

/// The interpreter of a process.
#[derive(Debug)]
pub struct Python {
    memory: Memory,
    version: Version,
    threads: Threads,
    walker: Walker,
}

/// Reason why no stack can be read in this process.
#[derive(Debug)]
pub enum Unavailable {
    /// The kernel denies access to its memory.
    Denied(io::Error),
    /// The process has no interpreter.
    NoInterpreter,
    /// The interpreter has not started yet, or has ended.
    NotRunning,
    /// The version of the interpreter is undeterminable.
    UnknownVersion(String),
    /// A version with unknown structures.
    Unsupported(Version),
    /// Built without the interpreter lock (GIL).
    FreeThreaded(Version),
    /// The structures differ from those expected for this version.
    NotRecognized(Version),
}

/// Version of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 3.
    pub major: u8,
    /// Minor version, such as 12 in 3.12.
    pub minor: u8,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(error) => write!(f, "the memory of the process cannot be read: {error}"),
            Self::NoInterpreter => f.write_str("no Python interpreter in this process"),
            Self::NotRunning => f.write_str("the Python interpreter has not begun"),
            Self::UnknownVersion(file) => write!(f, "{file} does not contain its Python version"),
            Self::Unsupported(version) => write!(f, "Python {version} is not known"),
            Self::FreeThreaded(version) => write!(f, "free-threaded Python {version} is not known"),
            Self::NotRecognized(version) => {
                write!(f, "the structures of this Python {version} are not where they should be")
            }
        }
    }
}

impl std::error::Error for Unavailable {}

impl Python {
    /// Finds the interpreter of a process. Takes about a millisecond in a process with a thousand mappings.
    ///
    /// # Errors
    /// If there is none that can be read; only [`Unavailable::NoInterpreter`] and [`Unavailable::NotRunning`]
    /// can change later.
    pub fn find(process: &Process) -> Result<Self, Unavailable> {
        let memory = Memory::open(process).map_err(Unavailable::Denied)?;
        let files = maps::files(process).map_err(Unavailable::Denied)?;
        let (runtime, file, image) = candidates(&files)
            .find_map(|file| {
                let image = Image::at(&memory, file.address)?;
                Some((image.symbol("_PyRuntime")?, file, image))
            })
            .ok_or(Unavailable::NoInterpreter)?;
        let (version, layout) = describe(&memory, runtime, file, &image)?;
        let missing = || Unavailable::NotRecognized(version);
        let types = Types {
            code: image.symbol("PyCode_Type").ok_or_else(missing)?,
            text: image.symbol("PyUnicode_Type").ok_or_else(missing)?,
            bytes: image.symbol("PyBytes_Type").ok_or_else(missing)?,
        };
        match memory.u64(runtime.wrapping_add(layout.interpreters_head as u64)) {
            Ok(0) => return Err(Unavailable::NotRunning),
            Ok(_) => {}
            Err(_) => return Err(missing()),
        }
        let threads = Threads::find(&memory, &layout, runtime, process.id()).ok_or_else(missing)?;
        Ok(Self { memory, version, threads, walker: Walker::new(layout, types, runtime) })
    }

    /// Version of the interpreter.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Samples the thread with this kernel id.
    ///
    /// # Errors
    /// If it runs no Python code, or its stack changed too often while it was read.
    pub fn sample(&mut self, thread: u32) -> Result<Sample, Miss> {
        if !self.memory.is_open() {
            return Err(Miss::Closed);
        }
        let state = self.threads.state_of(&self.memory, self.walker.layout(), thread).ok_or(Miss::NoPython)?;
        let (mut sample, holder) = self.walker.sample(&self.memory, state).ok_or(Miss::Torn)?;
        if sample.lock == Lock::OtherThread {
            sample.holder = self.threads.id_of(&self.memory, holder).ok();
        }
        Ok(sample)
    }

    /// Stack of a thread that stands still while this reads, as the calling one does: no walk can be torn, so
    /// that one is enough.
    ///
    /// # Errors
    /// If it runs no Python code, or its structures cannot be read.
    pub fn stack_of_still(&mut self, thread: u32) -> Result<Vec<Frame>, Miss> {
        if !self.memory.is_open() {
            return Err(Miss::Closed);
        }
        let state = self.threads.state_of(&self.memory, self.walker.layout(), thread).ok_or(Miss::NoPython)?;
        self.walker.stack_of_still(&self.memory, state).ok_or(Miss::Torn)
    }
}

/// Files that may contain an interpreter: libpython first, since a program linked to it exports none of the
/// symbols; then all files whose name starts with python; then the first other mapping, which is usually the
/// program.
fn candidates(files: &[Mapped]) -> impl Iterator<Item = &Mapped> {
    let is_library = |file: &&Mapped| file.file_name().starts_with("libpython");
    let is_program = |file: &&Mapped| file.file_name().starts_with("python");
    let others = files.iter().filter(move |file| !is_library(file) && !is_program(file)).take(1);
    files.iter().filter(is_library).chain(files.iter().filter(is_program)).chain(others)
}

fn describe(memory: &Memory, runtime: u64, file: &Mapped, image: &Image<'_>) -> Result<(Version, Layout), Unavailable> {
    let mut table = [0; debug_offsets::SIZE];
    let _ = memory.read_some(runtime, &mut table);
    if let Some(described) = debug_offsets::parse(&table) {
        let version = from_hex(described.version);
        if described.free_threaded {
            return Err(Unavailable::FreeThreaded(version));
        }
        return described.layout.map(|layout| (version, layout)).ok_or(Unavailable::Unsupported(version));
    }
    let said = image.symbol("Py_Version").and_then(|address| memory.u64(address).ok()).map(from_hex);
    let version = said
        .or_else(|| from_file_name(file.file_name()))
        .ok_or_else(|| Unavailable::UnknownVersion(file.file_name().to_owned()))?;
    let layout = Some(version.minor).filter(|_| version.major == 3).and_then(Layout::of_minor);
    layout.map(|layout| (version, layout)).ok_or(Unavailable::Unsupported(version))
}

/// Parses `PY_VERSION_HEX`.
fn from_hex(hex: u64) -> Version {
    let [_, _, _, _, major, minor, _, _] = hex.to_be_bytes();
    Version { major, minor }
}

/// Parses names such as `libpython3.9.so.1.0` and `python3.10`.
fn from_file_name(name: &str) -> Option<Version> {
    let (_, rest) = name.split_once("python")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_numbers_and_names() {
        assert_eq!(from_hex(0x030b_07f0).to_string(), "3.11");
        for (name, version) in [
            ("libpython3.9.so.1.0", Some((3, 9))),
            ("python3.10", Some((3, 10))),
            ("python3", None),
            ("libpython3.so", None),
        ] {
            assert_eq!(from_file_name(name).map(|version| (version.major, version.minor)), version, "{name}");
        }
    }

    #[test]
    fn a_process_without_python_says_so() {
        assert!(matches!(Python::find(&Process::this()), Err(Unavailable::NoInterpreter)));
        assert!(matches!(Python::find(&Process::with_id(u32::MAX)), Err(Unavailable::Denied(_))));
    }
}
