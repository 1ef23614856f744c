//! What a port's link runs as: the bits of `PTYS`.

use super::PtysReg;

values! {
    /// Bits of `ptys_reg.eth_proto_*`: modes up to 100 Gb/s.
    pub enum EthLinkMode: 5 {
        /// 1 Gb/s on copper, SGMII.
        Cx1g = 0 "1000BASE_CX_SGMII",
        /// 1 Gb/s on a backplane.
        Kx1g = 1 "1000BASE_KX",
        /// 10 Gb/s, four lanes of copper.
        Cx4x10g = 2 "10GBASE_CX4",
        /// 10 Gb/s, four lanes of a backplane.
        Kx4x10g = 3 "10GBASE_KX4",
        /// 10 Gb/s on a backplane.
        Kr10g = 4 "10GBASE_KR",
        /// 20 Gb/s, two lanes of a backplane.
        Kr2x20g = 5 "20GBASE_KR2",
        /// 40 Gb/s, four lanes of copper.
        Cr4x40g = 6 "40GBASE_CR4",
        /// 40 Gb/s, four lanes of a backplane.
        Kr4x40g = 7 "40GBASE_KR4",
        /// 56 Gb/s, four lanes.
        R4x56g = 8 "56GBASE_R4",
        /// 10 Gb/s on copper.
        Cr10g = 12 "10GBASE_CR",
        /// 10 Gb/s, short fibre.
        Sr10g = 13 "10GBASE_SR",
        /// 10 Gb/s, long fibre.
        Er10g = 14 "10GBASE_ER",
        /// 40 Gb/s, four lanes of short fibre.
        Sr4x40g = 15 "40GBASE_SR4",
        /// 40 Gb/s, four lanes of long fibre.
        Lr4x40g = 16 "40GBASE_LR4",
        /// 50 Gb/s, two lanes of short fibre.
        Sr2x50g = 18 "50GBASE_SR2",
        /// 100 Gb/s, four lanes of copper.
        Cr4x100g = 20 "100GBASE_CR4",
        /// 100 Gb/s, four lanes of short fibre.
        Sr4x100g = 21 "100GBASE_SR4",
        /// 100 Gb/s, four lanes of a backplane.
        Kr4x100g = 22 "100GBASE_KR4",
        /// 100 Gb/s, four lanes of long fibre.
        Lr4x100g = 23 "100GBASE_LR4",
        /// 100 Mb/s, twisted pair.
        Tx100m = 24 "100BASE_TX",
        /// 1 Gb/s, twisted pair.
        T1g = 25 "1000BASE_T",
        /// 10 Gb/s, twisted pair.
        T10g = 26 "10GBASE_T",
        /// 25 Gb/s on copper.
        Cr25g = 27 "25GBASE_CR",
        /// 25 Gb/s on a backplane.
        Kr25g = 28 "25GBASE_KR",
        /// 25 Gb/s, short fibre.
        Sr25g = 29 "25GBASE_SR",
        /// 50 Gb/s, two lanes of copper.
        Cr2x50g = 30 "50GBASE_CR2",
        /// 50 Gb/s, two lanes of a backplane.
        Kr2x50g = 31 "50GBASE_KR2",
    }

    /// Bits of `ptys_reg.ext_eth_proto_*`: modes by speed and lanes.
    pub enum ExtEthLinkMode: 5 {
        /// 100 Mb/s.
        Sgmii100m = 0 "SGMII_100M",
        /// 1 Gb/s.
        X1g = 1 "1000BASE_X_SGMII",
        /// 5 Gb/s.
        R5g = 3 "5GBASE_R",
        /// 10 Gb/s.
        X10g = 4 "10GBASE_XFI_XAUI_1",
        /// 40 Gb/s on four lanes.
        X4x40g = 5 "40GBASE_XLAUI_4_XLPPI_4",
        /// 25 Gb/s.
        X25g = 6 "25GAUI_1_25GBASE_CR_KR",
        /// 50 Gb/s on two lanes.
        X2x50g = 7 "50GAUI_2_LAUI_2_50GBASE_CR2_KR2",
        /// 50 Gb/s on one lane.
        X50g = 8 "50GAUI_1_LAUI_1_50GBASE_CR_KR",
        /// 100 Gb/s on four lanes.
        X4x100g = 9 "CAUI_4_100GBASE_CR4_KR4",
        /// 100 Gb/s on two lanes.
        X2x100g = 10 "100GAUI_2_100GBASE_CR2_KR2",
        /// 100 Gb/s on one lane.
        X100g = 11 "100GAUI_1_100GBASE_CR_KR",
        /// 200 Gb/s on four lanes.
        X4x200g = 12 "200GAUI_4_200GBASE_CR4_KR4",
        /// 200 Gb/s on two lanes.
        X2x200g = 13 "200GAUI_2_200GBASE_CR2_KR2",
        /// 400 Gb/s on eight lanes.
        X8x400g = 15 "400GAUI_8_400GBASE_CR8",
        /// 400 Gb/s on four lanes.
        X4x400g = 16 "400GAUI_4_400GBASE_CR4_KR4",
        /// 800 Gb/s on eight lanes.
        X8x800g = 19 "800GAUI_8_800GBASE_CR8_KR8",
    }
}

/// A mode that a link runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkMode {
    /// PRM name, such as `100GBASE_CR4`.
    pub name: &'static str,
    /// Megabits per second.
    pub speed_mbps: u32,
    /// Lanes.
    pub lanes: u8,
}

impl EthLinkMode {
    /// What the mode is; `None` for a bit without a name here.
    pub const fn mode(self) -> Option<LinkMode> {
        use EthLinkMode::*;
        let (speed_mbps, lanes) = match self {
            Tx100m => (100, 1),
            Cx1g | Kx1g | T1g => (1_000, 1),
            Kr10g | Cr10g | Sr10g | Er10g | T10g => (10_000, 1),
            Cx4x10g | Kx4x10g => (10_000, 4),
            Kr2x20g => (20_000, 2),
            Cr25g | Kr25g | Sr25g => (25_000, 1),
            Cr4x40g | Kr4x40g | Sr4x40g | Lr4x40g => (40_000, 4),
            Sr2x50g | Cr2x50g | Kr2x50g => (50_000, 2),
            R4x56g => (56_000, 4),
            Cr4x100g | Sr4x100g | Kr4x100g | Lr4x100g => (100_000, 4),
            Unknown(_) => return None,
        };
        mode(self.prm_name(), speed_mbps, lanes)
    }
}

impl ExtEthLinkMode {
    /// What the mode is; `None` for a bit without a name here.
    pub const fn mode(self) -> Option<LinkMode> {
        use ExtEthLinkMode::*;
        let (speed_mbps, lanes) = match self {
            Sgmii100m => (100, 1),
            X1g => (1_000, 1),
            R5g => (5_000, 1),
            X10g => (10_000, 1),
            X25g => (25_000, 1),
            X4x40g => (40_000, 4),
            X2x50g => (50_000, 2),
            X50g => (50_000, 1),
            X4x100g => (100_000, 4),
            X2x100g => (100_000, 2),
            X100g => (100_000, 1),
            X4x200g => (200_000, 4),
            X2x200g => (200_000, 2),
            X8x400g => (400_000, 8),
            X4x400g => (400_000, 4),
            X8x800g => (800_000, 8),
            Unknown(_) => return None,
        };
        mode(self.prm_name(), speed_mbps, lanes)
    }
}

const fn mode(name: Option<&'static str>, speed_mbps: u32, lanes: u8) -> Option<LinkMode> {
    match name {
        Some(name) => Some(LinkMode { name, speed_mbps, lanes }),
        None => None,
    }
}

impl PtysReg {
    /// The Ethernet mode that the link runs in; `None` without link, or in a mode without a name here. Where a card
    /// names it in both fields, the older one is more exact.
    pub fn oper_mode(&self) -> Option<LinkMode> {
        let first = |bits: u32| (bits != 0).then(|| bits.trailing_zeros());
        let old = || EthLinkMode::from_number(first(self.eth_proto_oper())?).mode();
        let new = || ExtEthLinkMode::from_number(first(self.ext_eth_proto_oper())?).mode();
        old().or_else(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Speed and lanes, as the names say them: `200GAUI_4_200GBASE_CR4_KR4`, `1000BASE_KX`.
    fn named(name: &str) -> (Option<u32>, u8) {
        let name = name.trim_start_matches("CAUI_4_");
        let (number, rest) = name.split_at(name.find(|c: char| !c.is_ascii_digit()).unwrap_or(0));
        let unit = if rest.starts_with('G') { 1000 } else { 1 };
        let last = name.rsplit('_').next().unwrap_or_default().trim_start_matches(|c: char| !c.is_ascii_digit());
        (number.parse().ok().map(|number: u32| number * unit), last.parse().unwrap_or(1))
    }

    #[test]
    fn speeds_and_lanes_are_those_of_the_names() {
        let old = EthLinkMode::ALL.iter().filter_map(|mode| mode.mode());
        let new = ExtEthLinkMode::ALL.iter().filter_map(|mode| mode.mode());
        let mut seen = 0;
        for mode in old.chain(new).filter(|mode| !mode.name.starts_with("SGMII")) {
            let (speed, lanes) = named(mode.name);
            assert_eq!((Some(mode.speed_mbps), mode.lanes), (speed, lanes), "{}", mode.name);
            seen += 1;
        }
        assert_eq!(seen, EthLinkMode::ALL.len() + ExtEthLinkMode::ALL.len() - 1);
    }

    #[test]
    fn a_link_has_the_mode_of_its_bit_and_none_without_one() {
        let mut register = PtysReg::default();
        assert_eq!(register.oper_mode(), None);
        register.w().ext_eth_proto_oper(1 << 12);
        assert_eq!(register.oper_mode().map(|mode| mode.speed_mbps), Some(200_000));
        register.w().eth_proto_oper(1 << 20).ext_eth_proto_oper(1 << 9);
        assert_eq!(register.oper_mode().map(|mode| mode.name), Some("100GBASE_CR4"));
        register.w().eth_proto_oper(0).ext_eth_proto_oper(1 << 30);
        assert_eq!(register.oper_mode(), None);
    }
}
