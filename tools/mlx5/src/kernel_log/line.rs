//! Parser of one line of a kernel's log, whatever its prefix.

/// Direction of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Input: to firmware.
    Input,
    /// Output: from firmware.
    Output,
}

/// Content of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// `start dump`.
    Start,
    /// `dump command NAME(0xOP) INPUT`.
    Head {
        /// The driver's name of the command.
        name: &'a str,
        /// Opcode.
        opcode: u16,
        /// Direction.
        direction: Direction,
        /// Whether only data follows, without entry and block trailers.
        data_only: bool,
    },
    /// `command block:`.
    Block,
    /// Hex.
    Words {
        /// Their offset; `None` if the line has none.
        offset: Option<usize>,
        /// Four dwords, fewer if the line is cut.
        words: [Option<u32>; 4],
    },
    /// `end dump`.
    End,
    /// The driver rings the doorbell for a printed command.
    Rung,
    /// The driver has printed an output.
    Completed,
    /// A blank line, or a prefix only.
    Blank,
    /// Anything else.
    Other,
}

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its device.
    pub device: Option<&'a str>,
    /// Its command slot.
    pub slot: Option<u32>,
    /// Its process.
    pub pid: Option<u32>,
    /// The task or processor that printed it, such as `T123`, if the kernel is configured to print it.
    pub caller: Option<&'a str>,
    /// Its content.
    pub what: What<'a>,
}

/// Whether a line ends before the driver's message.
pub fn is_broken(text: &str) -> bool {
    let (_, _, message) = split(text);
    let after_pid = text.len() != message.len();
    let (_, rest) = slot(message.trim());
    let begun = matches!(rest, "" | "cmd[" | "start" | "end" | "command" | "dump") || rest.starts_with("dump command");
    after_pid && begun && said(rest).is_none()
}

/// Parses a line from [`Lines`](super::reader::Lines).
pub fn recognise(text: &str) -> Line<'_> {
    let (device, pid, message) = split(text);
    let caller = caller(text);
    let (slot, rest) = slot(message.trim());
    let what = match pid {
        Some(_) => said(rest).or_else(|| words(rest)).unwrap_or(What::Other),
        None => slot.and_then(|_| said(rest)).or_else(|| words(rest)).unwrap_or_else(|| blank(text)),
    };
    Line { device, slot, pid, caller, what }
}

/// Device, process and message of `... DEVICE:[ ]FUNCTION:LINE:(pid PID): MESSAGE`; for another line the message is all
/// of `text`.
fn split(text: &str) -> (Option<&str>, Option<u32>, &str) {
    let parts = || {
        let (before, after) = text.rsplit_once(":(pid ")?;
        let (pid, message) = after.split_once("):")?;
        let mut words = before.rsplitn(3, ':');
        let (_line, _function) = (words.next()?, words.next()?);
        let device =
            words.next().and_then(|rest| rest.split_whitespace().last()).map(|word| word.trim_end_matches(':'));
        Some((device.filter(|word| !word.is_empty()), pid.parse().ok(), message))
    };
    parts().unwrap_or((None, None, text))
}

/// Finds `cmd[SLOT]: rest` anywhere.
fn slot(message: &str) -> (Option<u32>, &str) {
    let parts = || {
        let (_, after) = message.split_once("cmd[")?;
        let (number, rest) = after.split_once("]:")?;
        Some((number.parse().ok()?, rest.trim()))
    };
    parts().map_or((None, message), |(number, rest)| (Some(number), rest))
}

/// `[T123]`, `[  C4]`, or `caller=T123` of `/dev/kmsg`.
fn caller(text: &str) -> Option<&str> {
    let bracketed = text.split('[').skip(1).filter_map(|rest| Some(rest.split_once(']')?.0.trim()));
    let of_kmsg = text.split_once("caller=").and_then(|(_, rest)| rest.split([',', ';']).next());
    bracketed.chain(of_kmsg).find(|word| {
        let number = word.strip_prefix(['T', 'C']);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn said(message: &str) -> Option<What<'_>> {
    match message {
        "start dump" => return Some(What::Start),
        "end dump" => return Some(What::End),
        "command block:" => return Some(What::Block),
        _ if message.starts_with("writing 0x") && message.ends_with("to command doorbell") => return Some(What::Rung),
        _ if message.starts_with("command completed. ret") => return Some(What::Completed),
        _ => {}
    }
    let head = message.strip_prefix("dump command ")?;
    let (head, data_only) = match head.strip_prefix("data ") {
        Some(head) => (head, true),
        None => (head, false),
    };
    let (head, direction) = match head.strip_suffix(" INPUT") {
        Some(head) => (head, Direction::Input),
        None => (head.strip_suffix(" OUTPUT")?, Direction::Output),
    };
    let (name, number) = head.strip_suffix(')')?.rsplit_once("(0x")?;
    Some(What::Head { name, opcode: u16::from_str_radix(number, 16).ok()?, direction, data_only })
}

/// `OFFSET: DWORD DWORD DWORD DWORD` at the end, or the four alone.
fn words(message: &str) -> Option<What<'_>> {
    let tokens: Vec<&str> = message.split_whitespace().collect();
    if let Some(at) = tokens.iter().rposition(|token| offset(token).is_some()) {
        let given = &tokens[at + 1..];
        let mut words = [None; 4];
        for (i, word) in words.iter_mut().enumerate() {
            // The last dword may be cut, or joined to the next line.
            let last = i == 3 || i + 1 == given.len();
            *word = given.get(i).and_then(|token| dword(token.get(..8).filter(|_| last).unwrap_or(token)));
        }
        let whole = words.iter().take_while(|word| word.is_some()).count();
        return (whole + 1 >= given.len().min(4) && whole > 0)
            .then_some(What::Words { offset: offset(tokens[at]), words });
    }
    let four: Vec<u32> = tokens.iter().rev().map_while(|token| dword(token)).collect();
    let [d, c, b, a] = four[..] else { return None };
    // Offsets of another format belong to another dump.
    if tokens.len().checked_sub(5).is_some_and(|before| tokens[before].strip_suffix(':').is_some_and(is_hex)) {
        return None;
    }
    Some(What::Words { offset: None, words: [Some(a), Some(b), Some(c), Some(d)] })
}

/// An offset such as `03f0:`: at least three digits, without needless zeros.
fn offset(token: &str) -> Option<usize> {
    let digits = token.strip_suffix(':')?;
    let shape = (3..=6).contains(&digits.len()) && is_hex(digits) && (digits.len() == 3 || !digits.starts_with('0'));
    shape.then(|| usize::from_str_radix(digits, 16).ok()).flatten().filter(|offset| offset.is_multiple_of(16))
}

fn dword(token: &str) -> Option<u32> {
    (token.len() == 8 && is_hex(token)).then(|| u32::from_str_radix(token, 16).ok()).flatten()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A line with only a timestamp, or only the location of its `pr_debug`, is blank.
fn blank(text: &str) -> What<'static> {
    let mut rest = text.trim_start_matches(['>', ' ']);
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        rest = after.trim();
    }
    let known = |word: &str| {
        matches!(word, "" | "dump_buf" | "dump_command" | "mlx5_core") || word.bytes().all(|byte| byte.is_ascii_digit())
    };
    if rest.split(':').all(|word| known(word.trim())) { What::Blank } else { What::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same line as kernels and log keepers print it.
    #[test]
    fn what_stands_in_front_is_passed_over() {
        let message = "cmd[3]: dump command CREATE_CQ(0x400) INPUT";
        let prefixes = [
            "mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "[   12.345678] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "[   12.345678][  T123] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "[Sat Nov 21 15:00:00 2026] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "<7>[   12.345678] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "kern  :debug : [   12.345678] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "2026-11-21T15:00:00,123456+00:00 mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "Nov 21 15:00:00 host kernel: [   12.345678] mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "Nov 21 15:00:00 host kernel: mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "7,1234,12345678,-,caller=T123;mlx5_core 0000:3b:00.1: dump_command:888:(pid 12): ",
            "[   12.3] 0000:3b:00.1:dump_command:724:(pid 12): ",
            "[   12.3] mlx5_core 0000:3b:00.1: 0000:3b:00.1:dump_command:724:(pid 12): ",
            "dump_command:814: mlx5_core 0000:3b:00.1: dump_command:814:(pid 12): ",
            "[   12.3] [99] mlx5_core:dump_command:814: mlx5_core 0000:3b:00.1: dump_command:814:(pid 12): ",
            "> > [   12.3] mlx5_core 0000:3b:00.1: dump_command:814:(pid 12): ",
        ];
        for prefix in prefixes {
            let text = format!("{prefix}{message}");
            let line = recognise(&text);
            assert_eq!((line.device, line.slot, line.pid), (Some("0000:3b:00.1"), Some(3), Some(12)), "{text}");
            let head = What::Head { name: "CREATE_CQ", opcode: 0x400, direction: Direction::Input, data_only: false };
            assert_eq!(line.what, head, "{text}");
            assert_eq!(line.caller, text.contains("T123").then_some("T123"), "{text}");
        }
        let line = recognise("[ 1.0] mlx5_core.sf mlx5_core.sf.4: dump_command:888:(pid 12): cmd[0]: end dump");
        assert_eq!((line.device, line.what), (Some("mlx5_core.sf.4"), What::End));
    }

    #[test]
    fn bytes_with_and_without_slot() {
        let words = [Some(0x0700_0000), Some(0x10), Some(0), Some(0xffff_ffff)];
        for (text, slot, offset) in [
            ("cmd[3]: 3f0: 07000000 00000010 00000000 ffffffff", Some(3), Some(0x3f0)),
            ("[  920.711601] cmd[31]: 1000: 07000000 00000010 00000000 ffffffff", Some(31), Some(0x1000)),
            ("3f0: 07000000 00000010 00000000 ffffffff", None, Some(0x3f0)),
            ("[  920.711601] 3f0: 07000000 00000010 00000000 ffffffff", None, Some(0x3f0)),
            ("Nov 21 15:00:00 cafe kernel: 3f0: 07000000 00000010 00000000 FFFFFFFF", None, Some(0x3f0)),
            ("dump_buf:272: cmd[0]: 3f0: 07000000 00000010 00000000 ffffffff", Some(0), Some(0x3f0)),
            ("> cmd[3]: 3f0: 07000000 00000010 00000000 ffffffff[  12.3] another", Some(3), Some(0x3f0)),
            ("[ 1.0] 07000000 00000010 00000000 ffffffff", None, None),
        ] {
            assert_eq!(recognise(text).slot, slot, "{text}");
            assert_eq!(recognise(text).what, What::Words { offset, words }, "{text}");
        }
    }

    #[test]
    fn a_cut_line_gives_its_whole_dwords() {
        let what = recognise("cmd[3]: 3f0: 07000000 0000001").what;
        assert_eq!(what, What::Words { offset: Some(0x3f0), words: [Some(0x0700_0000), None, None, None] });
        assert_eq!(recognise("cmd[3]: 3f0: 070").what, What::Other);
        assert_eq!(recognise("cmd[3]: 3f").what, What::Other);
    }

    #[test]
    fn other_lines_are_none_of_ours() {
        for text in [
            "[ 1.0] usb 1-1: new device",
            "[ 1.0] 00000010: 00000000 00000000 00000000 00000000",
            "[ 1.0] mlx5_core 0000:01:00.0: firmware version: 16.35.2000",
            "[ 1.0] cmd[0]: something new",
            "[ 1.0] RIP: 0010:dump_command+0x9d9/0xa40 [mlx5_core]",
            "cmd[: x",
            "cmd[]: ",
            "):(pid ):",
            ":(pid 1):",
            "(0x) INPUT",
        ] {
            assert!(matches!(recognise(text).what, What::Other | What::Blank), "{text}: {:?}", recognise(text));
        }
        for text in ["", "[ 1.0] ", "dump_buf:279:", "[ 1.0] mlx5_core:dump_buf:279:"] {
            assert_eq!(recognise(text).what, What::Blank, "{text}");
        }
    }

    #[test]
    fn mail_breaks_lines_where_the_message_begins() {
        assert!(is_broken("> [  920.711591] mlx5_core 0000:02:00.0: dump_command:844:(pid 1915):"));
        assert!(is_broken("> [  920.711591] mlx5_core 0000:02:00.0: dump_command:844:(pid 0): cmd[0]:"));
        assert!(!is_broken("> [  920.711591] cmd[0]:"));
        assert!(!is_broken("mlx5_core 0000:02:00.0: dump_command:844:(pid 0): cmd[0]: start dump"));
    }
}
