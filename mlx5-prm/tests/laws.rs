//! What holds for every layout, asked of its table.

use mlx5_prm::cmd::{self, CreateEqIn, Opcode};
use mlx5_prm::ctx::{Eqc, Mkc, Qpc};
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::layout::{Be64, Element, Field, Info, Kind, Layout};
use mlx5_prm::registry::{LAYOUTS, VALUES};
use mlx5_prm::values::{PathMtu, QpState, ServiceType};
use proptest::prelude::*;

/// Numbers without end from one seed: enough for 4 KiB layouts where a `Vec` from proptest would be slow to shrink.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// At most `most` bytes.
    fn some_bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.next() as usize % (most + 1);
        self.bytes(count)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn bit_fields(info: &Info) -> impl Iterator<Item = &Field> {
    info.fields.iter().filter(|field| matches!(field.kind, Kind::Bits { .. }))
}

fn fits(field: &Field, number: u64) -> u64 {
    number >> (64 - field.bits())
}

/// Sets every bit field, nested ones too.
fn fill(info: &Info, bytes: &mut [u8], noise: &mut Noise) {
    for field in info.fields {
        match field.kind {
            Kind::Bits { .. } => field.set(bytes, fits(field, noise.next())).unwrap(),
            Kind::Part { element, count } => {
                let part = &mut bytes[field.offset..field.offset + element.size() * count];
                for one in part.chunks_exact_mut(element.size()) {
                    match element {
                        Element::Layout(inner) => fill(inner, one, noise),
                        _ => one.copy_from_slice(&noise.bytes(element.size())),
                    }
                }
            }
        }
    }
}

/// A field of bits somewhere inside a layout, and the byte at which the layout that declares it starts.
struct Leaf {
    field: &'static Field,
    base: usize,
}

fn leaves(info: &'static Info, base: usize) -> Vec<Leaf> {
    let mut found = Vec::new();
    for field in info.fields {
        match field.kind {
            Kind::Bits { .. } => found.push(Leaf { field, base }),
            Kind::Part { element: Element::Layout(inner), count } => {
                let starts = (0..count).map(|i| base + field.offset + i * inner.size);
                found.extend(starts.flat_map(|start| leaves(inner, start)));
            }
            Kind::Part { .. } => {}
        }
    }
    found
}

/// At most a hundred of them: the largest layouts hold thousands.
fn some<T>(noise: &mut Noise, all: Vec<T>) -> impl Iterator<Item = T> + use<T> {
    let step = all.len().div_ceil(100).max(1);
    all.into_iter().skip(noise.next() as usize % step).step_by(step)
}

fn bits_set(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() * 8).filter(|bit| bytes[bit / 8] & 0x80 >> (bit % 8) != 0).collect()
}

/// The bits of the outermost layout that what was found lies in.
fn place(found: &decode::Found<'_>) -> std::ops::Range<usize> {
    let (start, bits) = match found.field.kind {
        Kind::Bits { .. } => (found.field.start_bit() - found.field.offset * 8, found.field.bits()),
        // Bytes are met one by one, also those of a union that nothing tells the arm of.
        Kind::Part { element: Element::Layout(_), .. } => (0, 8),
        Kind::Part { element, .. } => (0, element.size() * 8),
    };
    found.offset * 8 + start..found.offset * 8 + start + bits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_set_field_reads_back_and_no_other_bit_moves(seed: u64) {
        let mut noise = Noise(seed);
        for info in LAYOUTS {
            let before = noise.bytes(info.size);
            for field in bit_fields(info) {
                let number = fits(field, noise.next());
                let mut after = before.clone();
                prop_assert_eq!(field.set(&mut after, number), Some(()));
                prop_assert_eq!(field.number(&after), Some(number), "{}.{}", info.name, field.name);
                let inside = field.start_bit()..field.start_bit() + field.bits();
                for (i, (a, b)) in after.iter().zip(&before).enumerate().filter(|(_, (a, b))| a != b) {
                    for bit in (0..8).filter(|bit| (a ^ b) & 0x80 >> bit != 0) {
                        prop_assert!(inside.contains(&(i * 8 + bit)), "{}.{} moves bit {}", info.name, field.name, i * 8 + bit);
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_too_wide_is_refused(seed: u64) {
        let mut noise = Noise(seed);
        for info in LAYOUTS {
            let before = noise.bytes(info.size);
            for field in bit_fields(info).filter(|field| field.bits() < 64) {
                let mut after = before.clone();
                prop_assert_eq!(field.set(&mut after, 1 << field.bits()), None, "{}.{}", info.name, field.name);
                prop_assert_eq!(&after, &before);
            }
        }
    }

    /// Building in a used buffer gives the same fields as building in a clean one, and leaves the reserved bits alone.
    #[test]
    fn all_fields_set_leave_nothing_of_what_was_there(seed: u64) {
        for info in LAYOUTS {
            let (mut clean, mut used) = (vec![0; info.size], vec![0xa5; info.size]);
            fill(info, &mut clean, &mut Noise(seed));
            fill(info, &mut used, &mut Noise(seed));
            prop_assert_eq!(decode::uncovered(info, &clean), None, "{}", info.name);
            for (i, (clean, used)) in clean.chunks_exact(4).zip(used.chunks_exact(4)).enumerate() {
                let dword = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
                let (clean, used) = (dword(clean), dword(used));
                let mut ones = vec![0; info.size];
                ones[i * 4..i * 4 + 4].copy_from_slice(&[0xff; 4]);
                let reserved = decode::uncovered(info, &ones).map_or(0, |found| found.bits);
                prop_assert_eq!(used & !reserved, clean & !reserved, "{} at {:#x}", info.name, i * 4);
                prop_assert_eq!(used & reserved, 0xa5a5_a5a5 & reserved, "{} at {:#x}", info.name, i * 4);
            }
        }
    }

    /// Wherever it lies, in a part, an array or an arm of a union: it reads back, and no other bit of the whole moves.
    #[test]
    fn a_nested_field_reads_back_and_no_other_bit_moves(seed: u64) {
        let mut noise = Noise(seed);
        for info in LAYOUTS {
            let before = noise.bytes(info.size);
            for Leaf { field, base } in some(&mut noise, leaves(info, 0)) {
                let number = fits(field, noise.next());
                let mut after = before.clone();
                prop_assert_eq!(field.set(&mut after[base..], number), Some(()), "{}: {}", info.name, field.name);
                prop_assert_eq!(field.number(&after[base..]), Some(number), "{}: {}", info.name, field.name);
                let start = base * 8 + field.start_bit();
                prop_assert!(start + field.bits() <= info.size * 8, "{}: {} runs past the end", info.name, field.name);
                let moved = bits_set(&after.iter().zip(&before).map(|(a, b)| a ^ b).collect::<Vec<_>>());
                let inside = start..start + field.bits();
                prop_assert!(moved.iter().all(|bit| inside.contains(bit)), "{}: {} moves {moved:?}", info.name, field.name);
            }
        }
    }

    /// A walk meets a set bit once, in the field it lies in, or the bit is reported as no field's. Not so in a union by
    /// itself, whose arms are all met.
    #[test]
    fn every_bit_is_one_field_s_or_reported(seed: u64) {
        let mut noise = Noise(seed);
        for info in LAYOUTS.iter().filter(|info| !info.is_union) {
            let bit = noise.next() as usize % (info.size * 8).max(1);
            let mut bytes = vec![0; info.size];
            let Some(byte) = bytes.get_mut(bit / 8) else { continue };
            *byte |= 0x80 >> (bit % 8);
            let mut met = Vec::new();
            decode::walk::<()>(info, &bytes, &mut |found| {
                if found.number.is_some_and(|number| number != 0) {
                    met.push((found.field.name, place(&found)));
                }
                Ok(())
            }).unwrap();
            let stray: Vec<_> = Dump::new(info, &bytes).uncovered().collect();
            let told = format!("{} bit {bit:#x}: {met:?} {stray:?}", info.name);
            prop_assert!(met.len() <= 1 && stray.len() <= 1 && met.len() + stray.len() > 0, "{}", told);
            prop_assert!(met.iter().all(|(_, place)| place.contains(&bit)), "{}", told);
            let dword = |found: &decode::Uncovered| (found.offset, found.bits);
            prop_assert!(stray.iter().all(|found| dword(found) == (bit / 32 * 4, 1 << (31 - bit % 32))), "{}", told);
        }
    }

    /// Every layout, command, event and completion, whole, cut short and with more behind.
    #[test]
    fn any_bytes_decode(seed: u64) {
        let mut noise = Noise(seed);
        for info in LAYOUTS {
            let bytes = noise.some_bytes(info.size + 80);
            let mut last = 0;
            decode::walk::<()>(info, &bytes, &mut |found| {
                last = found.offset;
                let _ = found.value_name();
                Ok(())
            }).unwrap();
            prop_assert!(last <= bytes.len());
            let _ = format!("{}{}", Dump::new(info, &bytes), Dump::new(info, &bytes).with_zeros());
            let _ = decode::all_uncovered(info, &bytes).count();
            let _ = Dump::new(info, &bytes).uncovered().count();
        }
        for command in cmd::all() {
            let mut input = noise.some_bytes(command.input.size + 80);
            if let Some(opcode) = input.first_chunk_mut() {
                *opcode = (command.opcode.number() as u16).to_be_bytes();
            }
            let _ = decode::command_input(&input).map(|dump| dump.to_string());
            let output = noise.some_bytes(command.output.size + 80);
            let _ = decode::command_output_to(&input, &output).map(|dump| (dump.to_string(), dump.uncovered().count()));
            // An op_mod that chooses something is small.
            for op_mod in [noise.next() as u16, noise.next() as u16 & 0x3f] {
                let _ = decode::command_output(command.opcode, op_mod, &output).map(|dump| dump.to_string());
            }
        }
        for bytes in (0..64).map(|_| noise.some_bytes(80)) {
            let _ = decode::event(&bytes).map(|dump| dump.to_string());
            let _ = decode::completion(&bytes).map(|dump| dump.to_string());
        }
    }

    /// Every kind of field, by accessor and by table.
    #[test]
    fn accessors_and_table_agree(seed: u64) {
        let mut noise = Noise(seed);
        macro_rules! agree {
            ($layout:ident $Layout:ident: $($field:ident),*) => { $(
                let row = $Layout::INFO.field(stringify!($field)).unwrap();
                prop_assert_eq!(u64::from($layout.$field()), row.number($layout.as_bytes()).unwrap());
                let number = fits(row, noise.next());
                let mut by_table = $layout.as_bytes().to_vec();
                row.set(&mut by_table, number).unwrap();
                $layout.w().$field(number.try_into().unwrap());
                prop_assert_eq!($layout.as_bytes(), by_table);
            )* };
        }
        let mut qpc = Qpc::read(&noise.bytes(Qpc::SIZE)).unwrap();
        agree!(qpc Qpc: lag_tx_port_affinity, req_e2e_credit_mode, pd, log_msg_max, q_key, dbr_addr, dc_access_key);
        let mut mkc = Mkc::read(&noise.bytes(Mkc::SIZE)).unwrap();
        agree!(mkc Mkc: qpn, mkey_7_0, pd, start_addr, len, log_page_size);
        for (name, flag) in [("rr", Mkc::rr as fn(&Mkc) -> bool), ("free", Mkc::free), ("length64", Mkc::length64)] {
            prop_assert_eq!(Mkc::INFO.field(name).unwrap().number(mkc.as_bytes()), Some(flag(&mkc).into()));
        }

        let mut create = CreateEqIn::read(&noise.bytes(CreateEqIn::SIZE)).unwrap();
        let part = |name: &str| CreateEqIn::INFO.field(name).unwrap().offset;
        let eqc = Eqc::read(&noise.bytes(Eqc::SIZE)).unwrap();
        let events: [Be64; 4] = core::array::from_fn(|_| Be64::new(noise.next()));
        let mut by_table = create.as_bytes().to_vec();
        by_table[part("eq_context_entry")..][..Eqc::SIZE].copy_from_slice(eqc.as_bytes());
        for (i, event) in events.iter().enumerate() {
            by_table[part("event_bitmask") + i * 8..][..8].copy_from_slice(&event.get().to_be_bytes());
        }
        create.w().eq_context_entry(&eqc).event_bitmask(&events);
        prop_assert_eq!(create.as_bytes(), by_table);
        prop_assert_eq!(create.eq_context_entry(), &eqc);
        prop_assert_eq!(create.event_bitmask(), &events);
    }
}

#[test]
fn a_default_input_names_its_command_alone() {
    for command in cmd::all() {
        let row = command.input.field("opcode").unwrap();
        assert_eq!((row.start_bit(), row.bits()), (0, 16), "{}", command.input.name);
        let name = command.opcode.prm_name().unwrap();
        assert_eq!(
            cmd::layout_of_command(command.opcode, 0).unwrap().0.name,
            command.input.name,
            "{name} is listed twice"
        );
    }
    assert!(cmd::layout_of_command(Opcode::Unknown(0xfff), 0).is_none());
}

#[test]
fn names_and_numbers_of_values_are_unique() {
    for values in VALUES {
        for (i, (name, number)) in values.named.iter().enumerate() {
            let others = &values.named[i + 1..];
            assert!(others.iter().all(|(n, v)| n != name && v != number), "{}.{name}", values.name);
            assert!(u64::from(*number) < 1 << values.bits, "{}.{name}", values.name);
        }
    }
}

#[test]
fn an_unknown_number_is_kept() {
    for number in 0..16 {
        assert_eq!(QpState::from_number(number).number(), number);
    }
    for number in 0..256 {
        assert_eq!(ServiceType::from_number(number).number(), number);
    }
    assert_eq!(PathMtu::from_number(6), PathMtu::Unknown(6));
    assert_eq!(PathMtu::from_number(6).to_string(), "unknown(0x6)");
}

#[test]
#[should_panic(expected = "Qpc.pd: 0x1000000 does not fit in 24 bits")]
fn a_setter_never_cuts() {
    Qpc::default().w().pd(1 << 24);
}
