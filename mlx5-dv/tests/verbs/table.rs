//! What a row of `docs/verbs.md` says, and the page that is made of the rows.

use std::fmt::Write;

/// How much of a verb the driver offers.
#[derive(Clone, Copy)]
pub enum Offered {
    Whole,
    /// What is missing, and why.
    Part(&'static str),
    /// Why not.
    No(&'static str),
}

/// A way to a card: the beginning of a device string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Vfio,
    Devx,
    VfioUser,
    Sim,
}

/// Every way.
pub const EVERY: &[Way] = &[Way::Vfio, Way::Devx, Way::VfioUser, Way::Sim];
/// The ways to a function that this process owns.
pub const OWNED: &[Way] = &[Way::Vfio, Way::VfioUser, Way::Sim];
/// The way beside the kernel's driver.
pub const DEVX: &[Way] = &[Way::Devx];

/// One or more verbs that belong together.
pub struct Row {
    pub verbs: &'static [&'static str],
    pub offered: Offered,
    /// Our calls, made by `calls!`.
    pub calls: &'static [&'static str],
    pub ways: &'static [Way],
    /// `""` where a verb has nothing to do with transports.
    pub transports: &'static str,
    /// `PROGRAM::FUNCTION` of `tools/lab/tests`.
    pub judges: &'static [&'static str],
    pub remarks: &'static str,
}

pub struct Section {
    pub title: &'static str,
    pub rows: &'static [Row],
}

/// The names of calls, each of which the compiler has found: `Type`, `Type::function`, `Type<Argument>::function`,
/// `Type::function::<Argument>`.
macro_rules! calls {
    ($($of:ident $(<$($argument:ty),+>)? $(:: $function:ident $(::<$($generic:ty),+>)?)?),+ $(,)?) => {{
        const _: fn() = || {
            $(calls!(@find $of $(<$($argument),+>)? $(:: $function $(::<$($generic),+>)?)?);)+
        };
        &[$(concat!(stringify!($of) $(, "::", stringify!($function))?)),+]
    }};
    (@find $of:ident $(<$($argument:ty),+>)?) => { let _: Option<$of $(<$($argument),+>)?> = None; };
    (@find $of:ident $(<$($argument:ty),+>)? :: $function:ident $(::<$($generic:ty),+>)?) => {
        let _ = <$of $(<$($argument),+>)?>::$function $(::<$($generic),+>)?;
    };
}
pub(crate) use calls;

impl Row {
    fn ways(&self) -> String {
        let name = |way: &Way| match way {
            Way::Vfio => "vfio",
            Way::Devx => "devx",
            Way::VfioUser => "vfio-user",
            Way::Sim => "sim",
        };
        let names: Vec<_> = self.ways.iter().map(name).collect();
        if self.ways == EVERY { "all".into() } else { names.join(", ") }
    }

    fn line(&self) -> String {
        let offered = match self.offered {
            Offered::Whole => "yes",
            Offered::Part(_) => "in part",
            Offered::No(_) => "no",
        };
        let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let remarks = match (self.offered, self.remarks) {
            (Offered::Whole, remarks) => remarks.to_owned(),
            (Offered::Part(missing), "") => format!("Missing: {missing}"),
            (Offered::Part(missing), remarks) => format!("{remarks}. Missing: {missing}"),
            (Offered::No(reason), _) => reason.to_owned(),
        };
        let judges = self.judges.join(", ");
        let cells =
            [&self.verbs.join(", "), offered, &quoted(self.calls), &self.ways(), self.transports, &judges, &remarks];
        cells.iter().fold("|".to_owned(), |line, cell| {
            let space = if cell.is_empty() { "" } else { " " };
            format!("{line} {cell}{space}|")
        })
    }
}

const HEAD: &str = "# Verbs

What the driver offers of libibverbs and of libmlx5's direct verbs, by the verb's name: a row for each of the verbs that mlx5's context
has. A test makes this page from `mlx5-dv/tests/verbs/rows.rs`: the compiler finds each call, and each judge is a function of a lab
test (`tools/lab/tests`). A verb without one is tested on the software card alone. \"Ways\" are the device strings by which a verb is
to be had, \"transports\" those of its queue pairs. \"No\" means that the driver has no call for it; the software card may have it all
the same, as libmlx5 uses it there.
";

const TAIL: &str = "
Firmware commands reach more of the card than this table. `Device::execute` sends commands that cannot make the card access memory, queries
among them; `Device::execute_raw`, which is `unsafe`, sends any command that `mlx5-prm` describes.
";

const COLUMNS: &str = "
| verb | offered | calls | ways | transports | judge | remarks |
| --- | --- | --- | --- | --- | --- | --- |
";

/// The page of these rows.
pub fn page(sections: &[Section], beside: &[Row]) -> String {
    let rows = || sections.iter().flat_map(|section| section.rows);
    let count =
        |is: fn(&Offered) -> bool| -> usize { rows().filter(|row| is(&row.offered)).map(|row| row.verbs.len()).sum() };
    let whole = count(|offered| matches!(offered, Offered::Whole));
    let part = count(|offered| matches!(offered, Offered::Part(_)));
    let no = count(|offered| matches!(offered, Offered::No(_)));
    let mut page = String::from(HEAD);
    let _ =
        writeln!(page, "\n**Of {} verbs {whole} are offered whole, {part} in part, {no} not.**\n", whole + part + no);
    for row in rows() {
        let (what, reason) = match row.offered {
            Offered::Whole => continue,
            Offered::Part(reason) => ("in part", reason),
            Offered::No(reason) => ("no", reason),
        };
        let _ = writeln!(page, "* {} ({what}): {reason}", row.verbs.join(", "));
    }
    page.push_str(TAIL);
    for section in sections {
        let _ = write!(page, "\n## {}\n{COLUMNS}", section.title);
        for row in section.rows {
            let _ = writeln!(page, "{}", row.line());
        }
    }
    let _ = write!(page, "\n## Beside the context's verbs\n{COLUMNS}");
    for row in beside {
        let _ = writeln!(page, "{}", row.line());
    }
    page
}
