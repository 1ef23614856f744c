//! Declaration, storage and description of layouts.
//!
//! A layout is a sequence of big-endian dwords. Each field is declared as the PRM prints it: the absolute byte offset
//! of its dword and `[high:low]`. One line declares a getter on the layout, a setter of the same name on its
//! [`Writer`], and a row of [`Layout::FIELDS`].
//!
//! ```
//! mlx5_prm::layout! {
//!     /// A thing of two dwords.
//!     pub struct Thing: 0x8, "none" {
//!         0x00 [31:28] status: u8,
//!         0x00 [17]    armed: bool,
//!         0x04 [23:0]  number: u32,
//!     }
//! }
//! use mlx5_prm::layout::Layout;
//!
//! let mut thing = Thing::default();
//! thing.w().armed(true).number(0xabcdef);
//! assert_eq!(thing.number(), 0xabcdef);
//! assert_eq!(thing.as_bytes(), [0, 2, 0, 0, 0, 0xab, 0xcd, 0xef]);
//! assert_eq!(Thing::FIELDS[2].name, "number");
//! ```
//!
//! The accessors of a field `u8 as Names` use the number; a [`Dump`](crate::decode::Dump) prints its name.
//! [`values!`](crate::values!) declares `Names`: the Rust name, PRM name and meaning of each number. A field without
//! `[high:low]` is a part at a byte offset: another layout, or an array of bytes, big-endian numbers or layouts. `=
//! value` after the type is the field's [`Default`]. Bits that no field covers are reserved.
//!
//! ```
//! use mlx5_prm::layout::{Be64, Layout};
//!
//! mlx5_prm::layout! {
//!     /// Inner.
//!     pub struct Inner: 0x4, "none" { 0x00 [31:0] number: u32 = 7, }
//!
//!     /// Outer.
//!     pub struct Outer: 0x24, "none" {
//!         0x00 [31:16] opcode: u16 = 0x100,
//!         0x04 inner: Inner,
//!         0x08 list: [Be64; 2],
//!         0x18 [63:0] address: u64,
//!     }
//! }
//! let mut outer = Outer::default();
//! outer.w().inner(&Inner::default()).list(&[Be64::new(1), Be64::new(2)]).address(1 << 40);
//! assert_eq!(outer.inner().number(), 7);
//! assert_eq!(outer.list()[1].get(), 2);
//! assert_eq!(outer.as_bytes()[..4], [1, 0, 0, 0]);
//! ```
//!
//! # Unions, lists, and chosen layouts
//! A `pub union` is declared in the same way; its fields, the arms, overlap. An anonymous C union is a layout of its
//! own here, named after its structure and member (`match_definer.match_mask`).
//!
//! `.. name: [Element]` as the last line declares a list after the fixed part, with as many elements as there are
//! bytes. It adds the row [`Info::tail`] and no accessor: the layout itself ends before the list.
//!
//! `where function` after the type of a part or list names a [`Choice`]: a function that chooses its layout by the
//! bytes of the enclosing layout. For a union it chooses the arm, for an array of bytes the layout to read it as.
//!
//! ```
//! use mlx5_prm::decode::Dump;
//! use mlx5_prm::layout::{Info, Layout};
//!
//! mlx5_prm::layout! {
//!     /// One arm.
//!     pub struct Port: 0x4, "none" { 0x00 [15:0] port: u16, }
//!
//!     /// The other.
//!     pub struct Table: 0x4, "none" { 0x00 [23:0] table_id: u32, }
//!
//!     /// A destination.
//!     pub union Destination: 0x4, "none" {
//!         0x00 port: Port,
//!         0x00 table: Table,
//!     }
//!
//!     /// Where to.
//!     pub struct Rule: 0x8, "none" {
//!         0x00 [0] to_table: bool,
//!         0x04 destination: Destination where arm,
//!         .. others: [Destination],
//!     }
//! }
//!
//! impl Rule {
//!     fn arm(bytes: &[u8], _index: usize) -> Option<&'static Info> {
//!         Some(if Rule::read(bytes)?.to_table() { &Table::INFO } else { &Port::INFO })
//!     }
//! }
//!
//! let mut table = Table::default();
//! table.w().table_id(7);
//! let mut destination = Destination::default();
//! destination.w().table(&table);
//! let mut rule = Rule::default();
//! rule.w().to_table(true).destination(&destination);
//! assert_eq!(rule.destination().table().table_id(), 7);
//! assert!(Dump::of(&rule).to_string().ends_with("table_id = 0x7\n"));
//! ```
//!
//! # What does not compile
//! Each error names the layout and the field. Fields must stand in the order of their bits, so that overlaps are
//! detected:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.b overlaps the field before it, or should stand before it".
//!     pub struct Wrong: 0x4, "none" { 0x00 [31:16] a: u16, 0x00 [17] b: bool, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same with `b` beside `a`.
//!     pub struct Right: 0x4, "none" { 0x00 [31:16] a: u16, 0x00 [15] b: bool, }
//! }
//! ```
//!
//! A field past the end, or not at a dword:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a runs past the end".
//!     pub struct Wrong: 0x4, "none" { 0x04 [31:0] a: u32, }
//! }
//! ```
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a is not at a dword".
//!     pub struct Wrong: 0x8, "none" { 0x02 [31:0] a: u32, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same where there is room.
//!     pub struct Right: 0x8, "none" { 0x04 [31:0] a: u32, }
//! }
//! ```
//!
//! A field wider than its type:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a is wider than its type".
//!     pub struct Wrong: 0x4, "none" { 0x00 [8:0] a: u8, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same in a type that holds nine bits.
//!     pub struct Right: 0x4, "none" { 0x00 [8:0] a: u16, }
//! }
//! ```
//!
//! A field that crosses a dword, unless it is a whole quadword:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a crosses a dword".
//!     pub struct Wrong: 0x8, "none" { 0x00 [39:0] a: u64, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same with all 64 bits.
//!     pub struct Right: 0x8, "none" { 0x00 [63:0] a: u64, }
//! }
//! ```
//!
//! # In another crate
//! The declaration works wherever `zerocopy` is in scope: as a dependency, or by `use mlx5_prm::zerocopy;`. A module
//! can have one [`layout!`](crate::layout!) block, because it also defines the table `LAYOUTS`.

#[macro_use]
mod macros;
pub(crate) mod files;
pub(crate) mod print;
mod proof;
mod storage;
mod table;
#[cfg(test)]
mod tests;
mod value;

#[doc(hidden)]
pub use print::debug;
#[doc(hidden)]
pub use storage::{get, part, set, set_part};
pub use table::{Choice, Element, Field, Info, Kind, Reading, Values};
pub use value::{ArrayElement, Be16, Be32, Be64, Layout, Part, Value, Writer};
