//! Process groups in traces of the PyTorch profiler, and their use by merge.

use serde_json::{Value, json};

use crate::support::{GPUWHY, Stage, report, stderr};

/// Rank `rank` of 16 in groups of 4: a step of computation, a reduction in its group, and one across all
/// ranks. Rank 5 computes longer, so its group arrives late at the others. Names and arguments are as PyTorch
/// writes them.
fn trace(rank: u32, with_groups: bool) -> Value {
    let mut rows = Vec::new();
    let mut correlation = 0;
    let mut run = |start: f64, end: f64, name: &str, more: Value| {
        correlation += 1;
        let (launched, args) = (start - 20.0, json!({"cbid": 430, "correlation": correlation}));
        rows.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 100 + rank, "tid": 7,
            "ts": launched, "dur": 4.0, "args": args}));
        let mut args = json!({"device": 0, "context": 1, "stream": 7, "correlation": correlation, "grid": [8, 1, 1],
            "block": [544, 1, 1], "registers per thread": 96, "shared memory": 87568});
        if let (Some(args), Some(more)) = (args.as_object_mut(), more.as_object()) {
            args.extend(more.clone());
        }
        rows.push(
            json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": end - start,
            "args": args}),
        );
    };
    let group = rank / 4;
    let members: Vec<u32> = (group * 4..group * 4 + 4).collect();
    let reported = |name: &str, description: &str, ranks: &[u32], elements: u64| match with_groups {
        false => json!({}),
        true => json!({"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
            "Group size": ranks.len(), "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]",
            "Process Group Name": name, "Process Group Description": description,
            "Process Group Ranks": format!("{ranks:?}")}),
    };
    let reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    for step in 0..12 {
        let begin = 1_000.0 + 4_000.0 * f64::from(step);
        let own = begin + if rank == 5 { 2_600.0 } else { 600.0 };
        let of_group = begin + if group == 1 { 2_600.0 } else { 600.0 };
        let of_all = begin + 2_700.0 + 100.0;
        run(begin, own, "void gemm<float>(float*)", json!({}));
        run(own, of_group + 100.0, reduce, reported(&format!("{}", 1 + group), "mesh_tp", &members, 1_000));
        run(
            of_group + 100.0,
            of_all + 200.0,
            reduce,
            reported("0", "default_pg", &(0..16).collect::<Vec<_>>(), 50_000),
        );
    }
    json!({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 16}, "traceEvents": rows})
}

fn merged(with_groups: bool) -> (Value, String) {
    let stage = Stage::new();
    for rank in 0..16 {
        std::fs::write(stage.path(&format!("rank{rank}.json")), trace(rank, with_groups).to_string()).unwrap();
    }
    let merge = |json: bool| {
        let mut command = std::process::Command::new(GPUWHY);
        command.arg("merge").args(json.then_some("--json")).arg(stage.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    (serde_json::from_str(&merge(true)).unwrap(), merge(false))
}

#[test]
fn groups_that_pytorch_names_tell_who_waits_for_whom() {
    let (found, text) = merged(true);
    assert_eq!(
        (&found["straggler"]["rank"], &found["straggler"]["communication_share"]),
        (&json!(5), &Value::Null),
        "{text}"
    );
    assert!(!text.contains("does not name the group") && text.contains("PyTorch"), "{text}");
    // 12 across all ranks, and 12 in each group.
    assert_eq!(found["collectives"], json!(12 + 4 * 12), "{text}");
}

#[test]
fn without_groups_the_rank_that_communicates_least_is_named() {
    let (found, text) = merged(false);
    assert_eq!(found["straggler"]["rank"], json!(5), "{text}");
    assert!(
        found["straggler"]["communication_share"].as_f64() < found["straggler"]["median_communication_share"].as_f64()
    );
    assert!(text.contains("straggler: rank 5 communicates") && !text.contains("straggler: none"), "{text}");
}

#[test]
fn function_size_type_and_group_become_columns() {
    let stage = Stage::new();
    let mut one = trace(3, true);
    let rows = one["traceEvents"].as_array_mut().unwrap();
    // Operations that gather or scatter count the part of one rank; for a barrier the kernel name shows the
    // function.
    for (place, name) in [(5, "_allgather_base"), (11, "_reduce_scatter_base"), (17, "all_to_allv"), (23, "barrier")] {
        rows[place]["args"]["Collective name"] = json!(name);
        rows[place]["args"]["Out msg nelems"] = json!(100);
        rows[place]["args"]["In msg nelems"] = json!(1_600);
    }
    std::fs::write(stage.path("t.json"), one.to_string()).unwrap();
    let sql = "SELECT function, bytes, ranks, data_type, basis FROM collectives ORDER BY start_ns LIMIT 8";
    let output = std::process::Command::new(GPUWHY)
        .args(["query", "--format", "csv"])
        .arg(stage.path("t.json"))
        .arg(sql)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let expected = [
        "all_reduce,2000,4,bfloat16,nvtx",
        "all_gather,51200,16,bfloat16,nvtx",
        "all_reduce,2000,4,bfloat16,nvtx",
        "reduce_scatter,3200,16,bfloat16,nvtx",
        "all_reduce,2000,4,bfloat16,nvtx",
        "all_to_all,3200,16,bfloat16,nvtx",
        "all_reduce,2000,4,bfloat16,nvtx",
        "all_reduce,3200,16,bfloat16,nvtx",
    ];
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn the_report_of_a_rank_has_its_collectives() {
    let stage = Stage::new();
    let file = stage.path("rank5.json");
    std::fs::write(&file, trace(5, true).to_string()).unwrap();
    let (_, report) = report(&file);
    let rows = report["collectives"]["rows"].as_array().unwrap();
    let of = |bytes: u64| {
        let row = rows.iter().find(|row| row["max_bytes"] == bytes).unwrap();
        (row["ranks"].as_u64().unwrap(), row["kernels"].as_u64().unwrap(), row["basis"]["nvtx"].as_u64().unwrap())
    };
    // Two bytes each: in the group of four, and across all ranks.
    assert_eq!((rows.len(), of(2_000), of(100_000)), (2, (4, 12, 12), (16, 12, 12)));
    let sum = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("exposed_ns"), report["devices"][0]["leaves"]["communication"].as_u64().unwrap());
}
