//! Time that the device thread needs for a small message. `cargo test --release -p mlx5-sim speed -- --ignored
//! --nocapture`.

use std::time::Instant;

use super::bench::*;
use crate::engine;
use crate::strict::Strict;

#[test]
#[ignore = "a measurement"]
fn small_messages() {
    for strict in [false, true] {
        let (mut bench, a, b) = Bench::standard();
        if !strict {
            bench.f.nic.strict = Strict::off();
        }
        let key = bench.key;
        let rounds = 200_000;
        let mut spent = std::time::Duration::ZERO;
        for _ in 0..rounds {
            bench.post_recv(b, &[data(MEMORY + 4096, 64, key)]);
            let index = bench.put(a, &send(MEMORY, 64, key));
            let posted = bench.posted(a);
            bench.record(a, 1, posted.into());
            let start = Instant::now();
            bench.ring_for(a, index);
            while engine::run(&mut bench.f) {}
            spent += start.elapsed();
            assert_eq!((bench.sent(a).len(), bench.received(b).len()), (1, 1));
        }
        eprintln!("strict {strict}: {:?} a send of 64 bytes with both completions", spent / rounds);
        let start = Instant::now();
        let batches = 5_000;
        for _ in 0..batches {
            let mut last = 0;
            for index in 0..64 {
                let mut post = write(MEMORY, 64, key, MEMORY + 4096, key);
                post.signalled = index == 63;
                last = bench.put(a, &post);
            }
            let posted = bench.posted(a);
            bench.record(a, 1, posted.into());
            bench.ring_for(a, last);
            while engine::run(&mut bench.f) {}
            assert_eq!(bench.sent(a).len(), 1);
        }
        eprintln!(
            "strict {strict}: {:?} a write of 64 bytes in batches of 64, posting included",
            start.elapsed() / batches / 64
        );
        let start = Instant::now();
        let from = bench.alloc(1 << 20);
        let to = bench.alloc(1 << 20);
        for _ in 0..500 {
            bench.post(a, &write(from, 1 << 20, key, to, key));
            while engine::run(&mut bench.f) {}
            assert_eq!(bench.sent(a).len(), 1);
        }
        eprintln!(
            "strict {strict}: {:.2} GB/s writing 1 MiB at a time",
            500.0 * 1048576e-9 / start.elapsed().as_secs_f64()
        );
    }
}
