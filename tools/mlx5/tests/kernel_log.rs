//! Whole kernel logs, in the shapes of several drivers and log keepers, sound and damaged.

mod printed;

use std::io::{self, BufReader, Read, Write};
use std::sync::{Arc, Mutex};

use mlx5_dv::Options as DeviceOptions;
use mlx5_dv::access::trace::{CommandRecord, Direction, KernelDump};
use mlx5_prm::cmd::{AccessRegisterIn, AllocPdIn, CreateCqIn, MailboxBlock, Opcode};
use mlx5_prm::ctx::Cqc;
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::RegisterId;
use mlx5_tools::kernel_log::{Options, Summary, decode};
use printed::{Driver, Exchange, lines};
use serde_json::Value;

/// What programs are told of a log, and its summary.
fn json(log: &[u8]) -> (Vec<Value>, Summary) {
    let mut out = Vec::new();
    let summary = decode(log, &mut out, &Options { json: true, ..Options::default() }).expect("memory");
    let commands = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    (commands.map(|line| serde_json::from_slice(line).expect("JSON a line")).collect(), summary)
}

fn text(log: &str, options: &Options) -> String {
    let mut out = Vec::new();
    decode(log.as_bytes(), &mut out, options).expect("memory");
    String::from_utf8(out).expect("UTF-8")
}

fn create_cq() -> Exchange {
    let mut context = Cqc::default();
    context.w().log_cq_size(7).uar_page(0x21);
    let mut create = CreateCqIn::default();
    create.w().cq_context(&context);
    let input = [create.as_bytes(), &[0, 0, 0, 0, 0x12, 0x34, 0x50, 0]].concat();
    Exchange::new(Opcode::CreateCq, input, vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x43, 0, 0, 0, 0])
}

fn alloc_pd() -> Exchange {
    let output = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0];
    Exchange::new(Opcode::AllocPd, AllocPdIn::default().as_bytes().to_vec(), output)
}

/// An output of three blocks.
fn query_pages() -> Exchange {
    let mut input = vec![0; 16];
    input[..8].copy_from_slice(&[0x01, 0x00, 0, 0, 0, 0, 0, 0x01]);
    let mut output: Vec<u8> = (0..0x1010).map(|at| (at / 7) as u8).collect();
    output[..16].fill(0);
    Exchange::new(Opcode::QueryHcaCap, input, output)
}

fn bytes_of(message: &Value) -> String {
    message["bytes"].as_str().expect("hex").to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_driver_and_log_keeper_tells_the_same() {
    let exchanges = [alloc_pd(), create_cq(), query_pages()];
    for driver in Driver::ALL {
        let log: Vec<String> =
            exchanges.iter().flat_map(|exchange| lines(exchange, driver, "0000:3b:00.0", 3)).collect();
        for prefix in ["", "[   12.345678] ", "Nov 21 15:00:00 host kernel: [   12.345678] ", "7,1,1,-;", "> "] {
            for end in ["\n", "\r\n"] {
                let text: String = log.iter().map(|line| format!("{prefix}{line}{end}")).collect();
                let (commands, summary) = json(text.as_bytes());
                assert_eq!(
                    (summary.commands, summary.failed, summary.stray),
                    (3, 0, 0),
                    "{driver:?} {prefix:?}\n{text}"
                );
                for (command, exchange) in commands.iter().zip(&exchanges) {
                    let (input, output) = (&command["input"], &command["output"]);
                    assert_eq!(command["opcode"], exchange.opcode.number(), "{driver:?}");
                    assert_eq!(command["result"], "ok", "{driver:?}");
                    // Data alone comes in sixteens.
                    assert!(bytes_of(input).starts_with(&hex(&exchange.input)), "{driver:?} {command}");
                    let whole = driver.prints_all_blocks() || exchange.output.len() < 0x1000;
                    assert!(!whole || bytes_of(output).starts_with(&hex(&exchange.output)), "{driver:?} {command}");
                    assert!(bytes_of(input).len() < exchange.input.len() * 2 + 32, "{driver:?}");
                }
                assert_eq!(
                    commands.iter().map(|c| &c["input"]["problems"]).filter(|p| **p != Value::Array(vec![])).count(),
                    0
                );
            }
        }
    }
}

#[test]
fn fields_are_named_and_counted_by_the_prm() {
    let log = lines(&create_cq(), Driver::Linux6_12, "0000:3b:00.0", 3).join("\n");
    let shown = text(&log, &Options::default());
    for expected in [
        "#1 0000:3b:00.0 cmd[3] CREATE_CQ (0x400) input, line 2\ncreate_cq_in, 0x118 bytes\n",
        "log_cq_size = 0x7\n",
        "output: OK\ncreate_cq_out, 0x10 bytes\n  0x0008 [23:0]  cqn = 0x43\n",
    ] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    assert!(!shown.contains("log_page_size"), "zeros are not shown:\n{shown}");
    let all = text(&log, &Options { all: true, ..Options::default() });
    assert!(all.contains("log_page_size = 0x0"), "{all}");
    let (commands, _) = json(log.as_bytes());
    let fields = commands[0]["input"]["fields"].as_array().expect("fields");
    let size = fields.iter().find(|field| field["name"] == "cq_context.log_cq_size").expect("the field");
    assert_eq!((size["value"].as_u64(), size["offset"].as_u64()), (Some(7), Some(0x1c)));
    assert_eq!(size["bits"], serde_json::json!([28, 24]));
}

#[test]
fn commands_of_several_slots_and_devices_are_told_apart() {
    let one = |exchange: &Exchange, device, slot| lines(exchange, Driver::Linux6_12, device, slot);
    // Line by line, in turns: two slots of a device, and a slot of another.
    let mut printers = [
        one(&create_cq(), "0000:3b:00.0", 0),
        one(&query_pages(), "0000:3b:00.0", 1),
        one(&alloc_pd(), "0000:5e:00.0", 2),
    ];
    let mut log = String::new();
    while printers.iter().any(|lines| !lines.is_empty()) {
        for lines in printers.iter_mut().filter(|lines| !lines.is_empty()) {
            log += &(lines.remove(0) + "\n");
            log += "usb 1-1: something else\n";
        }
    }
    let (mut commands, summary) = json(log.as_bytes());
    assert_eq!((summary.commands, summary.problems - uncovered(&commands), summary.stray), (3, 0, 0));
    commands.sort_by_key(|command| command["slot"].as_u64());
    for (command, exchange) in commands.iter().zip([create_cq(), query_pages(), alloc_pd()]) {
        assert_eq!(bytes_of(&command["input"]), hex(&exchange.input));
        assert_eq!(bytes_of(&command["output"]), hex(&exchange.output));
        assert_eq!(command["input"]["doubtful"], false);
    }
}

fn uncovered(commands: &[Value]) -> u64 {
    let messages = commands.iter().flat_map(|command| [&command["input"], &command["output"]]);
    messages.map(|message| message["uncovered"].as_array().map_or(0, Vec::len) as u64).sum()
}

#[test]
fn one_slot_of_two_devices_is_told_apart_by_opcode_and_doubted() {
    let mut printers = [
        lines(&create_cq(), Driver::Linux6_12, "0000:3b:00.0", 0),
        lines(&alloc_pd(), Driver::Linux6_12, "0000:5e:00.0", 0),
    ];
    let mut log = String::new();
    while printers.iter().any(|lines| !lines.is_empty()) {
        for lines in printers.iter_mut().filter(|lines| !lines.is_empty()) {
            log += &(lines.remove(0) + "\n");
        }
    }
    let (commands, _) = json(log.as_bytes());
    for command in &commands {
        let exchange = if command["device"] == "0000:3b:00.0" { create_cq() } else { alloc_pd() };
        assert_eq!(bytes_of(&command["input"]), hex(&exchange.input));
        assert_eq!(command["input"]["doubtful"], true);
    }
    assert_eq!(commands.len(), 2);
}

fn set_signature(block: &mut MailboxBlock, flip: u8, flip_control: u8) {
    let (all, control) = (block.signature() ^ flip, block.ctrl_signature() ^ flip_control);
    block.w().signature(all).ctrl_signature(control);
}

#[test]
fn what_is_wrong_with_a_block_is_named() {
    type Change = fn(&mut MailboxBlock);
    let changes: [(&str, Change); 5] = [
        ("token", |block| _ = block.w().token(0x99)),
        ("block_number", |block| _ = block.w().block_number(7)),
        ("signature", |block| set_signature(block, 1, 0)),
        ("signature", |block| set_signature(block, 0, 1)),
        ("pointer", |block| _ = block.w().next_pointer(0x1001)),
    ];
    for (kind, change) in changes {
        let mut exchange = query_pages();
        change(&mut exchange.output_blocks[1]);
        let log = lines(&exchange, Driver::Linux6_12, "0000:3b:00.0", 3).join("\n");
        let (commands, _) = json(log.as_bytes());
        let problems = commands[0]["output"]["problems"].as_array().expect("problems");
        assert!(problems.iter().any(|problem| problem["kind"] == kind), "{kind}: {problems:?}");
        assert_eq!(commands[0]["input"]["problems"], serde_json::json!([]), "{kind}");
    }
}

#[test]
fn a_bit_that_flipped_in_an_entry_breaks_its_signature() {
    let sound = lines(&alloc_pd(), Driver::Linux6_12, "0000:3b:00.0", 0).join("\n");
    assert_eq!(json(sound.as_bytes()).1.problems, 0);
    let flipped = sound.replacen("cmd[0]: 020: 00000000", "cmd[0]: 020: 00000100", 1);
    let (commands, summary) = json(flipped.as_bytes());
    assert_eq!(summary.problems, 1);
    assert_eq!(commands[0]["input"]["problems"][0]["kind"], "signature");
}

#[test]
fn bits_that_no_field_covers_are_reported() {
    let mut exchange = alloc_pd();
    exchange.input[9] = 0x80;
    let log =
        lines(&Exchange::new(exchange.opcode, exchange.input, exchange.output), Driver::Linux6_12, "x", 0).join("\n");
    let (commands, summary) = json(log.as_bytes());
    assert_eq!(commands[0]["input"]["uncovered"], serde_json::json!([{ "offset": 8, "bits": 0x0080_0000 }]));
    assert_eq!(summary.problems, 1);
    assert!(text(&log, &Options::default()).contains("0x00800000 set, and no field there"));
}

#[test]
fn a_log_may_end_anywhere() {
    for driver in Driver::ALL {
        let log = lines(&create_cq(), driver, "0000:3b:00.0", 3).join("\n");
        let mut most = 0;
        for end in 0..log.len() {
            let (commands, _) = json(&log.as_bytes()[..end]);
            let Some(command) = commands.first() else { continue };
            let bytes = bytes_of(&command["input"]);
            let whole = hex(&create_cq().input) + &"0".repeat(32);
            assert!(whole.starts_with(&bytes), "{driver:?}: what has not arrived is not made up");
            most = most.max(bytes.len());
        }
        assert!(most >= create_cq().input.len() * 2, "{driver:?}");
    }
}

#[test]
fn lines_that_the_log_lost_are_named() {
    let log: Vec<String> = lines(&create_cq(), Driver::Linux6_12, "0000:3b:00.0", 3);
    let lost: Vec<&String> = log.iter().filter(|line| !line.contains(" 060: ")).collect();
    let lost = lost.into_iter().cloned().collect::<Vec<_>>().join("\n");
    let (commands, _) = json(lost.as_bytes());
    // The third line of the first block: 0x20 bytes into it, behind the sixteen of the entry.
    assert_eq!(commands[0]["input"]["missing"], serde_json::json!([[0x30, 0x40]]));
    assert!(text(&lost, &Options::default()).contains("bytes 0x30 to 0x40 are not in the log"));
}

#[test]
fn what_old_drivers_leave_out_is_no_damage() {
    // 32 bytes need a block, but the offset behind the entry is past the length already.
    let exchange = Exchange::new(Opcode::QueryPages, [&[0x01, 0x07][..], &[0; 30]].concat(), vec![0; 16]);
    let log = lines(&exchange, Driver::Linux4_12, "0000:3b:00.0", 0).join("\n");
    let (commands, summary) = json(log.as_bytes());
    assert_eq!((summary.problems, summary.commands), (0, 1));
    assert_eq!(commands[0]["input"]["missing"], serde_json::json!([[16, 32]]));
    assert!(text(&log, &Options::default()).contains("old drivers do not print them"));
}

#[test]
fn a_command_without_layout_is_shown_in_hex() {
    let exchange = Exchange::new(Opcode::Unknown(0xfff), [&[0x0f, 0xff][..], &[0xab; 14]].concat(), vec![0; 16]);
    let log = lines(&exchange, Driver::Linux6_12, "0000:3b:00.0", 0).join("\n");
    let shown = text(&log, &Options::default());
    assert!(shown.contains("no layout for unknown command opcode, 0x10 bytes\n  0x0000 0fffabab"), "{shown}");
    assert_eq!(json(log.as_bytes()).0[0]["input"]["layout"], Value::Null);
}

#[test]
fn failures_are_told_in_words_and_can_be_picked() {
    let mut failing = create_cq();
    failing =
        Exchange::new(failing.opcode, failing.input, vec![3, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0]);
    let unanswered = lines(&query_pages(), Driver::Linux6_12, "0000:3b:00.0", 7);
    let half = unanswered.iter().position(|line| line.contains("end dump")).expect("an end");
    let mut log = lines(&alloc_pd(), Driver::Linux6_12, "0000:3b:00.0", 3);
    log.extend(lines(&failing, Driver::Linux6_12, "0000:3b:00.0", 3));
    log.extend_from_slice(&unanswered[..=half]);
    let log = log.join("\n");

    let failed = text(&log, &Options { failed: true, ..Options::default() });
    assert!(
        failed.contains("FAILED, status BAD_PARAM (0x3), syndrome 0x123456: a parameter is out of range"),
        "{failed}"
    );
    assert!(failed.contains("log_cq_size = 0x7"), "with its input:\n{failed}");
    assert!(failed.contains("QUERY_HCA_CAP (0x100): no output in the log"), "{failed}");
    assert!(!failed.contains("ALLOC_PD"), "{failed}");
    let picked = text(&log, &Options { opcodes: vec![0x800], ..Options::default() });
    assert!(picked.contains("ALLOC_PD") && !picked.contains("CREATE_CQ"), "{picked}");
    let (commands, summary) = json(log.as_bytes());
    assert_eq!((summary.commands, summary.failed, summary.unanswered), (3, 1, 1));
    assert_eq!((&commands[1]["status"], &commands[1]["syndrome"]), (&3.into(), &0x12_3456.into()));
}

#[test]
fn an_output_alone_is_read_by_the_input_in_its_entry() {
    let log = lines(&query_pages(), Driver::Linux6_12, "0000:3b:00.0", 3);
    let answer = log.iter().rposition(|line| line.contains("start dump")).expect("a start");
    let (commands, _) = json(log[answer..].join("\n").as_bytes());
    assert_eq!((&commands[0]["input"], &commands[0]["op_mod"]), (&Value::Null, &1.into()));
    let fields = commands[0]["output"]["fields"].as_array().expect("fields");
    assert!(fields.iter().any(|field| field["name"].as_str().is_some_and(|n| n.starts_with("capability."))));
}

/// Gives a log in two parts, and looks at what was printed of the first before it gives the second.
struct Followed<'a> {
    parts: Vec<Vec<u8>>,
    printed: &'a Mutex<Vec<u8>>,
}

impl Read for Followed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.parts.len() == 1 {
            let printed = String::from_utf8_lossy(&self.printed.lock().expect("no panic")).into_owned();
            assert!(printed.contains("CREATE_CQ (0x400) input"), "the input waits for no output: {printed}");
        }
        let Some(part) = self.parts.first_mut() else { return Ok(0) };
        let len = part.len().min(buffer.len());
        buffer[..len].copy_from_slice(&part[..len]);
        part.drain(..len);
        self.parts.retain(|part| !part.is_empty());
        Ok(len)
    }
}

/// A sink that others may look at.
struct Shared<'a>(&'a Mutex<Vec<u8>>);

impl Write for Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_can_be_followed() {
    let log = lines(&create_cq(), Driver::Linux6_12, "0000:3b:00.0", 3);
    let end = log.iter().position(|line| line.contains("end dump")).expect("an end");
    let parts = [&log[..=end], &log[end + 1..]].map(|part| (part.join("\n") + "\n").into_bytes());
    let printed = Mutex::new(Vec::new());
    let reader = BufReader::new(Followed { parts: parts.to_vec(), printed: &printed });
    let summary = decode(reader, Shared(&printed), &Options::default()).expect("memory");
    assert_eq!(summary.commands, 1);
}

#[test]
fn no_bytes_panic_and_none_take_much() {
    let log = lines(&query_pages(), Driver::Linux6_12, "0000:3b:00.0", 3).join("\n").into_bytes();
    // A generator of its own: the same bytes on every run.
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..300 {
        let mut damaged = log.clone();
        for _ in 0..random() % 40 {
            let at = random() % damaged.len();
            match random() % 4 {
                0 => damaged[at] = random() as u8,
                1 => damaged[at] = b'\n',
                2 => drop(damaged.drain(at..(at + random() % 90).min(damaged.len()))),
                _ => damaged.extend_from_within(at..(at + 90).min(damaged.len())),
            }
        }
        let _ = json(&damaged);
        let _ = text(&String::from_utf8_lossy(&damaged), &Options { all: true, ..Options::default() });
    }
    let _ = json(&vec![b'x'; 1 << 20]);
    let head = "x: dump_command:1:(pid 1): cmd[0]: dump command NOP(0x80d) INPUT\n";
    let far = format!("{head}cmd[0]: fffff0: 00000000 00000000 00000000 00000000\ncmd[0]: ffff0: 00000001 0 0 0\n");
    assert_eq!(json(far.as_bytes()).1.stray, 1);
}

#[test]
fn logs_of_others() {
    let (commands, summary) = json(include_bytes!("logs/max_qp.txt"));
    assert_eq!((summary.commands, summary.failed, summary.unanswered, summary.stray), (2, 1, 0, 0));
    assert_eq!((summary.problems, &commands[0]["uid"], &commands[0]["device"]), (0, &2.into(), &"0000:02:00.0".into()));
    assert_eq!(commands[0]["output"]["fields"][0]["value"], 0x40121, "the number of the queue pair");
    assert_eq!((&commands[1]["status"], &commands[1]["syndrome"]), (&5.into(), &0x65_b500.into()));

    let (commands, summary) = json(include_bytes!("logs/teardown.txt"));
    assert_eq!((summary.commands, summary.unanswered, summary.problems), (1, 1, 0));
    assert_eq!((&commands[0]["command"], &commands[0]["input"]["token"]), (&"TEARDOWN_HCA".into(), &0x3f.into()));
}

#[test]
fn a_probe_of_the_software_card_by_linux_6_12() {
    let (commands, summary) = json(include_bytes!("logs/probe.txt"));
    assert_eq!((summary.commands, summary.failed, summary.unanswered, summary.stray), (4, 0, 0, 0));
    assert_eq!(summary.problems, 0);
    let names: Vec<&Value> = commands.iter().map(|command| &command["command"]).collect();
    assert_eq!(names, ["ENABLE_HCA", "ACCESS_REG", "ALLOC_UAR", "CREATE_EQ"]);
    let number = |command: usize, way: &str, name: &str| {
        let fields = commands[command][way]["fields"].as_array().expect("fields");
        fields.iter().find(|field| field["name"] == name).map(|field| field["value"].clone())
    };
    assert_eq!(number(2, "output", "uar"), Some(16.into()), "the kernel says the same: index 16");
    assert_eq!(number(3, "input", "eq_context_entry.uar_page"), Some(16.into()));
    assert_eq!(number(3, "input", "eq_context_entry.log_eq_size"), Some(8.into()));
}

/// What a register's bytes mean only the input says: its dump, or the entry of the output's.
#[test]
fn an_output_is_read_as_its_input_asks() {
    let mut access = AccessRegisterIn::default();
    access.w().register_id(RegisterId::Pmtu.number() as u16);
    let mut output = vec![0; 0x20];
    output[0x14..0x16].copy_from_slice(&[0x23, 0x28]);
    let exchange = Exchange::new(Opcode::AccessReg, access.as_bytes().to_vec(), output);
    let log = lines(&exchange, Driver::Linux6_12, "0000:3b:00.0", 0).join("\n");
    let answer = log.rfind(" OUTPUT").and_then(|at| log[..at].rfind('\n')).expect("an output");
    for log in [&log[..], &log[answer..]] {
        let shown = text(log, &Options::default());
        assert!(shown.contains("max_mtu = 0x2328"), "{shown}");
    }
}

/// What the driver prints of its own commands is what it sent and got.
#[test]
fn what_our_driver_prints_reads_back_as_what_it_sent() {
    let records: Arc<Mutex<Vec<CommandRecord>>> = Arc::default();
    let log = Arc::new(Mutex::new(Vec::new()));
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let kept = Arc::clone(&records);
    let observer = move |record: &CommandRecord| kept.lock().expect("no panic").push(record.clone());
    let dump = KernelDump::new("0000:3b:00.0", Kept(Arc::clone(&log)));
    let options = DeviceOptions::default().observe(Arc::new(observer)).observe(Arc::new(dump));
    drop(mlx5_open::open_with("sim", options).expect("the software card"));

    let (mut commands, summary) = json(&log.lock().expect("no panic"));
    let records = records.lock().expect("no panic");
    let inputs: Vec<&CommandRecord> = records.iter().filter(|record| record.direction == Direction::Input).collect();
    assert!(inputs.len() > 20, "a bring-up");
    assert_eq!(
        (summary.commands as usize, summary.problems, summary.unanswered),
        (inputs.len(), 0, 0),
        "{commands:#?}"
    );
    commands.sort_by_key(|command| command["number"].as_u64());
    for (command, record) in commands.iter().zip(inputs) {
        assert_eq!(bytes_of(&command["input"]), hex(&record.data));
    }
    let mut outputs: Vec<String> =
        records.iter().filter(|record| record.direction == Direction::Output).map(|record| hex(&record.data)).collect();
    let mut decoded: Vec<String> = commands.iter().map(|command| bytes_of(&command["output"])).collect();
    outputs.sort();
    decoded.sort();
    assert_eq!(decoded, outputs);
}
