//! The terminal that standard output goes to.

use console::Term;

/// Characters of a line; `None` when standard output is no terminal, or one that does not say.
pub fn columns() -> Option<u16> {
    Term::stdout().size_checked().map(|(_, columns)| columns).filter(|&columns| columns > 0)
}
