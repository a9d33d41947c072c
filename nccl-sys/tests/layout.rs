//! Compares the structs with NCCL's own headers, which a C compiler reads.
//!
//! `NCCL_PROFILER_HEADERS` names the folder with `profiler_v4.h`, `profiler_v5.h` and `profiler_v6.h`
//! (`src/include/plugin/profiler` in NCCL's sources). Without it the test prints SKIPPED.

use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

use nccl_sys::abi::{BODY, CeColl, Coll, CollApi, Head, P2p, P2pApi};

/// C program that prints the offsets that are read here, for one version.
const PROGRAM: &str = r#"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
typedef int ncclResult_t;
typedef pid_t ncclPid_t;
typedef void (*ncclDebugLogger_t)(int, unsigned long, const char*, int, const char*, ...);
typedef int ncclProfilerEventState_v4_t;
typedef int ncclProfilerEventState_v5_t;
typedef int ncclProfilerEventState_v6_t;
#include "profiler_vN.h"
#define D ncclProfilerEventDescr_vN_t
#define AT(m) printf("%zu ", offsetof(D, m))
int main(void) {
  AT(type); AT(parentObj); AT(rank);
  AT(coll.seqNumber); AT(coll.func); AT(coll.sendBuff); AT(coll.recvBuff); AT(coll.count); AT(coll.root);
  AT(coll.datatype); AT(coll.nChannels); AT(coll.nWarps); AT(coll.algo); AT(coll.proto);
  AT(p2p.func); AT(p2p.buff); AT(p2p.datatype); AT(p2p.count); AT(p2p.peer); AT(p2p.nChannels);
#if VERSION >= 5
  AT(collApi.func); AT(collApi.count); AT(collApi.datatype); AT(collApi.root); AT(collApi.stream);
  AT(collApi.graphCaptured);
  AT(p2pApi.func); AT(p2pApi.count); AT(p2pApi.datatype); AT(p2pApi.stream); AT(p2pApi.graphCaptured);
#endif
#if VERSION >= 6
  AT(ceColl.seqNumber); AT(ceColl.func); AT(ceColl.sendBuff); AT(ceColl.recvBuff); AT(ceColl.count); AT(ceColl.root);
  AT(ceColl.datatype);
#endif
  printf("| %zu %zu %zu", sizeof(((D*)0)->type), sizeof(ncclProfiler_vN_t), offsetof(ncclProfiler_vN_t, finalize));
  return 0;
}
"#;

/// The offsets of our structs, in the same format.
fn ours(version: u32) -> String {
    macro_rules! body {
        ($type:ty: $($field:ident)*) => { [$(BODY + offset_of!($type, $field)),*] };
    }
    let mut offsets = vec![offset_of!(Head, kind), offset_of!(Head, parent), offset_of!(Head, rank)];
    offsets.extend(body!(Coll: sequence function send receive count root data_type channels warps algorithm protocol));
    offsets.extend(body!(P2p: function buffer data_type count peer channels));
    if version >= 5 {
        offsets.extend(body!(CollApi: function count data_type root stream captured));
        offsets.extend(body!(P2pApi: function count data_type stream captured));
    }
    if version >= 6 {
        offsets.extend(body!(CeColl: sequence function send receive count root data_type));
    }
    let offsets: String = offsets.iter().map(|offset| format!("{offset} ")).collect();
    let kind = if version == 4 { size_of::<u8>() } else { size_of::<u64>() };
    let plugin = size_of::<nccl_sys::PluginV5>();
    format!("{offsets}| {kind} {plugin} {}", offset_of!(nccl_sys::PluginV5, finalize))
}

#[test]
fn offsets_are_those_of_the_headers() {
    let Some(headers) = std::env::var_os("NCCL_PROFILER_HEADERS").map(PathBuf::from) else {
        println!("SKIPPED: NCCL_PROFILER_HEADERS names no folder with NCCL's profiler headers");
        return;
    };
    for version in [4, 5, 6] {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (source, program) = (folder.join(format!("v{version}.c")), folder.join(format!("v{version}")));
        let text = PROGRAM.replace("_vN", &format!("_v{version}"));
        std::fs::write(&source, text).unwrap();
        let mut compile = Command::new("cc");
        compile.arg(format!("-DVERSION={version}")).arg("-I").arg(&headers).arg("-o").arg(&program).arg(&source);
        let compiled = compile.output().unwrap();
        assert!(compiled.status.success(), "version {version}: {}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), ours(version), "version {version}");
    }
}
