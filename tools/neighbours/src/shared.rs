//! What the thread of the stack and the callers share.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx5_dv::Mac;

use super::error::Error;
use super::groups::Query;

/// Shared between the thread of the stack and the callers.
#[derive(Debug, Default)]
pub struct Shared {
    state: Mutex<State>,
    /// Signaled when an address was learned, and when the thread has ended.
    pub changed: Condvar,
}

/// What is known and wanted.
#[derive(Debug, Default)]
pub struct State {
    /// MAC addresses by IP address, as last heard.
    pub known: HashMap<IpAddr, Mac>,
    /// Addresses being resolved, in the order of their requests, and the number of requests sent for each.
    pub wanted: BTreeMap<IpAddr, u32>,
    /// Multicast groups that the function is in.
    pub groups: BTreeMap<IpAddr, Member>,
    /// Groups that it has left, of which the network is not told yet.
    pub left: Vec<IpAddr>,
    /// Whether groups were joined or left since the thread has last looked.
    pub groups_changed: bool,
    /// Why the thread has ended.
    pub ended: Option<String>,
    /// Tells the thread to end.
    pub stop: bool,
}

impl Shared {
    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group that the function is in.
#[derive(Debug)]
pub struct Member {
    /// How many of this process want it.
    holders: usize,
    /// When to report it next.
    due: Option<Instant>,
    /// How many more times to report it unasked.
    unasked: u32,
}

/// How often a new member reports itself unasked, as a report may be lost: the robustness of RFC 2236 and RFC 2710.
const REPORTS: u32 = 2;
/// Time between those.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Size of the cache. When it is full, all of it is dropped.
const REMEMBERED: usize = 1024;

impl State {
    /// An error if the thread has ended.
    pub fn check(&self) -> Result<(), Error> {
        self.ended.as_ref().map_or(Ok(()), |ended| Err(Error::Queue(ended.clone())))
    }

    /// Records that `mac` has `address`.
    pub fn learn(&mut self, address: IpAddr, mac: Mac) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&address) {
            self.known.clear();
        }
        self.known.insert(address, mac);
    }

    /// Adds a holder of `group`.
    pub fn join(&mut self, group: IpAddr) {
        let new = || Member { holders: 0, due: Some(Instant::now()), unasked: REPORTS };
        let member = self.groups.entry(group).or_insert_with(new);
        member.holders += 1;
        self.groups_changed |= member.holders == 1;
    }

    /// Takes a holder of `group` away; with the last one the function leaves it.
    pub fn leave(&mut self, group: IpAddr) {
        let Some(member) = self.groups.get_mut(&group) else { return };
        member.holders -= 1;
        if member.holders == 0 {
            self.groups.remove(&group);
            self.left.push(group);
            self.groups_changed = true;
        }
    }

    /// Lets the members that `query` is about report by its end. `place` of 256 is this host's turn.
    pub fn asked(&mut self, query: &Query, place: u8) {
        let turn = Instant::now() + query.within * u32::from(place) / 256;
        let is_meant = |group: &IpAddr| group.is_ipv4() == query.of_ipv4 && query.group.is_none_or(|one| one == *group);
        for (_, member) in self.groups.iter_mut().filter(|(group, _)| is_meant(group)) {
            member.due = Some(member.due.map_or(turn, |due| due.min(turn)));
        }
    }

    /// The groups that are to be reported now.
    pub fn due(&self) -> Vec<IpAddr> {
        let now = Instant::now();
        let is_due = |member: &Member| member.due.is_some_and(|due| due <= now);
        self.groups.iter().filter(|(_, member)| is_due(member)).map(|(group, _)| *group).collect()
    }

    /// `group` was reported.
    pub fn reported(&mut self, group: IpAddr) {
        let Some(member) = self.groups.get_mut(&group) else { return };
        member.unasked = member.unasked.saturating_sub(1);
        member.due = (member.unasked > 0).then(|| Instant::now() + REPORT_INTERVAL);
    }
}
