//! What a setting is: its name, its default, what it takes and what it does.

/// A setting whose values are a `T`.
#[derive(Debug)]
pub struct Setting<T> {
    /// Its environment variable.
    pub name: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it takes, for the message about a value that is not understood.
    pub expected: &'static str,
    /// What it does, with units.
    pub meaning: &'static str,
    /// Reads a value.
    pub parse: fn(&str) -> Option<T>,
}

/// A setting, without the type of its values.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its environment variable.
    pub name: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it does, with units and the values it takes.
    pub meaning: &'static str,
}

impl<T> Setting<T> {
    pub(super) const fn variable(&self) -> Variable {
        Variable { name: self.name, default: self.default, meaning: self.meaning }
    }

    #[expect(clippy::expect_used, reason = "a test reads every default")]
    pub fn default_value(&self) -> T {
        (self.parse)(self.default).expect("the default is understood")
    }
}
