//! Changes that `gpuwhy try` makes from outside of a program.
//!
//! Variables are set as written here; changes of Python and PyTorch by the same names are in
//! `cli/trial/python/changes.py`.

use std::ffi::OsString;

/// How a remedy is applied.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Variables are set to these values.
    Set(&'static [(&'static str, &'static str)]),
    /// This setting is added to the list in the first of these variables that is set, or in the last one.
    Add(&'static [&'static str], &'static str),
    /// A variable is unset, and PyTorch changed in case the program sets it.
    Unset(&'static str),
    /// PyTorch is changed when the program imports it.
    PyTorch,
    /// Python is changed when it starts.
    Python,
    /// The first of these libraries that is installed is loaded before all others.
    Preload(&'static [&'static str]),
    /// The program runs on the CPU cores beside the GPU alone.
    Cores,
}

/// A change that can be tried.
#[derive(Debug)]
pub struct Trial {
    /// Name: that of the remedy in reports. Remedies may share a change.
    pub id: &'static str,
    /// What is changed.
    pub change: &'static str,
    /// What to write into the program to keep it.
    pub keep: &'static str,
    /// How it is applied.
    pub how: How,
    /// Why it may find nothing to change.
    pub needs: &'static str,
}

impl Trial {
    /// True if it works without Python.
    pub fn is_for_any_program(&self) -> bool {
        matches!(self.how, How::Set(_) | How::Add(..) | How::Preload(_) | How::Cores)
    }

    /// Changes to the environment: `None` unsets a variable. `variable` looks up the present value. Empty if
    /// everything is set already.
    pub fn environment(&self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, Option<OsString>)> {
        match self.how {
            How::Set(values) => {
                let all = values.iter().filter(|(name, value)| variable(name).is_none_or(|now| now != *value));
                all.map(|&(name, value)| (name, Some(value.into()))).collect()
            }
            How::Add(names, setting) => {
                let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
                let found = names.iter().find_map(|name| Some((*name, set(name)?)));
                let (key, _) = setting.split_once(':').unwrap_or((setting, ""));
                match found {
                    Some((_, value)) if value.to_string_lossy().contains(key) => Vec::new(),
                    Some((name, mut value)) => {
                        value.push(",");
                        value.push(setting);
                        vec![(name, Some(value))]
                    }
                    None => names.last().map(|name| (*name, Some(setting.into()))).into_iter().collect(),
                }
            }
            How::Unset(name) => vec![(name, None)],
            How::PyTorch | How::Python | How::Preload(_) | How::Cores => Vec::new(),
        }
    }
}
