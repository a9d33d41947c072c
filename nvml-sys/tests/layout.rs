//! Compares the structs with those of NVIDIA's own Python bindings (`nvidia-ml-py`), fetched from the Python
//! package index.
//!
//! Without network or Python the test prints SKIPPED and the reason; `NVML_LAYOUT_CHECK=required` makes it
//! fail instead.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use nvml_sys::{
    Field, FieldValue, GpmMetric, GpmMetricsGet, GpmSupport, METRIC_CAPACITY, Memory, Metric, ProcessInfo,
    ProcessSample, Utilization,
};

const VERSION: &str = "13.615.71";

/// Python script that prints a tuple of the sizes and offsets of the ctypes structs, and the numbers.
const SCRIPT: &str = "
import ctypes, pynvml as n
m, g = n.c_nvmlGpmMetric_t, n.c_nvmlGpmMetricsGet_t
f, b = n.c_nvmlFieldValue_t, n.c_nvmlMemory_t
p, u = n.c_nvmlProcessInfo_v2_t, n.c_nvmlProcessUtilizationSample_t
print((
    ctypes.sizeof(n.c_nvmlUtilization_t), n.c_nvmlUtilization_t.memory.offset,
    ctypes.sizeof(n.c_nvmlGpmSupport_t), n.c_nvmlGpmSupport_t.isSupportedDevice.offset,
    ctypes.sizeof(m), m.metricId.offset, m.nvmlReturn.offset, m.value.offset, m.metricInfo.offset,
    g.version.offset, g.numMetrics.offset, g.sample1.offset, g.sample2.offset, g.metrics.offset,
    ctypes.sizeof(f), f.fieldId.offset, f.scopeId.offset, f.timestamp.offset, f.latencyUsec.offset,
    f.valueType.offset, f.nvmlReturn.offset, f.value.offset, ctypes.sizeof(b), b.used.offset,
    ctypes.sizeof(p), p.pid.offset, p.usedGpuMemory.offset, p.gpuInstanceId.offset,
    ctypes.sizeof(u), u.pid.offset, u.timeStamp.offset, u.smUtil.offset, u.memUtil.offset,
    n.NVML_GPM_METRICS_GET_VERSION, n.NVML_GPM_SUPPORT_VERSION,
    n.NVML_GPM_METRIC_GRAPHICS_UTIL, n.NVML_GPM_METRIC_SM_UTIL, n.NVML_GPM_METRIC_SM_OCCUPANCY,
    n.NVML_GPM_METRIC_ANY_TENSOR_UTIL, n.NVML_GPM_METRIC_DRAM_BW_UTIL, n.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    n.NVML_GPM_METRIC_PCIE_RX_PER_SEC, n.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    n.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, n.NVML_ERROR_NOT_SUPPORTED, n.NVML_ERROR_NOT_FOUND,
    n.NVML_ERROR_FUNCTION_NOT_FOUND, n.NVML_FI_DEV_MEMORY_TEMP, n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, n.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, n.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    n.NVML_GPM_METRIC_MAX)
";

#[test]
fn structs_and_numbers_are_those_of_nvidias_bindings() {
    let Some(said) = ask_python() else { return };
    let (layout, most) = said.rsplit_once(' ').unwrap();
    assert!(most.trim().parse::<usize>().unwrap() <= METRIC_CAPACITY, "{most} metrics");
    let ours = [
        size_of::<Utilization>(),
        offset_of!(Utilization, memory),
        size_of::<GpmSupport>(),
        offset_of!(GpmSupport, is_supported),
        size_of::<GpmMetric>(),
        offset_of!(GpmMetric, id),
        offset_of!(GpmMetric, status),
        offset_of!(GpmMetric, value),
        offset_of!(GpmMetric, texts),
        offset_of!(GpmMetricsGet, version),
        offset_of!(GpmMetricsGet, count),
        offset_of!(GpmMetricsGet, earlier),
        offset_of!(GpmMetricsGet, later),
        offset_of!(GpmMetricsGet, metrics),
        size_of::<FieldValue>(),
        offset_of!(FieldValue, id),
        offset_of!(FieldValue, scope),
        offset_of!(FieldValue, timestamp),
        offset_of!(FieldValue, latency),
        offset_of!(FieldValue, kind),
        offset_of!(FieldValue, status),
        offset_of!(FieldValue, value),
        size_of::<Memory>(),
        offset_of!(Memory, used),
        size_of::<ProcessInfo>(),
        offset_of!(ProcessInfo, pid),
        offset_of!(ProcessInfo, memory),
        offset_of!(ProcessInfo, instances),
        size_of::<ProcessSample>(),
        offset_of!(ProcessSample, pid),
        offset_of!(ProcessSample, at),
        offset_of!(ProcessSample, busy),
        offset_of!(ProcessSample, others),
        1,
        1,
    ];
    let metrics = [
        Metric::GRAPHICS_UTIL,
        Metric::SM_UTIL,
        Metric::SM_OCCUPANCY,
        Metric::ANY_TENSOR_UTIL,
        Metric::DRAM_BW_UTIL,
        Metric::PCIE_TX_PER_SEC,
        Metric::PCIE_RX_PER_SEC,
        Metric::NVLINK_TOTAL_RX_PER_SEC,
        Metric::NVLINK_TOTAL_TX_PER_SEC,
    ];
    let statuses =
        [nvml_sys::Status::NOT_SUPPORTED.0, nvml_sys::Status::NOT_FOUND.0, nvml_sys::Status::FUNCTION_NOT_FOUND.0];
    let numbers = ours.into_iter().chain(metrics.iter().map(|metric| metric.0 as usize));
    let fields =
        [Field::MEMORY_TEMPERATURE, Field::NVLINK_SENT, Field::NVLINK_RECEIVED, Field::PCIE_SENT, Field::PCIE_RECEIVED];
    let statuses = statuses.into_iter().chain(fields.map(|field| field.0));
    let numbers: Vec<_> = numbers.chain(statuses.map(|status| status as usize)).map(|n| n.to_string()).collect();
    assert_eq!(format!("({})", numbers.join(", ")), layout);
}

/// Output of the script; `None` if the bindings are unavailable.
fn ask_python() -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvidia-ml-py-{VERSION}"));
    if !folder.join("pynvml.py").exists() {
        let package = format!("nvidia-ml-py=={VERSION}");
        let fetched = Command::new("python3")
            .args(["-m", "pip", "install", "-q", "--no-deps", "--target"])
            .arg(&folder)
            .arg(package)
            .output();
        let why = match fetched {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("python3: {error}")),
        };
        if let Some(why) = why {
            assert!(std::env::var_os("NVML_LAYOUT_CHECK").is_none(), "{why}");
            println!("SKIPPED: no nvidia-ml-py {VERSION}: {why}");
            return None;
        }
    }
    let output = Command::new("python3").args(["-c", SCRIPT]).env("PYTHONPATH", folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
