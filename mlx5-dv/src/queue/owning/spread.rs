//! Frames spread over several queues.

use std::sync::Arc;

use super::ethernet::EthernetQueue;
use super::listening::{Class, Listening, addresses};
use crate::error::{Error, Invalid};
use crate::net::Mac;
use crate::objects::{
    FlowMatch, HashFunction, LroOptions, Rq, Rqt, RssOptions, TOEPLITZ_KEY, Tir, Traffic, TransportDomain,
};

/// How frames are spread.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SpreadOptions {
    /// Entries of the indirection table: a power of two, at least the number of queues. Default: 128.
    pub entries: usize,
    /// The hash function. Default: Toeplitz with [`TOEPLITZ_KEY`].
    pub function: HashFunction,
    /// Whether both directions of a flow go to the same queue. Default: no.
    pub symmetric: bool,
}

impl Default for SpreadOptions {
    fn default() -> Self {
        SpreadOptions { entries: 128, function: HashFunction::Toeplitz(TOEPLITZ_KEY), symmetric: false }
    }
}

/// Spreads the frames that a function receives over several [`EthernetQueue`]s, each of which may be polled by a thread
/// of its own: receive side scaling (RSS) by addresses, and ports of TCP and UDP. A flow stays on one queue. Frames
/// that are not IP go to the first queue. TCP is joined as the first queue's options say
/// ([`EthernetOptions::lro`](super::ethernet::EthernetOptions::lro)).
///
/// It lasts until it is dropped. The queues stay alive as long.
///
/// ```no_run
/// # use mlx5_dv::objects::Pd;
/// # use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, Spread, SpreadOptions};
/// # fn f(pd: &std::sync::Arc<Pd>) -> Result<(), mlx5_dv::Error> {
/// let queues = EthernetQueue::several(pd, 4, &EthernetOptions::default())?;
/// let spread = Spread::listen(&queues, &[], SpreadOptions::default())?;
/// // Half of the flows to the last queue from now on.
/// spread.set(&[0, 3, 1, 3, 2, 3, 0, 3])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Spread {
    // First field: rules are dropped before what they name.
    _listening: Listening,
    rqt: Arc<Rqt>,
    rqs: Vec<Arc<Rq>>,
}

impl Spread {
    /// Starts to receive frames to the function's own address, to broadcast, and to `groups`, on `queues`. As for
    /// [`EthernetQueue::listen`], which is for one queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no queues, queues of several transport domains (make them by
    /// [`EthernetQueue::several`]), a table with fewer entries than queues or that the card has no room for;
    /// otherwise as for [`EthernetQueue::listen`].
    pub fn listen<'a>(
        queues: impl IntoIterator<Item = &'a EthernetQueue>,
        groups: &[Mac],
        options: SpreadOptions,
    ) -> Result<Self, Error> {
        let queues: Vec<&EthernetQueue> = queues.into_iter().collect();
        let Some(first) = queues.first() else {
            return Err(Invalid::Empty { what: "a spread of frames", lacks: "queues" }.into());
        };
        let domain = first.tir().transport_domain();
        if !queues.iter().all(|queue| Arc::ptr_eq(queue.tir().transport_domain(), domain)) {
            let requires = "queues of one transport domain: make them by EthernetQueue::several";
            return Err(Invalid::Requires { what: "a spread of frames".into(), requires }.into());
        }
        let rqs: Vec<_> = queues.iter().map(|queue| Arc::clone(queue.rq())).collect();
        if options.entries < rqs.len() {
            let (given, limit) = (options.entries as u64, rqs.len() as u64..=u64::MAX);
            return Err(Invalid::out_of_range("entries", given, limit, "a spread over so many queues").into());
        }
        let entries: Vec<_> = rqs.iter().cloned().cycle().take(options.entries).collect();
        let rqt = Rqt::create(&entries)?;
        let addresses = addresses(first.device(), groups)?;
        let mut classes = Vec::new();
        for order in [true, false] {
            let hashed = Traffic::ALL.into_iter().filter(|traffic| traffic.ip_protocol().is_some() == order);
            classes.push(hashed_class(domain, &rqt, (&options, first.tir().lro()), &addresses, hashed)?);
        }
        classes.push(Class::by_address(&addresses, first.tir()));
        let listening = Listening::start(first.device(), &addresses, &classes)?;
        Ok(Spread { _listening: listening, rqt, rqs })
    }

    /// Changes the indirection table while frames arrive: each entry is the index of a queue. The number of entries is
    /// a power of two, and at most that of [`SpreadOptions::entries`].
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Command`]; the table is as it was.
    pub fn set(&self, entries: &[usize]) -> Result<(), Error> {
        let last = self.rqs.len() as u64 - 1;
        let rq = |&index: &usize| {
            let unknown = || Invalid::out_of_range("index of a queue", index as u64, 0..=last, "this spread");
            self.rqs.get(index).cloned().ok_or_else(unknown)
        };
        self.rqt.set(&entries.iter().map(rq).collect::<Result<Vec<_>, _>>()?)
    }

    /// The indirection table.
    pub fn rqt(&self) -> &Arc<Rqt> {
        &self.rqt
    }
}

/// Rules for frames to `addresses` of each kind of `traffic`, which are spread.
fn hashed_class(
    domain: &Arc<TransportDomain>,
    rqt: &Arc<Rqt>,
    (options, lro): (&SpreadOptions, Option<LroOptions>),
    addresses: &[Mac],
    traffic: impl Iterator<Item = Traffic>,
) -> Result<Class, Error> {
    let mut class = Class { rules: Vec::new() };
    for traffic in traffic {
        let rss = RssOptions::new(traffic).function(options.function).symmetric(options.symmetric);
        let joined = traffic.is_tcp().then_some(lro).flatten();
        let tir = Tir::create_rss(domain, rqt, joined.map_or(rss, |lro| rss.lro(lro)))?;
        for &mac in addresses {
            let frames = FlowMatch::new().destination_mac(mac);
            let packets = if traffic.is_ipv6() { frames.ipv6() } else { frames.ipv4() };
            let matched = match traffic.ip_protocol() {
                Some(protocol) => packets.protocol(protocol),
                None => packets,
            };
            class.rules.push((matched, Arc::clone(&tir)));
        }
    }
    Ok(class)
}
