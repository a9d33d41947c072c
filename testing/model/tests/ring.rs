//! A thread of the program writes while the collector reads.

use gpuwhy_model::ring::{Ring, WORDS};
use loom::sync::Arc;
use loom::thread;

/// Reads the available events of two words, where the second is the complement of the first.
fn read(ring: &Ring, expected: &mut u64) {
    let readable = ring.readable();
    for at in readable.clone().step_by(2) {
        assert_eq!([ring.word(at), ring.word(at + 1)], [*expected, !*expected], "whole, in order, each once");
        *expected += 1;
    }
    ring.release(readable.end);
}

#[test]
fn a_reader_sees_whole_events_in_order_and_the_writer_never_what_is_not_read() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let writer = {
            let ring = Arc::clone(&ring);
            // Room for two events: the third and fourth only fit into words that were read.
            thread::spawn(move || {
                let mut written = 0;
                for _ in 0..WORDS {
                    written += u64::from(ring.write(&[written, !written], &[]).is_written());
                }
                written
            })
        };
        let mut expected = 0;
        read(&ring, &mut expected);
        read(&ring, &mut expected);
        let written = writer.join().unwrap();
        read(&ring, &mut expected);
        assert_eq!(expected, written, "nothing that was taken is lost");
        assert!((WORDS / 2..=WORDS).contains(&written));
    });
}
