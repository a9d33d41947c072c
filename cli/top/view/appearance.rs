//! Colors and letters: every cause has both, so that the display is readable without color and for
//! color-blind users.

use profiler_core::leaf::Cause;
use ratatui::style::{Color, Modifier, Style};

use crate::terminal;

/// Letter and color of each cause, one of the 16 that every terminal has. In the order of the chart from bottom to top:
/// first work on the GPU, then the causes of idle time.
pub const CAUSES: [(Cause, char, Color); Cause::ALL.len()] = [
    (Cause::GpuCompute, 'G', Color::Green),
    (Cause::Communication, 'X', Color::LightMagenta),
    (Cause::Copy, 'C', Color::LightBlue),
    (Cause::Launch, 'L', Color::Yellow),
    (Cause::HostCpu, 'H', Color::Red),
    (Cause::DataLoading, 'D', Color::Magenta),
    (Cause::Sync, 'S', Color::Cyan),
    (Cause::Allocator, 'A', Color::LightRed),
    (Cause::KernelBuild, 'K', Color::LightYellow),
    (Cause::OtherProcess, 'O', Color::LightCyan),
    (Cause::NoWork, '-', Color::Gray),
    (Cause::CannotTell, '?', Color::Gray),
];

/// Appearance of the display on this terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// True if colors are wanted.
    pub color: bool,
    /// True if the terminal can show characters beyond ASCII.
    pub unicode: bool,
}

impl Appearance {
    /// Appearance from the environment: `NO_COLOR`, `TERM`, and the encoding of the locale.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let color = set("NO_COLOR").is_none() && !set("TERM").is_some_and(|term| term.ends_with("-m"));
        Self { color, unicode: terminal::shows_unicode(set) }
    }

    /// Style of a cause's cell.
    pub fn cause(self, cause: Cause) -> Style {
        if !self.color {
            return Style::new();
        }
        Style::new().fg(Color::Black).bg(look(cause).2)
    }

    /// Style of titles.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of the chosen row.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Style of ended or less important items.
    pub fn quiet(self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// Style of items that need attention.
    pub fn warning(self) -> Style {
        if self.color { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::BOLD) }
    }

    /// Character of a horizontal rule.
    pub fn rule(self) -> &'static str {
        if self.unicode { "─" } else { "-" }
    }
}

/// Letter of a cause.
pub fn letter(cause: Cause) -> char {
    look(cause).1
}

fn look(cause: Cause) -> (Cause, char, Color) {
    CAUSES.into_iter().find(|(of, ..)| *of == cause).unwrap_or(CAUSES[CAUSES.len() - 1])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn causes_differ_by_letter_and_by_color() {
        assert_eq!(CAUSES.map(|(cause, ..)| cause).into_iter().collect::<BTreeSet<_>>().len(), Cause::ALL.len());
        assert_eq!(Cause::ALL.map(letter).into_iter().collect::<BTreeSet<_>>().len(), Cause::ALL.len());
        let appearance = Appearance { color: true, unicode: true };
        let colors: Vec<_> = Cause::ALL.map(|cause| appearance.cause(cause).bg.unwrap()).into_iter().collect();
        for (index, color) in colors.iter().enumerate().take(8) {
            assert!(!colors[..index].contains(color), "{color:?}");
            assert!(!matches!(color, Color::Rgb(..) | Color::Indexed(_)), "every terminal has it");
        }
    }

    #[test]
    fn the_environment_decides() {
        let appearance = |pairs: &[(&str, &str)]| {
            Appearance::of(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(appearance(&[("LANG", "en_US.UTF-8")]), Appearance { color: true, unicode: true });
        assert_eq!(appearance(&[("NO_COLOR", "1"), ("LANG", "C.utf8")]), Appearance { color: false, unicode: true });
        assert_eq!(
            appearance(&[("NO_COLOR", ""), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]),
            Appearance { color: true, unicode: false }
        );
        let plain = appearance(&[("NO_COLOR", "1")]);
        assert!(Cause::ALL.iter().all(|&cause| plain.cause(cause) == Style::new()));
    }
}
