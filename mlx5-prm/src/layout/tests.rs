use super::*;

const fn bits(name: &'static str, offset: usize, hi: u32, lo: u32) -> Field {
    Field { name, offset, kind: Kind::Bits { hi, lo, reading: Reading::Number }, choice: None }
}

fn prove(size: usize, fields: &'static [Field]) {
    Info::proven((false, "Thing"), "none", size, fields, None);
}

#[test]
fn arms_lie_over_each_other() {
    let arms = const { &[bits("a", 0, 31, 16), bits("b", 0, 31, 0)] };
    Info::proven((true, "Thing"), "none", 4, arms, None);
}

#[test]
#[should_panic(expected = "Thing.b is an arm, and should start where its union starts")]
fn an_arm_elsewhere() {
    let arms = const { &[bits("a", 0, 31, 16), bits("b", 4, 31, 0)] };
    Info::proven((true, "Thing"), "none", 8, arms, None);
}

#[test]
fn neighbours_are_accepted() {
    prove(0x10, const { &[bits("a", 0, 31, 16), bits("b", 0, 15, 15), bits("c", 4, 63, 0), bits("d", 12, 0, 0)] });
}

#[test]
#[should_panic(expected = "Thing is not made of whole dwords")]
fn half_a_dword() {
    prove(0x6, &[]);
}

#[test]
#[should_panic(expected = "Thing.b overlaps the field before it, or should stand before it")]
fn an_overlap() {
    prove(0x4, const { &[bits("a", 0, 31, 16), bits("b", 0, 17, 17)] });
}

#[test]
#[should_panic(expected = "Thing.a runs past the end")]
fn past_the_end() {
    prove(0x4, const { &[bits("a", 4, 31, 0)] });
}

#[test]
#[should_panic(expected = "Thing.a is not at a dword")]
fn between_dwords() {
    prove(0x8, const { &[bits("a", 2, 31, 0)] });
}

#[test]
#[should_panic(expected = "Thing.part is not at a dword")]
fn a_layout_between_dwords() {
    static INNER: Info = Info { name: "Inner", c_name: "none", size: 4, is_union: false, fields: &[], tail: None };
    let kind = Kind::Part { element: Element::Layout(&INNER), count: 1 };
    let fields = std::boxed::Box::leak(std::boxed::Box::new([Field { name: "part", offset: 2, kind, choice: None }]));
    prove(0x8, fields);
}

#[test]
#[should_panic(expected = "Thing.a crosses a dword")]
fn across_dwords() {
    prove(0x8, const { &[bits("a", 0, 39, 0)] });
}

#[test]
#[should_panic(expected = "Thing.a is wider than its type")]
fn too_wide_for_its_type() {
    Field::of_bits::<u8, _>("Thing", "a", 0, [8, 0]);
}

#[test]
fn a_layout_goes_by_the_name_the_prm_prints() {
    let name = |c_name| Info { name: "Rust", c_name, size: 4, is_union: false, fields: &[], tail: None }.prm_name();
    assert_eq!(name("mlx5_ifc_create_cq_in_bits"), "create_cq_in");
    assert_eq!(name("mlx5_ifc_mcam_access_reg_bits2"), "mcam_access_reg_bits2");
    assert_eq!(name("mlx5_ifc_flow_table_context_bits."), "Rust", "a union without a name");
    assert_eq!((name("mlx5_cqe64"), name("health_buffer"), name("none")), ("cqe64", "health_buffer", "Rust"));
}
