//! A setting: its name, default, values and meaning.

/// A setting with values of type `T`.
#[derive(Debug)]
pub struct Setting<T> {
    /// Environment variable.
    pub name: &'static str,
    /// Value if it is not set.
    pub default: &'static str,
    /// Accepted values, for the message about an invalid value.
    pub expected: &'static str,
    /// Effect, with units.
    pub meaning: &'static str,
    /// Parses a value.
    pub parse: fn(&str) -> Option<T>,
}

/// A setting without the type of its values.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Environment variable.
    pub name: &'static str,
    /// Value if it is not set.
    pub default: &'static str,
    /// Effect, with units and accepted values.
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
