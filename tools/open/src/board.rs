//! Which board a device is, and whether it is the software card.

use mlx5_dv::Device;
use mlx5_prm::cmd::QueryAdapterIn;
use mlx5_sim::profile::Profile;

/// The board's PSID; `None` if the card does not report one.
pub fn id(device: &Device) -> Option<String> {
    let adapter = device.execute(&QueryAdapterIn::default(), "board").ok()?;
    let psid = adapter.query_adapter_struct().vsd_contd_psid().to_vec();
    Some(String::from_utf8_lossy(&psid).trim_end_matches('\0').to_owned()).filter(|id| !id.is_empty())
}

/// Whether a PSID is the software card's, which marks it however it is reached.
pub fn is_software(board_id: &str) -> bool {
    Profile::NAMES.iter().filter_map(|name| Profile::by_name(name)).any(|profile| profile.psid == board_id)
}
