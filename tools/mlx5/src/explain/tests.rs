//! Every shape of line, as the sources that print it have it.

use super::*;

/// The headlines of what is found in the text.
fn found(text: &str) -> Vec<String> {
    of_text(text.as_bytes(), Known::default())
        .expect("something is recognised")
        .into_iter()
        .map(|report| report.what)
        .collect()
}

fn one(text: &str) -> Report {
    let mut reports = of_text(text.as_bytes(), Known::default()).expect("something is recognised");
    assert_eq!(reports.len(), 1, "{reports:?}");
    // Where it stands is no part of what it is.
    Report { seen: None, ..reports.remove(0) }
}

fn field<'a>(report: &'a Report, name: &str) -> &'a str {
    let field = report.fields.iter().find(|(other, _)| *other == name);
    &field.unwrap_or_else(|| panic!("no {name} in {report:?}")).1
}

#[test]
fn refusals_of_every_age_of_mlx5_core() {
    let lines = [
        "[  92.4] mlx5_core 0000:0b:00.0: mlx5_cmd_check:744:(pid 13): CREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8fef)",
        "mlx5_core 0000:08:00.0: mlx5_cmd_out_err:803:(pid 3966): CREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8fef), err(-22)",
        "mlx5_core 0000:0b:00.0: mlx5_cmd_check:744:(pid 13):\nCREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8fef)",
        "devlink-1333 [001] ..... 822.7: mlx5_cmd: CREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8fef), err(-22)",
    ];
    for line in lines {
        let report = one(line);
        assert_eq!(report.what, "CREATE_EQ failed", "{line}");
        assert_eq!(field(&report, "status"), "BAD_PARAM (0x3)");
        assert_eq!(report.known.len(), 1, "{line}");
    }
    assert_eq!(one("command failed, status bad resource(0x5), syndrome 0x305684").known[0].number, 0x305684);
}

#[test]
fn a_name_that_the_kernel_does_not_know_leaves_the_number() {
    let line = "unknown command opcode(0xb1f) op_mod(0x0) failed, status bad operation(0x2), syndrome (0x1)";
    assert!(one(line).what.contains("failed"));
}

#[test]
fn refusals_as_libraries_print_them() {
    let ucx = "ib_mlx5_dv.c:464 UCX ERROR mlx5dv_devx_general_cmd(ALLOW_OTHER_VHCA_ACCESS) failed on mlx5_bond_1, syndrome 0x88f347: Remote I/O error";
    assert_eq!(one(ucx).what, "ALLOW_OTHER_VHCA_ACCESS failed");
    let dpdk = "mlx5_common: DevX create q counter set failed errno=121 status=0x8 syndrome=0x587239";
    let report = one(dpdk);
    assert_eq!((field(&report, "status"), report.known[0].number), ("EXCEED_LIM (0x8)", 0x587239));
    let object = "mlx5_common: DevX modify RQ id=0X2A failed errno=121 status=0x3 syndrome=0x1";
    assert_eq!(field(&one(object), "status"), "BAD_PARAM (0x3)");
    assert_eq!(field(&one("Failed to create FT (syndrome: 0x3ad328)"), "syndrome"), "0x3ad328");
    assert_eq!(one(object).what, "MODIFY_RQ failed");
    assert_eq!(one("mlx5_common: DevX create RQ failed errno=121 status=0x3 syndrome=0x1").what, "CREATE_RQ failed");
    let object = "UCX  ERROR   mlx5dv_devx_obj_create(QP) failed on mlx5_0, syndrome 0x2c4154: Remote I/O error";
    assert_eq!((one(object).what.as_str(), one(object).known[0].of), ("CREATE_QP failed", "CREATE_QP"));
    let by_number = "UCX  ERROR mlx5dv_devx_obj_modify(opcode=0x503) failed, syndrome 0x823f8d: Remote I/O error";
    assert_eq!(one(by_number).what, "INIT2RTR_QP failed");
}

#[test]
fn failures_that_firmware_knows_nothing_of_are_not_told_as_its_refusals() {
    let ucx = "dc_mlx5_devx.c:78   UCX  ERROR mlx5dv_devx_obj_create(DCT) failed, syndrome 0: Connection timed out";
    let report = one(ucx);
    assert_eq!(report.what, "CREATE_DCT failed");
    assert!(report.meaning.contains("did not refuse it") && report.meaning.contains("timed out"), "{report}");
    let dpdk = "mlx5_common: DevX read access NIC register 0x9055 failed errno=5 status=0 syndrome=0";
    assert!(one(dpdk).meaning.contains("did not refuse it"), "{}", one(dpdk));
}

#[test]
fn the_rule_that_forwards_both_ways_has_its_public_cause() {
    let line = "mlx5_core 0000:08:00.0: mlx5_cmd_out_err:803:(pid 23569): SET_FLOW_TABLE_ENTRY(0x936) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x8c8f08), err(-22)";
    assert!(one(line).known[0].text.contains("rewrites headers and forwards to the uplink"), "{}", one(line));
}

#[test]
fn refusals_and_failures_of_this_driver() {
    let line = "mlx5: CREATE_CQ of CQ for tests failed: status EXCEED_LIM (0x8), syndrome 0x51e00a01: a capability is exceeded";
    let report = one(line);
    assert_eq!(report.what, "CREATE_CQ failed");
    assert!(report.meaning.contains("log_cq_size is above log_max_cq_sz"), "{}", report.meaning);
    let line = "RDMA_WRITE at WQE index 3 of QP 0x43 failed: REMOTE_ACCESS_ERR (0x13), vendor syndrome 0x88: ...";
    let report = one(line);
    assert_eq!(report.what, "completion with error REMOTE_ACCESS_ERR");
    assert_eq!((field(&report, "qpn"), field(&report, "wqe_counter")), ("0x43", "3"));
}

#[test]
fn commands_without_an_answer() {
    let lines = [
        "mlx5_core 0000:01:00.0: wait_func:1137:(pid 9): CREATE_CQ(0x400) timeout. Will cause a leak of a command resource",
        "mlx5_core 0000:01:00.0: cmd[3]: CREATE_CQ(0x400) Async, timeout. Will cause a leak of a command resource",
        "cmd[0]: CREATE_CQ(0x400) No done completion",
        "CREATE_CQ(0x400) timed out while waiting for a slot.",
        "CREATE_CQ(0x400) canceled on out of queue timeout.",
    ];
    for line in lines {
        assert!(one(line).what.starts_with("CREATE_CQ (0x400): "), "{line}");
    }
    assert!(one(lines[3]).meaning.contains("never got to firmware"));
    assert!(one("cmd[0]: CREATE_CQ(0x400) recovered after timeout").meaning.contains("lost or late"));
}

#[test]
fn error_cqes_as_kernels_print_them() {
    let mlx5e = "mlx5_core 0000:01:00.0 ens1: Error cqe on cqn 0x4a9, ci 0x1f, sqn 0x1254, opcode 0xd, syndrome 0x2, vendor syndrome 0x68";
    let report = one(mlx5e);
    assert_eq!(report.what, "completion with error LOCAL_QP_OP_ERR");
    assert_eq!((field(&report, "cqn"), field(&report, "qpn")), ("0x4a9", "0x1254"));
    assert_eq!(one(&mlx5e.replace("sqn", "qn")).known[0].number, 0x68);
    let ib = "infiniband mlx5_0: mlx5_poll_one:527:(pid 0): Responder error cqe on cqn 0x406:\ninfiniband mlx5_0: mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9";
    let report = one(ib);
    assert_eq!((report.what.as_str(), field(&report, "cqn")), ("completion with error WR_FLUSH_ERR", "0x406"));
}

#[test]
fn error_cqes_as_libraries_print_them() {
    let ucx = "[n:1:0:1] ib_mlx5_log.c:177  Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/2)\n[n:1:0:1] ib_mlx5_log.c:177  RC QP 0x169 wqe[3]: SEND s-- [inl len 10]";
    let report = one(ucx);
    assert_eq!(report.what, "completion with error LOCAL_PROT_ERR");
    assert_eq!((field(&report, "qpn"), field(&report, "hw_error_syndrome")), ("0x169", "2"));
    let words = "ib_mlx5_log.c:177  Remote access error on mlx5_0:1/RoCE (synd 0x13 vend 0x88 hw_synd 0/0)";
    assert_eq!(one(words).known[0].number, 0x88, "once, though verbs' words are in it too");
    let dpdk = "Unexpected CQE error syndrome 0x04 CQN = 128 SQN = 4848 wqe_counter = 0 wq_ci = 9 cq_ci = 122";
    let report = one(dpdk);
    assert_eq!((report.what.as_str(), field(&report, "qpn")), ("completion with error LOCAL_PROT_ERR", "0x12f0"));
}

#[test]
fn statuses_of_verbs_with_the_vendors_number() {
    let nccl = [
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 vendor err 129",
        "send completion with error: transport retry counter exceeded [qpn 0x92c wrid 0x2 vendor_err 0x81]",
    ];
    for line in nccl {
        let report = one(line);
        assert_eq!(
            (report.what.as_str(), report.known[0].number),
            ("ibv_wc_status IBV_WC_RETRY_EXC_ERR (12)", 0x81),
            "{line}"
        );
    }
    assert_eq!(one(" Failed status 4: wr_id 0 syndrom 0x51").known[0].number, 0x51);
    assert_eq!(found("status: (5): Work Request Flushed Error"), ["ibv_wc_status IBV_WC_WR_FLUSH_ERR (5)"]);
}

const LIBMLX5: &str = "mlx5: host: got completion with error:\n\
    00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n\
    00000001 00000000 00000000 00000000\n00000000 92005204 0a00082f 0000c5d2\n";

#[test]
fn dumps_of_an_error_cqe() {
    let report = one(LIBMLX5);
    assert_eq!(report.what, "completion with error LOCAL_PROT_ERR of a send");
    assert_eq!((field(&report, "qpn"), report.known[0].number), ("0x82f", 0x52));
    let one_line = LIBMLX5.replace('\n', " ");
    assert_eq!(one(&one_line), report);
    let glued = LIBMLX5.trim_end().to_owned() + "[1496344648.549828] [vegas06:14872:0] dc_verbs.c:614 UCX";
    assert_eq!(one(&glued), report);
    let alone = LIBMLX5.split_once('\n').expect("two lines").1;
    assert_eq!(one(alone), report, "without its heading the last byte says what it is");
    let kernel = "infiniband mlx5_0: dump_cqe:277:(pid 0): dump error cqe\n\
        [1.0] cqe_dump: 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\
        [1.0] cqe_dump: 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\
        [1.0] cqe_dump: 00000020: 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00\n\
        [1.0] cqe_dump: 00000030: 00 00 00 00 92 00 52 04 0a 00 08 2f 00 00 c5 d2\n";
    assert_eq!(one(kernel), report);
    let dpdk = "MLX5 Error CQE: at [0x7f6a7d20c000], len=64\n\
        00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n\
        00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n\
        00000020: 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n\
        00000030: 00 00 00 00 92 00 52 04 0A 00 08 2F 00 00 C5 D2 | ......R....B....\n";
    assert_eq!(one(dpdk), report);
}

#[test]
fn a_named_kind_takes_hex_in_every_usual_form() {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let dwords = LIBMLX5.split_once('\n').expect("two lines").1.replace('\n', " ");
    let report = reports(&words(&format!("cqe {}", dwords.trim())), Known::default()).expect("a CQE").remove(0);
    assert_eq!(report.what, "completion with error LOCAL_PROT_ERR of a send");
    let bare = dwords.replace(' ', "");
    assert_eq!(reports(&words(&format!("cqe {bare}")), Known::default()).expect("a CQE"), [report]);
    for wrong in ["cqe 00", "cqe xyz", "cqe 123", "eqe 00", "wqe 00", "health 00", "wc nonsense", "status nonsense"] {
        assert!(reports(&words(wrong), Known::default()).is_err(), "{wrong}");
    }
}

#[test]
fn numbers_and_names_are_looked_up() {
    let what = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        reports(&words, Known::default()).expect("a report").remove(0)
    };
    assert_eq!(what(&["status", "8"]).what, "command status EXCEED_LIM (0x8)");
    assert_eq!(what(&["status", "bad", "parameter"]).what, "command status BAD_PARAM (0x3)");
    assert_eq!(what(&["status", "0x8", "0x62bbc6"]).known.len(), 1);
    assert_eq!(what(&["status", "EXCEED_LIM", "0x62bbc6"]).known.len(), 1);
    assert_eq!(what(&["status", "limits", "exceeded", "0x62bbc6"]).known.len(), 1);
    assert_eq!(what(&["syndrome", "0x62bbc6"]).known[0].of, "CREATE_CQ");
    assert_eq!(what(&["BAD_PARAM"]).what, "command status BAD_PARAM (0x3)");
    assert_eq!(what(&["bad", "parameter"]).what, "command status BAD_PARAM (0x3)");
    assert_eq!(what(&["IBV_WC_RNR_RETRY_EXC_ERR"]).what, "ibv_wc_status IBV_WC_RNR_RETRY_EXC_ERR (13)");
    assert_eq!(what(&["syndrome", "0x15"]).what, "completion with error TRANSPORT_RETRY_EXC_ERR");
    assert!(what(&["syndrome", "0x8"]).what.starts_with("health buffer: HW_FATAL_ERR"));
    let ucx = "mlx5dv_devx_qp_modify(503) failed, syndrome 5a7939: Remote I/O error";
    assert_eq!(one(ucx).what, "INIT2RTR_QP failed", "its opcode is hexadecimal");
    assert_eq!(what(&["vendor", "0x81"]).known[0].of, "TRANSPORT_RETRY_EXC_ERR");
    assert_eq!(what(&["wc", "12"]).what, "ibv_wc_status IBV_WC_RETRY_EXC_ERR (12)");
}

#[test]
fn a_health_buffer_is_put_together_from_its_lines() {
    let text = "mlx5_core 0000:3b:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count\n\
        mlx5_core 0000:3b:00.0: print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:\n\
        mlx5_core 0000:3b:00.0: print_health_info:435:(pid 0): assert_var[0] 0xfc3fc043\n\
        mlx5_core 0000:3b:00.0: print_health_info:435:(pid 0): assert_var[1] 0x00000001\n\
        mlx5_core 0000:3b:00.0: print_health_info:438:(pid 0): assert_exit_ptr 0x20867ac8\n\
        mlx5_core 0000:3b:00.0: print_health_info:439:(pid 0): assert_callra 0x20867ad4\n\
        mlx5_core 0000:3b:00.0: print_health_info:440:(pid 0): fw_ver 22.36.1010\n\
        mlx5_core 0000:3b:00.0: print_health_info:446:(pid 0): irisc_index 5\n\
        mlx5_core 0000:3b:00.0: print_health_info:447:(pid 0): synd 0x1: firmware internal error\n\
        mlx5_core 0000:3b:00.0: print_health_info:449:(pid 0): ext_synd 0x8b30\n";
    let reports = of_text(text.as_bytes(), Known::default()).expect("recognised");
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[0].meaning.contains("did not change"));
    assert_eq!(reports[1].what, "health buffer: FW_INTERNAL_ERR (0x1)");
    assert_eq!((field(&reports[1], "ext_synd"), field(&reports[1], "fw_ver")), ("0x8b30", "22.36.1010"));
}

#[test]
fn health_as_devlink_shows_it() {
    let report = one("  Syndrome: 8 Description: unrecoverable hardware error");
    assert_eq!(report.what, "health buffer: HW_FATAL_ERR (0x8)");
    let dump = "health buffer:\n    assert_var:\n      1 0 0 0 0 7\n    assert_exit_ptr: 545880776 assert_callra: 545880788 \
                time: 1753264401 hw_id: 535 rfr: 0 severity: 3 irisc_index: 5 synd: 16 ext_synd: 35632 raw_fw_ver: 371196910";
    let json = "{\"health buffer\":{\"assert_var\":[1,0,0,0,0,7],\"assert_exit_ptr\":545880776,\"assert_callra\":545880788,\
                \"time\":1753264401,\"hw_id\":535,\"rfr\":0,\"severity\":3,\"irisc_index\":5,\"synd\":16,\"ext_synd\":35632,\
                \"raw_fw_ver\":371196910}}";
    let report = one(dump);
    assert!(report.what.ends_with("(0x10)"), "{}", report.what);
    assert_eq!((field(&report, "assert_var[5]"), field(&report, "ext_synd")), ("7", "35632"));
    assert_eq!(one(json), report);
}

#[test]
fn other_lines_of_health() {
    assert!(one("mlx5_core: Fatal error 3 detected").meaning.contains("disabled"));
    assert!(one("print_health_info: PCI slot is unavailable").meaning.contains("all ones"));
}

#[test]
fn a_command_that_the_kernel_dumped_is_checked_beside_its_refusal() {
    let text = "mlx5_core 0000:02:00.0: dump_command:851:(pid 1915): cmd[0]: dump command data CREATE_CQ(0x400) INPUT\n\
        [  1.0] cmd[0]: 000: 04000000 00000000 00000000 00000000\n\
        [  1.0] cmd[0]: 010: 00000000 00000000 00000000 19000000\n\
        mlx5_core 0000:02:00.0: dump_command:887:(pid 1915): cmd[0]: end dump\n\
        mlx5_core 0000:02:00.0: dump_command:851:(pid 0): cmd[0]: dump command data CREATE_CQ(0x400) OUTPUT\n\
        [  1.0] cmd[0]: 000: 08000000 0062bbc6 00000000 00000000\n\
        mlx5_core 0000:02:00.0: mlx5_cmd_check:827:(pid 4323): CREATE_CQ(0x400) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x62bbc6)\n";
    let caps = CapSet::load("connectx5").expect("the software card");
    let reports = of_text(text.as_bytes(), Known { caps: Some(&caps), ..Known::default() }).expect("recognised");
    assert_eq!(reports.len(), 2, "{reports:?}");
    let named = "CREATE_CQ: cq_context.log_cq_size=25 > log_max_cq_sz 22";
    assert!(reports[0].offending.iter().any(|one| one == named), "{:?}", reports[0].offending);
    assert_eq!(reports[1].what, "CREATE_CQ failed");
}

/// What Debian's mlx5_core printed of four commands, the last of them CREATE_EQ.
const PROBE: &str = include_str!("../../tests/logs/probe.txt");

#[test]
fn of_commands_printed_with_entry_and_mailboxes_those_that_failed_are_explained() {
    let error = of_text(PROBE.as_bytes(), Known::default()).expect_err("all were done").to_string();
    assert!(error.contains("`mlx5 decode`"), "{error}");
    let (sent, _) = PROBE.rsplit_once("dump command CREATE_EQ(0x301) OUTPUT").expect("an answer");
    let report = one(sent);
    assert_eq!(report.what, "input of CREATE_EQ (0x301), op_mod 0x0");
    assert_eq!((field(&report, "outcome"), &report.offending), ("no output in the log", &Vec::new()));
    let (done, answer) = PROBE.rsplit_once("cmd[0]: 020: 00000000 00000000").expect("the answer's status");
    let report = one(&format!("{done}cmd[0]: 020: 03000000 000000aa{answer}"));
    assert!(field(&report, "outcome").contains("BAD_PARAM (0x3), syndrome 0xaa"), "{report}");
}

#[test]
fn of_a_whole_log_every_command_that_failed_is_explained_or_every_one_that_is_in_it() {
    let of = |text: &str, all| of_commands(text.as_bytes(), Known { all, ..Known::default() });
    let what = |text: &str, all| of(text, all).expect("commands").into_iter().map(|one| one.what).collect::<Vec<_>>();
    assert!(of(PROBE, false).expect_err("all were done").to_string().contains("--all"));
    let all = ["ENABLE_HCA (0x104)", "ACCESS_REG (0x805)", "ALLOC_UAR (0x802)", "CREATE_EQ (0x301)"];
    let named = |what: &[String]| {
        let each = what.iter().zip(all).all(|(what, name)| what.contains(name));
        assert!(each && what.len() == all.len(), "{what:?}");
    };
    named(&what(PROBE, true));
    // The first and the last of them, refused: the dword before the syndrome in the second half of each output's entry.
    let mut refused = PROBE.to_owned();
    for name in ["ENABLE_HCA(0x104)", "CREATE_EQ(0x301)"] {
        let output = refused.find(&format!("dump command {name} OUTPUT")).expect("an output");
        let status = output + refused[output..].find("cmd[0]: 020: ").expect("its status") + "cmd[0]: 020: ".len();
        refused.replace_range(status..status + 17, "03000000 00008fef");
    }
    let reports = of(&refused, false).expect("two");
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[0].what.contains(all[0]) && reports[1].what.contains(all[3]));
    assert_eq!((reports[1].known[0].of, reports[1].causes.is_empty()), ("CREATE_EQ", false));
    let by_kind = reports_of_words(&["command", &refused]);
    assert_eq!(by_kind, reports, "the same by the name of the kind");
    assert_eq!(what(&refused, true).len(), 4);
}

fn reports_of_words(words: &[&str]) -> Vec<Report> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    reports(&words, Known::default()).expect("reports")
}

#[test]
fn a_refusal_of_which_the_log_has_the_answer_alone_is_explained_by_what_its_entry_holds() {
    let answer =
        PROBE.find("dump command ENABLE_HCA(0x104) OUTPUT").and_then(|at| PROBE[..at].rfind('\n')).expect("it");
    let end = answer + PROBE[answer + 1..].find("dump command ACCESS_REG").expect("the next");
    let status = answer + PROBE[answer..].find("cmd[0]: 020: ").expect("its status") + "cmd[0]: 020: ".len();
    let text = format!("{}05000000 0000aaaa{}", &PROBE[answer..status], &PROBE[status + 17..end]);
    let report = one(&text);
    assert!(report.what.contains("ENABLE_HCA (0x104)"), "{report}");
    assert!(field(&report, "outcome").contains("BAD_RESOURCE (0x5), syndrome 0xaaaa"), "{report}");
    assert!(field(&report, "notes").contains("its input is not in the log"), "{report}");
}

#[test]
fn an_input_cut_short_is_not_blamed_for_what_was_not_printed() {
    let cut = PROBE.rfind("cmd[0]: 070: ").expect("the mailbox");
    let report = one(&PROBE[..cut]);
    assert_eq!((report.what.as_str(), &report.offending), ("input of CREATE_EQ (0x301), op_mod 0x0", &Vec::new()));
    assert!(field(&report, "notes").contains("are not in the log"), "{report}");
}

#[test]
fn what_says_nothing_is_an_error_with_the_way_out() {
    let error = of_text(b"mlx5_core 0000:01:00.0: firmware version: 16.35.4030", Known::default())
        .expect_err("nothing")
        .to_string();
    assert!(error.contains("mlx5 explain KIND"), "{error}");
}

#[test]
fn no_text_and_no_bytes_panic() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let scraps = [
        "syndrome (0x",
        "status ",
        "CREATE_CQ(0x400) ",
        "op_mod(0x0) failed, ",
        "cqe ",
        "wqe ",
        "eqe ",
        "00000000 ",
        "ffffffff ",
        "dump command data X(0x1) INPUT\n",
        "assert_var[0] 0x",
        "synd 0x",
        "\n",
        "é",
        ")",
        "err(-22)",
        "99999999999",
    ];
    for _ in 0..2000 {
        let text: String = (0..random() % 24).map(|_| scraps[random() as usize % scraps.len()]).collect();
        let _ = of_text(text.as_bytes(), Known::default());
        let bytes: Vec<u8> = (0..random() % 160).map(|_| random() as u8).collect();
        for kind in [Kind::Cqe, Kind::Eqe, Kind::Wqe, Kind::Health, Kind::Command] {
            let _ = of_bytes(kind, &bytes, Known::default()).map(|report| report.to_string());
        }
    }
}

/// What a session says of a log.
fn of_log(text: &str) -> Vec<Report> {
    let mut session = log::Session::default();
    add(&mut session, text);
    session.into_reports()
}

fn add(session: &mut log::Session, text: &str) {
    session.add(text, false, |sighting| of_sighting(sighting, Known::default()));
}

const CQE: &str = "mlx5_core 0000:3b:00.0 ens1: Error cqe on cqn 0x4a9, ci 0x1f, sqn 0x1254, opcode 0xd, syndrome 0x4, vendor syndrome 0x51\n";

#[test]
fn an_iommu_fault_before_a_failure_of_the_same_function_is_named_as_its_cause() {
    let fault = "[  100.1] DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x7f000 [fault reason 0x05] PTE Write access is not set\n";
    let found = of_log(&format!("{fault}[  100.2] {CQE}"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].meaning.contains("IOMMU"), "{}", found[0]);
    assert!(found[1].causes[0].contains("just before: DMAR: [DMA Write"), "{}", found[1]);
    let seen = found[1].seen.as_ref().expect("a place");
    assert_eq!((seen.function.as_deref(), seen.first.as_deref()), (Some("0000:3b:00.0"), Some("100.2")));
    for text in [
        format!("{}[  100.2] {CQE}", fault.replace("3b:00.0", "5e:00.0")),
        format!("{fault}[  200.2] {CQE}"),
        format!("[  100.0] {CQE}[  300.0] x\n{}", fault.replace("100.1", "300.1")),
    ] {
        let found = of_log(&text);
        assert!(found.iter().all(|report| !report.to_string().contains("in this log")), "{text}{found:?}");
    }
}

#[test]
fn a_lost_link_explains_lost_packets_and_neither_a_wrong_key_nor_a_refused_command() {
    let down = "[   10.0] mlx5_core 0000:3b:00.0 ens1: Link down\n";
    let retry = CQE.replace("syndrome 0x4, vendor syndrome 0x51", "syndrome 0x15, vendor syndrome 0x81");
    let found = of_log(&format!("{down}[   10.5] {retry}"));
    assert!(found[1].causes[0].contains("Link down"), "{}", found[1]);
    let fault = "[   10.2] DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x7f000 [fault reason 0x05] PTE Write access is not set\n";
    let found = of_log(&format!("{fault}{down}[   10.5] {CQE}"));
    assert!(found[2].causes[0].contains("just before: DMAR: [DMA Write"), "{}", found[2]);
    let refused = "[ 10.1] mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:808:(pid 9): CREATE_CQ(0x400) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x62bbc6), err(-12)\n";
    let found = of_log(&format!("{down}{refused}"));
    assert!(!found[1].to_string().contains("in this log"), "{}", found[1]);
}

#[test]
fn repeated_events_are_told_once_with_their_number_and_times() {
    let text: String = (0..5).map(|at| format!("[  {at}.5] {}", CQE.replace("0x1f", &format!("{at:#x}")))).collect();
    let found = of_log(&text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().contains("0000:3b:00.0, 5 times, from 0.5 to 4.5"), "{}", found[0]);
    let other = format!("{text}[  9.0] {}", CQE.replace("3b:00.0", "5e:00.0"));
    assert_eq!(of_log(&other).len(), 2, "another function is another event");
}

#[test]
fn bursts_of_a_log_are_told_as_they_come() {
    let mut session = log::Session::default();
    add(&mut session, &format!("[  1.0] {CQE}"));
    assert_eq!(session.news().len(), 1);
    add(&mut session, &format!("[  2.0] {CQE}"));
    assert_eq!(session.news().len(), 0);
    assert!(session.repeated().contains("2 times, from 1.0 to 2.0"), "{}", session.repeated());
}

/// The last row of two error CQEs.
const ROWS_OF_ERRORS: [&str; 2] =
    ["00 00 00 00 00 00 88 13 08 00 12 34 00 07 2d d2", "00 00 00 00 00 00 f9 05 08 00 12 35 00 08 2d d2"];

/// The rows of a CQE as the kernel dumps it.
fn rows(time: &str, prefix: &str, last: &str) -> Vec<String> {
    let zeros = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
    let row = |(at, row): (usize, &str)| format!("[ {time}] {prefix}{:08x}: {row}\n", at * 16);
    [zeros, zeros, zeros, last].into_iter().enumerate().map(row).collect()
}

#[test]
fn hex_that_is_no_entry_does_not_hide_the_rest_of_a_log() {
    let refused = "[  100.0] mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:821:(pid 7): CREATE_MKEY(0x200) op_mod(0x0) \
        failed, status limits exceeded(0x8), syndrome (0x59c8a4), err(-12)\n";
    let oops = "[  101.0] RIP: 0010:mlx5e_handle_rx_cqe_mpwrq+0x1b6/0x3f0 [mlx5_core]\n[  101.0] Code: 41 0f b7 44 24 \
        3c 66 c1 c0 08 0f b7 c0 48 8b 53 20 48 8d 04 c2 41 8b 4c 24 2c 0f c9 48 89 c7 e8 5b 32 fe ff 48 85 c0 74\n";
    let express = "pcieport 0000:3a:00.0: Unexpected Completion\n\
        pcieport 0000:3a:00.0: AER:   TLP Header: 4a000001 01000004 00000000 00000000\n";
    let lost = rows("102.0", "cqe_dump: ", ROWS_OF_ERRORS[0])[1..].concat();
    for other in [oops, express, &lost] {
        let whats = found(&format!("{refused}{other}"));
        assert!(whats.iter().any(|what| what == "CREATE_MKEY failed"), "{whats:?}");
        assert!(whats.iter().all(|what| !what.contains("completion with error")), "{whats:?}");
    }
}

#[test]
fn another_message_between_the_rows_of_a_dump() {
    let mut lines = rows("1.0", "", ROWS_OF_ERRORS[0]);
    lines.insert(2, "[ 1.0] systemd[1]: Started something.\n".into());
    let text = format!("[ 1.0] infiniband mlx5_0: dump_cqe:272:(pid 1): dump error cqe\n{}", lines.concat());
    assert_eq!(one(&text).what, "completion with error REMOTE_ACCESS_ERR of a send");
}

#[test]
fn dumps_that_follow_each_other_or_come_from_two_processors() {
    let [one, other] = ROWS_OF_ERRORS.map(|last| rows("1.0", "cqe_dump: ", last));
    let follow = [one.concat(), other.concat()].concat();
    let both = ["completion with error REMOTE_ACCESS_ERR of a send", "completion with error WR_FLUSH_ERR of a send"];
    assert_eq!(found(&follow), both);
    let thrice = of_log(&[follow, one.concat()].concat());
    assert_eq!(thrice.iter().map(|report| report.seen.as_ref().map_or(1, |seen| seen.times)).sum::<u64>(), 3);
    let turns: String = one.iter().zip(&other).flat_map(|(one, other)| [one.as_str(), other]).collect();
    assert_eq!(found(&format!("[ 1.0] dump error cqe\n[ 1.0] dump error cqe\n{turns}")), both);
}

#[test]
fn a_dump_that_a_pause_cuts_waits_for_its_rest() {
    let lines = rows("1.0", "infiniband mlx5_0: cqe_dump: ", ROWS_OF_ERRORS[0]);
    let before = "[ 0.1] systemd[1]: a line\n".repeat(9);
    for cut in 1..lines.len() {
        let burst = format!("{before}{}", lines[..cut].concat());
        let whole = &burst[..recognise::unfinished(&burst)];
        assert!(before.starts_with(whole) && whole.len() >= before.len() / 2, "{cut}: {whole}");
    }
    let whole = format!("{before}{}", lines.concat());
    assert_eq!(recognise::unfinished(&whole), whole.len());
    assert_eq!(recognise::unfinished(&before), before.len());
    assert_eq!(recognise::unfinished(""), 0);
    let open =
        "x\ncmd[0]: dump command data CREATE_CQ(0x400) INPUT\ncmd[0]: 000: 04000000 00000000 00000000 00000000\n";
    assert_eq!(recognise::unfinished(open), 2);
    let health = "mlx5_core 0000:3b:00.0: print_health_info:428:(pid 0): assert_var[0] 0x00000001\n";
    assert_eq!(recognise::unfinished(health), 0);
}

#[test]
fn health_buffers_of_two_functions_that_print_in_turns() {
    let lines = |function: &str, irisc: u32, synd: &str, ext: &str| {
        let line = |text: String| format!("[  100.1] mlx5_core {function}: print_health_info:428:(pid 0): {text}\n");
        [
            line("assert_var[0] 0x00000001".into()),
            line("assert_exit_ptr 0x20b3eb4".into()),
            line(format!("irisc_index {irisc}")),
            line(format!("synd {synd}")),
            line(format!("ext_synd {ext}")),
        ]
    };
    let (one, other) =
        (lines("0000:3b:00.0", 4, "0x1: x", "0x8a12"), lines("0000:3b:00.1", 5, "0x10: High temperature", "0x8b00"));
    let turns: String = one.iter().zip(&other).flat_map(|(one, other)| [one.as_str(), other]).collect();
    let reports = of_log(&turns);
    let told: Vec<_> = reports
        .iter()
        .map(|report| {
            let function = report.seen.as_ref().and_then(|seen| seen.function.as_deref());
            (function, field(report, "irisc_index"), field(report, "ext_synd"))
        })
        .collect();
    assert_eq!(told, [(Some("0000:3b:00.0"), "4", "0x8a12"), (Some("0000:3b:00.1"), "5", "0x8b00")]);
}

/// As `mlx5_dump_debug_information` of DPDK writes it.
fn dpdk(title: &str, bytes: &[u8]) -> String {
    let hex = |row: &[u8]| row.iter().map(|byte| format!(" {byte:02X}")).collect::<String>();
    let rows =
        bytes.chunks(16).enumerate().map(|(at, row)| format!("{:08X}:{} | ................\n", at * 16, hex(row)));
    format!("{title} at [0x17d20c000], len={}\n{}\n\n\n", bytes.len(), rows.collect::<String>())
}

#[test]
fn of_dpdks_rings_the_failed_entry_and_its_wqe_are_explained() {
    let mut completions = [[0xff; 63].as_slice(), &[0xf1]].concat().repeat(8);
    completions[..64].fill(0);
    completions[0x36..0x40].copy_from_slice(&[0x53, 0x04, 0x29, 0x00, 0x12, 0x34, 0x00, 0x05, 0x00, 0xd0]);
    let mut sends = [0_u8; 8 * 64];
    sends[5 * 64..5 * 64 + 8].copy_from_slice(&[0, 0, 5, 0x0a, 0, 0x12, 0x34, 2]);
    let text = format!(
        "Unexpected CQE error syndrome 0x04 CQN = 1030 SQN = 4660 wqe_counter = 5 wq_ci = 40 cq_ci = 0\n\n\n{}{}{}",
        dpdk("MLX5 Error CQ:", &completions),
        dpdk("MLX5 Error SQ:", &sends),
        dpdk("MLX5 Error RQ:", &sends[..64]),
    );
    let reports = of_log(&text);
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert_eq!(reports[1].what, "completion with error LOCAL_PROT_ERR of a send");
    assert!(reports[2].to_string().contains("SEND"), "{}", reports[2]);
}

#[test]
fn what_the_kernel_says_of_dead_queues() {
    for (line, syndrome, word) in [
        (
            "mlx5_core 0000:02:00.0: cq_err_event_notifier:517:(pid 4374): CQ error on CQN 0x407, syndrome 0x1",
            "0x1",
            "overran",
        ),
        ("mlx5_core 0000:02:00.0: CQ error on CQN 0x407, syndrom 0x2", "0x2", "access violation"),
    ] {
        let report = one(line);
        assert_eq!(field(&report, "syndrome"), syndrome);
        assert!(report.meaning.contains(word), "{report}");
    }
    let of_interface = one("mlx5_core 0000:33:00.1 user2p2: mlx5e_cq_error_event: cqn=0x000954 event=0x04");
    assert!(of_interface.meaning.contains("the queue is dead"), "{of_interface}");
    // The text is of another status: 0x13 and 0x15 are syndromes of the card's.
    for (text, syndrome) in
        [("fatal error", "REMOTE_ACCESS_ERR (0x13)"), ("general error", "TRANSPORT_RETRY_EXC_ERR (0x15)")]
    {
        let report = one(&format!("[  1.0] rocep2s0/1: QP 137 error: {text} (0x81 0x1 0x2)"));
        let fields = ["syndrome", "vendor_error_syndrome", "qpn", "hw_syndrome_type", "hw_error_syndrome"];
        assert_eq!(fields.map(|name| field(&report, name)), [syndrome, "0x81", "0x89", "1", "2"]);
    }
    let unknown = one("rocep2s0/1: QP 137 error: unrecognized status (0x41 0x0 0x0)");
    assert_eq!((field(&unknown, "vendor_error_syndrome"), field(&unknown, "qpn")), ("0x41", "0x89"));
}

#[test]
fn vendor_numbers_as_nccl_iser_and_rpcrdma_print_them() {
    for line in [
        "NET/IB: Got completion from peer with status=IBV_WC_RETRY_EXC_ERR opcode=0 reqSize=0 vendor_err=129",
        "iser: iser_err_comp: rdma read failure: transport retry counter exceeded (12) vend_err 0x81",
        "rpcrdma: frwr_wc_fastreg: transport retry counter exceeded (12/0x81)",
    ] {
        let report = one(line);
        assert_eq!(
            (report.what.as_str(), field(&report, "vendor_error_syndrome")),
            ("ibv_wc_status IBV_WC_RETRY_EXC_ERR (12)", "0x81")
        );
    }
}

#[test]
fn cards_that_udev_named_are_told_apart() {
    let [one, other] = ["rocep59s0f0", "rocep175s0f0"].map(|device| {
        let rows = rows("1.0", "", ROWS_OF_ERRORS[0]).concat();
        format!("[ 1.0] infiniband {device}: dump_cqe:272:(pid 1): dump error cqe\n{rows}")
    });
    let of = |report: &Report| report.seen.as_ref().and_then(|seen| seen.function.clone());
    let functions: Vec<_> = of_log(&[one, other].concat()).iter().map(of).collect();
    assert_eq!(functions, [Some("rocep59s0f0".to_owned()), Some("rocep175s0f0".to_owned())]);
}

#[test]
fn nothing_of_a_log_commands_the_terminal_and_colours_hide_no_time() {
    let refused = "CREATE_CQ(0x400) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x62bbc6), err(-12)";
    let coloured = format!("\x1b[32m[ 1000.000001] \x1b[0m\x1b[33mmlx5_core 0000:3b:00.0: \x1b[0m{refused}\r\n");
    let reports = of_text(coloured.as_bytes(), Known::default()).expect("it is recognised");
    let seen = reports[0].seen.as_ref().expect("a place");
    assert_eq!((seen.function.as_deref(), seen.first.as_deref()), (Some("0000:3b:00.0"), Some("1000.000001")));
    let evil =
        "[ 1.0] mlx5_core 0000:3b:00.0: PCI channel offline \x1b]0;evil\x07 \x1b[2Jstop\r\x08 \u{9b}1m waiting\r\n";
    let report = of_text(evil.as_bytes(), Known::default()).expect("it is recognised").remove(0).to_string();
    let shown = crate::output::printable(&report);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert!(
        shown.starts_with(r"PCI channel offline \u{1b}]0;evil\u{7} \u{1b}[2Jstop\r\u{8} \u{9b}1m waiting"),
        "{shown}"
    );
}

/// Time that this thread has run, whatever else the machine does.
fn time_run() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    stat.split(' ').next().and_then(|time| time.parse().ok()).expect("nanoseconds")
}

#[test]
fn a_log_four_times_as_long_does_not_take_sixteen_times_as_long() {
    let refusal = |at: usize| {
        format!(
            "[ {at}.5] mlx5_core 0000:3b:00.0: CREATE_EQ(0x301) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x{at:x}), err(-22)\n"
        )
    };
    let counter = |at: usize| format!("     rx{at}_wqe_err: {}\n", at + 1);
    let health =
        |at: usize| format!("[ {at}.5] mlx5_core 0000:3b:00.0: assert_var[0] 0x{at:x} synd 0x1 ext_synd 0x8a\n");
    // All on one line.
    let giant = |_: usize| "00 ".repeat(64);
    let kinds: [(&str, &dyn Fn(usize) -> String); 4] =
        [("refusals", &refusal), ("counters", &counter), ("health", &health), ("dumps", &giant)];
    for (name, line) in kinds {
        let time = |lines: usize| {
            let log: String = (0..lines).map(line).chain(["\n".into(), refusal(0)]).collect();
            let before = time_run();
            let reports = of_text(log.as_bytes(), Known::default());
            assert!(reports.is_ok_and(|reports| !reports.is_empty()), "{name}");
            time_run() - before
        };
        // Who is quadratic takes sixteen times as long each time; a busy machine may disturb one.
        let mut tries = (0..5).map(|_| (time(3000), time(12000)));
        assert!(tries.any(|(short, long)| long < short * 8), "{name}: five times more than eight times as long");
    }
}

#[test]
fn a_line_without_end_is_no_text() {
    let failed = input::read_lines(std::io::repeat(0)).expect_err("it has no end").to_string();
    assert_eq!(failed, "line 1 is longer than 8 MiB: this is no text");
    let long = "0".repeat(4 << 20) + "\n";
    let read = input::read_lines(long.repeat(3).as_bytes()).expect("each line is short enough");
    assert_eq!(read.len(), 3 * long.len());
}
