//! Checks of the check: each kind of error is injected, and must be reported, and nothing else.

use std::collections::BTreeSet;

use crate::c_program::Answers;
use crate::claims::{self, Claim, Fact, Header};
use crate::verdict::{judge, unaccounted};
use crate::{ANSWERS, ask, changed};

/// A claim of mlx5-prm with an injected error.
fn claim(what: &str, question: &str, says: Fact) -> Claim {
    let (what, question) = (what.to_owned(), question.to_owned());
    Claim { what, header: Header::Kernel, question, says, named: true, may_grow: true }
}

fn set(whats: &[&str]) -> BTreeSet<String> {
    whats.iter().map(|what| (*what).to_owned()).collect()
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_wrong_claim_is_reported() {
    let wrong = [
        ("Cqc.log_cq_size", Fact::Place(0xc * 8 + 4, 5)),
        ("Qpc.pd", Fact::Place(0x4 * 8 + 8, 23)),
        ("CreateQpIn", Fact::Place(0, 0x10c * 8)),
        ("Cqe.opcode", Fact::Place(0x3f * 8 + 1, 4)),
        ("CtrlSeg.wqe_index", Fact::Place(16, 16)),
        ("Opcode.CREATE_CQ", Fact::Number(0x401)),
    ];
    let mut claims = claims::of_layouts();
    claims.extend(claims::of_values());
    let mut put_in = BTreeSet::new();
    for claim in &mut claims {
        if let Some((what, says)) = wrong.iter().find(|(what, _)| *what == claim.what) {
            claim.says = *says;
            put_in.insert((*what).to_owned());
        }
    }
    assert_eq!(put_in.len(), wrong.len());
    let both: Vec<_> = [changed(true), changed(false)].concat();
    let faults = judge(&claims, &ANSWERS, &both).faults;
    let named: BTreeSet<_> = faults.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(named, put_in, "{faults:#?}");
}

/// Compiler errors are assigned to the right questions, for each way in which a name can be unknown.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn what_no_header_knows_is_told_from_what_one_knows() {
    let place = Fact::Place(0xc * 8 + 3, 5);
    let claims = [
        claim("member", "IFC(struct mlx5_ifc_cqc_bits, no_such_member)", place),
        claim("right", "IFC(struct mlx5_ifc_cqc_bits, log_cq_size)", place),
        claim("structure", "IFC(struct mlx5_ifc_no_such_bits, log_cq_size)", place),
        claim("size", "IFC_SIZE(struct mlx5_ifc_no_such_bits)", place),
        claim("constant", "NUMBER(MLX5_NO_SUCH_CONSTANT)", Fact::Number(1)),
        claim("constant again", "NUMBER(MLX5_NO_SUCH_CONSTANT)", Fact::Number(1)),
        claim("mask", "MASKED(struct mlx5_wqe_ctrl_seg, qpn_ds, MLX5_NO_SUCH_MASK)", place),
        claim("accessor", "MASKED(struct mlx5_cqe64, op_own, READ_BY(struct mlx5_cqe64, op_own, no_such))", place),
        claim("also right", "NUMBER(MLX5_CMD_OP_CREATE_CQ)", Fact::Number(0x400)),
    ];
    let verdict = judge(&claims, &ask(&claims), &[]);
    assert_eq!(verdict.confirmed, set(&["right", "also right"]));
    assert_eq!(verdict.faults.len(), 7, "{:#?}", verdict.faults);
    assert!(verdict.faults.iter().all(|fault| fault.contains("no header knows")), "{:#?}", verdict.faults);
}

/// The two kernels are distinguished: `esw_cap` was removed after 6.12, `psp_cap` was added.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn what_one_kernel_alone_has_is_listed() {
    let whole = Fact::Place(0, 0x800);
    let claims = [
        claim("EswCap", "IFC_SIZE(struct mlx5_ifc_esw_cap_bits)", whole),
        claim("PspCap", "IFC_SIZE(struct mlx5_ifc_psp_cap_bits)", whole),
        claim("QosCap", "IFC_SIZE(struct mlx5_ifc_qos_cap_bits)", whole),
    ];
    let verdict = judge(&claims, &ask(&claims), &[]);
    assert_eq!(verdict.faults, [""; 0]);
    assert_eq!((verdict.gone, verdict.since), (set(&["EswCap"]), set(&["PspCap"])));
}

/// Ours follows the newest kernel. A structure may have grown; a moved field needs a reason, and a reason must be
/// needed.
#[test]
fn the_newest_kernel_is_followed() {
    let answers = |name: &str, facts: [Fact; 2]| {
        let facts = ["size", "field"].iter().map(|question| question.to_string()).zip(facts.map(Some)).collect();
        Answers { header: Header::Kernel, name: name.into(), facts }
    };
    let (small, big) = (Fact::Place(0, 0x80), Fact::Place(0, 0x100));
    let (here, there) = (Fact::Place(8, 4), Fact::Place(12, 4));
    let kernels = [answers("old", [small, here]), answers("new", [big, there])];

    let ours = [claim("Thing", "size", big), claim("Thing.field", "field", there)];
    let verdict = judge(&ours, &kernels, &[]);
    assert_eq!(verdict.grew, set(&["Thing"]));
    assert_eq!(verdict.faults, ["Thing.field: mlx5-prm 0x00 [19:16]; old 0x00 [23:20], new 0x00 [19:16] to field"]);
    assert_eq!(judge(&ours, &kernels, &[("Thing.field", "why")]).faults, [""; 0]);
    let faults = judge(&ours[..1], &kernels, &[("Thing", "why")]).faults;
    assert_eq!(faults, ["Thing: listed as changed, but is not"]);

    let old = [claim("Thing", "size", small), claim("Thing.field", "field", here)];
    assert_eq!(judge(&old, &kernels, &[("Thing.field", "why")]).faults.len(), 3);
}

#[test]
fn what_is_neither_confirmed_nor_excused_is_reported() {
    let all = set(&["A", "A.x", "B", "B.y"]);
    assert_eq!(unaccounted(&all, &set(&["A", "A.x"]), &[("B", "why")]), [""; 0]);
    let missing = ["B.y: no header has it, and no reason is given"];
    assert_eq!(unaccounted(&all, &set(&["A", "A.x", "B"]), &[]), missing);
    assert_eq!(unaccounted(&all, &all, &[("B.y", "why")]), ["B.y: excused, but confirmed or not there"]);
    assert_eq!(unaccounted(&all, &all, &[("C", "why")]), ["C: excused, but confirmed or not there"]);
}
