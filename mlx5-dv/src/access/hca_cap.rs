//! Reading a card's capability pages. PRM "QUERY_HCA_CAP".

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::QueryHcaCapIn;
use mlx5_prm::layout::Layout;

use super::Access;
use crate::caps::{CapPage, Caps, RawPage};
use crate::error::Error;

/// Queries one capability page: current and maximum values.
pub(crate) fn query_page(access: &dyn Access, page: CapPage) -> Result<RawPage, Error> {
    let query = |current: bool| -> Result<Vec<u8>, Error> {
        let mut query = QueryHcaCapIn::default();
        query.w().op_mod(page.op_mod(current));
        let about = format!("{page} page, {}", if current { "current" } else { "max" });
        Ok(access.run(&query, &about)?.capability().to_vec())
    };
    Ok(RawPage { page, max: query(false)?, current: query(true)? })
}

/// Reads every capability page that firmware reports as present.
pub(crate) fn query_all(access: &dyn Access, fw_version: (u16, u16, u16)) -> Result<Caps, Error> {
    let general = query_page(access, CapPage::General)?;
    let has = CmdHcaCap::read(&general.current).unwrap_or(CmdHcaCap::ZERO);
    let more = [
        (has.eth_net_offloads(), CapPage::Ethernet),
        (has.pg(), CapPage::Odp),
        (has.atomic(), CapPage::Atomic),
        (has.roce(), CapPage::Roce),
        (has.nic_flow_table(), CapPage::FlowTable),
        (has.eswitch_manager(), CapPage::EswitchFlowTable),
        (has.eswitch_manager(), CapPage::Eswitch),
        (has.qos(), CapPage::Qos),
        (has.debug(), CapPage::Debug),
        (has.device_memory(), CapPage::DeviceMemory),
        (has.hca_cap_2(), CapPage::General2),
    ];
    let mut pages = vec![general];
    for (_, page) in more.into_iter().filter(|(present, _)| *present) {
        pages.push(query_page(access, page)?);
    }
    Caps::from_pages(pages, fw_version)
}
