//! When API calls are recorded.

use crate::config::setting::Setting;
use crate::config::variable;

/// When API calls are recorded: `GPUWHY_API_CALLS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiCalls {
    /// Whenever anything is.
    Always,
    /// In stretches.
    Stretches,
}

impl ApiCalls {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "stretches" => Some(Self::Stretches),
            _ => None,
        }
    }
}

/// [`variable::API_CALLS`]
pub const API_CALLS: Setting<ApiCalls> = Setting {
    name: variable::API_CALLS,
    default: "always",
    expected: "always or stretches",
    meaning: "`stretches` records API calls an eighth of the time, which lowers the cost of GPUWHY_MODE=light for programs limited by \
                  launches; device work is always recorded. Causes of idle time elsewhere are estimated from the stretches, and the \
                  report says so, with intervals ([how](../design/attribution.md#calls-in-stretches)). Only runs that are measured \
                  as a whole in mode `light`, with GPUWHY_CUPTI_SHARING=exclusive, have stretches. On an H100 it won nothing that could be measured.",
    parse: ApiCalls::parse,
};
