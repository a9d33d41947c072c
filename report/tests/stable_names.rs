//! Names in reports, in their JSON and in tables, on which programs that parse them rely.

use gpuwhy_report::run::{CopyClass, GridClass, RecoverableBy};
use gpuwhy_report::words;
use gpuwhy_trace::cost::Mode;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::{Cause, Leaf, WorkKind};
use profiler_core::steps::{IterationKind, StepSource};
use profiler_core::whatif::{OperationClass, ScenarioKind};

fn joined<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> String {
    all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(" ")
}

#[test]
fn names_stay() {
    assert_eq!(
        joined(&Leaf::ALL, Leaf::name),
        "compute communication copy_h2d_pageable copy_h2d_pinned copy_h2d_other copy_d2h_pageable copy_d2h_pinned \
         copy_d2h_other copy_p2p copy_d2d copy_other memset sync_drain runtime_api allocator kernel_build dispatch host_cpu \
         host_blocked data_loading launch_api launch_latency inter_kernel dependency_wait graph_wait other_process profiler \
         unobserved no_work"
    );
    assert_eq!(
        joined(&Cause::ALL, Cause::name),
        "data_loading host_cpu copy launch gpu_compute sync communication allocator kernel_build other_process no_work cannot_tell"
    );
    assert_eq!(joined(&WorkKind::ALL, WorkKind::name), "compute communication copy memset");
    assert_eq!(
        joined(&HostCause::ALL, HostCause::name),
        "code kernel_build garbage_collection interpreter_lock lock poll io disk sleep child memory driver preempted other_wait \
         no_requests loader_inline loader_collate loader_receive loader_start loader_wait loader_wait_busy loader_wait_io loader_wait_idle"
    );
    assert_eq!(
        joined(&ScenarioKind::ALL, ScenarioKind::name),
        "base untraced data_ready launches_free no_syncs no_allocations copies_overlapped communication_hidden \
         grids_filled no_readbacks copies_joined reads_reduced device_copies_gone no_host_work device_only kernels_at_roof"
    );
    assert_eq!(joined(&StepSource::ALL, StepSource::name), "annotated iteration period anchor window");
    assert_eq!(joined(&IterationKind::ALL, IterationKind::name), "decode prefill prefill or mixed");
    assert_eq!(
        joined(&[RecoverableBy::Simulation, RecoverableBy::Additive], RecoverableBy::name),
        "simulation additive"
    );
    assert_eq!(
        joined(&[Mode::Unknown, Mode::Monitor, Mode::Auto, Mode::Light, Mode::Full], Mode::name),
        "unknown monitor auto light full"
    );
    assert_eq!(joined(&GridClass::ALL, GridClass::name), "tiny under_filled tail low_occupancy full unknown");
    let copies = [CopyClass::Bandwidth, CopyClass::Latency, CopyClass::Staging, CopyClass::Mixed, CopyClass::Unknown];
    assert_eq!(joined(&copies, CopyClass::name), "bandwidth latency staging mixed unknown");
}

#[test]
fn each_leaf_answers_one_question() {
    let causes = [
        (Cause::GpuCompute, "compute"),
        (Cause::Communication, "communication"),
        (
            Cause::Copy,
            "copy_h2d_pageable copy_h2d_pinned copy_h2d_other copy_d2h_pageable copy_d2h_pinned copy_d2h_other \
             copy_p2p copy_d2d copy_other memset",
        ),
        (Cause::Sync, "sync_drain"),
        (Cause::Allocator, "allocator"),
        (Cause::KernelBuild, "kernel_build"),
        (Cause::HostCpu, "runtime_api host_cpu host_blocked"),
        (Cause::DataLoading, "data_loading"),
        (Cause::Launch, "dispatch launch_api launch_latency inter_kernel"),
        (Cause::OtherProcess, "other_process"),
        (Cause::CannotTell, "dependency_wait graph_wait profiler unobserved"),
        (Cause::NoWork, "no_work"),
    ];
    for (cause, leaves) in causes {
        let of: Vec<Leaf> = Leaf::ALL.into_iter().filter(|leaf| leaf.cause() == cause).collect();
        assert_eq!(joined(&of, Leaf::name), leaves);
        let mut one_each = [0; Leaf::ALL.len()];
        of.iter().for_each(|&leaf| one_each[leaf as usize] = 1);
        assert_eq!(cause.total(&one_each), of.len() as u64);
    }
}

#[test]
fn what_is_gone_in_each_world_is_said() {
    let causes = [
        (Cause::DataLoading, ScenarioKind::DataReady, "data were always ready"),
        (Cause::Launch, ScenarioKind::LaunchesFree, "launches cost no time (CUDA graphs, larger kernels)"),
        (Cause::Sync, ScenarioKind::NoSyncs, "the CPU never waited for the GPU"),
        (Cause::Copy, ScenarioKind::CopiesOverlapped, "copies used pinned memory and overlapped the kernels"),
        (Cause::Communication, ScenarioKind::CommunicationHidden, "communication overlapped the kernels"),
        (Cause::Allocator, ScenarioKind::NoAllocations, "memory were kept instead of freed and allocated again"),
        (Cause::HostCpu, ScenarioKind::NoHostWork, "there were no CPU work between launches"),
        (Cause::KernelBuild, ScenarioKind::NoHostWork, "there were no CPU work between launches"),
    ];
    for (cause, kind, condition) in causes {
        assert_eq!((ScenarioKind::without(cause), words::condition(kind)), (Some(kind), condition));
    }
    for cause in [Cause::GpuCompute, Cause::OtherProcess, Cause::NoWork, Cause::CannotTell] {
        assert_eq!(ScenarioKind::without(cause), None);
    }
    assert_eq!(words::condition(ScenarioKind::Base), "nothing changed");
    assert_eq!(words::condition(ScenarioKind::GridsFilled), "equal small kernels in a row were one");
}

#[test]
fn only_what_runs_on_a_device_is_an_operation() {
    for leaf in Leaf::ALL {
        let class = OperationClass::of(leaf);
        assert_eq!(class.is_some(), leaf.is_busy(), "{leaf:?}");
        let from_host = leaf.name().starts_with("copy_h2d");
        assert_eq!(class == Some(OperationClass::CopyFromHost), from_host, "{leaf:?}");
        let to_host = leaf.name().starts_with("copy_d2h");
        assert_eq!(class == Some(OperationClass::CopyToHost), to_host, "{leaf:?}");
        let other_copy = leaf.name().starts_with("copy_") && !to_host && !from_host;
        let within = class == Some(OperationClass::CopyWithin);
        assert_eq!(within, leaf == Leaf::CopyD2d, "{leaf:?}");
        assert_eq!(within || class == Some(OperationClass::CopyOther), other_copy, "{leaf:?}");
    }
    assert_eq!(OperationClass::of(Leaf::Memset), Some(OperationClass::Memset));
    assert_eq!(OperationClass::of(Leaf::Communication), Some(OperationClass::Communication));
}
