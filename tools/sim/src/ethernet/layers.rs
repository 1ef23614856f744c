//! The headers that offloads of sends work on: those of a frame, and of what is in its tunnel.

use etherparse::ether_type::{IPV4, IPV6};

use super::{Headers, Ip, L4, Tunnel, VxlanPorts, checksum};

/// A network header, and the transport header behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    pub ip: Ip,
    pub l4: Option<L4>,
}

/// The headers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layers {
    pub outer: Layer,
    /// Of what is in the tunnel.
    pub inner: Option<Layer>,
}

impl Layer {
    fn of(headers: &Headers) -> Option<Layer> {
        Some(Layer { ip: headers.ip?, l4: headers.l4 })
    }

    /// Those that software found at these offsets; 0 for no transport header. `None` if they are not there.
    pub fn told(frame: &[u8], ip_at: usize, is_v4: bool, l4_at: usize, is_tcp: bool) -> Option<Layer> {
        let found = Headers::of_packet(frame.get(ip_at..)?, if is_v4 { IPV4.0 } else { IPV6.0 }).moved(ip_at);
        let l4 = found.l4.filter(|l4| (l4.at, l4.is_tcp) == (l4_at, is_tcp));
        (l4.is_some() || l4_at == 0).then_some(Layer { ip: found.ip?, l4 })
    }

    /// Computes the header's checksum, and that of TCP or UDP, as asked for.
    pub fn insert_checksums(&self, frame: &mut [u8], l3: bool, l4: bool) {
        if l3 {
            checksum::insert_l3(frame, &self.ip);
        }
        if let Some(header) = self.l4.filter(|_| l4) {
            checksum::insert_l4(frame, &self.ip, &header);
        }
    }
}

impl Layers {
    /// Those that the card finds, if there is a network header.
    pub fn of(frame: &[u8], ports: &VxlanPorts) -> Option<Layers> {
        let headers = Headers::of(frame);
        let outer = Layer::of(&headers)?;
        let inner = Tunnel::of(frame, &headers, ports).and_then(|tunnel| Layer::of(&tunnel.inner));
        Some(Layers { outer, inner })
    }

    /// The same without a tunnel.
    pub fn outer_of(frame: &[u8]) -> Option<Layers> {
        Some(Layers { outer: Layer::of(&Headers::of(frame))?, inner: None })
    }
}

/// Offsets of the outer network header of a frame in a tunnel, of the transport header behind it, of the inner network
/// header, and of the transport header behind that; 0 for one that is not there. `None` for a frame in no tunnel.
pub fn tunnel_offsets(frame: &[u8]) -> Option<[usize; 4]> {
    let Layers { outer, inner } = Layers::of(frame, &VxlanPorts::default())?;
    let inner = inner?;
    let l4 = |layer: &Layer| layer.l4.map_or(0, |l4| l4.at);
    Some([outer.ip.at, l4(&outer), inner.ip.at, l4(&inner)])
}
