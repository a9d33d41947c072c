//! Which statistics there are, and their columns.

use std::fmt;
use std::str::FromStr;

use super::table::{Heading, TimeUnit, columns};

/// Columns of most summaries, behind the share and the total.
const SUMMARY: &str = "Avg @, Med @, Min @, Max @, StdDev @";

/// Columns of the sum of memory, `@` for the unit of time.
const MEMORY_SUM: &str = "Peak (MB), Peak Time @, Current (MB), Allocations, Releases, Allocated (MB), Largest (MB), \
                                  Pool Peak (MB), PID, Device ID, *Memory Kind";
/// Columns of the trace of memory.
const MEMORY_TRACE: &str = "Start @, *Operation, Bytes (MB), Held (MB), *Memory Kind, PID, Device ID, Context ID, \
                                Stream ID, CorrID, Address, *Name";

/// Columns of the sums of managed memory by address, in all, and by instruction.
const MANAGED_BY_ADDRESS: &str = "*Virtual Address, HtoD Migration size (MB), DtoH Migration size (MB), CPU Page Faults, \
                                     \u{20}GPU Page Faults, Migration Throughput (MB/s)";
const MANAGED_TOTAL: &str = "Total HtoD Migration Size (MB), Total DtoH Migration Size (MB), Total CPU Page Faults, \
                                Total GPU PageFaults, *Minimum Virtual Address, *Maximum Virtual Address";
const HOST_FAULTS: &str = "CPU Page Faults, *CPU Instruction Address, *Source File, Source Line";

/// Above the table of waits.
const WAITS_NOTE: &str = "Waits that looks at the launching threads met, not calls: short ones are missing, and a row \
                               is what the\nthread slept in. Looks that follow each other in the same wait count as one.";

/// Columns of the sums of kernels by library and by line.
const LIBRARY_SUM: &str = "Time (%), Total Time @, Instances, Kernels, Told by Samples @, *Library, *Largest Kernel";
const LINE_SUM: &str = "Time (%), Estimated Time @, 95% Low @, 95% High @, Samples, Kernel Samples, Kernel Time @, \
                            *Library, *Module, *Operator, *File, Line, *Function, *Kernel";

/// Above the table of kernels by line.
const LINES_NOTE: &str = "Estimated from host samples that fell into launches; kernels without a sample are not here. \
                               nvtx_kern_sum\nis exact, for programs with ranges.";

macro_rules! statistics {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal;)*) => {
        /// A report of `nsys stats`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Statistic {
            $($(#[$doc])* $variant,)*
        }

        impl Statistic {
            /// All of them, in the order of the alphabet.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// nsys's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)*
                }
            }
        }
    };
}

statistics! {
    /// Calls, kernels and memory operations by name.
    ApiGpuSum = "cuda_api_gpu_sum", "CUDA Summary (API/Kernels/MemOps)";
    /// Calls by function.
    ApiSum = "cuda_api_sum", "CUDA API Summary";
    /// Every call.
    ApiTrace = "cuda_api_trace", "CUDA API Trace";
    /// Kernels by name and shape.
    KernelShapeSum = "cuda_gpu_kern_gb_sum", "CUDA GPU Kernel/Grid/Block Summary";
    /// Kernels by name.
    KernelSum = "cuda_gpu_kern_sum", "CUDA GPU Kernel Summary";
    /// Bytes of memory operations.
    MemorySizeSum = "cuda_gpu_mem_size_sum", "CUDA GPU MemOps Summary (by Size)";
    /// Durations of memory operations.
    MemoryTimeSum = "cuda_gpu_mem_time_sum", "CUDA GPU MemOps Summary (by Time)";
    /// Kernels and memory operations by name.
    GpuSum = "cuda_gpu_sum", "CUDA GPU Summary (Kernels/MemOps)";
    /// Every kernel and memory operation.
    GpuTrace = "cuda_gpu_trace", "CUDA GPU Trace";
    /// Launch, queue and run of kernels by function and kernel.
    ExecutionSum = "cuda_kern_exec_sum", "CUDA Kernel Launch & Exec Time Summary";
    /// Launch, queue and run of every kernel.
    ExecutionTrace = "cuda_kern_exec_trace", "CUDA Kernel Launch & Exec Time Trace";
    /// Kernels by library. Not a report of nsys.
    LibrarySum = "cuda_kern_library_sum", "CUDA Kernel Summary by Library";
    /// Kernels by the line that launched them. Not a report of nsys.
    LineSum = "cuda_kern_line_sum", "CUDA Kernel Summary by Line";
    /// Memory that is held, by device and kind. Not a report of nsys.
    MemoryUsageSum = "cuda_memory_usage_sum", "CUDA Memory Usage Summary";
    /// Every allocation and release. Not a report of nsys.
    MemoryUsageTrace = "cuda_memory_usage_trace", "CUDA Memory Usage Trace";
    /// Ranges by text, as their work on the devices.
    ProjectionSum = "nvtx_gpu_proj_sum", "NVTX GPU Projection Summary";
    /// Every range, as its work on the devices.
    ProjectionTrace = "nvtx_gpu_proj_trace", "NVTX GPU Projection Trace";
    /// Kernels by range.
    RangeKernelSum = "nvtx_kern_sum", "NVTX Range Kernel Summary";
    /// Pushed ranges by text.
    PushPopSum = "nvtx_pushpop_sum", "NVTX Push/Pop Range Summary";
    /// Every pushed range.
    PushPopTrace = "nvtx_pushpop_trace", "NVTX Push/Pop Range Trace";
    /// Started ranges by text.
    StartEndSum = "nvtx_startend_sum", "NVTX Start/End Range Summary";
    /// Ranges by text.
    RangeSum = "nvtx_sum", "NVTX Range Summary";
    /// Waits of the launching threads.
    WaitSum = "osrt_sum", "OS Runtime Summary";
    /// Page faults of the host on managed memory by instruction.
    HostFaultSum = "um_cpu_page_faults_sum", "Unified Memory CPU Page Faults Summary";
    /// Migrations and page faults of managed memory by address.
    ManagedSum = "um_sum", "Unified Memory Analysis Summary";
    /// Migrations and page faults of managed memory.
    ManagedTotalSum = "um_total_sum", "Unified Memory Totals Summary";
}

impl Statistic {
    pub(super) fn heading(self, unit: TimeUnit) -> Heading {
        let names = match self {
            Self::ApiGpuSum | Self::GpuSum => {
                format!("Time (%), Total Time @, Instances, {SUMMARY}, *Category, *Operation")
            }
            Self::ApiSum | Self::WaitSum => format!("Time (%), Total Time @, Num Calls, {SUMMARY}, *Name"),
            Self::KernelSum => format!("Time (%), Total Time @, Instances, {SUMMARY}, *Name"),
            Self::KernelShapeSum => {
                format!("Time (%), Total Time @, Instances, {SUMMARY}, *GridXYZ, *BlockXYZ, *Name")
            }
            Self::MemoryTimeSum => format!("Time (%), Total Time @, Count, {SUMMARY}, *Operation"),
            Self::MemorySizeSum => {
                "Total (MB), Count, Avg (MB), Med (MB), Min (MB), Max (MB), StdDev (MB), *Operation".to_owned()
            }
            Self::ApiTrace => "Start @, Duration @, *Name, Result, CorrID, Pid, Tid, T-Pri, *Thread Name".to_owned(),
            Self::GpuTrace => {
                "Start @, Duration @, CorrId, GrdX, GrdY, GrdZ, BlkX, BlkY, BlkZ, Reg/Trd, StcSMem (MB), \
                 DymSMem (MB), Bytes (MB), Throughput (MB/s), *SrcMemKd, *DstMemKd, *Device, Ctx, GreenCtx, Strm, *Name"
                    .to_owned()
            }
            Self::RangeSum => format!("Time (%), Total Time @, Instances, {SUMMARY}, *Style, *Range"),
            Self::PushPopSum | Self::StartEndSum => {
                format!("Time (%), Total Time @, Instances, {SUMMARY}, *Range")
            }
            Self::HostFaultSum => HOST_FAULTS.to_owned(),
            Self::ManagedSum => MANAGED_BY_ADDRESS.to_owned(),
            Self::ManagedTotalSum => MANAGED_TOTAL.to_owned(),
            Self::LibrarySum => LIBRARY_SUM.to_owned(),
            Self::LineSum => LINE_SUM.to_owned(),
            Self::MemoryUsageSum => MEMORY_SUM.to_owned(),
            Self::MemoryUsageTrace => MEMORY_TRACE.to_owned(),
            Self::ProjectionSum => {
                "*Range, *Style, Total Proj Time @, Total Range Time @, Range Instances, Proj Avg @, Proj Med @, Proj Min @, \
                 Proj Max @, Proj StdDev @, Total GPU Ops, Avg GPU Ops, Avg Range Lvl, Avg Num Child"
                    .to_owned()
            }
            Self::ProjectionTrace => {
                "*Name, Projected Start @, Projected Duration @, Orig Start @, Orig Duration @, *Style, PID, TID, NumGPUOps, \
                 Lvl, NumChild, RangeId, ParentId, *RangeStack"
                    .to_owned()
            }
            Self::PushPopTrace => {
                "Start @, End @, Duration @, DurChild @, DurNonChild @, *Name, PID, TID, Lvl, NumChild, RangeId, ParentId, \
                 *RangeStack, *NameTree"
                    .to_owned()
            }
            Self::RangeKernelSum => {
                format!("*NVTX Range, *Style, PID, TID, NVTX Inst, Kern Inst, Total Time @, {SUMMARY}, *Kernel Name")
            }
            Self::ExecutionTrace => {
                "API Start @, API Dur @, Queue Start @, Queue Dur @, Kernel Start @, Kernel Dur @, \
                 Total Dur @, PID, TID, DevId, *API Function, *GridXYZ, *BlockXYZ, *Kernel Name"
                    .to_owned()
            }
            Self::ExecutionSum => {
                let group =
                    |letter: &str| SUMMARY.split(", ").map(|name| format!("{letter}{name}")).collect::<Vec<_>>();
                let groups: Vec<String> = ["T", "A", "Q", "K"].into_iter().flat_map(group).collect();
                format!("PID, TID, DevId, Count, QCount, {}, *API Name, *Kernel Name", groups.join(", "))
            }
        };
        let note = match self {
            Self::WaitSum => Some(WAITS_NOTE.to_owned()),
            Self::LineSum => Some(LINES_NOTE.to_owned()),
            _ => None,
        };
        Heading { title: self.title(), name: self.name(), note, columns: columns(&names, unit) }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Statistic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|statistic| statistic.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|statistic| statistic.name()).collect();
            format!("no such report; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for &statistic in Statistic::ALL {
            assert_eq!(statistic.name().parse(), Ok(statistic));
        }
        assert!("gpukernsum".parse::<Statistic>().is_err());
    }

    #[test]
    fn columns_carry_the_unit() {
        let heading = Statistic::ExecutionSum.heading(TimeUnit::Microseconds);
        let names: Vec<&str> = heading.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names.len(), 27);
        assert_eq!(&names[5..7], ["TAvg (us)", "TMed (us)"]);
        assert!(heading.columns[26].is_text && !heading.columns[5].is_text);
    }
}
