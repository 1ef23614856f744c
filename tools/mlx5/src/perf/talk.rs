//! What the ends say to each other when the other one is perftest's program: over TCP, or with `-R` on a queue pair of
//! its own. Whatever is said, the client says first, and the server answers with its own.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mlx5_open::watchdog::Lost;
use mlx5_prm::values::PathMtu;
use mlx5_tools::perftest::{self, Keys, Rates};

use super::arguments::Plan;
use super::control::Control;
use super::other_end::{OtherEnd, has_message};
use super::test_qp::Role;
use crate::output::Failure;

/// Largest page of a host: perftest's small messages wander over one.
const LARGEST_PAGE: u32 = 1 << 24;
/// Bytes of a cache line, for perftest's steps within a page.
const CACHE_LINE: u32 = 64;
/// Between two looks for what the other end says.
const GLANCE: Duration = Duration::from_millis(1);
const SAYS_NOTHING: &str = "perftest says nothing: is it the program of the same test, with the same flags?";

/// How the ends talk.
#[derive(Debug)]
pub enum Way {
    Tcp(TcpStream),
    /// With `-R`.
    Queue(Box<Control>),
}

/// The conversation.
#[derive(Debug)]
pub struct Talk {
    /// Over what.
    pub way: Way,
    /// Of this end.
    pub role: Role,
    /// The other end's version, once it is known.
    version: f64,
    /// Those of the first queue pair, once it is connected.
    pub first: Keys,
    /// How long the other end is waited for that may still measure; as long as for any message if `None`.
    pub patience: Option<Duration>,
}

impl OtherEnd for Talk {
    fn has_message(&mut self) -> Result<bool, Failure> {
        match &mut self.way {
            Way::Tcp(stream) => Ok(has_message(stream)?),
            Way::Queue(control) => control.has_message(),
        }
    }

    fn stream(&self) -> Option<&TcpStream> {
        match &self.way {
            Way::Tcp(stream) => Some(stream),
            Way::Queue(_) => None,
        }
    }
}

impl Talk {
    /// A conversation that nothing was said in yet.
    pub fn new(way: Way, role: Role) -> Self {
        let first = Keys { gid: Some([0; 16]), ..Keys::default() };
        Talk { way, role, version: perftest::VERSION, first, patience: None }
    }

    /// Waits for the other end, if it may still measure, until it says something.
    fn wait(&mut self) -> Result<(), Failure> {
        let Some(patience) = self.patience else { return Ok(()) };
        let begin = Instant::now();
        while !self.has_message()? {
            if begin.elapsed() > patience {
                return Err(SAYS_NOTHING.into());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        self.wait()?;
        match &mut self.way {
            Way::Tcp(stream) => {
                let mut bytes = [0; N];
                fill(stream, &mut bytes)?;
                Ok(bytes)
            }
            Way::Queue(control) => {
                let bytes = control.read()?;
                let wrong = || format!("perftest sent {} bytes instead of {N}: is it of the same test?", bytes.len());
                Ok(bytes.as_slice().try_into().map_err(|_| wrong())?)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.way {
            Way::Tcp(stream) => {
                stream.write_all(bytes).map_err(|error| format!("cannot write to the other end: {error}").into())
            }
            Way::Queue(control) => control.write(bytes),
        }
    }

    /// One word each way.
    fn exchange<const N: usize>(&mut self, ours: [u8; N]) -> Result<[u8; N], Failure> {
        if self.role == Role::Client {
            self.write(&ours)?;
            return self.read();
        }
        let theirs = self.read()?;
        self.write(&ours)?;
        Ok(theirs)
    }

    /// Exchanges versions.
    pub fn versions(&mut self) -> Result<(), Failure> {
        let theirs = perftest::parse_version(&self.exchange(perftest::version())?)?;
        if theirs < perftest::OLDEST {
            return Err(format!("perftest {theirs} is too old: {} is the oldest", perftest::OLDEST).into());
        }
        self.version = theirs;
        Ok(())
    }

    /// The plan with what both ends can: the larger page, the smaller path MTU.
    pub fn agree(&mut self, plan: &Plan) -> Result<Plan, Failure> {
        let page = u32::from_be_bytes(self.exchange(u32::try_from(plan.slot_unit)?.to_be_bytes())?);
        if !page.is_power_of_two() || page > LARGEST_PAGE {
            return Err(format!("the other end's pages have {page} bytes, which is no page's size").into());
        }
        self.exchange(CACHE_LINE.to_be_bytes())?;
        let ours = plan.path_mtu.number() as u8;
        let mtu = perftest::parse_mtu(self.exchange(perftest::mtu(ours))?)?.min(ours);
        let mut plan = plan.clone();
        plan.slot_unit = plan.slot_unit.max(page as usize);
        plan.path_mtu = PathMtu::from_number(mtu.into());
        plan.agreed.mtu = 128 << mtu;
        Ok(plan)
    }

    fn say(&mut self, keys: &Keys) -> Result<(), Failure> {
        let bytes = match self.way {
            Way::Tcp(_) => keys.to_bytes(),
            Way::Queue(_) => keys.to_structure(self.version),
        };
        self.write(&bytes)
    }

    fn hear(&mut self) -> Result<Keys, Failure> {
        self.wait()?;
        let stream = match &mut self.way {
            Way::Tcp(stream) => stream,
            Way::Queue(control) => return Ok(Keys::parse_structure(&control.read()?)?),
        };
        let mut first = [0; Keys::SHORT];
        fill(stream, &mut first)?;
        let mut whole = first.to_vec();
        whole.resize(Keys::length(&first), 0);
        fill(stream, &mut whole[Keys::SHORT..])?;
        Ok(Keys::parse(&whole)?)
    }

    fn keys(&mut self, ours: &Keys) -> Result<Keys, Failure> {
        if self.role == Role::Client {
            self.say(ours)?;
            return self.hear();
        }
        let theirs = self.hear()?;
        self.say(ours)?;
        Ok(theirs)
    }

    /// Those of each queue pair, of as many as both ends have.
    pub fn all_keys(&mut self, ours: &[Keys]) -> Result<Vec<Keys>, Failure> {
        ours.iter().map(|ours| self.keys(ours)).collect()
    }

    /// Waits until the other end is as far. perftest keeps what it is told of the first queue pair then.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let first = self.first;
        self.keys(&first).map(drop)
    }

    /// Exchanges results.
    pub fn rates(&mut self, ours: Rates) -> Result<Rates, Failure> {
        let mut theirs = [[0; 8]; 5];
        for (ours, theirs) in ours.to_words().into_iter().zip(&mut theirs) {
            *theirs = self.exchange(ours)?;
        }
        Ok(Rates::parse(theirs)?)
    }
}

fn fill(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Failure> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Lost::Gone.into(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => SAYS_NOTHING.into(),
        _ => format!("cannot read from the other end: {error}").into(),
    })
}
