//! Asks the C compiler: for each set of headers, a program prints the positions.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5_lab::{Headers, KernelHeaders};

use crate::claims::{Claim, Fact, Header};
use crate::own::{self, OF_CM, OF_DRIVERS, OF_MANAGEMENT, OF_PROVIDER, OF_VERBS};

/// A set of headers.
pub struct Source {
    pub header: Header,
    /// `Linux 6.12.94`, `rdma-core`.
    pub name: String,
    include: Vec<PathBuf>,
    /// Declarations of a program's own, compiled after these headers.
    own: String,
    /// Names of a program's own declarations: only claims about these are asked.
    words: Option<BTreeSet<String>>,
}

impl Source {
    /// All sets, the older kernel before the newer.
    pub fn all(headers: &Headers) -> [Source; 5] {
        let kernel = |kernel: &KernelHeaders| Source {
            header: Header::Kernel,
            name: format!("Linux {}", kernel.release),
            include: vec![kernel.include.clone()],
            own: format!(
                "struct shampo_of_cqe64 {{ typeof(((struct mlx5_cqe64 *)0)->shampo) shampo; }};\n\
                 struct mlx5_ifc_err_cqe_bits {{ u8 before[0x1a0]; struct mlx5_ifc_cqe_error_syndrome_bits error; \
                 u8 after[0x40]; }};\n{}\n\
                 #include <rdma/ibta_vol1_c12.h>\n{}",
                own::cut(&kernel.include, OF_MANAGEMENT),
                own::cut(&kernel.include, OF_CM),
            ),
            words: None,
        };
        let include = vec![headers.verbs_include.clone()];
        let verbs =
            Source { header: Header::Verbs, name: "rdma-core".into(), include, own: String::new(), words: None };
        [
            kernel(&headers.guests_kernel),
            kernel(&headers.newest_kernel),
            verbs,
            Source::drivers(headers),
            Source::provider(headers),
        ]
    }

    /// Declarations of the newest kernel's drivers.
    fn drivers(headers: &Headers) -> Source {
        let own = own::cut(&headers.newest_drivers, OF_DRIVERS);
        Source {
            header: Header::Drivers,
            name: format!("drivers of Linux {}", headers.newest_kernel.release),
            include: vec![headers.newest_kernel.include.clone()],
            words: Some(words(&own).map(str::to_owned).collect()),
            own,
        }
    }

    /// Declarations of libmlx5 besides its installed header.
    fn provider(headers: &Headers) -> Source {
        let cut = own::cut(&headers.provider, OF_PROVIDER);
        let read = |name: &str| fs::read_to_string(headers.provider.join(name)).expect(name);
        Source {
            header: Header::Provider,
            name: "libmlx5".into(),
            include: vec![headers.provider.clone(), headers.verbs_include.clone()],
            words: Some(
                [&cut, &read("wqe.h"), &read("mlx5_ifc.h")]
                    .into_iter()
                    .flat_map(|text| words(text))
                    .map(str::to_owned)
                    .collect(),
            ),
            own: format!("#include \"wqe.h\"\ntypedef uint8_t u8;\n#include \"mlx5_ifc.h\"\n{cut}"),
        }
    }

    /// Whether these headers can confirm the claim: for a program's own declarations, if they have the first name in
    /// the question.
    fn is_asked(&self, claim: &Claim) -> bool {
        let subject = words(&claim.question).skip(1).find(|word| !matches!(*word, "" | "struct" | "union"));
        let is_there = |words: &BTreeSet<String>| claim.named || subject.is_some_and(|subject| words.contains(subject));
        claim.header == self.header && self.words.as_ref().is_none_or(is_there)
    }

    /// Answers of these headers to the claims that they can confirm.
    pub fn asked(self, claims: &[Claim]) -> Answers {
        let theirs = claims.iter().filter(|claim| self.is_asked(claim));
        let questions: Vec<_> = theirs.map(|claim| claim.question.as_str()).collect();
        let facts = self.facts(&questions);
        let facts = questions.iter().map(|question| question.to_string()).zip(facts).collect();
        Answers { header: self.header, name: self.name, facts }
    }

    /// The requested facts; `None` if these headers do not know the name.
    fn facts(&self, questions: &[&str]) -> Vec<Option<Fact>> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let unknown = match self.compile(dir.path(), questions, &BTreeSet::new()) {
            Ok(()) => BTreeSet::new(),
            Err(unknown) => unknown,
        };
        if !unknown.is_empty() {
            let still = self.compile(dir.path(), questions, &unknown);
            assert_eq!(still, Ok(()), "{}: what the compiler refused is left out, and it refuses more", self.name);
        }
        let ran = Command::new(dir.path().join("judge")).output().expect("run the C program");
        assert!(ran.status.success(), "{}: {}", self.name, ran.status);
        let facts: Vec<_> = String::from_utf8(ran.stdout).unwrap().lines().map(fact).collect();
        assert_eq!(facts.len(), questions.len());
        facts
    }

    /// Compiles a program that answers each question with a line. Returns the questions that the compiler rejects.
    fn compile(&self, dir: &Path, questions: &[&str], unknown: &BTreeSet<usize>) -> Result<(), BTreeSet<usize>> {
        let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("judge");
        let source = dir.join("judge.c");
        fs::write(&source, program(self.header, questions, unknown)).expect("write the C program");
        fs::write(dir.join("own.h"), &self.own).expect("write a header");
        let mut cc = Command::new("cc");
        // An error counts at the line of the question, not at that of a macro in a header.
        cc.args(["-std=gnu11", "-O0", "-Werror=implicit-function-declaration", "-ftrack-macro-expansion=0"]);
        cc.arg("-o").arg(dir.join("judge")).arg("-I").arg(&judge).arg("-I").arg(dir);
        if matches!(self.header, Header::Kernel | Header::Drivers) {
            self.replace_includes(dir);
            cc.arg("-include").arg(judge.join("kernel.h")).arg("-I").arg(dir.join("replaced"));
        }
        self.include.iter().for_each(|folder| _ = cc.arg("-I").arg(folder));
        let made = cc.arg(&source).env("LC_ALL", "C").output();
        let made = made.expect("a C compiler, `cc`: install gcc");
        if made.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&made.stderr);
        let refused = |line: &str| {
            let (line, _) = line.strip_prefix(source.to_str()?)?.strip_prefix(':')?.split_once(':')?;
            line.parse::<usize>().ok()?.checked_sub(FIRST_LINE)
        };
        let errors: Vec<_> = said.lines().filter(|line| line.contains("error: ")).collect();
        let refused: Option<BTreeSet<_>> = errors.iter().map(|line| refused(line)).collect();
        Err(refused.unwrap_or_else(|| panic!("{}: the headers do not compile:\n{}", self.name, errors.join("\n"))))
    }

    /// Replaces the includes of the kernel's headers: `judge/kernel.h` has what they need, except for the enumerations
    /// that we use of `driver.h` and `fs.h`, and for what InfiniBand's headers need of `ib_verbs.h`.
    fn replace_includes(&self, dir: &Path) {
        let read = |name: &str| fs::read_to_string(self.include[0].join("linux/mlx5").join(name)).expect(name);
        let (driver, steering) = (read("driver.h"), read("fs.h"));
        let used = ["MLX5_REG_PTYS", "MLX5_PORT_UP", "MLX5_QPTS_TRUST_PCP"];
        let used = used.map(|constant| enumeration_with(&driver, constant).expect(constant)).join("\n");
        let table_types = enumeration_with(&steering, "FS_FT_NIC_RX").unwrap_or_default();
        let used = format!("{used}\n{table_types}");
        let verbs = own::cut(&self.include[0], OF_VERBS);
        let empty = [
            "linux/types.h",
            "linux/kernel.h",
            "linux/bitfield.h",
            "linux/refcount.h",
            "linux/unaligned.h",
            "uapi/linux/if_ether.h",
        ];
        let cut = [("linux/mlx5/driver.h", used.as_str()), ("rdma/ib_verbs.h", verbs.as_str())];
        let replaced = empty.map(|name| (name, "")).into_iter().chain(cut);
        for (name, text) in replaced {
            let path = dir.join("replaced").join(name);
            fs::create_dir_all(path.parent().unwrap()).expect("a temporary folder");
            fs::write(path, format!("#pragma once\n{text}\n")).expect("write a header");
        }
    }
}

/// The answers of one set of headers.
pub struct Answers {
    pub header: Header,
    /// Name of the set.
    pub name: String,
    pub facts: HashMap<String, Option<Fact>>,
}

impl Answers {
    /// The answer to a question; `None` if it was not asked, or the headers do not know the name.
    pub fn to(&self, question: &str) -> Option<Fact> {
        self.facts.get(question).copied().flatten()
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c != '_' && !c.is_alphanumeric())
}

/// Line of the first question.
const FIRST_LINE: usize = 10;

/// One function for each question, as the compiler reports an unknown name once for each function; `main` calls them.
fn program(header: Header, questions: &[&str], unknown: &BTreeSet<usize>) -> String {
    let includes: &[&str] = match header {
        Header::Kernel | Header::Drivers => &[
            "linux/mlx5/device.h",
            "linux/mlx5/qp.h",
            "linux/mlx5/cq.h",
            "linux/mlx5/port.h",
            "linux/mlx5/mlx5_ifc.h",
            "linux/mlx5/mlx5_ifc_vdpa.h",
            "rdma/ib_hdrs.h",
        ],
        Header::Verbs => &["stddef.h", "stdio.h", "infiniband/mlx5dv.h"],
        Header::Provider => &["stddef.h", "stdio.h", "mlx5dv.h"],
    };
    let mut text: String = includes.iter().map(|name| format!("#include <{name}>\n")).collect();
    text.push_str("#include \"own.h\"\n#include \"place.h\"\n");
    while text.lines().count() < FIRST_LINE - 1 {
        text.push('\n');
    }
    for (i, question) in questions.iter().enumerate() {
        let question = if unknown.contains(&i) { "UNKNOWN()" } else { question };
        writeln!(text, "static void ask_{i}(void) {{ {question}; }}").unwrap();
    }
    text.push_str("int main(void)\n{\n");
    for i in 0..questions.len() {
        writeln!(text, "\task_{i}();").unwrap();
    }
    text.push_str("\treturn 0;\n}\n");
    text
}

/// Parses a line of the program's output.
fn fact(line: &str) -> Option<Fact> {
    match line.split_once(' ') {
        _ if line == "unknown" => None,
        Some((start, bits)) => Some(Fact::Place(start.parse().unwrap(), bits.parse().unwrap())),
        None => Some(Fact::Number(line.parse().unwrap())),
    }
}

/// The C enumeration that has `constant`, from `enum` to `;`.
pub fn enumeration_with<'a>(text: &'a str, constant: &str) -> Option<&'a str> {
    let at = text.find(constant)?;
    let (start, end) = (text[..at].rfind("enum")?, text[at..].find(';')?);
    text.get(start..=at + end)
}
