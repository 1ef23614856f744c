//! Fields of `fte_match_param`, in criteria and value at once.

use mlx5_prm::flow::{
    FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc, FteMatchSetMisc2, FteMatchSetMisc3, FteMatchSetMisc5,
};
use mlx5_prm::layout::Layout;

/// Bytes of each part of `fte_match_param`.
pub(super) const PART: usize = FteMatchSetLyr24::SIZE;
/// EtherTypes.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// IP protocols.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// A header whose fields cards read as zero in frames that have it not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    Ip,
    VlanTag,
    /// That of ICMP, which cards do not look for in fragments.
    Icmp,
    /// An option of GENEVE, among which others may be.
    GeneveOption,
    /// That of a tunnel, of whichever protocol.
    Tunnel,
}

/// The bits of a field that are looked at, and what they must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits {
    pub(super) value: u32,
    pub(super) mask: u32,
}

impl Bits {
    /// Those of a field of `width` bits: what is above is cut off.
    pub(super) fn of(value: u32, mask: u32, width: u32) -> Self {
        let mask = mask & u32::MAX >> (u32::BITS - width);
        Bits { value: value & mask, mask }
    }

    /// What the criteria have, or the value.
    pub(super) fn part(self, is_mask: bool) -> u32 {
        if is_mask { self.mask } else { self.value }
    }
}

/// Which bits are looked at, and what they must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) criteria: FteMatchParam,
    pub(super) value: FteMatchParam,
    /// The header that they are of and do not imply by themselves.
    pub(super) of: Option<Header>,
}

impl Fields {
    pub(super) fn none() -> Self {
        Self::of(None)
    }

    /// None yet, of a header that they do not imply by themselves.
    pub(super) fn of(header: impl Into<Option<Header>>) -> Self {
        Fields { criteria: FteMatchParam::ZERO, value: FteMatchParam::ZERO, of: header.into() }
    }

    /// Sets fields of the outer headers; `fill` gets the set, and whether it is the criteria.
    pub(super) fn outer(mut self, fill: impl Fn(&mut FteMatchSetLyr24, bool)) -> Self {
        for (is_mask, all) in [(true, &mut self.criteria), (false, &mut self.value)] {
            let mut set = *all.outer_headers();
            fill(&mut set, is_mask);
            all.w().outer_headers(&set);
        }
        self
    }

    /// Sets fields of `misc_parameters`.
    pub(super) fn misc(mut self, fill: impl Fn(&mut FteMatchSetMisc, bool)) -> Self {
        for (is_mask, all) in [(true, &mut self.criteria), (false, &mut self.value)] {
            let mut set = *all.misc_parameters();
            fill(&mut set, is_mask);
            all.w().misc_parameters(&set);
        }
        self
    }

    /// Sets fields of `misc_parameters_2`.
    pub(super) fn misc2(mut self, fill: impl Fn(&mut FteMatchSetMisc2, bool)) -> Self {
        for (is_mask, all) in [(true, &mut self.criteria), (false, &mut self.value)] {
            let mut set = *all.misc_parameters_2();
            fill(&mut set, is_mask);
            all.w().misc_parameters_2(&set);
        }
        self
    }

    /// Sets fields of `misc_parameters_3`.
    pub(super) fn misc3(mut self, fill: impl Fn(&mut FteMatchSetMisc3, bool)) -> Self {
        for (is_mask, all) in [(true, &mut self.criteria), (false, &mut self.value)] {
            let mut set = *all.misc_parameters_3();
            fill(&mut set, is_mask);
            all.w().misc_parameters_3(&set);
        }
        self
    }

    /// Sets fields of `misc_parameters_5`.
    pub(super) fn misc5(mut self, fill: impl Fn(&mut FteMatchSetMisc5, bool)) -> Self {
        for (is_mask, all) in [(true, &mut self.criteria), (false, &mut self.value)] {
            let mut set = *all.misc_parameters_5();
            fill(&mut set, is_mask);
            all.w().misc_parameters_5(&set);
        }
        self
    }

    pub(super) fn ethertype(self, ethertype: u16) -> Self {
        self.outer(|set, mask| _ = set.w().ethertype(if mask { u16::MAX } else { ethertype }))
    }

    pub(super) fn protocol(self, protocol: u8) -> Self {
        self.outer(|set, mask| _ = set.w().ip_protocol(if mask { u8::MAX } else { protocol }))
    }

    /// Datagrams to this port.
    pub(super) fn datagram(self, port: u16) -> Self {
        self.protocol(UDP).outer(|set, mask| _ = set.w().udp_dport(if mask { u16::MAX } else { port }))
    }

    /// The same fields of the frame in a tunnel, whose headers are implied; `None` if cards have not all of them there.
    pub(super) fn moved_in(&self) -> Option<Fields> {
        Some(Fields { criteria: moved_in(&self.criteria)?, value: moved_in(&self.value)?, of: None })
    }
}

fn moved_in(outer: &FteMatchParam) -> Option<FteMatchParam> {
    let (misc, misc2, misc3) = (outer.misc_parameters(), outer.misc_parameters_2(), outer.misc_parameters_3());
    let (mut inner_misc, mut inner_misc2, mut inner_misc3) =
        (FteMatchSetMisc::ZERO, FteMatchSetMisc2::ZERO, FteMatchSetMisc3::ZERO);
    inner_misc
        .w()
        .inner_second_prio(misc.outer_second_prio())
        .inner_second_cfi(misc.outer_second_cfi())
        .inner_second_vid(misc.outer_second_vid())
        .inner_second_cvlan_tag(misc.outer_second_cvlan_tag())
        .inner_second_svlan_tag(misc.outer_second_svlan_tag())
        .inner_ipv6_flow_label(misc.outer_ipv6_flow_label())
        .inner_esp_spi(misc.outer_esp_spi());
    inner_misc2.w().inner_first_mpls(misc2.outer_first_mpls());
    inner_misc3.w().inner_tcp_seq_num(misc3.outer_tcp_seq_num()).inner_tcp_ack_num(misc3.outer_tcp_ack_num());
    let mut inner = FteMatchParam::ZERO;
    inner
        .w()
        .inner_headers(outer.outer_headers())
        .misc_parameters(&inner_misc)
        .misc_parameters_2(&inner_misc2)
        .misc_parameters_3(&inner_misc3);
    (set_bits(&inner) == set_bits(outer)).then_some(inner)
}

/// How many bits are set. A field has as many outside a tunnel as inside.
fn set_bits(all: &FteMatchParam) -> u32 {
    all.as_bytes().iter().map(|byte| byte.count_ones()).sum()
}

/// The bits of both.
pub(super) fn united(one: &FteMatchParam, other: &FteMatchParam) -> FteMatchParam {
    let mut bytes = [0; FteMatchParam::SIZE];
    for ((byte, one), other) in bytes.iter_mut().zip(one.as_bytes()).zip(other.as_bytes()) {
        *byte = one | other;
    }
    FteMatchParam::read(&bytes).unwrap_or_default()
}
