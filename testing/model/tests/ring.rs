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

#[test]
fn the_next_writer_continues_where_the_last_one_stopped() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let write = |ring: &Ring, word: u64| {
            let taken = ring.take();
            if taken {
                assert!(ring.write(&[word, !word], &[]).is_written());
                ring.leave();
            }
            taken
        };
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || write(&ring, 7))
        };
        let mine = write(&ring, 9);
        let both = other.join().unwrap() && mine;
        let words: Vec<_> = ring.readable().step_by(2).map(|at| [ring.word(at), ring.word(at + 1)]).collect();
        assert!(!both || words.len() == 2, "an event is overwritten: {words:?}");
        assert!(words.iter().all(|&[word, complement]| [7, 9].contains(&word) && complement == !word), "{words:?}");
    });
}
