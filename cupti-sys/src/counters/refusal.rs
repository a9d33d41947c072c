//! Why hardware counters are unavailable, in one sentence each with the remedy.

use std::fmt;
use std::fs;

use crate::abi::CuptiResult;
use crate::cupti::Error;

/// File in which the kernel module lists its settings.
const DRIVER_PARAMETERS: &str = "/proc/driver/nvidia/params";
/// The line that restricts counters to administrators, or not.
const ADMINISTRATORS_ONLY: &str = "RmProfilingAdminOnly:";

/// Reason why hardware counters are unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// Another tool or process has the counters of the device.
    Busy,
    /// Only administrators may use counters.
    Permission,
    /// The device is partitioned (MIG).
    Divided,
    /// The virtual machine or virtual GPU does not allow counters.
    Virtual,
    /// Confidential computing.
    Confidential,
    /// A device or system without counters: SLI, WSL, mining.
    Device,
    /// A libcupti before CUDA 12.6.
    OldLibrary,
    /// The libraries that compute metrics are not next to libcupti.
    NoMetricLibrary,
    /// No set of metrics for the chip.
    NoMetrics,
    /// Anything else.
    Other(CuptiResult),
}

impl CounterError {
    /// Reason for an error that CUPTI returned.
    pub const fn of(error: &Error) -> Self {
        match error.code {
            CuptiResult::HARDWARE_BUSY => Self::Busy,
            CuptiResult::INSUFFICIENT_PRIVILEGES => Self::Permission,
            CuptiResult::MIG_DEVICE_NOT_SUPPORTED => Self::Divided,
            CuptiResult::VIRTUALIZED_DEVICE_NOT_SUPPORTED | CuptiResult::VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => {
                Self::Virtual
            }
            CuptiResult::CONFIDENTIAL_COMPUTING_NOT_SUPPORTED => Self::Confidential,
            CuptiResult::CMP_DEVICE_NOT_SUPPORTED
            | CuptiResult::SLI_DEVICE_NOT_SUPPORTED
            | CuptiResult::WSL_DEVICE_NOT_SUPPORTED => Self::Device,
            CuptiResult::API_NOT_IMPLEMENTED => Self::OldLibrary,
            code => Self::Other(code),
        }
    }

    /// True if a later attempt may succeed.
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Busy)
    }
}

impl fmt::Display for CounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => {
                "another tool has the GPU's counters; end Nsight Compute, Nsight Systems with GPU metrics or another \
                 gpuwhy on this GPU, or pause DCGM with `dcgmi profile --pause`"
            }
            Self::Permission => {
                "only administrators may read the GPU's counters; load the NVIDIA kernel module with \
                 NVreg_RestrictProfilingToAdminUsers=0, or run as root or with CAP_SYS_ADMIN"
            }
            Self::Divided => "CUPTI does not read counters of this MIG slice; use the whole GPU",
            Self::Virtual => "the virtual machine does not allow GPU counters; enable them for this vGPU on the host",
            Self::Confidential => "GPU counters are off under confidential computing; use the GPU without it",
            Self::Device => "CUPTI has no GPU counters for this kind of device or system",
            Self::OldLibrary => "this libcupti cannot sample GPU counters; use one of CUDA 12.6 or later",
            Self::NoMetricLibrary => {
                "libnvperf_host.so is not beside libcupti; install the whole nvidia-cuda-cupti package"
            }
            Self::NoMetrics => "this libcupti has no set of counters that fits one pass on this GPU; use a newer one",
            Self::Other(code) => return write!(f, "CUPTI answered {code} when asked for the GPU's counters"),
        })
    }
}

/// True if the kernel module restricts counters to administrators; `None` if it does not say.
pub fn restricted_to_administrators() -> Option<bool> {
    restricted(&fs::read_to_string(DRIVER_PARAMETERS).ok()?)
}

fn restricted(parameters: &str) -> Option<bool> {
    let value = parameters.lines().find_map(|line| line.trim().strip_prefix(ADMINISTRATORS_ONLY))?;
    value.trim().parse::<u32>().ok().map(|value| value != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_modules_parameters_are_understood() {
        assert_eq!(restricted("RmLogonRC: 1\nRmProfilingAdminOnly: 1\nGrdmaPciTopoCheckOverride: 0\n"), Some(true));
        assert_eq!(restricted("RmProfilingAdminOnly: 0\n"), Some(false));
        assert_eq!(restricted("RmLogonRC: 1\n"), None);
        assert_eq!(restricted("RmProfilingAdminOnly: perhaps\n"), None);
    }

    #[test]
    fn every_answer_has_a_sentence_of_its_own_kind() {
        let of = |code| CounterError::of(&Error { function: "cuptiPmSamplingSetConfig", code });
        assert_eq!(of(CuptiResult::HARDWARE_BUSY), CounterError::Busy);
        assert_eq!(of(CuptiResult::INSUFFICIENT_PRIVILEGES), CounterError::Permission);
        assert_eq!(of(CuptiResult(40)), CounterError::Virtual);
        assert_eq!(of(CuptiResult::UNKNOWN), CounterError::Other(CuptiResult::UNKNOWN));
        assert!(of(CuptiResult(777)).to_string().contains("777"));
        for &code in CuptiResult::ALL {
            let sentence = of(code).to_string();
            assert!(sentence.len() > 40 && !sentence.contains("  ") && !sentence.ends_with('.'), "{sentence}");
        }
    }
}
