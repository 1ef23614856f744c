//! The network of an owned function.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use smoltcp::wire::{IpCidr, Ipv4Cidr, Ipv6Cidr};

/// The IP address of a function, with the prefix of its network, and the router to all others, if there is one. As text
/// `10.0.0.4/24` or `2001:db8::4/64`, with a gateway `10.0.0.4/24,10.0.0.1` or `2001:db8::4/64,fe80::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    cidr: IpCidr,
    gateway: Option<IpAddr>,
}

impl Network {
    /// With all other addresses of the family behind `gateway`, a neighbour. Errors: what is wrong with it, for a
    /// command line.
    pub fn with_gateway(self, gateway: IpAddr) -> Result<Self, String> {
        if !self.is_neighbour(gateway) || gateway == self.address() {
            let cidr = self.cidr;
            return Err(format!("{gateway} is no gateway of {cidr}: give the address of a router in this network"));
        }
        Ok(Network { gateway: Some(gateway), ..self })
    }

    /// The function's address.
    pub fn address(&self) -> IpAddr {
        self.cidr.address().into()
    }

    /// The function's address, with the prefix of its network.
    pub fn cidr(&self) -> IpCidr {
        self.cidr
    }

    /// The router to other networks.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// Whether `address` is of the function's network, or link-local beside one of IPv6.
    fn is_neighbour(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        address.is_ipv6() == self.address().is_ipv6() && (is_link_local || self.cidr.contains_addr(&address.into()))
    }

    /// Whose MAC address packets to `address` carry: its own, or the gateway's. `None` if there is no way.
    pub(crate) fn next_hop(&self, address: IpAddr) -> Option<IpAddr> {
        if self.is_neighbour(address) {
            return Some(address);
        }
        self.gateway.filter(|gateway| gateway.is_ipv6() == address.is_ipv6())
    }
}

/// Without a gateway.
impl From<IpCidr> for Network {
    fn from(cidr: IpCidr) -> Self {
        Network { cidr, gateway: None }
    }
}

/// Without a gateway.
impl From<Ipv4Cidr> for Network {
    fn from(cidr: Ipv4Cidr) -> Self {
        IpCidr::from(cidr).into()
    }
}

/// Without a gateway.
impl From<Ipv6Cidr> for Network {
    fn from(cidr: Ipv6Cidr) -> Self {
        IpCidr::from(cidr).into()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cidr.fmt(f)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, ",{gateway}"))
    }
}

impl FromStr for Network {
    type Err = String;

    /// Errors: what was given, and the form, for a command line.
    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is not an address with a prefix, such as 10.0.0.4/24 or 2001:db8::4/64, or 10.0.0.4/24,10.0.0.1 with a gateway"
            )
        };
        let (cidr, gateway) = text.split_once(',').map_or((text, None), |(cidr, gateway)| (cidr, Some(gateway)));
        let network = Network::from(cidr.parse::<IpCidr>().map_err(|()| malformed())?);
        if !network.cidr.address().is_unicast() {
            return Err(format!("{} is no address of a host", network.address()));
        }
        if let IpAddr::V6(address) = network.address()
            && let Some(mapped) = address.to_ipv4_mapped()
        {
            return Err(format!("{address} stands for an IPv4 address: write that, as in {mapped}/24"));
        }
        match gateway {
            Some(gateway) => network.with_gateway(gateway.parse().map_err(|_| malformed())?),
            None => Ok(network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_to_other_networks_go_to_the_gateway() {
        for (text, near, far, gateway) in [
            ("10.0.0.4/24,10.0.0.1", "10.0.0.9", "10.0.1.9", "10.0.0.1"),
            ("2001:db8::4/64,2001:db8::1", "2001:db8::9", "2001:db8:0:1::9", "2001:db8::1"),
            // As routers advertise themselves.
            ("2001:db8::4/64,fe80::1", "fe80::9", "2001:db8:0:1::9", "fe80::1"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.next_hop(ip(near)), Some(ip(near)), "{text}");
            assert_eq!(network.next_hop(ip(far)), Some(ip(gateway)), "{text}");
            assert_eq!(network.to_string(), text);
            let alone = Network::from(network.cidr());
            assert_eq!((alone.next_hop(ip(near)), alone.next_hop(ip(far))), (Some(ip(near)), None), "{text}");
        }
    }

    #[test]
    fn a_network_has_no_way_to_the_other_family() {
        let network: Network = "10.0.0.4/24,10.0.0.1".parse().unwrap();
        assert_eq!((network.next_hop(ip("2001:db8::9")), network.next_hop(ip("fe80::9"))), (None, None));
        let network: Network = "2001:db8::4/64,fe80::1".parse().unwrap();
        assert_eq!(network.next_hop(ip("10.0.0.9")), None);
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_form() {
        for text in ["", "10.0.0.4", "10.0.0.4/33", "2001:db8::4/129", "10.0.0.4/24,", "10.0.0.4/24,one"] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")) && error.contains("10.0.0.4/24,10.0.0.1"), "{error}");
        }
        for text in ["0.0.0.0/0", "224.0.0.1/24", "255.255.255.255/32", "::/64", "ff02::1/64"] {
            assert!(text.parse::<Network>().unwrap_err().ends_with("is no address of a host"), "{text}");
        }
        let mapped = "::ffff:10.0.0.4/120".parse::<Network>().unwrap_err();
        assert!(mapped.contains("10.0.0.4/24"), "{mapped}");
        for (cidr, gateway) in [
            ("10.0.0.4/24", "10.0.1.1"),
            ("10.0.0.4/24", "10.0.0.4"),
            ("10.0.0.4/24", "fe80::1"),
            ("2001:db8::4/64", "10.0.0.1"),
            ("2001:db8::4/64", "2001:db8:0:1::1"),
        ] {
            let error = format!("{cidr},{gateway}").parse::<Network>().unwrap_err();
            assert!(error.starts_with(&format!("{gateway} is no gateway of {cidr}")), "{error}");
        }
    }
}
