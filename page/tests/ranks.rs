//! The page of ranks: waiting separate from moving data, on one clock.

use gpuwhy_compare::ranks::{Collectives, RanksReport};
use gpuwhy_import::{TraceFile, unwatched};
use gpuwhy_page::write_ranks;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId,
};

use crate::kept_rows;
use crate::page::{Stage, at};

/// A rank of two that computes for `compute` microseconds of each millisecond, and then takes part in a
/// collective that ends for all when the last one has arrived.
fn rank(number: u32, compute: u64) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let [gemm, reduce] = ["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
        .map(|name| dictionary.intern_name(name))
        .map(|name| dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() }));
    let name = dictionary.intern_name("cudaLaunchKernel");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let session = ProcessInfo {
        process_id: 10 + number,
        host: "node7".into(),
        start: at(0),
        rank_variables: vec![("RANK".into(), number.to_string()), ("WORLD_SIZE".into(), "2".into())],
        ..ProcessInfo::default()
    };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    for step in 0..200_u64 {
        let begin = step * 1_000;
        for (part, config, from, to) in [(0, gemm, 10, 10 + compute), (1, reduce, 12 + compute, 830)] {
            let correlation = CorrelationId((step * 2 + part + 1) as u32);
            let (start, end) = (at(begin + 2 * part), at(begin + 2 * part + 1));
            let call = ApiCall { start, end, thread: ThreadId(5), correlation, function, return_value: 0 };
            let kernel = Kernel {
                start: at(begin + from),
                end: at(begin + to),
                device: DeviceId(0),
                context: ContextId(1),
                stream: StreamId(7),
                correlation,
                config,
                ..Kernel::default()
            };
            writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
            writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
        }
        if step % 20 == 19 {
            writer.event(&Event::Flush(at(begin + 990)), &dictionary).unwrap();
        }
    }
    writer.finish(End::Clean, at(200_000), &Loss::default(), &dictionary).unwrap()
}

/// Comparison of ranks with these computation times, and its page.
fn ranks(compute: &[u64]) -> (RanksReport, String) {
    let stages: Vec<Stage> = (0..).zip(compute).map(|(number, &compute)| Stage::of(&rank(number, compute))).collect();
    let files: Vec<TraceFile> = stages.iter().map(Stage::file).collect();
    let read: Vec<_> = files
        .iter()
        .map(|file| {
            let mut collectives = Collectives::default();
            let visit = |item: &Event, scope: &gpuwhy_import::Scope<'_>| {
                if let Event::Record(Record::Kernel(kernel)) = item {
                    collectives.push(kernel, scope.dictionary);
                }
                Ok::<(), gpuwhy_import::OpenError>(())
            };
            file.pass(&mut unwatched, visit).unwrap();
            (file.report(None, &mut unwatched).unwrap(), collectives)
        })
        .collect();
    let compared = kept_rows::compared(read.iter().map(|(report, collectives)| (report, collectives)));
    let mut out = Vec::new();
    let files: Vec<&TraceFile> = files.iter().collect();
    write_ranks(&compared, &files, None, &mut out, &mut unwatched).unwrap();
    let page = String::from_utf8(out).unwrap();
    (compared, page)
}

#[test]
fn waiting_is_apart_from_moving_data() {
    let (compared, page) = ranks(&[300, 800]);
    // Rank 0 is 500 us early in each of 200 collectives.
    assert_eq!(compared.rows[0].waited_ns, 200 * 500_000, "{compared:?}");
    assert!(page.contains("100 % of all waiting in collectives is for rank 1."), "{page}");
    let row = page.split("<tr><td>0</td>").nth(1).unwrap().split("</tr>").next().unwrap();
    let cells: Vec<&str> = row.split("<td class=\"n\">").skip(1).map(|cell| cell.split('<').next().unwrap()).collect();
    // 518 us of communication in each step: 500 of waiting, 18 that move data.
    assert_eq!(cells[1..3], ["100.0 ms", "3.6 ms"], "{cells:?}");
    assert!(page.contains("Who waited for whom") && page.contains("class=\"map\""));
    assert!(page.matches("f-communication").count() > 100, "columns over time");
}

#[test]
fn sixty_four_ranks_have_a_row_each() {
    let compute: Vec<u64> = (0..64).map(|rank| 300 + rank * 5).collect();
    let (compared, page) = ranks(&compute);
    assert_eq!(compared.rows.len(), 64);
    for rank in 0..64 {
        assert!(page.contains(&format!("<tr><td>{rank}</td>")), "rank {rank}");
    }
    assert!(page.contains("is for rank 63.") && page.ends_with("</html>\n"));
    assert!(page.len() < 8_000_000, "{}", page.len());
}
