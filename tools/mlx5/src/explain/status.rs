//! Firmware commands that failed: status, firmware's syndrome, time-outs.

use mlx5_prm::cmd::{CmdStatus, Opcode};

use super::report::{Report, lines};
use super::syndromes;

/// A command that firmware refused, as somebody printed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// The name that was printed; empty where there was none.
    pub command: String,
    /// `opcode`, where it was printed.
    pub opcode: Option<u32>,
    /// `op_mod`, where it was printed.
    pub op_mod: Option<u32>,
    /// `status`, where it was printed.
    pub status: Option<u32>,
    /// `syndrome`.
    pub syndrome: u32,
    /// The system's error number, where it was printed.
    pub errno: Option<i32>,
}

impl Refused {
    /// The command's PRM name: its number counts, the printed name where there is none.
    fn name(&self) -> String {
        match self.opcode.map(Opcode::from_number) {
            Some(Opcode::Unknown(number)) if self.command.is_empty() => format!("command {number:#x}"),
            Some(opcode) if opcode.prm_name().is_some() => opcode.to_string(),
            _ if self.command.is_empty() => "a command".into(),
            _ => self.command.clone(),
        }
    }
}

/// What is said of a refused command.
pub fn explain(refused: &Refused) -> Report {
    let status = refused.status.map(CmdStatus::from_number);
    let mut fields = Vec::new();
    fields.extend(refused.opcode.map(|opcode| ("opcode", format!("{opcode:#x}"))));
    fields.extend(refused.op_mod.map(|op_mod| ("op_mod", format!("{op_mod:#x}"))));
    fields.extend(status.map(|status| ("status", format!("{status} ({:#x})", status.number()))));
    fields.push(("syndrome", format!("{:#x}", refused.syndrome)));
    fields.extend(refused.errno.map(|errno| ("err", errno.to_string())));
    let mut known: Vec<_> = syndromes::firmware(refused.syndrome).into_iter().collect();
    let of_model = mlx5_sim::firmware::syndromes::lookup(refused.syndrome);
    let meaning = match (status, of_model) {
        (_, Some(syndrome)) => {
            known.clear();
            format!("the software card's own word: {}", syndrome.reason())
        }
        (Some(status), None) => status.meaning().to_owned(),
        (None, None) => "firmware refused a command; what was printed gives no status".to_owned(),
    };
    let (causes, mut look_at) = status.map_or((Vec::new(), Vec::new()), advice);
    if known.is_empty() && of_model.is_none() && refused.syndrome != 0 {
        look_at.push(format!(
            "the Internet, for \"syndrome ({:#x})\": this program knows nothing of it",
            refused.syndrome
        ));
    }
    if of_model.is_none() {
        look_at.push(
            "the command's input: `mlx5 explain --caps DEVICE command HEX` checks every field against the card".into(),
        );
    }
    Report { what: format!("{} failed", refused.name()), fields, meaning, causes, look_at, known, ..Report::default() }
}

/// What is said of a command status alone.
pub fn of_status(status: CmdStatus) -> Report {
    let (causes, look_at) = advice(status);
    let what = format!("command status {status} ({:#x})", status.number());
    Report { what, meaning: status.meaning().into(), causes, look_at, ..Report::default() }
}

/// What usually causes a status, and what to look at.
fn advice(status: CmdStatus) -> (Vec<String>, Vec<String>) {
    let (causes, look_at): (&[&str], &[&str]) = match status {
        CmdStatus::InternalError => (
            &["a fault of firmware", "firmware and driver of very different age"],
            &["`dmesg` for the health buffer", "the firmware's release notes; a newer firmware"],
        ),
        CmdStatus::BadOpcode => (
            &["firmware older than the command", "the function may not use it (a virtual function, a subfunction)"],
            &["the capability that announces the command: `mlx5 caps`", "the firmware version"],
        ),
        CmdStatus::BadParameter => (
            &[
                "a field above what a capability allows",
                "a feature asked for that the card or its firmware has not got",
                "a reserved bit set: driver and firmware of different age",
                "a page list that is too short, or not aligned",
            ],
            &["each field against the capabilities", "the same command on another card: `mlx5 caps --diff`"],
        ),
        CmdStatus::BadSystemState => (
            &["the command came before INIT_HCA or after TEARDOWN_HCA", "the function is being reset"],
            &["the commands before it", "`dmesg` for resets and health"],
        ),
        CmdStatus::BadResource => (
            &[
                "a number of an object that is destroyed already, or of another user context (uid)",
                "an object of the wrong kind",
            ],
            &["the numbers in the command against what CREATE commands returned"],
        ),
        CmdStatus::ResourceBusy => {
            (&["a child object still lives: destroy in the opposite order of creation"], &["`rdma resource show`"])
        }
        CmdStatus::NotReady => {
            (&["ENABLE_HCA was not given yet, or firmware still starts up"], &["the commands before it"])
        }
        CmdStatus::ExceedsLimit => (
            &[
                "a count or size above a capability (log_max_...)",
                "as many objects as the card has: leaked by processes that died, or simply used up",
                "UAR pages used up: PF_LOG_BAR_SIZE of mlxconfig is too small",
            ],
            &[
                "`rdma resource show`",
                "`mlx5 caps log_max`",
                "current against maximum: SET_HCA_CAP may have lowered the limit",
            ],
        ),
        CmdStatus::BadResourceState => (
            &[
                "something that failed before: the object is in error, or its removal was refused",
                "another object still uses it",
            ],
            &["the first failure in the log, not this one"],
        ),
        CmdStatus::BadIndex => (
            &["an index past the end of a table: GID, P_Key, UAR"],
            &["the size of that table in the capabilities", "`rdma link`, `show_gids`"],
        ),
        CmdStatus::NoResources => (
            &["the host did not give firmware the pages it asked for", "the card's memory is used up"],
            &["`dmesg` for MANAGE_PAGES and page allocation failures", "free memory of the host"],
        ),
        CmdStatus::BadQpState => (
            &[
                "a transition that starts from another state, such as INIT2RTR_QP twice",
                "the queue pair fell into ERR before",
            ],
            &["QUERY_QP: its state", "error completions before this"],
        ),
        CmdStatus::BadPacket => {
            (&["a management datagram that is malformed or may not be sent"], &["the subnet manager's log"])
        }
        CmdStatus::BadSize => (&["a completion queue made smaller than what waits in it"], &["poll it empty first"]),
        CmdStatus::BadInputLength => (
            &[
                "an input of another edition of the command: the layouts differ",
                "a page list of another length than the fields say",
            ],
            &["the length of the input against its layout: `mlx5 decode`"],
        ),
        CmdStatus::BadOutputLength => (
            &["less room for the output than the command writes"],
            &["the length of the output against its layout: `mlx5 decode`"],
        ),
        CmdStatus::Ok | CmdStatus::Unknown(_) => (&[], &[]),
    };
    (lines(causes), lines(look_at))
}

/// A command that got no answer, or none in time.
pub fn timeout(command: &str, opcode: u32, words: &str) -> Report {
    let name = Opcode::from_number(opcode).prm_name().unwrap_or(command);
    let (meaning, causes): (&str, &[&str]) = if words.contains("recovered") {
        (
            "firmware had answered, but the event that says so was lost or late: the driver found it by polling",
            &[
                "an interrupt that was lost or went to a CPU that was busy for very long",
                "a hypervisor that did not run the guest",
            ],
        )
    } else if words.contains("slot") || words.contains("semaphore") || words.contains("out of queue") {
        (
            "the command never got to firmware: all slots of the command queue were taken",
            &["earlier commands that were never answered", "very many commands at once (registration of memory)"],
        )
    } else {
        (
            "firmware did not answer in time; the driver gives the slot up, and whatever the command names is lost",
            &[
                "firmware has stopped: look for the health buffer",
                "the function's memory can no longer be reached: IOMMU fault, PCIe error, surprise removal",
                "a physical function in reset while its virtual functions still work",
            ],
        )
    };
    Report {
        what: format!("{name} ({opcode:#x}): {}", words.trim()),
        meaning: meaning.into(),
        causes: lines(causes),
        look_at: lines(&[
            "`dmesg` before this line: health, AER, IOMMU",
            "the first command that timed out, not the last",
        ]),
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_command_by_its_number_and_what_is_known_of_the_syndrome() {
        let refused = Refused { opcode: Some(0x400), status: Some(8), syndrome: 0x62bbc6, ..Refused::default() };
        let report = explain(&refused);
        assert_eq!(report.what, "CREATE_CQ failed");
        assert_eq!(report.known[0].source, "https://github.com/snabbco/snabb/issues/995");
        assert!(report.meaning.contains("capability"));
    }

    #[test]
    fn the_software_cards_syndromes_are_explained_in_its_own_words() {
        let number = mlx5_sim::firmware::syndromes::Syndrome::CqSize.number();
        let report = explain(&Refused { opcode: Some(0x400), status: Some(8), syndrome: number, ..Refused::default() });
        assert!(report.meaning.contains("log_cq_size is above log_max_cq_sz"), "{}", report.meaning);
    }

    #[test]
    fn every_status_has_causes() {
        for status in CmdStatus::ALL.iter().filter(|status| **status != CmdStatus::Ok) {
            assert!(!advice(*status).0.is_empty(), "{status}");
        }
    }
}
