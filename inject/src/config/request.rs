//! What the user asks to be measured, in the words of nsys and of torch.profiler.
//!
//! Plain data and its parsers; what follows from it is [`crate::capture::plan`]. Without any of it the whole run is
//! measured.

use std::fmt;
use std::time::Duration;

/// Most steps: enough for one each nanosecond for 18 minutes, and sums stay far from overflowing.
pub const MAX_STEPS: u64 = (1 << 40) - 1;

/// When to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What makes a capture begin and end.
    pub range: Range,
    /// What follows the end of a capture.
    pub at_end: AtEnd,
    /// Nothing begins before this time has passed since the start.
    pub delay: Duration,
    /// Longest capture.
    pub duration: Option<Duration>,
}

impl Default for Request {
    fn default() -> Self {
        Self { range: Range::Whole, at_end: AtEnd::StopShutdown, delay: Duration::ZERO, duration: None }
    }
}

impl Request {
    /// Whether the run is measured from its start to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.range == Range::Whole && self.delay.is_zero() && self.duration.is_none()
    }

    /// Whether steps are found from the records.
    #[must_use]
    pub fn detects_steps(&self) -> bool {
        matches!(self.range, Range::Steps(_, None))
    }

    /// The range of the program that begins and ends captures, or is a step.
    #[must_use]
    pub fn range_name(&self) -> Option<&RangeName> {
        match &self.range {
            Range::Named(name) | Range::Steps(_, Some(name)) | Range::Commands(Some(name)) => Some(name),
            Range::Whole
            | Range::ProfilerApi
            | Range::Steps(_, None)
            | Range::Commands(None)
            | Range::Nothing
            | Range::Bursts => None,
        }
    }

    /// A sentence for the report; nothing when the whole run is measured.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let range = match &self.range {
            Range::Whole if self.is_whole() => return None,
            Range::Nothing | Range::Bursts => return None,
            Range::Whole => "a part of the run, chosen by time".to_owned(),
            Range::ProfilerApi => "between cudaProfilerStart and cudaProfilerStop".to_owned(),
            Range::Named(_) => "while a range of the program is open".to_owned(),
            Range::Commands(_) => "what commands asked for (gpuwhy start)".to_owned(),
            Range::Steps(_, Some(_)) => "chosen steps, named by the program".to_owned(),
            Range::Steps(_, None) => {
                "chosen steps, which are detected: so tracing is on also while nothing is captured".to_owned()
            }
        };
        Some(format!("measured: {range}"))
    }
}

/// What makes a capture begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// The program: from its start, or after the delay.
    Whole,
    /// `cudaProfilerStart` and `cudaProfilerStop`.
    ProfilerApi,
    Named(RangeName),
    /// Steps: those with this name, or those that are detected.
    Steps(Schedule, Option<RangeName>),
    /// What `gpuwhy start` asks for; the range is a step, for commands that name one.
    Commands(Option<RangeName>),
    /// Nothing: the program's own sessions alone.
    Nothing,
    /// Mode auto decides.
    Bursts,
}

/// `--capture-range`, before it is known which range or steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeKind {
    /// `none`
    #[default]
    None,
    /// `cudaProfilerApi`
    ProfilerApi,
    /// `nvtx`
    Nvtx,
    /// `command`
    Command,
}

impl RangeKind {
    /// From its name, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "none" | "off" => Some(Self::None),
            "cudaprofilerapi" => Some(Self::ProfilerApi),
            "nvtx" => Some(Self::Nvtx),
            "command" => Some(Self::Command),
            _ => None,
        }
    }
}

/// `range@domain`: either part may be `*`. Without a domain the default one is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeName {
    message: Option<String>,
    domain: Option<String>,
}

impl fmt::Display for RangeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("*"))?;
        match self.domain.as_deref() {
            Some("") => Ok(()),
            domain => write!(f, "@{}", domain.unwrap_or("*")),
        }
    }
}

impl RangeName {
    /// From its text; `None` when there is no range in it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (message, domain) = text.split_once('@').unwrap_or((text, ""));
        let part = |part: &str| (part != "*").then(|| part.to_owned());
        (!message.is_empty()).then(|| Self { message: part(message), domain: part(domain) })
    }

    /// Whether a range with this message in this domain is meant; the default domain is the empty text.
    #[must_use]
    pub fn matches(&self, message: &str, domain: &str) -> bool {
        self.message.as_deref().is_none_or(|wanted| wanted == message)
            && self.domain.as_deref().is_none_or(|wanted| wanted == domain)
    }
}

/// What follows the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The end of a range is passed over: the capture goes on.
    None,
    /// No further capture by itself; commands can still begin one.
    Stop,
    /// Measuring is over: the report is printed and the trace closed while the program goes on.
    StopShutdown,
    /// The next range is captured too, at most so many in all.
    Repeat(Option<u32>),
}

impl AtEnd {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "stop" => Some(Self::Stop),
            "stop-shutdown" => Some(Self::StopShutdown),
            "repeat" => Some(Self::Repeat(None)),
            _ => text.strip_prefix("repeat:")?.parse().ok().filter(|&times| times > 0).map(|n| Self::Repeat(Some(n))),
        }
    }
}

/// Steps that are measured, as torch.profiler's schedule: after `skip` steps, cycles of `wait` steps without
/// measuring, `warmup` steps whose records are thrown away, and `active` steps that are a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Steps before the first cycle.
    pub skip: u64,
    /// Steps of a cycle that run free.
    pub wait: u64,
    /// Steps of a cycle that are traced in vain, to have the cost of switching on behind.
    pub warmup: u64,
    /// Steps of a cycle that are captured; at least one.
    pub active: u64,
    /// Cycles; 0 for as many as there are.
    pub repeat: u64,
}

/// What a step is, by its place in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Runs free.
    Free,
    /// Traced in vain.
    Warmup,
    /// Belongs to the capture of this cycle, counted from 0.
    Active(u64),
    /// Behind the last cycle.
    Over,
}

impl Schedule {
    /// `skip,wait,warmup,active,repeat`; what is left out at the end is 0, but active is 1.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = [0, 0, 0, 1, 0];
        let given: Vec<&str> = text.split(',').collect();
        if given.len() > parts.len() {
            return None;
        }
        for (part, text) in parts.iter_mut().zip(given) {
            *part = text.trim().parse().ok().filter(|&steps: &u64| steps <= MAX_STEPS)?;
        }
        let [skip, wait, warmup, active, repeat] = parts;
        (active > 0).then_some(Self { skip, wait, warmup, active, repeat })
    }

    /// The place of step number `step`, counted from 0.
    #[must_use]
    pub fn place(&self, step: u64) -> Place {
        let Some(behind) = step.checked_sub(self.skip) else { return Place::Free };
        let length = self.wait + self.warmup + self.active;
        let (cycle, within) = (behind / length, behind % length);
        if self.repeat > 0 && cycle >= self.repeat {
            Place::Over
        } else if within < self.wait {
            Place::Free
        } else if within < self.wait + self.warmup {
            Place::Warmup
        } else {
            Place::Active(cycle)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_chosen_by_message_and_domain() {
        for (wanted, message, domain, matches) in [
            ("step", "step", "", true),
            ("step", "step", "torch", false),
            ("step@torch", "step", "torch", true),
            ("*@torch", "anything", "torch", true),
            ("*@torch", "anything", "", false),
            ("step@*", "step", "x", true),
            ("step", "steps", "", false),
        ] {
            assert_eq!(
                RangeName::parse(wanted).unwrap().matches(message, domain),
                matches,
                "{wanted} {message}@{domain}"
            );
        }
        assert_eq!(RangeName::parse("@torch"), None);
    }

    #[test]
    fn what_follows_the_end_is_read() {
        assert_eq!(AtEnd::parse("repeat:3"), Some(AtEnd::Repeat(Some(3))));
        assert_eq!(AtEnd::parse("repeat"), Some(AtEnd::Repeat(None)));
        for bad in ["repeat:0", "repeat:", "repeat:-1", "end", ""] {
            assert_eq!(AtEnd::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_schedule_places_steps_as_torch_does() {
        let schedule = Schedule::parse("2,1,1,2,2").unwrap();
        let places: Vec<_> = (0..11).map(|step| schedule.place(step)).collect();
        use Place::{Active, Free, Over, Warmup};
        assert_eq!(places, [Free, Free, Free, Warmup, Active(0), Active(0), Free, Warmup, Active(1), Active(1), Over]);
        assert_eq!(Schedule::parse("5").unwrap().place(5), Active(0));
        for bad in ["1,1,1,0", "1,2,3,4,5,6", "a", "", "1,,1", "99999999999999999"] {
            assert_eq!(Schedule::parse(bad), None, "{bad}");
        }
    }
}
