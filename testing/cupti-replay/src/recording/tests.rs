//! Round trip, truncation at every byte, and malformed files.

use cupti_sys::recording::RecordingWriter;
use cupti_sys::{CompletedBuffer, RecordSizes};

use super::*;

const SIZES: &[(Kind, u32)] = &[(Kind::CONCURRENT_KERNEL, 216), (Kind::RUNTIME, 40)];

const NODE: GraphNode = GraphNode { at: 2_500, thread: 300, is_copy: true, node: u64::MAX, original: 7 };

fn meta() -> Meta {
    Meta {
        cupti_version: 130_001,
        driver_cuda_version: 13_000,
        start: 1_000,
        library_path: "/opt/libcupti.so.13".to_owned(),
        sizes: SIZES.to_vec(),
    }
}

/// Address of the name of the kernel.
const NAME: u64 = 0x1234_5678;

/// A delivered buffer with one kernel.
fn kernel() -> CompletedBuffer {
    let mut record = [0_u8; 216];
    record[..4].copy_from_slice(&Kind::CONCURRENT_KERNEL.0.to_le_bytes());
    record[104..112].copy_from_slice(&NAME.to_le_bytes());
    CompletedBuffer::from_bytes(&record, 0x7000, 7).unwrap()
}

/// A small session, and the steps that a reader must find in it.
fn session() -> (Vec<u8>, Vec<Section>) {
    let (name, sizes) = ("_Z3addPfS_", RecordSizes::from_pairs(SIZES));
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    writer.api_name(Domain::RUNTIME, 211, "cudaLaunchKernel_v7000").unwrap();
    let buffer = kernel();
    writer.string(NAME, name.as_bytes()).unwrap();
    writer.buffer(&buffer, &sizes, 2_000).unwrap();
    writer.buffer(&buffer, &sizes, 2_100).unwrap();
    writer.graph_node(&NODE).unwrap();
    writer.flush(3_000).unwrap();
    writer.dropped(5).unwrap();
    let written = writer.bytes_written();
    let file = writer.finish().unwrap();
    assert_eq!(written + 8, file.len() as u64, "END is a tag and a length");

    let step =
        |delivered_at| Section::Buffer { delivered_at, context: 0x7000, stream: 7, bytes: buffer.bytes().to_vec() };
    let steps = vec![
        Section::ApiName { domain: Domain::RUNTIME, callback_id: 211, name: "cudaLaunchKernel_v7000".to_owned() },
        Section::String { address: NAME, text: name.into() },
        step(2_000),
        step(2_100),
        Section::GraphNode(NODE),
        Section::Flush { at: 3_000 },
        Section::Dropped { count: 5 },
    ];
    (file, steps)
}

#[test]
fn a_session_is_read_back_as_it_was_written() {
    let (file, steps) = session();
    let mut reader = RecordingReader::new(&file[..]).unwrap();
    assert_eq!(*reader.meta(), meta());
    assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), steps);
    assert!(reader.next().is_none());
}

#[test]
fn an_address_that_means_another_text_is_written_again() {
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    for text in ["first", "first", "second", "first"] {
        writer.string(0x1000, text.as_bytes()).unwrap();
    }
    let file = writer.finish().unwrap();
    let texts: Vec<_> = RecordingReader::new(&file[..]).unwrap().map(|step| step.unwrap()).collect();
    let text = |text: &str| Section::String { address: 0x1000, text: text.into() };
    assert_eq!(texts, [text("first"), text("second"), text("first")]);
}

#[test]
fn a_file_cut_at_any_byte_gives_the_steps_before_and_an_error_with_the_offset() {
    let (file, steps) = session();
    for cut in 0..file.len() {
        let error = match RecordingReader::new(&file[..cut]) {
            Err(error) => error,
            Ok(mut reader) => {
                let read: Vec<_> = reader.by_ref().collect();
                let (last, before) = read.split_last().expect("a cut file ends with an error");
                for (found, step) in before.iter().zip(&steps) {
                    assert_eq!(found.as_ref().unwrap(), step, "cut at {cut}");
                }
                assert!(reader.next().is_none(), "an error is the end");
                let Err(RecordingError::Truncated { offset }) = last else { panic!("cut at {cut}: {last:?}") };
                RecordingError::Truncated { offset: *offset }
            }
        };
        let RecordingError::Truncated { offset } = error else { panic!("cut at {cut}: {error:?}") };
        assert!(offset <= cut as u64, "cut at {cut}, reported at {offset}");
    }
}

#[test]
fn files_that_are_something_else_are_refused() {
    let (file, _) = session();
    let mut other = file.clone();
    other[0] = b'X';
    assert!(matches!(RecordingReader::new(&other[..]), Err(RecordingError::NotARecording)));
    let mut newer = file.clone();
    newer[8] = 9;
    assert!(matches!(RecordingReader::new(&newer[..]), Err(RecordingError::Version(9))));
    let mut no_meta = file;
    no_meta[12] = 5;
    assert!(matches!(RecordingReader::new(&no_meta[..]), Err(RecordingError::Malformed { offset: 12, tag: 5 })));
}

#[test]
fn a_length_that_lies_costs_no_memory_and_a_payload_that_does_not_fit_is_malformed() {
    let head = RecordingWriter::new(Vec::new(), &meta()).unwrap().finish().unwrap();
    let head = &head[..head.len() - 8];
    let end = head.len() as u64;
    let with = |section: &[u8]| RecordingReader::new(&[head, section].concat()[..]).unwrap().next();

    let huge = [4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3];
    assert!(matches!(with(&huge), Some(Err(RecordingError::Truncated { offset })) if offset == end));
    let long_flush = [5, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert!(matches!(with(&long_flush), Some(Err(RecordingError::Malformed { offset, tag: 5 })) if offset == end));
    let unknown_then_end = [99, 0, 0, 0, 1, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0];
    assert!(with(&unknown_then_end).is_none());
}
