//! The parts of the run that the user wants measured, in the terms of nsys and torch.profiler.
//!
//! Plain data and its parsers; [`crate::capture::plan`] carries it out. By default the complete run is
//! measured.

use std::fmt;
use std::time::Duration;

/// Maximum number of steps: enough for one per nanosecond for 18 minutes, and sums stay far from overflowing.
pub const MAX_STEPS: u64 = (1 << 40) - 1;

/// Parts of the run to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Events that start and end a capture.
    pub range: CaptureRange,
    /// Action after the end of a capture.
    pub at_end: AtEnd,
    /// Time from the start before which no capture starts.
    pub delay: Duration,
    /// Maximum length of a capture.
    pub duration: Option<Duration>,
}

impl Default for Request {
    fn default() -> Self {
        Self { range: CaptureRange::Whole, at_end: AtEnd::StopShutdown, delay: Duration::ZERO, duration: None }
    }
}

impl Request {
    /// True if the run is measured from its start to its end.
    pub fn is_complete(&self) -> bool {
        self.range == CaptureRange::Whole && self.delay.is_zero() && self.duration.is_none()
    }

    /// True if steps are detected from the records.
    pub fn detects_steps(&self) -> bool {
        matches!(self.range, CaptureRange::Steps(_, None))
    }

    /// Range of the program that starts and ends captures, or is a step.
    pub fn range_name(&self) -> Option<&RangeName> {
        match &self.range {
            CaptureRange::Named(name) | CaptureRange::Steps(_, Some(name)) | CaptureRange::Commands(Some(name)) => {
                Some(name)
            }
            CaptureRange::Whole
            | CaptureRange::ProfilerApi
            | CaptureRange::Steps(_, None)
            | CaptureRange::Commands(None)
            | CaptureRange::Nothing
            | CaptureRange::Bursts => None,
        }
    }

    /// Describes the request in a sentence for the report; `None` if the complete run is measured.
    pub fn describe(&self) -> Option<String> {
        let range = match &self.range {
            CaptureRange::Whole if self.is_complete() => return None,
            CaptureRange::Nothing | CaptureRange::Bursts => return None,
            CaptureRange::Whole => "a part of the run, chosen by time".to_owned(),
            CaptureRange::ProfilerApi => "between cudaProfilerStart and cudaProfilerStop".to_owned(),
            CaptureRange::Named(_) => "while a range of the program is open".to_owned(),
            CaptureRange::Commands(_) => "what commands asked for (gpuwhy start)".to_owned(),
            CaptureRange::Steps(_, Some(_)) => "chosen steps, named by the program".to_owned(),
            CaptureRange::Steps(_, None) => {
                "chosen steps, which are detected: so tracing is on also while nothing is captured".to_owned()
            }
        };
        Some(format!("measured: {range}"))
    }
}

/// Events that start and end a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureRange {
    /// The complete program: from its start, or after the delay.
    Whole,
    /// `cudaProfilerStart` and `cudaProfilerStop`.
    ProfilerApi,
    Named(RangeName),
    /// Steps: ranges with this name, or detected steps.
    Steps(Schedule, Option<RangeName>),
    /// Commands of `gpuwhy start`; the range is a step, for commands that name one.
    Commands(Option<RangeName>),
    /// No captures: only the program's own sessions.
    Nothing,
    /// Mode auto decides.
    Bursts,
}

/// `--capture-range`, before the range or the steps are known.
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
    /// Parses the name, in any case.
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

/// `range@domain`: either part may be `*`. Without a domain, the default domain is meant.
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
    /// Parses the text; `None` if it has no range.
    pub fn parse(text: &str) -> Option<Self> {
        let (message, domain) = text.split_once('@').unwrap_or((text, ""));
        let part = |part: &str| (part != "*").then(|| part.to_owned());
        (!message.is_empty()).then(|| Self { message: part(message), domain: part(domain) })
    }

    /// True if it matches a range with this message in this domain; the default domain is the empty text.
    pub fn matches(&self, message: &str, domain: &str) -> bool {
        self.message.as_deref().is_none_or(|wanted| wanted == message)
            && self.domain.as_deref().is_none_or(|wanted| wanted == domain)
    }
}

/// Action after the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The end of a range is ignored: the capture continues.
    None,
    /// No further capture starts automatically; commands can still start one.
    Stop,
    /// Measuring is over: the report is printed and the trace closed while the program continues.
    StopShutdown,
    /// The next range is captured too, up to this total number.
    Repeat(Option<u32>),
}

impl AtEnd {
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

/// Steps that are measured, as in torch.profiler's schedule: after `skip` steps, cycles of `wait` steps
/// without measuring, `warmup` steps whose records are discarded, and `active` steps that form a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Steps before the first cycle.
    pub skip: u64,
    /// Steps of a cycle without tracing.
    pub wait: u64,
    /// Steps of a cycle whose records are discarded, so that switching on is over before the capture.
    pub warmup: u64,
    /// Steps of a cycle that are captured; at least one.
    pub active: u64,
    /// Number of cycles; 0 for no limit.
    pub repeat: u64,
}

/// Role of a step in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepRole {
    /// Not traced.
    Free,
    /// Traced, but its records are discarded.
    Warmup,
    /// Belongs to the capture of this cycle, counted from 0.
    Active(u64),
    /// After the last cycle.
    Over,
}

impl Schedule {
    /// Parses `skip,wait,warmup,active,repeat`; missing numbers at the end are 0, except active, which is 1.
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

    /// Role of step number `step`, counted from 0.
    pub fn role(&self, step: u64) -> StepRole {
        let Some(behind) = step.checked_sub(self.skip) else { return StepRole::Free };
        let length = self.wait + self.warmup + self.active;
        let (cycle, within) = (behind / length, behind % length);
        if self.repeat > 0 && cycle >= self.repeat {
            StepRole::Over
        } else if within < self.wait {
            StepRole::Free
        } else if within < self.wait + self.warmup {
            StepRole::Warmup
        } else {
            StepRole::Active(cycle)
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
        let roles: Vec<_> = (0..11).map(|step| schedule.role(step)).collect();
        use StepRole::{Active, Free, Over, Warmup};
        assert_eq!(roles, [Free, Free, Free, Warmup, Active(0), Active(0), Free, Warmup, Active(1), Active(1), Over]);
        assert_eq!(Schedule::parse("5").unwrap().role(5), Active(0));
        for bad in ["1,1,1,0", "1,2,3,4,5,6", "a", "", "1,,1", "99999999999999999"] {
            assert_eq!(Schedule::parse(bad), None, "{bad}");
        }
    }
}
