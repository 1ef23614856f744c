//! What to explain: arguments, a file, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use regex::Regex;

use crate::output::{self, Failure, usage};

/// Maximum bytes of a line: more than the longest dump has as hex. A longer one is no text, such as /dev/zero.
const MAX_LINE: usize = 8 << 20;

/// The input that the words name: standard input, a file, or the words themselves.
pub fn given(words: &[String]) -> Result<Vec<u8>, Failure> {
    match words {
        [] => standard_input(),
        [one] if one == "-" => standard_input(),
        [one] if Path::new(one).is_dir() => Err(format!("{one} is a directory; give a file").into()),
        [one] if is_there(one) => {
            let file = File::open(one).map_err(|error| format!("cannot read {one}: {error}"))?;
            Ok(read_lines(file).map_err(|error| format!("cannot read {one}: {error}"))?)
        }
        [one] if one.contains('/') && !one.contains(' ') => Err(format!("there is no file {one:?}").into()),
        words => match words.iter().filter(|word| Path::new(word).is_file()).count() {
            2.. => Err(usage("give one file at a time, or all on standard input: `cat FILE FILE | mlx5 explain`")),
            _ => Ok(words.join(" ").into_bytes()),
        },
    }
}

/// Whether there is a file of this name, or one that may not be looked at.
fn is_there(name: &str) -> bool {
    match Path::new(name).try_exists() {
        Ok(there) => there,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    greet();
    Ok(read_lines(io::stdin().lock()).map_err(|error| format!("cannot read standard input: {error}"))?)
}

/// All of `reader`, unless a line is too long.
pub fn read_lines(reader: impl Read) -> io::Result<Vec<u8>> {
    let (mut reader, mut bytes) = (BufReader::new(reader), Vec::new());
    for number in 1.. {
        if line(&mut reader, number, &mut bytes)? == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// Reads a line and its end after `bytes`; returns its length, 0 at the end of the input.
fn line(reader: &mut impl BufRead, number: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let read = reader.take(MAX_LINE as u64 + 1).read_until(b'\n', bytes)?;
    match read > MAX_LINE {
        true => Err(io::Error::other(format!("line {number} is longer than {} MiB: this is no text", MAX_LINE >> 20))),
        false => Ok(read),
    }
}

/// A log as it reads: without the colours of `dmesg` and `grep`, and the carriage returns of other systems' lines.
pub fn plain(text: &str) -> String {
    static COLOURS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\x1b\[[0-9;:]*[mK]|\r+(?P<end>\n|$)").expect("a regex"));
    COLOURS.replace_all(text, "$end").into_owned()
}

/// A remark on an argument of one word, which may have been meant as a file. `words` are the input's.
pub fn missing_file(words: &[String]) -> Option<String> {
    let [one] = words else { return None };
    let may_be = !one.is_empty() && one != "-" && one.len() < 256 && !one.contains(char::is_whitespace);
    (may_be && !is_there(one)).then(|| format!("there is no file {one:?} either"))
}

/// Says on a terminal what is awaited.
fn greet() {
    if io::stdin().is_terminal() {
        output::note("reading from the terminal: paste what is to be explained, then press Enter and Ctrl-D");
    }
}

/// Standard input in bursts: whole lines that come without a pause. A thread reads; it ends with the input.
pub struct Bursts {
    lines: Receiver<io::Result<Vec<u8>>>,
    ended: bool,
}

/// A pause that ends a burst: a kernel prints the lines of one event faster.
const PAUSE: Duration = Duration::from_millis(300);
/// Lines and bytes after which a burst ends without a pause.
const MOST_LINES: usize = 16384;
const MOST_BYTES: usize = 4 << 20;
/// Lines that are read ahead. Few, as each may be long.
const AHEAD: usize = 16;
/// How long the rest of what a pause has cut is awaited.
const REST: Duration = Duration::from_secs(3);

impl Bursts {
    /// Starts to read.
    pub fn of_standard_input() -> Self {
        greet();
        let (sender, lines) = mpsc::sync_channel(AHEAD);
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            for number in 1.. {
                let mut bytes = Vec::new();
                let read = line(&mut stdin, number, &mut bytes);
                let over = !matches!(read, Ok(1..));
                let sent = match read {
                    Ok(0) => Ok(()),
                    Ok(_) => sender.send(Ok(bytes)),
                    Err(error) => sender.send(Err(error)),
                };
                if over || sent.is_err() {
                    break;
                }
            }
        });
        Bursts { lines, ended: false }
    }

    /// The next burst; waits for its first line. With `held`, a beginning that is to go on, not for ever: the burst is
    /// then empty.
    pub fn next(&mut self, held: bool) -> Result<Vec<u8>, Failure> {
        let failed = |error| Failure::from(format!("cannot read standard input: {error}"));
        let mut burst = Vec::new();
        let first = match held {
            true => self.lines.recv_timeout(REST),
            false => self.lines.recv().map_err(RecvTimeoutError::from),
        };
        let first = match first {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => return Ok(burst),
            Err(RecvTimeoutError::Disconnected) => {
                self.ended = true;
                return Ok(burst);
            }
        };
        burst.extend(first.map_err(failed)?);
        for _ in 1..MOST_LINES {
            if burst.len() >= MOST_BYTES {
                break;
            }
            match self.lines.recv_timeout(PAUSE) {
                Ok(line) => burst.extend(line.map_err(failed)?),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    break;
                }
            }
        }
        Ok(burst)
    }

    /// Whether the input has ended.
    pub fn ended(&self) -> bool {
        self.ended
    }
}
