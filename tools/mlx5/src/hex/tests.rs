//! What real dumpers print (`tests/hex`), what is typed by hand, and what is broken.

use proptest::prelude::*;

use super::*;

/// Output of a dumper, without the command in its first line.
macro_rules! printed {
    ($name:literal) => {
        include_str!(concat!("../../tests/hex/", $name, ".txt")).split_once('\n').expect("two lines").1
    };
}

const BYTES: &[u8] = include_bytes!("../../tests/hex/bytes.bin");

fn bytes(text: &str) -> Result<Vec<u8>, Error> {
    read_text(text).map(|hex| hex.bytes)
}

#[test]
fn every_dumper_is_read_to_the_same_bytes() {
    let files = [
        ("od", printed!("od")),
        ("od -b", printed!("od_b")),
        ("od -x", printed!("od_x")),
        ("od -A x -t x1", printed!("od_hex_bytes")),
        ("od -v -A x -t x1", printed!("od_v")),
        ("od -A d -t x4", printed!("od_decimal")),
        ("od -t x8", printed!("od_long")),
        ("od -t x1z", printed!("od_characters")),
        ("od -v -A n -t x1", printed!("od_none")),
        ("hexdump", printed!("hexdump")),
        ("hexdump -C", printed!("hexdump_c")),
        ("hexdump -b", printed!("hexdump_b")),
        ("hexdump -o", printed!("hexdump_o")),
        ("hexdump -x", printed!("hexdump_x")),
        ("hexdump -v -C", printed!("hexdump_v")),
        ("xxd", printed!("xxd")),
        ("xxd -a", printed!("xxd_a")),
        ("xxd -g 1", printed!("xxd_g1")),
        ("xxd -g 4 -c 32", printed!("xxd_g4_c32")),
        ("xxd -i", printed!("xxd_i")),
        ("xxd -i <", printed!("xxd_i_alone")),
        ("xxd -p", printed!("xxd_p")),
        ("xxd -u", printed!("xxd_u")),
        ("gdb x/xb", printed!("gdb_b")),
    ];
    for (name, text) in files {
        assert_eq!(bytes(text).as_deref(), Ok(BYTES), "{name}");
        let of_windows = text.replace('\n', "\r\n");
        assert_eq!(bytes(&of_windows).as_deref(), Ok(BYTES), "{name} with CR LF");
    }
    // gdb prints whole words only.
    for (name, text) in [("w", printed!("gdb_w")), ("g", printed!("gdb_g")), ("h", printed!("gdb_h"))] {
        let found = bytes(text).expect(name);
        assert!(found.len() + 8 > BYTES.len() && BYTES.starts_with(&found), "{name}: {found:02x?}");
    }
    assert_eq!(read(BYTES).map(|hex| hex.bytes).as_deref(), Ok(BYTES), "the bytes themselves");
}

#[test]
fn the_byte_order_of_words_is_said() {
    let note = |text: &str| read_text(text).expect("hex").note.unwrap_or_default();
    for (text, size) in
        [(printed!("od"), 2), (printed!("hexdump"), 2), (printed!("od_decimal"), 4), (printed!("gdb_g"), 8)]
    {
        assert_eq!(note(text), format!("words of {size} bytes, read as numbers of a little-endian host"));
    }
    assert_eq!(note(printed!("od_hex_bytes")), "");
    assert_eq!(note(printed!("xxd")), "");
    assert!(note("0001 0203 0405").contains("as printed"));
    assert!(note("{ 0x00010203 }").contains("most significant byte first"));
}

#[test]
fn words_after_a_marked_offset_are_in_the_order_of_their_producer() {
    let expected: Vec<u8> = (0..20).collect();
    for (text, said) in [
        // tcpdump -x and -X.
        ("\t0x0000:  0001 0203 0405 0607 0809 0a0b 0c0d 0e0f\n\t0x0010:  1011 1213\n", ""),
        ("\t0x0000:  0001 0203 0405 0607 0809 0a0b 0c0d 0e0f  ................\n\t0x0010:  1011 1213  ....\n", ""),
        // gdb's x/5xw.
        (
            "0x7fffe000:\t0x03020100\t0x07060504\t0x0b0a0908\t0x0f0e0d0c\n0x7fffe010:\t0x13121110\n",
            "words of 4 bytes, read as numbers of a little-endian host",
        ),
        // crash's `rd -32`, and print_hex_dump with addresses.
        (
            "ffff8a1b2c3d4000:  03020100 07060504 0b0a0908 0f0e0d0c   ................\nffff8a1b2c3d4010:  13121110   ....\n",
            "words of 4 bytes, read as numbers of a little-endian host",
        ),
        (
            "00000000: 00010203 04050607 08090a0b 0c0d0e0f\n00000010: 10111213\n",
            "words of 4 bytes, read as printed; `od -t x1` leaves no doubt",
        ),
    ] {
        let hex = read_text(text).expect(text);
        assert_eq!((&hex.bytes, hex.note.unwrap_or_default().as_str()), (&expected, said), "{text}");
    }
}

#[test]
fn lines_that_a_shell_has_joined_are_dumps_too() {
    for text in [printed!("od_hex_bytes"), printed!("xxd"), printed!("xxd_g1"), printed!("od"), printed!("xxd_a")] {
        // A quoted `|` is all that these characters could be mistaken for.
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(bytes(&joined).as_deref(), Ok(BYTES), "{joined}");
    }
}

#[test]
fn hex_in_the_other_usual_shapes() {
    let expected: Vec<u8> = (0..20).collect();
    for text in [
        "000102030405060708090a0b0c0d0e0f10111213",
        "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 12 13",
        "0x00010203 0x04050607, 0x08090a0b, 0x0c0d0e0f\n0x10111213",
        "00010203 04050607 08090A0B 0C0D0E0F 10111213",
        "000: 00010203 04050607 08090a0b 0c0d0e0f\r\n010: 10111213\r\n",
        "[  12.3] cmd[0]: 000: 00010203 04050607 08090a0b 0c0d0e0f\n[  12.4] cmd[0]: 010: 10111213",
        "000: 00010203 04050607 08090a0b 0c0d0e0f 010: 10111213",
        "00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13",
        // Wireshark, "as hex + ASCII dump" and "as hex dump"; `tshark -x`.
        "0000   00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f   .......ab cd ef\n0010   10 11 12 13   ab c",
        "0000   00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n0010   10 11 12 13\n",
        "0000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f   ................\n0010  10 11 12 13         ....\n\n",
        // Wireshark, "as C array" and "as escaped string".
        "/* Frame (20 bytes) */\nstatic const unsigned char pkt1[20] = {\n0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, /* ........ */\n0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, // {0x99}\n0x10, 0x11, 0x12, 0x13\n};\n",
        "\"\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08\\x09\\x0a\\x0b\\x0c\\x0d\\x0e\\x0f\" \\\n\"\\x10\\x11\\x12\\x13\"",
        "__be32 cqe[5] = { 0x00010203, 0x4050607, 0x8090a0b, 0xc0d0e0f, 0x10111213, };",
        "[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13]",
        // Kernels: the four lines of old ones, and print_hex_dump with any prefix.
        "[   12.345678] mlx5_0:dump_cqe:272:(pid 0): dump error cqe\n[   12.345679] 00010203 04050607 08090a0b 0c0d0e0f\n[   12.345680] 10111213\n",
        "Nov 22 10:11:12 host kernel: [   12.3] mlx5_0:dump_cqe:273:(pid 0): 00010203 04050607 08090a0b 0c0d0e0f\nNov 22 10:11:12 host kernel: [   12.3] mlx5_0:dump_cqe:273:(pid 0): 10111213\n",
        "[Sun Nov 22 10:11:12 2026] infiniband mlx5_0: cqe_dump: 00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n[Sun Nov 22 10:11:12 2026] infiniband mlx5_0: cqe_dump: 00000010: 10 11 12 13\n",
        "2026-11-22T10:11:12,123456+00:00 host kernel: cqe_dump: 00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n2026-11-22T10:11:12,123456+00:00 host kernel: cqe_dump: 00000010: 10 11 12 13\n",
        // DPDK.
        "MLX5 Error CQE: at [0x7f6a7d20c000], len=20\n00000000: 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F | ................\n00000010: 10 11 12 13                                     | ....\n",
        // Four dwords whose first could be an offset.
        "mlx5: host: got completion with error:\n00010203 04050607 08090a0b 0c0d0e0f\n10111213 \n",
    ] {
        assert_eq!(bytes(text), Ok(expected.clone()), "{text}");
    }
    assert_eq!(
        bytes("00000000 00000010 00000020 00000030\n00000010 00000000 00000000 00000000").map(|b| b.len()),
        Ok(32)
    );
}

#[test]
fn what_is_broken_says_where() {
    let cases = [
        ("00 01\n02 0g", "line 2: `0g` is not hex"),
        ("123", "line 1: `123` is not hex"),
        ("hello", "line 1: `hello` is not hex"),
        (" \n", "no hex digits"),
        ("é0", "is not hex"),
        ("{ }", "`{` is not hex"),
        ("char a[] = {\n0x00, 12 }", "line 2: `12` is not hex"),
        ("uint8_t cqe[] = {0, 0x1, 5}", "`5` is not hex"),
        ("0x", "`0x` is not hex"),
        ("00000000: 00 01\n00000010: 02", "line 2: offset 0x10 follows 0x2 bytes"),
        ("0000000 00 01\n0000020 02\n0000021", "line 2: offset 0x20 follows 0x2 bytes"),
        ("00000000: 00 01\n00000000: 02", "line 2: offset 0x0 follows 0x2 bytes"),
        ("00000010: 00 01\n00000000: 02", "line 2: offset 0x0 follows 0x2 bytes"),
        ("00000000: 00 01\n02 03", "line 2: it has no offset"),
        ("0000000 00 01\n*", "no offset after it"),
        ("*\n0000000 00 01", "`*`"),
        ("00000000: 00\n*\nffffffff: 00", "exceeds 1024 KiB"),
        ("0000000 99 0z", "`0z` is not hex"),
        // xxd -b: eight digits, but one byte.
        ("00000000: 00000000 00000001\n00000002: 00000000", "offset 0x2 follows 0x8 bytes"),
    ];
    for (text, expected) in cases {
        let error = bytes(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn a_brace_in_the_column_of_characters_is_no_array() {
    // `{0,` after rows of zeros, `x={0x`, and a brace before the next row's offset.
    for tail in [&b"{0,"[..], b"x={0x12,", b"............aa={"] {
        let bytes = [&[0; 64], tail, &[0; 16]].concat();
        for how in 0..9 {
            let text = print(&bytes, how);
            assert_eq!(read_text(&text).map(|hex| hex.bytes).as_deref(), Ok(&bytes[..]), "{text}");
        }
    }
    let tcpdump = "\t0x0000:  0001 0203 0405 0607 0809 0a0b 0c0d 0e7b  ..............={\n\t0x0010:  1011  ..\n";
    assert_eq!(bytes(tcpdump).map(|bytes| bytes.len()), Ok(18));
}

/// How the dumpers print, as their fixtures show.
fn print(bytes: &[u8], how: usize) -> String {
    let characters = |row: &[u8]| -> String {
        row.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }).collect()
    };
    let grouped = |row: &[u8], group: usize| -> String {
        let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        row.chunks(group).map(word).collect::<Vec<_>>().join(" ")
    };
    let host = |row: &[u8]| -> Vec<u16> {
        row.chunks(2).map(|word| u16::from_le_bytes([word[0], word.get(1).copied().unwrap_or(0)])).collect()
    };
    let rows = bytes.chunks(16).enumerate().map(|(at, row)| (at * 16, row));
    let line = |(at, row): (usize, &[u8])| match how {
        0 => format!("{at:08x}: {:39}  {}\n", grouped(row, 2), characters(row)),
        1 => format!("{at:08x}  {:49} |{}|\n", grouped(row, 1), characters(row)),
        2 => format!("{at:07o} {}\n", host(row).iter().map(|word| format!("{word:06o}")).collect::<Vec<_>>().join(" ")),
        3 => format!("{at:06x} {}\n", grouped(row, 1)),
        4 => format!("{at:07x} {}\n", host(row).iter().map(|word| format!("{word:04x}")).collect::<Vec<_>>().join(" ")),
        5 => format!("{at:04x}   {:47}   {}\n", grouped(row, 1), characters(row)),
        6 => format!("{at:07o} {:47}  >{}<\n", grouped(row, 1), characters(row)),
        7 => format!("[ 1.0] cqe_dump: {at:08x}: {}\n", grouped(row, 1)),
        _ => format!("{}\n", grouped(row, 16)),
    };
    let end = match how {
        1 => format!("{:08x}\n", bytes.len()),
        2 | 6 => format!("{:07o}\n", bytes.len()),
        3 => format!("{:06x}\n", bytes.len()),
        4 => format!("{:07x}\n", bytes.len()),
        _ => String::new(),
    };
    rows.map(line).collect::<String>() + &end
}

proptest! {
    #[test]
    fn what_a_dumper_prints_of_any_bytes_is_read_back(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), 0x20..0x7f_u8], 1..200),
        how in 0..9_usize,
    ) {
        let text = print(&bytes, how);
        prop_assert_eq!(read_text(&text).map(|hex| hex.bytes), Ok(bytes), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[0-9a-f x:*|{}<>\n\\\\,/éA-Z]{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = read_text(&text);
        let _ = read(&bytes);
    }
}
