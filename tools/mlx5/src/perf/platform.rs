//! What a test ran on. A time measured on the software card says nothing about real hardware.

use std::fmt;

use mlx5_dv::Device;
use mlx5_open::board;

/// Stated wherever a figure of the software card is shown.
const NOT_A_CARD: &str = "software card: not a card's figure";

/// The card of one end.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Platform {
    /// The device string.
    pub device: String,
    /// The board's PSID; `None` if the card does not report one.
    pub board_id: Option<String>,
    /// Major, minor, subminor.
    pub firmware: String,
    /// Whether it is the software card; `None` if the card does not report a PSID.
    pub software_card: Option<bool>,
}

impl Platform {
    /// Identifies `device`. The PSID marks the software card, however it is reached.
    pub fn of(device: &Device) -> Self {
        let board_id = board::id(device);
        let (major, minor, subminor) = device.caps().fw_version;
        Platform {
            device: device.name().to_owned(),
            software_card: board_id.as_deref().map(board::is_software),
            board_id,
            firmware: format!("{major}.{minor}.{subminor:04}"),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = self.board_id.as_deref().unwrap_or("unknown");
        write!(f, "{}, board {board}, firmware {}", self.device, self.firmware)?;
        if self.software_card == Some(true) { write!(f, ", the software card") } else { Ok(()) }
    }
}

/// The note that figures measured on `platforms` must carry.
pub fn note(platforms: &[Platform]) -> Option<&'static str> {
    let software = |platform: &Platform| platform.software_card == Some(true);
    let unknown = |platform: &Platform| platform.software_card.is_none();
    match () {
        () if platforms.iter().any(software) => Some(NOT_A_CARD),
        () if platforms.iter().any(unknown) => Some("a card without a PSID: it may be a software card"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(software_card: Option<bool>) -> Platform {
        Platform { device: "x".into(), board_id: None, firmware: "1.2.0003".into(), software_card }
    }

    #[test]
    fn the_software_card_is_known_by_its_board() {
        let device = mlx5_open::open("sim:connectx7").unwrap();
        let card = Platform::of(&device);
        assert_eq!((card.board_id.as_deref(), card.software_card), (Some("SIM0000000007"), Some(true)));
        assert_eq!(card.to_string(), "sim, board SIM0000000007, firmware 28.41.1000, the software card");
        assert!(!board::is_software("MT_0000000008"));
    }

    #[test]
    fn one_software_card_at_either_end_is_enough() {
        assert_eq!(note(&[platform(Some(false)), platform(Some(true))]), Some(NOT_A_CARD));
        assert_eq!(note(&[platform(Some(false))]), None);
        assert!(note(&[platform(Some(false)), platform(None)]).is_some());
    }
}
