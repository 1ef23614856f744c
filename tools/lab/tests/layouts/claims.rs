//! The content of mlx5-prm, as claims that a header can confirm.

use std::fmt;

use mlx5_prm::layout::{Element, Field, Info, Kind};
use mlx5_prm::registry::{LAYOUTS, VALUES};

use crate::counterparts::{self, BIT_FIELD, CM_FIELD, CM_MEMORY, Counterpart};
use crate::values::CONSTANTS;

/// Origin of the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The kernel's `mlx5_ifc.h`, `device.h`, `qp.h` and `cq.h`.
    Kernel,
    /// rdma-core's `mlx5dv.h`.
    Verbs,
    /// Not a header: declarations in the source of the kernel's drivers.
    Drivers,
    /// Not a header: declarations in the source of libmlx5.
    Provider,
}
use Header::{Drivers, Kernel, Provider};

/// Position of a field or layout: first bit and number of bits; or a single number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    Place(u64, u64),
    Number(i64),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fact::Place(start, bits) if bits > 0 && start % 32 + bits <= 32 => {
                let high = 31 - start % 32;
                write!(f, "{:#04x} [{high}:{}]", start / 32 * 4, high + 1 - bits)
            }
            Fact::Place(start, bits) => write!(f, "{bits:#x} bits from bit {start:#x}"),
            Fact::Number(number) => write!(f, "{number:#x}"),
        }
    }
}

/// A claim of mlx5-prm, and the C expression that asks the header.
#[derive(Debug, Clone)]
pub struct Claim {
    /// `Layout.field`, `Layout` for its size, `Values.NAME`.
    pub what: String,
    pub header: Header,
    pub question: String,
    pub says: Fact,
    /// The C name is given explicitly, so a header must have it.
    pub named: bool,
    /// It may be larger in a newer header: it is a structure, or contains one.
    pub may_grow: bool,
}

impl Claim {
    fn of_field(info: &Info, name: &str, header: Header, c: &str, member: &str, mask: &str) -> Claim {
        let what = format!("{}.{name}", info.name);
        let field = info.field(name).unwrap_or_else(|| panic!("{what} is in the table here, not in mlx5-prm"));
        let question = match (is_ifc(c), mask) {
            (true, _) => format!("IFC({}, {member})", c_type(info, c)),
            (false, "") => format!("WHOLE({}, {member})", c_type(info, c)),
            (false, BIT_FIELD) => format!("BIT_FIELD({}, {member})", c_type(info, c)),
            (false, CM_FIELD) => format!("CM_PLACE({member})"),
            (false, CM_MEMORY) => format!("CM_BYTES({member})"),
            (false, mask) => format!("MASKED({}, {member}, {mask})", c_type(info, c)),
        };
        let says = Fact::Place(unnamed_start(info) + field.start_bit() as u64, field.bits() as u64);
        let may_grow = matches!(field.kind, Kind::Part { .. });
        Claim { what, header, question, says, named: true, may_grow }
    }

    /// The list after the fixed part: its position, and the size of an element, unless that depends on other fields, or
    /// the list is plain bytes.
    fn of_list(info: &Info, list: &Field, header: Header, c: &str) -> Claim {
        let Kind::Part { element, .. } = list.kind else { panic!("{}.{} is no list", info.name, list.name) };
        let (ask, bits) = match (list.choice, element) {
            (Some(_), _) | (None, Element::U8) => ("IFC_LIST_START", 0),
            (None, element) => ("IFC_LIST", element.size() as u64 * 8),
        };
        Claim {
            what: format!("{}.{}", info.name, list.name),
            header,
            question: format!("{ask}({}, {})", c_type(info, c), list.name),
            says: Fact::Place(list.start_bit() as u64, bits),
            named: false,
            may_grow: false,
        }
    }

    fn of_size(info: &Info, header: Header, c: &str) -> Claim {
        let size = if is_ifc(c) { "IFC_SIZE" } else { "SIZE" };
        let says = Fact::Place(0, info.size as u64 * 8);
        let question = format!("{size}({})", c_type(info, c));
        Claim { what: info.name.into(), header, question, says, named: true, may_grow: true }
    }
}

/// Whether a C structure is one of `mlx5_ifc.h`, in which each bit is declared as a byte.
pub fn is_ifc(c: &str) -> bool {
    c.starts_with("mlx5_ifc_")
}

fn c_type(info: &Info, c: &str) -> String {
    match c.strip_suffix('.') {
        Some(parent) => format!("struct {parent}"),
        None if info.is_union => format!("union {c}"),
        None => format!("struct {c}"),
    }
}

/// An anonymous union, whose members C treats as members of the enclosing structure: `mlx5_ifc_parent_bits.`.
pub fn is_unnamed(info: &Info) -> bool {
    info.c_name.ends_with('.')
}

/// The first bit of an anonymous union in its structure; 0 for everything else.
fn unnamed_start(info: &Info) -> u64 {
    if !is_unnamed(info) {
        return 0;
    }
    let is_it = |field: &&Field| match field.kind {
        Kind::Part { element: Element::Layout(inner), .. } => inner.name == info.name,
        _ => false,
    };
    let parents = LAYOUTS.iter().filter(|parent| Some(parent.c_name) == info.c_name.strip_suffix('.'));
    let field = parents.flat_map(|parent| parent.fields).find(is_it);
    field.unwrap_or_else(|| panic!("{} lies in no layout of {}", info.name, info.c_name)).start_bit() as u64
}

/// Every claim about layouts that a header can confirm.
pub fn of_layouts() -> Vec<Claim> {
    let mut claims = Vec::new();
    for info in LAYOUTS.iter().filter(|info| is_ifc(info.c_name)) {
        claims.extend([Kernel, Drivers, Provider].into_iter().flat_map(|header| of_ifc(info, header)));
    }
    for counterpart in counterparts::all() {
        let info = LAYOUTS.iter().find(|info| info.name == counterpart.layout).expect(counterpart.layout);
        if counterpart.sized {
            claims.push(Claim::of_size(info, counterpart.header, counterpart.c));
        }
        for (field, member, mask) in counterpart.fields {
            match info.tail.filter(|list| list.name == *field) {
                Some(list) => claims.extend(of_counterpart_list(info, &list, counterpart, member)),
                None => claims.push(Claim::of_field(info, field, counterpart.header, counterpart.c, member, mask)),
            }
        }
    }
    claims
}

/// Claims about a layout that ends where a list starts, which is a member of another structure or at its end.
fn of_counterpart_list(info: &Info, list: &Field, counterpart: &Counterpart, member: &str) -> [Claim; 2] {
    let (header, c) = (counterpart.header, counterpart.c);
    let question = match (is_ifc(c), member) {
        (true, member) => format!("IFC_LIST_START({}, {member})", c_type(info, c)),
        (false, _) => format!("END({})", c_type(info, c)),
    };
    let says = Fact::Place(list.start_bit() as u64, 0);
    [format!("{}.{}", info.name, list.name), info.name.to_owned()].map(|what| Claim {
        what,
        header,
        question: question.clone(),
        says,
        named: true,
        may_grow: false,
    })
}

/// Claims about a layout that is a structure of `mlx5_ifc.h`, or of a program's own copy of it.
fn of_ifc(info: &'static Info, header: Header) -> Vec<Claim> {
    // libmlx5 declares only the part of a structure that it uses.
    let whole = !is_unnamed(info) && header != Provider;
    let size = whole.then(|| Claim::of_size(info, header, info.c_name));
    let fields = info.fields.iter().map(|field| Claim::of_field(info, field.name, header, info.c_name, field.name, ""));
    let list = info.tail.iter().map(|list| Claim::of_list(info, list, header, info.c_name));
    // One header may lack it; what no header has is reported at the end.
    size.into_iter().chain(fields).map(|claim| Claim { named: false, ..claim }).chain(list).collect()
}

/// Every claim about enumerations.
pub fn of_values() -> Vec<Claim> {
    let mut claims = Vec::new();
    for constants in CONSTANTS {
        let values = VALUES.iter().find(|values| values.name == constants.values).expect(constants.values);
        for (name, number) in values.named {
            let otherwise = constants.otherwise.iter().find(|(prm, _)| prm == name).map(|(_, c)| *c);
            let c = otherwise.map_or_else(|| format!("{}{name}", constants.prefix), str::to_owned);
            claims.push(Claim {
                what: format!("{}.{name}", values.name),
                header: constants.header,
                question: format!("NUMBER({c})"),
                says: Fact::Number((*number).into()),
                // A header may have only some of them.
                named: otherwise.is_some(),
                may_grow: false,
            });
        }
    }
    claims
}
