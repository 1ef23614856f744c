//! Transport interface receives (TIRs).

use std::sync::Arc;

use mlx5_prm::cmd::{CreateTirIn, DestroyTirIn, QueryTirIn};
use mlx5_prm::ctx::{L3ProtType, L4ProtType, RxHashFieldSelect, RxHashFn, TirDispType, Tirc};
use mlx5_prm::layout::Be32;

use super::check::one_device;
use super::lro::LroOptions;
use super::object::{DestroyError, Object, destroy_sole};
use super::raw_queue::ethernet_caps;
use super::rq::Rq;
use super::rqt::Rqt;
use super::tis::TransportDomain;
use crate::access::ObjectHandle;
use crate::device::Device;
use crate::error::{Error, Invalid};

bitflags::bitflags! {
    /// What of a frame's headers is hashed. PRM `rx_hash_field_select.selected_fields`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HashFields: u32 {
        /// Source address of IP.
        const SOURCE_ADDRESS = 1 << 0;
        /// Destination address of IP.
        const DESTINATION_ADDRESS = 1 << 1;
        /// Source port of TCP or UDP.
        const SOURCE_PORT = 1 << 2;
        /// Destination port of TCP or UDP.
        const DESTINATION_PORT = 1 << 3;
    }
}

impl HashFields {
    /// Both addresses.
    pub const ADDRESSES: HashFields = HashFields::SOURCE_ADDRESS.union(HashFields::DESTINATION_ADDRESS);
    /// Both addresses and both ports.
    pub const FLOW: HashFields =
        HashFields::ADDRESSES.union(HashFields::SOURCE_PORT).union(HashFields::DESTINATION_PORT);
}

/// Which frames a TIR hashes. All others that it gets go to the first entry of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// IPv4, whatever it carries.
    Ipv4,
    /// IPv6, whatever it carries.
    Ipv6,
    /// TCP over IPv4.
    TcpIpv4,
    /// TCP over IPv6.
    TcpIpv6,
    /// UDP over IPv4.
    UdpIpv4,
    /// UDP over IPv6.
    UdpIpv6,
}

impl Traffic {
    /// All of them, those with ports first: rules of them go in this order.
    pub const ALL: [Traffic; 6] =
        [Traffic::TcpIpv4, Traffic::UdpIpv4, Traffic::TcpIpv6, Traffic::UdpIpv6, Traffic::Ipv4, Traffic::Ipv6];

    /// Whether it is IPv6.
    pub fn is_ipv6(self) -> bool {
        matches!(self, Traffic::Ipv6 | Traffic::TcpIpv6 | Traffic::UdpIpv6)
    }

    fn l4(self) -> Option<L4ProtType> {
        match self {
            Traffic::Ipv4 | Traffic::Ipv6 => None,
            Traffic::TcpIpv4 | Traffic::TcpIpv6 => Some(L4ProtType::Tcp),
            Traffic::UdpIpv4 | Traffic::UdpIpv6 => Some(L4ProtType::Udp),
        }
    }

    /// Whether it is TCP.
    pub(crate) fn is_tcp(self) -> bool {
        self.l4() == Some(L4ProtType::Tcp)
    }

    /// The protocol number in the IP header, of traffic with ports.
    pub fn ip_protocol(self) -> Option<u8> {
        self.l4().map(|l4| if l4 == L4ProtType::Tcp { 6 } else { 17 })
    }

    /// The fields that are hashed by default: all that it has.
    fn fields(self) -> HashFields {
        if self.l4().is_some() { HashFields::FLOW } else { HashFields::ADDRESSES }
    }
}

/// The hash function that chooses a table's entry. PRM `tirc.rx_hash_fn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashFunction {
    /// Toeplitz, with this key.
    Toeplitz([u8; 40]),
    /// The exclusive or of all bytes, inverted.
    Xor,
}

/// The key that most drivers start with: that of the examples in Microsoft's RSS specification.
pub const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// How a TIR hashes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RssOptions {
    /// The frames that are hashed.
    pub traffic: Traffic,
    /// The function. Default: Toeplitz with [`TOEPLITZ_KEY`].
    pub function: HashFunction,
    /// What is hashed. Default: addresses, and ports where the traffic has them.
    pub fields: HashFields,
    /// Whether both directions of a flow have the same hash: source and destination are exchanged freely. Default: no.
    pub symmetric: bool,
    /// Whether the headers inside of a tunnel (VXLAN, GRE, ...) are hashed, and checked. Then its rules must give it
    /// packets of tunnels that the card looks into, with inner headers of the traffic. PRM `tunneled_offload_en`.
    /// Default: no.
    pub inner: bool,
    /// Large receive offload, of traffic of TCP. Default: none.
    pub lro: Option<LroOptions>,
}

impl RssOptions {
    /// Of `traffic`; all else default.
    pub fn new(traffic: Traffic) -> Self {
        let function = HashFunction::Toeplitz(TOEPLITZ_KEY);
        RssOptions { traffic, function, fields: traffic.fields(), symmetric: false, inner: false, lro: None }
    }

    /// Sets [`function`](Self::function).
    pub fn function(mut self, function: HashFunction) -> Self {
        self.function = function;
        self
    }

    /// Sets [`fields`](Self::fields).
    pub fn fields(mut self, fields: HashFields) -> Self {
        self.fields = fields;
        self
    }

    /// Sets [`symmetric`](Self::symmetric).
    pub fn symmetric(mut self, symmetric: bool) -> Self {
        self.symmetric = symmetric;
        self
    }

    /// Sets [`inner`](Self::inner).
    pub fn inner(mut self, inner: bool) -> Self {
        self.inner = inner;
        self
    }

    /// Sets [`lro`](Self::lro).
    pub fn lro(mut self, lro: LroOptions) -> Self {
        self.lro = Some(lro);
        self
    }

    /// Error if the card looks into no tunnel.
    fn check_caps(&self, device: &Device) -> Result<(), Error> {
        let (_, has) = ethernet_caps(device.caps())?;
        let looks_inside = has.tunnel_stateless_vxlan()
            || has.tunnel_stateless_gre()
            || has.tunnel_stateless_vxlan_gpe()
            || has.tunnel_stateless_geneve_rx()
            || has.tunnel_stateless_ip_over_ip_rx();
        if self.inner && !looks_inside {
            let what = "hashing headers inside of tunnels".into();
            return Err(Error::Unsupported { what, capability: "tunnel_stateless_vxlan, tunnel_stateless_gre" });
        }
        Ok(())
    }

    /// Whether the fields are of the traffic, and complete where they must be.
    fn check(&self) -> Result<(), Invalid> {
        let not_of = self.fields.difference(self.traffic.fields());
        if !not_of.is_empty() || self.fields.is_empty() {
            let (what, given) = ("set of fields for this traffic", format!("{:?}", self.fields));
            return Err(Invalid::NotA { what, given, mend: Some("choose fields that its headers have, at least one") });
        }
        let pair = |source, destination| self.fields.contains(source) == self.fields.contains(destination);
        let paired = pair(HashFields::SOURCE_ADDRESS, HashFields::DESTINATION_ADDRESS)
            && pair(HashFields::SOURCE_PORT, HashFields::DESTINATION_PORT);
        if self.lro.is_some() && !self.traffic.is_tcp() {
            let what = "large receive offload".to_owned();
            return Err(Invalid::Requires { what, requires: "traffic of TCP" });
        }
        if self.symmetric && !paired {
            let what = "a symmetric hash".to_owned();
            return Err(Invalid::Requires { what, requires: "source and destination of each field" });
        }
        Ok(())
    }

    /// Puts it into the context of a TIR.
    fn write(&self, context: &mut Tirc) {
        let mut select = RxHashFieldSelect::default();
        let l3 = if self.traffic.is_ipv6() { L3ProtType::Ipv6 } else { L3ProtType::Ipv4 };
        select.w().l3_prot_type(l3).selected_fields(self.fields.bits());
        if let Some(l4) = self.traffic.l4() {
            select.w().l4_prot_type(l4);
        }
        match self.inner {
            true => context.w().rx_hash_field_selector_inner(&select).tunneled_offload_en(true),
            false => context.w().rx_hash_field_selector_outer(&select),
        };
        context.w().rx_hash_symmetric(self.symmetric);
        match self.function {
            HashFunction::Xor => _ = context.w().rx_hash_fn(RxHashFn::InvertedXor8),
            HashFunction::Toeplitz(key) => {
                let (words, _) = key.as_chunks::<4>();
                let words = std::array::from_fn(|index| Be32::new(u32::from_be_bytes(words[index])));
                context.w().rx_hash_fn(RxHashFn::Toeplitz).rx_hash_toeplitz_key(&words);
            }
        }
    }
}

/// Where a TIR sends frames.
#[derive(Debug)]
enum Destination {
    Queue(Arc<Rq>),
    Table(Arc<Rqt>),
}

/// Destination of [flow rules](super::FlowRule): forwards to a receive queue, or spreads over several by a hash. PRM
/// "Transport Interface Receive".
#[derive(Debug)]
pub struct Tir {
    tirn: u32,
    object: Object,
    destination: Destination,
    domain: Arc<TransportDomain>,
    lro: Option<LroOptions>,
}

impl Tir {
    /// Creates a TIR of `domain` for `rq`. It does not receive frames that send queues of `domain` sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the parents are of different cards, [`Error::Command`].
    pub fn create(domain: &Arc<TransportDomain>, rq: &Arc<Rq>) -> Result<Arc<Self>, Error> {
        Self::create_with(domain, rq, None)
    }

    /// As [`create`](Self::create), with large receive offload: TCP segments are joined.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`] on a card without it (`lro_cap`), [`Error::Invalid`] for a size or time that it
    /// has not.
    pub fn create_lro(domain: &Arc<TransportDomain>, rq: &Arc<Rq>, lro: LroOptions) -> Result<Arc<Self>, Error> {
        Self::create_with(domain, rq, Some(lro))
    }

    pub(crate) fn create_with(
        domain: &Arc<TransportDomain>,
        rq: &Arc<Rq>,
        lro: Option<LroOptions>,
    ) -> Result<Arc<Self>, Error> {
        one_device("a TIR's transport domain and RQ", domain.device(), [rq.device()])?;
        let mut context = Tirc::default();
        context.w().disp_type(TirDispType::Direct).inline_rqn(rq.rqn());
        Self::of(domain, context, Destination::Queue(Arc::clone(rq)), lro)
    }

    /// Creates a TIR of `domain` that spreads frames over the queues of `rqt`: receive side scaling (RSS). The hash is
    /// that of `options`; frames that it does not cover go to the table's first entry.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the parents are of different cards, or for fields that the traffic has not;
    /// [`Error::Unsupported`] for tunnels on a card that looks into none, or for large receive offload on one without;
    /// [`Error::Command`].
    pub fn create_rss(domain: &Arc<TransportDomain>, rqt: &Arc<Rqt>, options: RssOptions) -> Result<Arc<Self>, Error> {
        one_device("a TIR's transport domain and RQ table", domain.device(), [rqt.device()])?;
        options.check()?;
        options.check_caps(domain.device())?;
        let mut context = Tirc::default();
        context.w().disp_type(TirDispType::Indirect).indirect_table(rqt.rqtn());
        options.write(&mut context);
        Self::of(domain, context, Destination::Table(Arc::clone(rqt)), options.lro)
    }

    fn of(
        domain: &Arc<TransportDomain>,
        mut context: Tirc,
        destination: Destination,
        lro: Option<LroOptions>,
    ) -> Result<Arc<Self>, Error> {
        if let Some(lro) = &lro {
            lro.write(domain.device(), &mut context)?;
        }
        context.w().transport_domain(domain.number());
        let mut create = CreateTirIn::default();
        create.w().ctx(&context);
        let (object, out) = Object::create(domain.device(), &create, "a TIR", |out| {
            let mut end = DestroyTirIn::default();
            end.w().tirn(out.tirn());
            (end, format!("TIR {:#x}", out.tirn()))
        })?;
        Ok(Arc::new(Tir { tirn: out.tirn(), object, destination, domain: Arc::clone(domain), lro }))
    }

    /// `tirn`, 24 bits.
    pub fn tirn(&self) -> u32 {
        self.tirn
    }

    /// Asks the card for its context, under PRM names: where frames go, the hash, large receive offload. PRM
    /// "QUERY_TIR". Errors: [`Error::Command`].
    pub fn query(&self) -> Result<Tirc, Error> {
        let mut query = QueryTirIn::default();
        query.w().tirn(self.tirn);
        Ok(*self.object.query(&query)?.tir_context())
    }

    /// Its receive queue, where it has one.
    pub fn rq(&self) -> Option<&Arc<Rq>> {
        match &self.destination {
            Destination::Queue(rq) => Some(rq),
            Destination::Table(_) => None,
        }
    }

    /// Its table, where it spreads frames.
    pub fn rqt(&self) -> Option<&Arc<Rqt>> {
        match &self.destination {
            Destination::Table(rqt) => Some(rqt),
            Destination::Queue(_) => None,
        }
    }

    /// Its large receive offload.
    pub fn lro(&self) -> Option<LroOptions> {
        self.lro
    }

    /// Its transport domain.
    pub fn transport_domain(&self) -> &Arc<TransportDomain> {
        &self.domain
    }

    /// The access's handle.
    pub(super) fn handle(&self) -> ObjectHandle {
        self.object.handle()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Rules that forward to it must be deleted first. On an error the TIR stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |tir| tir.object.destroy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_traffic() {
        for traffic in Traffic::ALL {
            RssOptions::new(traffic).symmetric(true).check().unwrap();
        }
        let refused = |options: RssOptions| options.check().unwrap_err().to_string();
        let text = refused(RssOptions::new(Traffic::Ipv4).fields(HashFields::FLOW));
        assert!(text.contains("fields for this traffic"), "{text}");
        refused(RssOptions::new(Traffic::Ipv4).fields(HashFields::empty()));
        RssOptions::new(Traffic::TcpIpv6).lro(LroOptions::default()).check().unwrap();
        let text = refused(RssOptions::new(Traffic::UdpIpv4).lro(LroOptions::default()));
        assert!(text.contains("traffic of TCP"), "{text}");
        let one_way = RssOptions::new(Traffic::UdpIpv6).fields(HashFields::SOURCE_PORT);
        one_way.check().unwrap();
        let text = refused(one_way.symmetric(true));
        assert!(text.starts_with("a symmetric hash needs source and destination"), "{text}");
    }
}
