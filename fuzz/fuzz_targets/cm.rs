//! Messages of a remote to a connection manager whose program answers at random: none panics, and all that they make
//! ends.
//!
//! The input is a list of what happens next, a number that selects the connection, and the message's bytes.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mlx5_cm::{Config, Machine, Parameters, Path, Route, Service};

const MAD: usize = 256;
/// Where a message has the receiver's communication ID, or that of a request.
const REMOTE_ID: std::ops::Range<usize> = 0x1c..0x20;

fuzz_target!(|bytes: &[u8]| {
    let mut config = Config::default();
    (config.connections, config.backlog) = (16, 8);
    let mut machine = Machine::new(config);
    let service = Service::tcp(7174);
    machine.listen(service).expect("the first listener");
    machine.listen(Service::udp(7174)).expect("the first listener");
    let path = Path { local: [1; 16], remote: [2; 16] };
    let (mut now, mut bytes) = (Duration::ZERO, bytes);
    while let Some((&[what, which], rest)) = bytes.split_first_chunk() {
        let id = machine.ids().nth(usize::from(which) % 17);
        let mut mad = [0; MAD];
        let (body, rest) = rest.split_at(rest.len().min(MAD));
        match (what % 9, id) {
            (0, _) => _ = machine.connect(now, path, service, Route::default(), &Parameters::new(1, 1)),
            (1, _) => _ = machine.resolve(now, path, service, 1, &[]),
            (2, Some(id)) => _ = machine.accept(now, id, &Parameters::new(2, 2)),
            (3, Some(id)) => _ = machine.ready(id, &[]),
            (4, Some(id)) => _ = machine.disconnect(now, id, &[]),
            (5, Some(id)) => _ = machine.destroy(now, id),
            (6, _) => now += Duration::from_millis(u64::from(which) * 10),
            _ => {
                mad[..body.len()].copy_from_slice(body);
                mad[..4].copy_from_slice(&[1, 7, 2, 3]);
                if let (true, Some(id)) = (what & 0x80 != 0, id) {
                    mad[REMOTE_ID].copy_from_slice(&id.number().to_be_bytes());
                }
                let _ = machine.receive(now, path, &mad);
                bytes = rest;
                machine.handle_timeout(now);
                continue;
            }
        }
        machine.handle_timeout(now);
        bytes = &bytes[2..];
    }
    while machine.poll_transmit().is_some() || machine.poll_event().is_some() {}
    // Those that are established stay, the rest ends.
    let all: Vec<_> = machine.ids().collect();
    all.into_iter().for_each(|id| _ = machine.destroy(now, id));
    while let Some(next) = machine.poll_timeout() {
        machine.handle_timeout(next);
    }
    assert_eq!(machine.connections(), 0);
});
