//! Supported management registers, and components of firmware. PRM registers `MCAM`, `MCQS`, `MCQI`.

use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{
    McamAccessReg, McamEnhancedFeatures, McamReg, McamRegisters, McqiInfo, McqiReg, McqiVersion, McqsReg,
};

use super::syndromes::Syndrome;
use crate::function::{Function, real_time};

/// The only component: the firmware image.
const IMAGE: u16 = 0;
/// `identifier` of an image that the card boots.
const BOOT_IMAGE: u16 = 1;

/// The first group of features.
const FEATURES: u8 = 0;

/// Which registers from 0x9000 on exist, and what they can: `MPCNT` has all counters.
pub(super) fn mcam(f: &mut Function, given: &McamReg, write: bool) -> Result<McamReg, Syndrome> {
    if write {
        return Err(Syndrome::RegisterReadOnly);
    }
    let has_real_time = real_time::is_announced(&f.nic.profile);
    let mut register = McamReg::ZERO;
    register.w().feature_group(given.feature_group()).access_reg_group(given.access_reg_group());
    if u32::from(given.access_reg_group()) == McamRegisters::First128.number() {
        let mut registers = McamAccessReg::ZERO;
        registers.w().mcqs(true).mcqi(true).mtutc(has_real_time);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(registers.as_bytes());
        register.w().mng_access_reg_cap_mask(&bytes);
    }
    if given.feature_group() == FEATURES {
        let mut features = McamEnhancedFeatures::ZERO;
        features.w().pcie_performance_group(true).tx_overflow_buffer_pkt(true).pcie_outbound_stalled(true);
        features.w().ptpcyc2realtime_modify(has_real_time).mtutc_time_adjustment_extended_range(has_real_time);
        features.w().mtutc_freq_adj_units(has_real_time);
        register.w().mng_feature_cap_mask(&features);
    }
    Ok(register)
}

/// A component's status: the image is in use, no update is in progress or possible.
pub(super) fn mcqs(_: &mut Function, given: &McqsReg, write: bool) -> Result<McqsReg, Syndrome> {
    check(given.component_index(), write)?;
    let mut register = McqsReg::ZERO;
    register.w().last_index_flag(true).component_index(IMAGE).identifier(BOOT_IMAGE);
    Ok(register)
}

/// A component's properties: its version. The answer is the register, and the requested part of the data.
pub(super) fn mcqi(f: &Function, data: &[u8], write: bool) -> Result<Vec<u8>, Syndrome> {
    let given = McqiReg::read(data).ok_or(Syndrome::InputTooShort)?;
    check(given.component_index(), write)?;
    if u32::from(given.info_type()) != McqiInfo::Version.number() || given.read_pending_component() {
        return Err(Syndrome::ComponentInfo);
    }
    let (major, minor, subminor) = f.nic.profile.fw_rev;
    let mut version = McqiVersion::ZERO;
    version.w().version(u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(subminor));
    let known = version.as_bytes();
    let from = (given.offset() as usize).min(known.len());
    let facts = &known[from..known.len().min(from + usize::from(given.data_size()))];
    let mut register = given;
    register.w().info_size(known.len() as u32).data_size(facts.len() as u16);
    Ok([register.as_bytes(), facts].concat())
}

fn check(component: u16, write: bool) -> Result<(), Syndrome> {
    if write {
        return Err(Syndrome::RegisterReadOnly);
    }
    if component == IMAGE { Ok(()) } else { Err(Syndrome::NoSuchComponent) }
}
