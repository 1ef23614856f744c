//! The connection to the agent in the guest: a virtio port, connected to a socket on the host.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// What the agent has reported.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) ready: bool,
    /// Failures before it was ready.
    pub(super) failures: Vec<String>,
    /// Exit statuses by command.
    pub(super) done: HashMap<u64, i32>,
    /// Whether the guest has closed the connection.
    pub(super) closed: bool,
}

impl State {
    fn take(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("ready") => self.ready = true,
            Some("failed") => self.failures.push(words.collect::<Vec<_>>().join(" ")),
            Some("done") => {
                let id = words.next().and_then(|word| word.parse().ok());
                let status = words.next().and_then(|word| word.parse().ok());
                if let (Some(id), Some(status)) = (id, status) {
                    // The first status counts: a killed command may be reported twice.
                    self.done.entry(id).or_insert(status);
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after each line, even after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection to the agent.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Mutex<UnixStream>,
    shared: Arc<Shared>,
}

impl Channel {
    /// Waits for QEMU to connect. `alive` is polled: whether QEMU still runs.
    pub(super) fn accept(
        listener: &UnixListener,
        deadline: Instant,
        mut alive: impl FnMut() -> bool,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !alive() || Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        let shared = Arc::new(Shared::default());
        let reader = BufReader::new(stream.try_clone()?);
        let listen = Arc::clone(&shared);
        // Ends by itself when QEMU ends.
        thread::Builder::new().name("lab-channel".into()).spawn(move || listen_to(reader, &listen))?;
        Ok(Self { stream: Mutex::new(stream), shared })
    }

    /// Sends one request.
    pub(super) fn send(&self, line: &str) -> io::Result<()> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(format!("{line}\n").as_bytes())
    }

    /// Waits until `answer` returns something; `None` at the deadline. `answer` must check `closed` itself.
    pub(super) fn wait<T>(&self, deadline: Instant, mut answer: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.shared.state();
        loop {
            if let Some(found) = answer(&mut state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn listen_to(mut reader: BufReader<UnixStream>, shared: &Shared) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let more = matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0);
        let mut state = shared.state();
        if more {
            state.take(&String::from_utf8_lossy(&line));
        } else {
            state.closed = true;
        }
        drop(state);
        shared.changed.notify_all();
        if !more {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let mut state = State::default();
        for line in ["failed modprobe x\n", "ready", "done 3 1", "done 3 137", "done x", "?"] {
            state.take(line);
        }
        assert!(state.ready);
        assert_eq!(state.failures, ["modprobe x"]);
        assert_eq!(state.done, HashMap::from([(3, 1)]));
    }
}
