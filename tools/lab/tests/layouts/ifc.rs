//! The names in a kernel's `mlx5_ifc*.h`: every structure, and its members that are not reserved.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The headers that declare them.
const HEADERS: [&str; 3] = ["mlx5_ifc.h", "mlx5_ifc_fpga.h", "mlx5_ifc_vdpa.h"];

/// A structure, or a union.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Structure {
    /// Named members of fixed size, including those of anonymous structures and unions.
    pub members: Vec<String>,
    /// Members without a size at the end, such as page lists.
    pub tails: Vec<String>,
    /// Members that are structures or unions.
    pub parts: Vec<String>,
}

/// Every `mlx5_ifc_*` under an include folder, by its name.
pub fn structures(include: &Path) -> BTreeMap<String, Structure> {
    let read = |name| fs::read_to_string(include.join("linux/mlx5").join(name)).expect(name);
    HEADERS.iter().flat_map(|name| parse(&read(name))).collect()
}

/// The structures that a header's text declares.
pub fn parse(text: &str) -> BTreeMap<String, Structure> {
    let text = without_comments(text);
    let mut words = words(&text).into_iter().peekable();
    let mut found = BTreeMap::new();
    while let Some(word) = words.next() {
        if !matches!(word, "struct" | "union") {
            continue;
        }
        let Some(name) = words.next_if(|name| name.starts_with("mlx5_ifc_") && name.ends_with("_bits")) else {
            continue;
        };
        if words.next_if(|next| *next == "{").is_some() {
            let mut structure = Structure::default();
            read_members(&mut words, &mut structure);
            found.insert(name.to_owned(), structure);
        }
    }
    found
}

/// The names of all enumerators in a header's text.
pub fn enumerators(text: &str) -> Vec<String> {
    let text = without_comments(text);
    let words = words(&text);
    let mut found = Vec::new();
    let mut lists = words.as_slice();
    while let Some(start) = lists.iter().position(|word| *word == "enum") {
        lists = &lists[start + 1..];
        // `enum {` and `enum name {` are declarations; anything else only refers to one.
        let Some(open) = lists.iter().take(2).position(|word| *word == "{") else { continue };
        let end = lists.iter().position(|word| *word == "}").unwrap_or(lists.len());
        let entries = lists[open + 1..end].split(|word| *word == ",");
        found.extend(entries.filter_map(|entry| entry.first()).map(|name| (*name).to_owned()));
        lists = &lists[end..];
    }
    found
}

type Words<'a> = std::iter::Peekable<std::vec::IntoIter<&'a str>>;

/// Reads members up to the closing brace, inclusive.
fn read_members<'a>(words: &mut Words<'a>, into: &mut Structure) {
    let mut statement: Vec<&'a str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "}" => return,
            // A nested structure or union. With a name it is one member, without a name its members count.
            "{" => {
                let mut inner = Structure::default();
                read_members(words, &mut inner);
                statement.clear();
                let name = words.next_if(|next| *next != ";");
                match name {
                    Some(name) => statement.push(name),
                    None => {
                        into.members.append(&mut inner.members);
                        into.tails.append(&mut inner.tails);
                    }
                }
                into.parts.append(&mut inner.parts);
            }
            ";" => add_member(&std::mem::take(&mut statement), into),
            word => statement.push(word),
        }
    }
}

/// Adds the member that `u8 name[0x10]`, `struct mlx5_ifc_x_bits name`, `u8 name[][0x40]` or `DECLARE_FLEX_ARRAY(type,
/// name)` declares.
fn add_member(statement: &[&str], into: &mut Structure) {
    if let ["DECLARE_FLEX_ARRAY", .., name, ")"] = statement {
        into.tails.push((*name).to_owned());
        return;
    }
    let dimensions = statement.iter().position(|word| *word == "[").unwrap_or(statement.len());
    let Some(name) = statement[..dimensions].last() else { return };
    if let ["struct" | "union", part, ..] = statement {
        into.parts.push((*part).to_owned());
    }
    let is_tail = matches!(statement[dimensions..], ["[", "]", ..] | ["[", "0" | "0x0", "]", ..]);
    if is_tail {
        into.tails.push((*name).to_owned());
    } else if !name.starts_with("reserved") {
        into.members.push((*name).to_owned());
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    let lines = out.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Identifiers, numbers and single characters.
fn words(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

#[test]
fn every_way_a_member_is_declared_is_read() {
    let text = "
        #define X 1
        /* struct mlx5_ifc_not_bits { u8 no[0x1]; }; */
        enum { MLX5_A = 1 };
        struct mlx5_ifc_first_bits {
            u8 reserved_at_0[0x8]; // gone
            u8   wide[X][0x20];
            union {
                struct mlx5_ifc_b_bits by_b;
                struct { u8 inner[0x8]; u8 reserved_at_8[0x8]; };
            };
            struct { u8 hidden[0x1]; } pair[2];
            union mlx5_ifc_c_bits c;
            u8 pas[][0x40];
            DECLARE_FLEX_ARRAY(struct mlx5_ifc_b_bits, more);
        };
        union mlx5_ifc_c_bits { struct mlx5_ifc_b_bits b[0]; u8 reserved_at_0[0x40]; };
        struct mlx5_ifc_only_named_bits;
        static inline int f(struct mlx5_ifc_c_bits *c) { return 0; }
    ";
    let found = parse(text);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["mlx5_ifc_c_bits", "mlx5_ifc_first_bits"]);
    let first = &found["mlx5_ifc_first_bits"];
    assert_eq!(first.members, names(&["wide", "by_b", "inner", "pair", "c"]));
    assert_eq!(first.tails, names(&["pas", "more"]));
    assert_eq!(first.parts, names(&["mlx5_ifc_b_bits", "mlx5_ifc_c_bits"]));
    assert_eq!(found["mlx5_ifc_c_bits"].tails, names(&["b"]));
}

#[test]
fn enumerators_are_read() {
    let text = "enum { A = 1 << 3, /* , NO */ B, }; enum thing {\n C = A | B\n}; void f(enum thing no); enum { D };";
    assert_eq!(enumerators(text), ["A", "B", "C", "D"]);
}
