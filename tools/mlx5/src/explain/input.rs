//! What to explain: arguments, a file, or standard input.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::output::{self, Failure};

/// The input that the words name: standard input, a file, or the words themselves.
pub fn given(words: &[String]) -> Result<Vec<u8>, Failure> {
    match words {
        [] => standard_input(),
        [one] if one == "-" => standard_input(),
        [one] if Path::new(one).is_dir() => Err(format!("{one} is a directory; give a file").into()),
        [one] if Path::new(one).exists() => {
            Ok(std::fs::read(one).map_err(|error| format!("cannot read {one}: {error}"))?)
        }
        [one] if one.contains('/') && !one.contains(' ') => Err(format!("there is no file {one:?}").into()),
        words => Ok(words.join(" ").into_bytes()),
    }
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut stdin = std::io::stdin().lock();
    greet();
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| format!("cannot read standard input: {error}"))?;
    Ok(bytes)
}

/// A remark on an argument of one word, which may have been meant as a file. `words` are the input's.
pub fn missing_file(words: &[String]) -> Option<String> {
    let [one] = words else { return None };
    let may_be = !one.is_empty() && one != "-" && one.len() < 256 && !one.contains(char::is_whitespace);
    (may_be && !Path::new(one).exists()).then(|| format!("there is no file {one:?} either"))
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
/// Lines after which a burst ends without a pause.
const MOST_LINES: usize = 16384;
/// How long the rest of what a pause has cut is awaited.
const REST: Duration = Duration::from_secs(3);

impl Bursts {
    /// Starts to read.
    pub fn of_standard_input() -> Self {
        greet();
        let (sender, lines) = mpsc::sync_channel(MOST_LINES);
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut line = Vec::new();
                let read = stdin.read_until(b'\n', &mut line);
                let over = !matches!(read, Ok(1..));
                let sent = match read {
                    Ok(0) => Ok(()),
                    Ok(_) => sender.send(Ok(line)),
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
