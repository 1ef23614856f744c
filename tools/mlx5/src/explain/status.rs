//! Failed firmware commands: status, firmware syndrome, timeouts.

use mlx5_prm::cmd::{CmdStatus, Opcode};

use super::report::{Report, lines};
use super::syndromes;

/// A printed refusal of a command by firmware.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// The printed name; empty if none was printed.
    pub command: String,
    /// `opcode`, if printed.
    pub opcode: Option<u32>,
    /// `op_mod`, if printed.
    pub op_mod: Option<u32>,
    /// `status`, if printed.
    pub status: Option<u32>,
    /// `syndrome`.
    pub syndrome: u32,
    /// The errno, if printed.
    pub errno: Option<i32>,
    /// The errno's text, if printed.
    pub words: String,
}

impl Refused {
    /// The command's PRM name by its opcode, else the printed name.
    fn name(&self) -> String {
        // UCX prints opcodes in hexadecimal, without 0x.
        let printed = u32::from_str_radix(&self.command, 16).ok().filter(|_| self.command.len() <= 4);
        match self.opcode.or(printed).map(Opcode::from_number) {
            Some(Opcode::Unknown(number)) if self.command.is_empty() => format!("command {number:#x}"),
            Some(opcode) if opcode.prm_name().is_some() => opcode.to_string(),
            _ if self.command.is_empty() => "a command".into(),
            // DPDK prints "create RQ".
            _ => known_name(&self.command.to_uppercase().replace(' ', "_")).unwrap_or(&self.command).into(),
        }
    }
}

/// The command's PRM name, if `name` is one.
pub fn known_name(name: &str) -> Option<&'static str> {
    Opcode::ALL.iter().filter_map(|opcode| opcode.prm_name()).find(|known| *known == name)
}

/// Whether the call failed without a word of firmware: status and syndrome are its only ones.
fn is_of_system(refused: &Refused) -> bool {
    let failed = refused.errno.is_some() || !refused.words.is_empty();
    refused.syndrome == 0 && refused.status.unwrap_or(0) == 0 && failed
}

/// Report on a call that the system failed.
fn of_system(refused: &Refused, fields: Vec<(&'static str, String)>) -> Report {
    let why = match (refused.words.as_str(), refused.errno) {
        ("", Some(errno)) => std::io::Error::from_raw_os_error(errno.abs()).to_string(),
        (words, _) => words.to_owned(),
    };
    Report {
        what: format!("{} failed", refused.name()),
        fields,
        meaning: format!("firmware did not refuse it: status and syndrome are 0. The system failed the call: {why}"),
        causes: lines(&[
            "the kernel did not get an answer of firmware in time, or has given the card up since",
            "the kernel refused the call itself: rights, memory, a command that it passes to nobody",
        ]),
        look_at: lines(&["`dmesg`: what mlx5_core says of this command, and of health before it"]),
        ..Report::default()
    }
}

/// Report on a refused command.
pub fn explain(refused: &Refused) -> Report {
    let status = refused.status.map(CmdStatus::from_number);
    let mut fields = Vec::new();
    fields.extend(refused.opcode.map(|opcode| ("opcode", format!("{opcode:#x}"))));
    fields.extend(refused.op_mod.map(|op_mod| ("op_mod", format!("{op_mod:#x}"))));
    fields.extend(status.map(|status| ("status", format!("{status} ({:#x})", status.number()))));
    fields.push(("syndrome", format!("{:#x}", refused.syndrome)));
    fields.extend(refused.errno.map(|errno| ("err", errno.to_string())));
    if is_of_system(refused) {
        return of_system(refused, fields);
    }
    let mut known: Vec<_> = syndromes::firmware(refused.syndrome).into_iter().collect();
    let of_model = mlx5_sim::firmware::syndromes::lookup(refused.syndrome);
    let meaning = match (status, of_model) {
        (_, Some(syndrome)) => {
            known.clear();
            format!("reason given by the software card: {}", syndrome.reason())
        }
        // What firmware does not know is the register that the command names.
        (Some(CmdStatus::BadOpcode), None) if refused.opcode == Some(Opcode::AccessReg.number()) => {
            "the command reads or writes a register (register_id of its input) that firmware does not know, or not for \
             this function"
                .to_owned()
        }
        (Some(status), None) => status.meaning().to_owned(),
        (None, None) => "firmware refused a command; no status was printed".to_owned(),
    };
    let (causes, mut look_at) = status.map_or((Vec::new(), Vec::new()), advice);
    if known.is_empty() && of_model.is_none() && refused.syndrome != 0 {
        look_at.push(format!("the Internet, for \"syndrome ({:#x})\": unknown to this program", refused.syndrome));
    }
    if of_model.is_none() {
        look_at.push(
            "the command's input: `mlx5 explain --caps DEVICE command HEX` checks every field against the card".into(),
        );
    }
    Report { what: format!("{} failed", refused.name()), fields, meaning, causes, look_at, known, ..Report::default() }
}

/// Report on a command status alone.
pub fn of_status(status: CmdStatus) -> Report {
    let (causes, look_at) = advice(status);
    let what = format!("command status {status} ({:#x})", status.number());
    Report { what, meaning: status.meaning().into(), causes, look_at, ..Report::default() }
}

/// Usual causes of a status, and what to check.
fn advice(status: CmdStatus) -> (Vec<String>, Vec<String>) {
    let (causes, look_at): (&[&str], &[&str]) = match status {
        CmdStatus::InternalError => (
            &["a firmware bug", "incompatible versions of firmware and driver"],
            &["`dmesg` for the health buffer", "the firmware's release notes; a newer firmware"],
        ),
        CmdStatus::BadOpcode => (
            &["firmware too old for the command", "a function without permission (a virtual function, a subfunction)"],
            &["the capability of the command: `mlx5 caps`", "the firmware version"],
        ),
        CmdStatus::BadParameter => (
            &[
                "a field that exceeds a capability",
                "a feature that the card or its firmware does not have",
                "a reserved bit is set: different versions of driver and firmware",
                "a page list that is too short or unaligned",
            ],
            &["each field against the capabilities", "the same command on another card: `mlx5 caps --diff`"],
        ),
        CmdStatus::BadSystemState => (
            &["the command came before INIT_HCA or after TEARDOWN_HCA", "the function is being reset"],
            &["the commands before it", "`dmesg` for resets and health"],
        ),
        CmdStatus::BadResource => (
            &[
                "the number of an object that was destroyed, or belongs to another user context (uid)",
                "an object of the wrong kind",
            ],
            &["the numbers in the command against those that CREATE commands returned"],
        ),
        CmdStatus::ResourceBusy => {
            (&["a child object still exists: destroy in reverse order of creation"], &["`rdma resource show`"])
        }
        CmdStatus::NotReady => {
            (&["ENABLE_HCA was not sent yet, or firmware is still starting"], &["the commands before it"])
        }
        CmdStatus::ExceedsLimit => (
            &[
                "a count or size above a capability (log_max_...)",
                "all objects of the card are in use, perhaps leaked by processes that died",
                "no free UAR pages: PF_LOG_BAR_SIZE of mlxconfig is too small",
            ],
            &[
                "`rdma resource show`",
                "`mlx5 caps log_max`",
                "current against maximum: SET_HCA_CAP may have lowered the limit",
            ],
        ),
        CmdStatus::BadResourceState => (
            &["an earlier failure: the object is in error, or could not be destroyed", "another object still uses it"],
            &["the first failure in the log, not this one"],
        ),
        CmdStatus::BadIndex => (
            &["an index past the end of a table: GID, P_Key, UAR"],
            &["the size of that table in the capabilities", "`rdma link`, `show_gids`"],
        ),
        CmdStatus::NoResources => (
            &["the host did not give firmware the pages it requested", "the card's memory is exhausted"],
            &["`dmesg` for MANAGE_PAGES and page allocation failures", "free memory of the host"],
        ),
        CmdStatus::BadQpState => (
            &[
                "a transition that starts from another state, such as INIT2RTR_QP twice",
                "the queue pair went to ERR before",
            ],
            &["QUERY_QP: its state", "error completions before this"],
        ),
        CmdStatus::BadPacket => {
            (&["a management datagram that is malformed or not permitted"], &["the subnet manager's log"])
        }
        CmdStatus::BadSize => (&["a completion queue resized below its number of entries"], &["poll it empty first"]),
        CmdStatus::BadInputLength => (
            &[
                "an input of another version of the command, with a different layout",
                "a page list whose length contradicts the fields",
            ],
            &["the length of the input against its layout: `mlx5 decode`"],
        ),
        CmdStatus::BadOutputLength => (
            &["an output buffer smaller than the output"],
            &["the length of the output against its layout: `mlx5 decode`"],
        ),
        CmdStatus::Ok | CmdStatus::Unknown(_) => (&[], &[]),
    };
    (lines(causes), lines(look_at))
}

/// A command without an answer in time.
pub fn timeout(command: &str, opcode: u32, words: &str) -> Report {
    let name = Opcode::from_number(opcode).prm_name().unwrap_or(command);
    let (meaning, causes): (&str, &[&str]) = if words.contains("recovered") {
        (
            "firmware had answered, but the completion event was lost or late: the driver found the answer by polling",
            &[
                "an interrupt that was lost, or sent to a CPU that was busy for long",
                "a hypervisor that did not run the guest",
            ],
        )
    } else if words.contains("slot") || words.contains("semaphore") || words.contains("out of queue") {
        (
            "the command never got to firmware: all slots of the command queue were in use",
            &["earlier commands without an answer", "many commands at once (memory registration)"],
        )
    } else {
        (
            "firmware did not answer in time; the driver abandons the slot, and leaks the resources of the command",
            &[
                "firmware has stopped: look for the health buffer",
                "the card cannot access host memory: IOMMU fault, PCIe error, surprise removal",
                "a physical function in reset while its virtual functions are in use",
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
    fn what_the_system_failed_is_not_told_as_refused() {
        let report = explain(&Refused { status: Some(0), errno: Some(5), ..Refused::default() });
        assert!(
            report.meaning.contains("firmware did not refuse it") && report.meaning.contains("error 5"),
            "{report}"
        );
        let report = explain(&Refused { words: "Connection timed out".into(), ..Refused::default() });
        assert!(report.meaning.ends_with("Connection timed out"), "{report}");
        // A status alone says that firmware did refuse it.
        let report = explain(&Refused { status: Some(3), errno: Some(121), ..Refused::default() });
        assert!(report.meaning.starts_with("a parameter is out of range"), "{report}");
    }

    #[test]
    fn every_status_has_causes() {
        for status in CmdStatus::ALL.iter().filter(|status| **status != CmdStatus::Ok) {
            assert!(!advice(*status).0.is_empty(), "{status}");
        }
    }
}
