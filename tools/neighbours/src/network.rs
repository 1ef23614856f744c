//! The network of an owned function.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use smoltcp::wire::Ipv4Cidr;

/// The IPv4 address of a function, with the prefix of its network, and the router to all others, if there is one. As
/// text `10.0.0.4/24`, with a gateway `10.0.0.4/24,10.0.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    cidr: Ipv4Cidr,
    gateway: Option<Ipv4Addr>,
}

impl Network {
    /// With all other addresses behind `gateway`, a neighbour. Errors: what is wrong with it, for a command line.
    pub fn with_gateway(self, gateway: Ipv4Addr) -> Result<Self, String> {
        let cidr = self.cidr;
        if !cidr.contains_addr(&gateway) || gateway == cidr.address() {
            return Err(format!("{gateway} is no gateway of {cidr}: give the address of a router in this network"));
        }
        Ok(Network { gateway: Some(gateway), ..self })
    }

    /// The function's address.
    pub fn address(&self) -> Ipv4Addr {
        self.cidr.address()
    }

    /// The function's address, with the prefix of its network.
    pub fn cidr(&self) -> Ipv4Cidr {
        self.cidr
    }

    /// The router to other networks.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.gateway
    }

    /// Whose MAC address packets to `address` carry: its own, or the gateway's. `None` if there is no way.
    pub(crate) fn next_hop(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.cidr.contains_addr(&address) { Some(address) } else { self.gateway }
    }
}

/// Without a gateway.
impl From<Ipv4Cidr> for Network {
    fn from(cidr: Ipv4Cidr) -> Self {
        Network { cidr, gateway: None }
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
                "{text:?} is not an address with a prefix, such as 10.0.0.4/24, or 10.0.0.4/24,10.0.0.1 with a gateway"
            )
        };
        let (cidr, gateway) = text.split_once(',').map_or((text, None), |(cidr, gateway)| (cidr, Some(gateway)));
        let network = Network::from(cidr.parse::<Ipv4Cidr>().map_err(|()| malformed())?);
        match gateway {
            Some(gateway) => network.with_gateway(gateway.parse().map_err(|_| malformed())?),
            None => Ok(network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_other_networks_go_to_the_gateway() {
        let network: Network = "10.0.0.4/24,10.0.0.1".parse().unwrap();
        assert_eq!(network.next_hop(Ipv4Addr::new(10, 0, 0, 9)), Some(Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!(network.next_hop(Ipv4Addr::new(10, 0, 1, 9)), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(network.to_string(), "10.0.0.4/24,10.0.0.1");
        let alone: Network = "10.0.0.4/24".parse().unwrap();
        assert_eq!((alone.next_hop(Ipv4Addr::new(10, 0, 1, 9)), alone.to_string()), (None, "10.0.0.4/24".into()));
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_form() {
        for text in ["", "10.0.0.4", "10.0.0.4/33", "10.0.0.4/24,", "10.0.0.4/24,one"] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")) && error.contains("10.0.0.4/24,10.0.0.1"), "{error}");
        }
        for gateway in ["10.0.1.1", "10.0.0.4"] {
            let error = format!("10.0.0.4/24,{gateway}").parse::<Network>().unwrap_err();
            assert!(error.starts_with(&format!("{gateway} is no gateway of 10.0.0.4/24")), "{error}");
        }
    }
}
