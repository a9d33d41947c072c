"""Types of the JSON report (docs/reference/report.md). Fields that are not here are still in `Report.raw`; a test
compares these types with the reports of recorded runs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class Ranked(TypedDict):
    cause: str
    share: float
    recoverable: float
    by: str


class Fix(TypedDict):
    kind: str
    action: str
    because: Optional[str]
    speedup: float
    low: Optional[float]
    high: Optional[float]
    then: Optional[str]


class MeasuredGain(TypedDict):
    gain: float
    low: float
    high: float
    at_unix_ns: int


class Remedy(TypedDict):
    id: str
    text: str
    at: Optional[str]
    results: str
    certainty: str
    speedup: Optional[float]
    low: Optional[float]
    high: Optional[float]
    link: Optional[str]
    outside: bool
    measured: Optional[MeasuredGain]


class Basis(TypedDict):
    steps: int
    set_aside: int
    share_low: float
    share_high: float


class BottleneckJson(TypedDict):
    cause: str
    share: float
    ranking: List[Ranked]
    basis: Optional[Basis]
    best_case: Optional[Scenario]
    evidence: List[str]
    recommendation: str
    remedies: List[Remedy]
    plan: List[Fix]


class ProcessJson(TypedDict):
    pid: int
    parent_pid: int
    command: List[str]
    host: str
    start_time_unix_ns: int
    gpuwhy_version: str
    driver_version: str
    driver_cuda_version: int
    cupti_version: int
    rank_variables: Dict[str, Any]
    devices: List[Any]
    notes: List[str]


class Records(TypedDict):
    api_calls: int
    copies: int
    events: int
    kernels: int
    managed_events: int
    memory_events: int
    memsets: int
    graphs: int
    overheads: int
    ranges: int
    samples: int
    syncs: int


class CompletenessBase(TypedDict):
    records: Records
    nested_api_calls: int
    dropped_by_cupti: int
    dropped_by_gpuwhy: int
    unknown_kinds: int
    broken_buffers: int
    broken_bytes: int
    undelivered_buffers: int
    dropped_ranges: int
    failed_samples: int
    dictionary_overflow: int
    unobserved_ns: int
    own_kernels: int
    dropped_collectives: int
    unplaced_graph_nodes: int
    dropped_graph_nodes: int
    dropped_memory_calls: int
    bad_timestamps: int
    launches_without_activity: int
    activities_without_launch: int
    shared_ids: int
    ordered_launches: int
    clamped_clocks: int
    late_ns: int
    late_corrected_ns: int
    kernel_table_overflow: int
    complete_until_unix_ns: Optional[int]
    flush_interval_ns: Optional[int]
    end: str
    damage: List[str]


class CompletenessJson(CompletenessBase, total=False):
    counters: List[Any]


class StepRow(TypedDict):
    start_unix_ns: int
    duration_ns: int
    leaves: Dict[str, int]


class StepsJson(TypedDict):
    source: str
    period: Optional[int]
    recognized_by: Optional[str]
    inside: Optional[Dict[str, Any]]
    contains: Optional[int]
    seen: int
    median_ns: int
    rows: List[StepRow]


class Scenario(TypedDict):
    kind: str
    step_ns: int
    speedup: Optional[float]
    low: Optional[float]
    high: Optional[float]


class WhatIf(TypedDict):
    simulated: bool
    refused: Optional[str]
    steps: int
    represented_steps: int
    base_error: float
    scenarios: List[Scenario]


class Untraced(TypedDict):
    step_ns: int
    step_range_ns: List[int]
    share_of_tracing: float
    source: str


class KernelBase(TypedDict):
    name: str
    library: Optional[str]
    communication: bool
    count: int
    total_ns: int
    steady_count: int
    steady_ns: int
    mean_ns: int
    median_ns: int
    min_ns: int
    max_ns: int
    geometry: Optional[Dict[str, Any]]


class KernelJson(KernelBase, total=False):
    limits: Dict[str, Any]
    counters: Dict[str, Any]


class CopyJson(TypedDict):
    # `class` is a keyword of Python: it is in the row, but not here.
    direction: str
    source: str
    destination: str
    count: int
    bytes: int
    total_ns: int
    median_ns: int
    gigabytes_per_second: Optional[float]
    link_gigabytes_per_second: Optional[float]
    fit: Optional[Dict[str, Any]]


class ApiJson(TypedDict):
    name: str
    calls: int
    failed: int
    total_ns: int
    max_ns: int


class DeviceBase(TypedDict):
    id: int
    name: str
    window_ns: int
    leaves: Dict[str, int]
    steady_leaves: Dict[str, int]
    busy: float
    steps: Optional[StepsJson]
    step_kinds: List[Dict[str, Any]]
    what_if: Optional[WhatIf]
    untraced: Optional[Untraced]
    kernels: List[KernelJson]
    copies: List[CopyJson]


class DeviceJson(DeviceBase, total=False):
    pcie: Optional[Dict[str, Any]]
    host_lead: Optional[Dict[str, Any]]
    gaps: List[Dict[str, Any]]
    builds: Dict[str, int]
    other_processes: List[Dict[str, Any]]
    awaited: List[Dict[str, Any]]
    overlap: Optional[Any]
    compute: Optional[Dict[str, Any]]
    copy_overlap: Optional[Dict[str, Any]]
    compute_limits: Optional[Dict[str, Any]]
    gauges: Optional[Dict[str, Any]]


class ServingKind(TypedDict):
    name: str
    count: int
    median_ns: int
    p99_ns: int
    sequences: Optional[int]
    tokens: Optional[int]
    tokens_per_second: Optional[float]
    busy: Optional[float]
    cause: Optional[str]
    share: Optional[float]
    slow_by: Optional[str]
    slow_by_share: Optional[float]


class Serving(TypedDict):
    server: Optional[str]
    on_host: bool
    kinds: List[ServingKind]
    tokens_per_second: Optional[float]
    no_requests_share: Optional[float]
    between: List[Dict[str, Any]]
    tokens_per_second_bound: Optional[Dict[str, float]]


class ReportBase(TypedDict):
    schema_version: int
    process: ProcessJson
    observed_ns: int
    completeness: CompletenessJson
    devices: List[DeviceJson]
    api: List[ApiJson]
    bottleneck: BottleneckJson


class Phase(TypedDict):
    begin_ns: int
    end_ns: int
    cause: str
    share: float


class MemoryJump(TypedDict):
    bytes: int
    from_unix_ns: int
    to_unix_ns: int
    calls: Dict[str, int]
    longest: Optional[Dict[str, Any]]
    near: Optional[Dict[str, Any]]


class MemoryGrowth(TypedDict):
    bytes: float
    low: float
    high: float
    steps_until_full: Optional[int]


class MemoryOwner(TypedDict):
    owner: str
    peak_bytes: int
    bytes: int
    least: Optional[int]
    most: Optional[int]
    near: Optional[Dict[str, Any]]


class BlockLine(TypedDict):
    function: str
    file: str
    line: int


# Its name `class` is a keyword.
BlockRow = TypedDict("BlockRow", {"class": str, "site": Optional[BlockLine], "bytes": int, "count": int})


class BlockState(TypedDict):
    unix_ns: int
    moment: str
    step: int
    allocated_bytes: int
    reserved_bytes: int
    free_bytes: int
    largest_gap_bytes: int
    peak_bytes: int
    expandable: bool
    rows: List[BlockRow]


class BlockGrowth(TypedDict):
    bytes: float
    low: float
    high: float
    site: Optional[BlockLine]
    site_bytes: Optional[float]


class OutOfMemory(TypedDict):
    unix_ns: int
    step: int
    asked_bytes: int
    free_bytes: int
    site: Optional[BlockLine]
    cache_bytes: Optional[int]
    largest_gap_bytes: Optional[int]
    expandable: bool


class MemoryBlocks(TypedDict):
    peak: Optional[BlockState]
    growth: Optional[BlockGrowth]
    out_of_memory: List[OutOfMemory]


class DeviceMemory(TypedDict):
    device: int
    total_bytes: Optional[int]
    readings: int
    peak_used_bytes: Optional[int]
    peak_unix_ns: Optional[int]
    peak_until_end: Optional[bool]
    peak_step: Optional[int]
    peak_in: Optional[str]
    last_used_bytes: Optional[int]
    peak_own_bytes: Optional[int]
    other_processes_bytes: Optional[int]
    jump: Optional[MemoryJump]
    allocations: Optional[int]
    releases: Optional[int]
    failed: Optional[int]
    retried: Optional[int]
    held_bytes: Optional[int]
    held_peak_bytes: Optional[int]
    allocated_bytes: Optional[int]
    largest_bytes: Optional[int]
    pool_peak_bytes: Optional[int]
    module_variables: Optional[int]
    remainder_bytes: Optional[int]
    remainder_since_unix_ns: Optional[int]
    growth_per_step: Optional[MemoryGrowth]
    growth_judged: bool
    owners: List[MemoryOwner]
    blocks: Optional[MemoryBlocks]


class MemoryJson(TypedDict):
    devices: List[DeviceMemory]
    calls: List[Dict[str, Any]]
    calls_ns: int
    places: List[Dict[str, Any]]
    unknown_releases: int
    table_overflow: int
    pytorch: Optional[Dict[str, Any]]


class ReportJson(ReportBase, total=False):
    phases: List[Phase]
    serving: Optional[Serving]
    host: Dict[str, Any]
    ranges: Dict[str, Any]
    operators: Dict[str, Any]
    memory: MemoryJson
    utilization: Dict[str, Any]
    kernel_libraries: List[Dict[str, Any]]
    kernel_lines: Dict[str, Any]
    graph_origins: Dict[str, Any]
    cost: Dict[str, Any]
    capture: Optional[Dict[str, Any]]
    captures: List[Dict[str, Any]]
