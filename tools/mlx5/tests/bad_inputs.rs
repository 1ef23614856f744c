//! What users do wrong, and what each must be told: one error, on stderr, that names the mend.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Exit status, arguments, standard input, words of the error.
type Case = (i32, &'static str, &'static str, &'static str);

/// Arguments are separated by blanks; `+` in one stands for a blank, `~` for nothing at all.
fn run(arguments: &str, input: &str) -> Output {
    let plain = |argument: &str| if argument == "~" { String::new() } else { argument.replace('+', " ") };
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(arguments.split(' ').map(plain))
        .env("RUST_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    // It may end without reading.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

const ERROR_CQE_LESS_A_LINE: &str = "00000000: 0000 0000 0000 0000 0000 0000 0000 0000\n\
    00000020: 0000 0001 0000 0000 0000 0000 0000 0000\n";

/// A name of 105 characters, which makes a path of more than 107.
macro_rules! long_name {
    () => {
        concat!(
            "a_function_of_the_software_card_with_a_very_long_name_",
            "which_is_not_a_path_that_a_socket_may_have_anywhere"
        )
    };
}

const CASES: &[Case] = &[
    // No command, an unknown one, unknown flags.
    (2, "~", "", "unrecognized subcommand"),
    (2, "explan", "", "explain"),
    (2, "--verison", "", "--version"),
    (2, "list --jsn", "", "--json"),
    (2, "list extra", "", "unexpected argument"),
    (2, "doctor extra", "", "unexpected argument"),
    // Device strings.
    (2, "caps -d ~", "", "it is empty"),
    (2, "caps -d nonsense", "", "vfio:0000:3b:00.0"),
    (2, "caps -d 0000:3b:00.0", "", "write vfio:0000:3b:00.0"),
    (2, "caps -d 3b:00.0", "", "write vfio:3b:00.0"),
    (2, "caps -d mlx5.0", "", "its kind is none of"),
    (2, "caps -d vfio:", "", "no PCI address after vfio:"),
    (2, "caps -d vfio:3b", "", "3b"),
    (2, "caps -d vfio:0000:3b:20.0", "", "0000:3b:20.0"),
    (1, "caps -d vfio:ffff:ff:1f.7", "", "no such PCI function"),
    (2, "caps -d devx:", "", "no device name after devx:"),
    (2, "caps -d devx:/dev/infiniband/uverbs0", "", "not an RDMA device name"),
    (1, "caps -d devx:nothing", "", "cannot open devx:nothing"),
    (2, "caps -d vfio-user:", "", "no socket path"),
    (1, "caps -d vfio-user:/nowhere/nic.sock", "", "mlx5 sim --socket /nowhere/nic.sock"),
    (1, "caps -d vfio-user:/etc/passwd", "", "it is not a socket"),
    (1, "caps -d vfio-user:/tmp", "", "it is not a socket"),
    (2, "caps -d sim:", "", "no profile"),
    (2, "caps -d sim:connectx9", "", "connectx5, connectx6dx, connectx7"),
    (2, "caps -d connectx9", "", "connectx5, connectx6dx, connectx7"),
    (2, "perf lat write -d connectx7", "", "write sim:PROFILE"),
    (2, "info -d connectx5", "", "write sim:PROFILE"),
    (2, "counters -d connectx5", "", "write sim:PROFILE"),
    (1, concat!("caps -d vfio-user:/tmp/", long_name!()), "", "a socket has at most 107 bytes"),
    (2, "explain --caps connectx9 command 00", "", "connectx5, connectx6dx, connectx7"),
    // Capabilities.
    (1, "caps no_such_capability", "", "no capability matches `no_such_capability`"),
    (2, "caps (", "", "is not a regular expression: unclosed group"),
    (2, "caps --max --cur", "", "cannot be used with"),
    (2, "caps --diff sim", "", "2 values required"),
    (1, "caps --diff sim /nowhere/card.json", "", "mlx5 caps --json > /nowhere/card.json"),
    (1, "caps -d card.json", "", "no file card.json"),
    (1, "caps --diff sim /nowhere/card", "", "mlx5 caps --json > /nowhere/card"),
    (1, "caps --diff sim /tmp", "", "/tmp is a directory; give a file that `mlx5 caps --json` wrote"),
    (1, "explain --caps /tmp command 00", "", "/tmp is a directory"),
    (1, "caps -d Cargo.toml", "", "not a capability file"),
    // Hex: what it is.
    (1, "explain cqe xyz", "", "`xyz` is not hex"),
    (1, "explain cqe cqe.bin", "", "there is no file \"cqe.bin\""),
    (1, "explain cqe ./cqe.bin", "", "there is no file \"./cqe.bin\""),
    (1, "explain cqe /tmp", "", "/tmp is a directory"),
    (1, "explain cqe 123", "", "`123` is not hex"),
    (1, "explain cqe 0g", "", "`0g` is not hex"),
    (1, "explain cqe", "", "no hex digits"),
    (1, "explain cqe -", "\n \n", "no hex digits"),
    (1, "explain cqe -", "{ 0x00, 12 }", "`12` is not hex"),
    (1, "explain cqe -", ERROR_CQE_LESS_A_LINE, "line 2: offset 0x20 follows 0x10 bytes"),
    (1, "explain cqe -", "0000000 00 01\n*\n", "no offset after it"),
    (1, "explain cqe -", "*\n", "no hex digits"),
    (1, "explain cqe -", "00000000: 00 01\n02 03\n", "it has no offset"),
    (1, "explain cqe -", "0000000 00\n*\nfffffff\n", "exceeds 1024 KiB"),
    (1, "explain cqe -", "0000000 0000001 0000002\n", "is not hex"),
    // Hex: how much.
    (1, "explain cqe 00", "", "a CQE has 64 or 128 bytes, the input has 1"),
    (1, "explain cqe -", "0000000 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n*\n0000117\n", "the input has 79"),
    (1, "explain cqe -", "0000000 00\n*\n0000077\n", "the input has 63"),
    (1, "explain cqe -", "0000000 00\n*\n0000101\n", "the input has 65"),
    (1, "explain cqe -", "0000000 00\n*\n0000300\n", "the input has 192"),
    (1, "explain eqe 00", "", "an EQE has 64 bytes, the input has 1"),
    (1, "explain eqe -", "0000000 00\n*\n0000200\n", "an EQE has 64 bytes, the input has 128"),
    (1, "explain wqe 00", "", "at least 16 bytes, its control segment, the input has 1"),
    (1, "explain health 00", "", "a health buffer has 64 bytes, the input has 1"),
    (1, "explain command 00", "", "at least 16 bytes, the input has 1"),
    // Numbers and names.
    (2, "explain syndrome", "", "`syndrome` needs the number of a syndrome: `mlx5 explain syndrome 0x62bbc6`"),
    (2, "explain vendor", "", "`mlx5 explain vendor 0x81`"),
    (2, "explain status", "", "`mlx5 explain status BAD_PARAM`"),
    (2, "explain wc", "", "`mlx5 explain wc 12`"),
    (2, "explain syndrome xyz", "", "\"xyz\" is not a number; write 12 or 0xc"),
    (2, "explain syndrome 0x123456789", "", "is not a number"),
    (2, "explain vendor 0x", "", "is not a number"),
    (2, "explain vendor -1", "", "is not a number"),
    (2, "explain vendor 0x100", "", "0x100 is too large: a vendor syndrome has 8 bits"),
    (2, "explain status 256", "", "a command status has 8 bits"),
    (2, "explain status nonsense", "", "BAD_PARAM"),
    (2, "explain status 3 x", "", "\"x\" is not a number"),
    (2, "explain wc nonsense", "", "IBV_WC_RETRY_EXC_ERR"),
    (1, "explain hello", "", "there is no file \"hello\""),
    (1, "explain dmesg.txt", "", "there is no file \"dmesg.txt\""),
    (1, "explain /nowhere/dmesg", "", "there is no file \"/nowhere/dmesg\""),
    (1, "explain 00+01+02", "", "3 bytes of hex, which could be anything"),
    (1, "explain -", "", "nothing recognised"),
    (1, "explain -", "hello", "nothing recognised; name the kind"),
    (1, "explain", "\0\0\0\0", "nothing recognised; name the kind"),
    (1, "explain cqe -", "hello", "`hello` is not hex"),
    (1, "explain -", "mlx5_core 0000:01:00.0: firmware version: 16.35.4030\n", "mlx5 explain KIND"),
    (2, "explain --service rdma wqe 00", "", "connected"),
    (1, "explain --caps /nowhere/card.json command 00", "", "no file /nowhere/card.json"),
    (2, "explain --caps", "", "a value is required"),
    (2, "explain --caps sim wc 12", "", "--caps says what a command is checked against: it needs `command` or a log"),
    (2, "explain --service ud cqe 00", "", "--service says how a WQE is read: it needs `wqe` or a log, not `cqe`"),
    (2, "explain --all status 3", "", "--all says that commands which succeeded are explained, too"),
    (2, "explain Cargo.toml src/main.rs", "", "give one file at a time"),
    // Decode.
    (1, "decode /nowhere/log", "", "cannot open /nowhere/log"),
    (1, "decode /tmp", "", "/tmp is a directory"),
    (1, "decode --as cqe /tmp", "", "/tmp is a directory"),
    (2, "decode --as creat_cq_in 00", "", "create_cq_in"),
    (1, "decode --as create_cq_in 0g", "", "`0g` is not hex"),
    (1, "decode --as create_cq_in", "", "no hex digits"),
    (2, "decode --as", "", "a value is required"),
    (2, "decode --opcode CREATE_QQ", "", "CREATE_CQ"),
    (2, "decode --opcode 0x10000", "", "unknown command"),
    (2, "decode --failed --as cqe 00", "", "cannot be used with"),
    (2, "decode a b", "", "one log at a time"),
    (2, "decode --all --list", "", "cannot be used with"),
    (1, "decode", "", "dynamic_debug/control"),
    (1, "decode -", "nothing\n", "no command in the 1 lines"),
    // Measurements.
    (2, "perf", "", "required arguments"),
    (2, "perf lat", "", "required arguments"),
    (2, "perf latency write", "", "possible values: lat, bw, rate"),
    (2, "perf bw wrte", "", "a similar value exists: 'write'"),
    (2, "perf bw write -n 18446744073709551615", "", "2147483647"),
    (2, "perf bw write -n 4", "", "5..=2147483647"),
    (2, "perf bw write -n 5 --warm-up 18446744073709551615", "", "2147483647"),
    (2, "perf bw write -n x", "", "invalid digit"),
    (2, "perf bw write -D 4", "", "lower -f"),
    (2, "perf bw write -D 4 -f 4294967295", "", "lower -f"),
    (2, "perf bw write -s 0", "", "1..=1073741824"),
    (2, "perf bw write -s -1", "", "invalid value '-1'"),
    (2, "counters -w -1", "", "invalid value '-1'"),
    (2, "perf bw write -m 1500", "", "256, 512, 1024, 2048 or 4096"),
    (2, "perf bw write -q 0", "", "1..=16384"),
    (1, "perf bw write -q 16384", "", "need 65537 umems, more than the card's 65536 (log_max_umem 16)"),
    (2, "perf bw write -l 200", "", "raise -t"),
    (1, "perf bw write -x 3", "", "sim has no such GID; -x 0 is fe80::"),
    (2, "perf bw write 127.0.0.1 -p 0 -d vfio-user:/tmp/a", "", "the one that the server says"),
    (2, "counters -w 0", "", "1..=86400"),
    (2, "counters -n 3", "", "--watch"),
    (2, "counters (", "", "is not a regular expression"),
    (1, "counters no_such_counter", "", "no counter matches `no_such_counter`"),
    (2, "counters -d nonsense", "", "vfio:0000:3b:00.0"),
    (1, "counters -d devx:nothing", "", "cannot open devx:nothing"),
    (2, "completions csh", "", "possible values"),
    (1, "man /nowhere", "", "/nowhere"),
    (2, "perf bw write -i 2", "", "1..=1"),
    (2, "perf bw write -o 4", "", "-o does nothing here: it limits reads and atomics"),
    (2, "perf packet rx --to 02:00:00:00:00:01", "", "--to does nothing here: tx and lat alone send to it"),
    (2, "perf packet tx --to 02:00:00:00:00:01", "", "--to does nothing here: both ends are in this process"),
    (2, "perf packet rx -d vfio:0000:3b:00.0 --flows 3", "", "--flows does nothing here"),
    (2, "perf bw write -c UD", "", "only RC and UC queue pairs"),
    (2, "perf bw read -c UC", "", "reads and atomics need reliable connections, -c RC"),
    (2, "perf bw write -e -q 2", "", "use -q 1"),
    (2, "perf lat atomic -s 16", "", "an atomic has 8 bytes"),
    (1, "perf lat write --svg /nowhere/x.svg -n 5", "", "/nowhere/x.svg"),
    (2, "perf bw write --listen", "", "mlx5 sim --socket /tmp/a --socket /tmp/b"),
    (2, "perf bw write 127.0.0.1", "", "-d sim is a private card"),
    (2, "perf bw write 127.0.0.1 -d sim:connectx7", "", "-d sim is a private card"),
    (2, "perf bw write --listen -p 65536", "", "65536 is not in 0..=65535"),
    // The software card.
    (2, "sim", "", "--socket <SOCKET>"),
    (1, "sim --socket /nowhere/x.sock", "", "/nowhere/x.sock"),
    (1, "sim --socket /tmp", "", "/tmp"),
    (2, "sim --socket /tmp/x.sock --socket /tmp/x.sock", "", "--socket /tmp/x.sock is given twice"),
    (1, concat!("sim --socket /tmp/", long_name!()), "", "a socket has at most 107 bytes"),
    (2, "sim --socket /tmp/x.sock --profile connectx9", "", "connectx5, connectx6dx, connectx7"),
    (2, "sim --socket /tmp/x.sock --mac 01:00:00:00:00:00", "", "not a unicast address"),
    (2, "sim --socket /tmp/x.sock --mac 02:00", "", "02:00:c5:00:00:01"),
    (2, "sim --socket /tmp/x.sock --fault nonsense", "", "write KIND[:ARGUMENT]...[*TIMES]"),
    (2, "sim --socket /tmp/x.sock --fault loss", "", "loss:1%"),
    (2, "sim --socket /tmp/x.sock --fault loss:101%", "", "loss:1%"),
    (2, "sim --socket /tmp/x.sock --fault status:CREATE_CQ:0", "", "`0` is not a valid status"),
    (2, "sim --socket /tmp/x.sock --fault removal*0", "", "not a valid number of times"),
    (2, "sim --socket /tmp/x.sock --fault status:CREATE_QC:3", "", "status:CREATE_CQ:3"),
    (1, "sim --socket /tmp/x.sock --pcap /nowhere/x.pcap", "", "/nowhere/x.pcap"),
    (1, "sim --socket /tmp/x.sock --wire /nowhere/wire", "", "/nowhere/wire"),
    // Control characters of the input.
    (1, "explain \u{1b}[31mred", "", "\\u{1b}[31mred"),
    (1, "explain cqe \u{7}", "", "the input has 1"),
    (2, "caps -d \u{1b}c", "", "\\u{1b}c"),
    (1, "caps -d vfio-user:/nowhere/\u{1b}[2J", "", "\\u{1b}[2J"),
    (2, "perf \u{1b}[2J write", "", "possible values: lat, bw, rate"),
    (1, "decode /nowhere/\u{1b}[2J", "", "\\u{1b}[2J"),
];

#[test]
fn bad_input_gets_one_error_that_names_the_mend() {
    assert!(CASES.len() >= 100);
    let mut wrong = Vec::new();
    for (status, arguments, input, expected) in CASES {
        let output = run(arguments, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let holds = [
            ("its status", output.status.code() == Some(*status)),
            ("nothing on stdout", output.stdout.is_empty()),
            ("its name or clap's", said.starts_with("mlx5: ") || said.starts_with("error: ")),
            ("the mend", said.contains(expected)),
            ("no control characters", !said.chars().any(|c| c.is_control() && c != '\n')),
            ("no panic", !said.contains("panicked")),
            ("standard input is no file name", input.is_empty() || !said.contains("there is no file")),
            ("each cause once", !tells_twice(&said)),
        ];
        let broken: Vec<&str> = holds.iter().filter(|(_, holds)| !holds).map(|(what, _)| *what).collect();
        if !broken.is_empty() {
            wrong.push(format!("mlx5 {arguments}: {}\n  wanted: {expected}\n  said: {said:?}", broken.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a part of the error stands in it twice.
fn tells_twice(said: &str) -> bool {
    let parts: Vec<&str> = said.split(": ").map(str::trim).filter(|part| part.len() > 12).collect();
    parts.iter().enumerate().any(|(at, part)| parts[at + 1..].contains(part))
}
