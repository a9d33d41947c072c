//! What a run has and a run of the unchanged program has not.

pub mod candidates;
pub mod edits;
pub mod machine;
pub mod own;
pub mod question;

use std::ffi::OsString;
use std::rc::Rc;

use gpuwhy_report::run::remedies::Trial;

/// What is measured.
#[derive(Clone, Debug)]
pub enum Change {
    /// A remedy of the catalog.
    Remedy(&'static Trial),
    /// What the user wants to try.
    Own(Rc<OwnChange>),
    /// Recording in this mode.
    Recording(&'static str),
}

/// A change of the user's.
#[derive(Debug, Default)]
pub struct OwnChange {
    /// Name in texts; that of the remedy for which it stands, if any.
    pub name: String,
    /// Name in the history, with a hash of the diff, the command and the values: others may have the same name.
    pub kept_as: String,
    /// The remedy for which it stands.
    pub remedy: Option<String>,
    /// True if it has a diff, which is applied in a copy of the tree.
    pub is_patch: bool,
    /// The command in place of the unchanged one, for `sh -c`.
    pub against: Option<OsString>,
    /// Variables.
    pub environment: Vec<(OsString, OsString)>,
}

impl OwnChange {
    /// True if it leaves everything as it is.
    pub fn is_none(&self) -> bool {
        let is_set = |(name, value): &(OsString, OsString)| std::env::var_os(name).as_ref() == Some(value);
        !self.is_patch && self.against.is_none() && self.environment.iter().all(is_set)
    }
}

impl Change {
    /// Name, in texts and JSON.
    pub fn id(&self) -> &str {
        match self {
            Self::Remedy(trial) => trial.id,
            Self::Own(own) => &own.name,
            Self::Recording(mode) => mode,
        }
    }

    /// The remedy of the catalog that it is.
    pub fn trial(&self) -> Option<&'static Trial> {
        if let Self::Remedy(trial) = self { Some(trial) } else { None }
    }

    /// It, if it is the user's.
    pub fn own(&self) -> Option<&OwnChange> {
        if let Self::Own(own) = self { Some(own) } else { None }
    }

    /// The mode, if it is recording.
    pub fn recording(&self) -> Option<&'static str> {
        if let Self::Recording(mode) = self { Some(mode) } else { None }
    }
}
