//! Firmware commands. Each has an input and an output layout, connected by [`Command`].
//!
//! Every input starts with `opcode` and `op_mod`, every output with `status` and `syndrome`. A command with a list
//! after its fixed part (page addresses, translations, register data) is a [`WithTail`].
//!
//! The PRM describes each in its chapter "Command Reference", under the command's name. Commands of which only the
//! number is public are [`Unpublished`].

use crate::layout::Info;
use crate::layout::files::files;

/// As `files!`, and collects the commands of the files.
macro_rules! command_files {
    ($( $file:ident: $($table:ident)+; )*) => {
        files! { $( $file: $($table)+; )* }

        /// Every command, file by file.
        const COMMANDS: &[&[CommandInfo]] = &[ $( $( commands_of!($file $table) ),+ ),* ];
    };
}

macro_rules! commands_of {
    ($file:ident commands) => {
        $file::COMMANDS
    };
    ($file:ident $table:ident) => {
        &[]
    };
}

command_files! {
    command: layouts;
    congestion: layouts values commands;
    counter: layouts commands;
    cq: layouts values commands;
    crypto: layouts values commands;
    dct: layouts commands;
    entry: layouts values;
    eq: layouts commands;
    eswitch: layouts values commands;
    flow_counter: layouts commands;
    flow_entry: layouts values commands;
    flow_group: layouts commands;
    flow_table: layouts commands;
    fpga: layouts commands;
    general_object: layouts commands;
    hca: layouts commands;
    hca_vport: layouts commands;
    l2_table: layouts commands;
    lag: layouts commands;
    mad: layouts values commands;
    mcg: layouts commands;
    memic: layouts values commands;
    mkey: layouts commands;
    moderation: layouts values commands;
    modify_header: layouts commands;
    monitor: layouts values commands;
    packet_reformat: layouts commands;
    page_fault: layouts commands;
    pages: layouts values commands;
    pd: layouts commands;
    psv: layouts commands;
    qp: layouts commands;
    regexp: layouts commands;
    register: layouts values commands;
    rmp: layouts commands;
    rq: layouts commands;
    rqt: layouts commands;
    scheduling: layouts commands;
    sf: layouts commands;
    sq: layouts commands;
    srq: layouts values commands;
    status: values;
    steering: layouts commands;
    tir: layouts commands;
    tis: layouts commands;
    transport_domain: layouts commands;
    uar: layouts commands;
    umem: layouts commands;
    unpublished: layouts commands;
    vhca: layouts values commands;
    vport: layouts values commands;
    vxlan: layouts commands;
    wake: layouts commands;
    xrq: layouts commands;
}

/// All commands with layouts in this crate.
pub fn all() -> impl Iterator<Item = &'static CommandInfo> {
    COMMANDS.iter().copied().flatten()
}

/// The command with this opcode; `None` if this crate has no layout for it.
pub fn find(opcode: Opcode) -> Option<&'static CommandInfo> {
    all().find(|command| command.opcode == opcode)
}

/// Input and output layout of the command with this opcode and `op_mod`; `None` if this crate has none. The layouts do
/// not depend on `op_mod`, which only chooses parts ([`CommandInfo::told`]), such as the capability page in the output
/// of `QUERY_HCA_CAP`.
pub fn layout_of_command(opcode: Opcode, _op_mod: u16) -> Option<(&'static Info, &'static Info)> {
    find(opcode).map(|command| (command.input, command.output))
}
