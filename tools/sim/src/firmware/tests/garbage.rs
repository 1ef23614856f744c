//! Firmware answers or drops whatever a driver writes, and survives.

use mlx5_prm::cmd::{CommandQueueEntry, Opcode};
use mlx5_prm::layout::Layout;
use proptest::prelude::*;

use super::client::Client;
use crate::firmware;

fn opcode() -> impl Strategy<Value = u16> {
    prop_oneof![
        9 => proptest::sample::select(Opcode::ALL).prop_map(|opcode| opcode.number() as u16),
        1 => any::<u16>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_input_is_answered(
        commands in proptest::collection::vec((opcode(), proptest::collection::vec(sparse(), 0..600), 8usize..700), 1..24),
        up: bool,
    ) {
        let mut client = if up { Client::up() } else { Client::new() };
        for (opcode, rest, out_len) in commands {
            let mut input = opcode.to_be_bytes().to_vec();
            input.extend([0; 6]);
            input.extend(rest);
            input.resize(input.len().max(16), 0);
            let _ = client.exec_bytes(&input, out_len);
        }
    }

    #[test]
    fn any_entry_is_answered_or_dropped(bytes in proptest::collection::vec(any::<u8>(), 64), slots: u32) {
        let mut client = Client::up();
        let entry = CommandQueueEntry::read(&bytes).unwrap();
        client.post(7, &entry);
        firmware::write_register(&mut client.f, 0x18, slots);
        firmware::write_register(&mut client.f, 0x14, slots);
        firmware::write_register(&mut client.f, u64::from(slots), slots);
        firmware::tick(&mut client.f);
    }
}

/// Mostly zeros: random inputs would all fail at the reserved bits.
fn sparse() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0), 2 => 0u8..8, 1 => any::<u8>()]
}
