//! TCP connection between the two ends, for exchanging addresses. Every wait has a deadline.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

/// Timeout of one read or write.
const MESSAGE: Duration = Duration::from_secs(30);

/// Listens on TCP `port`: from now on clients can connect.
///
/// # Errors
/// The port is in use, or this user may not have it; the error names it.
pub fn listen(port: u16) -> io::Result<Listener> {
    let bound = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on TCP port {port}: {error}"));
    let listener = bound.map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(Listener { port: listener.local_addr()?.port(), listener })
}

/// Waits up to `patience` for one client on TCP `port`.
///
/// # Errors
/// As [`listen`] and [`Listener::accept`].
pub fn accept(port: u16, patience: Duration) -> io::Result<TcpStream> {
    listen(port)?.accept(patience)
}

/// A port that clients can connect to.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    port: u16,
}

impl Listener {
    /// The port; of port 0 the one that the system chose.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits up to `patience` for one client.
    ///
    /// # Errors
    /// No client connected in time.
    pub fn accept(&self, patience: Duration) -> io::Result<TcpStream> {
        let deadline = Instant::now() + patience;
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let silent = format!("no client on TCP port {} within {} s", self.port, patience.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, silent));
                }
                Err(error) => return Err(error),
            }
        };
        stream.set_nonblocking(false)?;
        limit(&stream)?;
        Ok(stream)
    }
}

/// Connects to the server at `host`. Retries for up to `patience` while the server does not listen yet.
///
/// # Errors
/// No server listens there, or the host has no address.
pub fn connect(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let stream = loop {
        match connect_once(host, port) {
            Ok(stream) => break stream,
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused || Instant::now() >= deadline => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    limit(&stream)?;
    Ok(stream)
}

fn connect_once(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sets timeouts, and keepalive probes that detect a vanished host.
fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(MESSAGE))?;
    stream.set_write_timeout(Some(MESSAGE))?;
    let probe = Duration::from_secs(3);
    let alive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&alive)
}

/// Whether a stream has data to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// Nothing yet.
    Nothing,
    /// Data.
    Bytes,
    /// End of stream: the other program closed the connection, or its host is gone.
    Closed,
}

/// Whether `stream` has data to read, without blocking. No other thread may use the stream meanwhile.
pub fn pending(stream: &TcpStream) -> Pending {
    // O_NONBLOCK belongs to the open file description: all copies of the descriptor share it.
    if stream.set_nonblocking(true).is_err() {
        return Pending::Closed;
    }
    let peeked = stream.peek(&mut [0]);
    let back = stream.set_nonblocking(false);
    match peeked {
        _ if back.is_err() => Pending::Closed,
        Ok(0) => Pending::Closed,
        Ok(_) => Pending::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Pending::Nothing,
        Err(_) => Pending::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn free_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("its address").port()
    }

    #[test]
    fn a_server_without_clients_gives_up() {
        let error = accept(free_port(), Duration::from_millis(20)).expect_err("nobody comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = listen(0).expect("a free port");
        let error = listen(taken.port()).expect_err("it is taken");
        assert!(error.to_string().contains(&format!("TCP port {}", taken.port())), "{error}");
    }

    #[test]
    fn what_is_pending_is_told_apart_and_stays() {
        let port = free_port();
        let client = std::thread::spawn(move || connect("127.0.0.1", port, Duration::from_secs(10)));
        let mut server = accept(port, Duration::from_secs(10)).expect("a client");
        let mut client = client.join().expect("no panic").expect("a server");
        assert_eq!(pending(&server), Pending::Nothing);
        client.write_all(b"x").expect("written");
        let deadline = Instant::now() + Duration::from_secs(10);
        while pending(&server) == Pending::Nothing && Instant::now() < deadline {}
        assert_eq!(pending(&server), Pending::Bytes);
        drop(client);
        let mut text = String::new();
        server.read_to_string(&mut text).expect("still blocking");
        assert_eq!((text.as_str(), pending(&server)), ("x", Pending::Closed));
    }

    #[test]
    fn a_client_waits_for_its_server_and_not_for_ever() {
        let port = free_port();
        let error = connect("127.0.0.1", port, Duration::from_millis(30)).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let client = std::thread::spawn(move || connect("127.0.0.1", port, Duration::from_secs(10)));
        std::thread::sleep(Duration::from_millis(30));
        accept(port, Duration::from_secs(10)).expect("a client");
        client.join().expect("no panic").expect("a server");
    }
}
