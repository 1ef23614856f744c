//! What the project's Markdown names exists: links and their headings, files and folders, cargo's packages, tests,
//! benches and examples, and functions of types (`Pd::alloc`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of the project's own.
const FOREIGN: [&str; 2] = ["target", ".git"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tools/xtask lies in a workspace").to_path_buf()
}

/// A page, and where it lies below the root.
struct Page {
    path: PathBuf,
    text: String,
}

/// What there is that a page may name.
struct Project {
    root: PathBuf,
    pages: Vec<Page>,
    /// Every file's name, without its folder.
    names: BTreeSet<String>,
    /// The root's entries.
    top: BTreeSet<String>,
    packages: BTreeSet<String>,
    tests: BTreeSet<String>,
    benches: BTreeSet<String>,
    examples: BTreeSet<String>,
    binaries: BTreeSet<String>,
    /// All Rust source.
    sources: Vec<String>,
}

impl Project {
    fn read(root: PathBuf) -> Self {
        let mut files = Vec::new();
        collect(&root, &mut files);
        let below = |path: &Path| path.strip_prefix(&root).expect("a file below the root").to_path_buf();
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let is = |path: &&PathBuf, end: &str| path.extension().is_some_and(|extension| extension == end);
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let pages = files.iter().filter(|path| is(path, "md")).map(|path| Page { path: below(path), text: text(path) });
        let mut project = Project {
            pages: pages.collect(),
            names: files.iter().filter_map(|path| name(path)).collect(),
            top: files
                .iter()
                .filter_map(|path| Some(below(path).iter().next()?.to_string_lossy().into_owned()))
                .collect(),
            packages: BTreeSet::new(),
            tests: BTreeSet::new(),
            benches: BTreeSet::new(),
            examples: BTreeSet::new(),
            binaries: BTreeSet::new(),
            sources: files.iter().filter(|path| is(path, "rs")).map(|path| text(path)).collect(),
            root: root.clone(),
        };
        for manifest in files.iter().filter(|path| path.ends_with("Cargo.toml")) {
            project.read_manifest(&text(manifest));
            let package = manifest.parent().expect("a package's folder");
            project.tests.extend(programs(&package.join("tests")));
            project.benches.extend(programs(&package.join("benches")));
        }
        project
    }

    /// Takes the names of a package and of the targets it declares.
    fn read_manifest(&mut self, text: &str) {
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let Some(name) = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"')) else { continue };
            let names = match section {
                "[package]" => &mut self.packages,
                "[[test]]" => &mut self.tests,
                "[[bench]]" => &mut self.benches,
                "[[example]]" => &mut self.examples,
                "[[bin]]" => &mut self.binaries,
                _ => continue,
            };
            names.insert(name.to_owned());
        }
    }

    /// What a page names that is not there.
    fn faults(&self, page: &Page) -> Vec<String> {
        let mut faults = self.broken_links(page);
        faults.extend(self.missing_files(page));
        faults.extend(self.missing_targets(page));
        faults.extend(self.missing_functions(page));
        faults.into_iter().map(|fault| format!("{}: {fault}", page.path.display())).collect()
    }

    fn broken_links(&self, page: &Page) -> Vec<String> {
        let folder = self.root.join(page.path.parent().unwrap_or(Path::new("")));
        let is_broken = |link: &&str| {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { self.root.join(&page.path) } else { folder.join(file) };
            if !target.exists() {
                return true;
            }
            let anchors = || anchors(&fs::read_to_string(&target).unwrap_or_default());
            !heading.is_empty() && !anchors().iter().any(|anchor| anchor == heading)
        };
        links(&page.text).into_iter().filter(is_broken).map(|link| format!("the link {link} leads nowhere")).collect()
    }

    fn missing_files(&self, page: &Page) -> Vec<String> {
        let folder = self.root.join(page.path.parent().unwrap_or(Path::new("")));
        let is_missing = |path: &String| !self.root.join(path).exists() && !folder.join(path).exists();
        let mut faults = Vec::new();
        for word in page.text.split(|c: char| c.is_whitespace() || "`()|;\"'".contains(c)) {
            let word = word.trim_end_matches([':', ',', '.', '!', '?']);
            let (first, rest) = word.split_once('/').unwrap_or(("", word));
            let is_pattern = word.contains(['*', '<', '$', '=']) || word.contains("...");
            if is_pattern {
                continue;
            } else if self.top.contains(first) && (rest.is_empty() || !rest.contains("://")) {
                faults.extend(expanded(word).into_iter().filter(is_missing));
            } else if first.is_empty() && is_file_name(rest) && !self.names.contains(rest) {
                faults.push(rest.to_owned());
            }
        }
        faults.into_iter().map(|fault| format!("there is no {fault}")).collect()
    }

    /// Whether a macro that is called for the type, as `calls!(Type, ...);`, has such a function.
    fn is_made(&self, of: &str, starts: &[String]) -> bool {
        let has = |text: &str| starts.iter().any(|start| text.contains(start));
        let calls = self.sources.iter().flat_map(|source| source.lines()).filter_map(|line| line.split_once("!("));
        calls.filter(|(name, rest)| !name.contains(' ') && has_word(rest, of)).any(|(name, _)| {
            let declaration = format!("macro_rules! {name} ");
            self.sources.iter().any(|source| source.contains(&declaration) && has(source))
        })
    }

    /// A type's function must be in a file that has an implementation of the type, or in a macro that is called for it.
    fn missing_functions(&self, page: &Page) -> Vec<String> {
        let spans = page.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let named = spans.filter_map(|span| {
            let (of, function) = span.split_once("::")?;
            let is_type = of.starts_with(|c: char| c.is_ascii_uppercase()) && of.chars().all(char::is_alphanumeric);
            let is_function = function.starts_with(|c: char| c.is_ascii_lowercase())
                && function.chars().all(|c| c.is_alphanumeric() || c == '_');
            (is_type && is_function).then_some((of, function))
        });
        let is_missing = |(of, function): &(&str, &str)| {
            let starts = [format!("fn {function}("), format!("fn {function}<")];
            let has = |source: &String| {
                let is_implemented = source.lines().any(|line| line.starts_with("impl") && has_word(line, of));
                is_implemented && starts.iter().any(|start| source.contains(start)) || has_setter(source, of, function)
            };
            !self.sources.iter().any(has) && !self.is_made(of, &starts)
        };
        named.filter(is_missing).map(|(of, function)| format!("there is no {of}::{function}")).collect()
    }

    fn missing_targets(&self, page: &Page) -> Vec<String> {
        let kinds = [
            ("--test", &self.tests),
            ("--bench", &self.benches),
            ("--example", &self.examples),
            ("--bin", &self.binaries),
            ("--package", &self.packages),
            ("-p", &self.packages),
        ];
        let mut faults = Vec::new();
        for line in page.text.lines().filter(|line| line.contains("cargo ")) {
            let words: Vec<_> = line.split(|c: char| c.is_whitespace() || c == '`').collect();
            for pair in words.windows(2) {
                // After `--` come the program's own arguments, which may look alike.
                if pair[0] == "--" {
                    break;
                }
                let names = kinds.iter().find(|(flag, _)| *flag == pair[0]).map(|(_, names)| *names);
                let is_placeholder = pair[1].chars().all(|c| c.is_ascii_uppercase());
                if names.is_some_and(|names| !is_placeholder && !names.contains(pair[1])) {
                    faults.push(format!("cargo knows no `{} {}`", pair[0], pair[1]));
                }
            }
        }
        faults
    }
}

/// Whether `setters!` makes this function of the type.
fn has_setter(source: &str, of: &str, function: &str) -> bool {
    let Some((_, rest)) = source.split_once(&format!("setters! {{\n    {of} {{\n")) else { return false };
    let fields = rest.lines().take_while(|line| line.trim() != "}");
    fields.map(str::trim_start).any(|line| line.split([':', ' ']).next() == Some(function))
}

/// The project's files below `dir`.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true if FOREIGN.iter().any(|name| entry.file_name() == *name) => {}
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

/// The programs that cargo finds in a folder.
fn programs(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_program = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
    entries.filter(is_program).filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

/// The text without blocks of code and spans of code, in which brackets are no links.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// The targets of a page's links that lead into the project.
fn links(text: &str) -> Vec<&str> {
    // In the order of the page: what is a link is decided without code, what it leads to is the same with it.
    let prose = prose(text);
    let mut links = Vec::new();
    for part in text.split("](").skip(1) {
        let Some((target, _)) = part.split_once(')') else { continue };
        let is_link = prose.contains(&format!("]({target})"));
        if is_link && !target.contains("://") && !target.starts_with("mailto:") {
            links.push(target);
        }
    }
    links
}

/// The anchors of a page's headings, as code forges make them: lower case, hyphens for spaces, nothing else but
/// letters, digits and underscores; a number after the second of a name.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let same = found.iter().filter(|other| **other == anchor || other.strip_suffix("-1") == Some(&anchor)).count();
        found.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric()).any(|other| other == word)
}

/// Whether a word is the name of a file that the project could have.
fn is_file_name(word: &str) -> bool {
    let Some((stem, end)) = word.rsplit_once('.') else { return false };
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    is_name(stem) && ["rs", "md", "toml"].contains(&end)
}

/// What `a/{b,c}.rs` stands for.
fn expanded(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![word.to_owned()] };
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn what_the_pages_name_exists() {
    let project = Project::read(workspace());
    assert!(project.pages.iter().any(|page| page.path == Path::new("README.md")), "no README.md was looked at");
    let faults: Vec<_> = project.pages.iter().flat_map(|page| project.faults(page)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_does_not_exist_is_found() {
    let project = Project::read(workspace());
    let page = |text: &str| Page { path: "docs/testing.md".into(), text: text.to_owned() };
    for (text, fault) in [
        ("see [here](nowhere.html)", "the link nowhere.html leads nowhere"),
        ("see [here](../README.md#no-such-heading)", "the link ../README.md#no-such-heading leads nowhere"),
        ("in `tools/lab/no_such.rs`.", "there is no tools/lab/no_such.rs"),
        ("in tools/lab/{src,nosuch}/lib.rs", "there is no tools/lab/nosuch/lib.rs"),
        ("`no_such_file.rs` says", "there is no no_such_file.rs"),
        (".ci/nothing", "there is no .ci/nothing"),
        ("    cargo test -p mlx5-lab --test nosuch", "cargo knows no `--test nosuch`"),
        ("`cargo run --example nosuch`", "cargo knows no `--example nosuch`"),
        ("`cargo test -p nosuch`", "cargo knows no `-p nosuch`"),
        ("`Guest::no_such`", "there is no Guest::no_such"),
        ("`NoSuch::run`", "there is no NoSuch::run"),
        ("`CqOptions::no_such`", "there is no CqOptions::no_such"),
        ("`XrcConnection::no_such`", "there is no XrcConnection::no_such"),
    ] {
        assert_eq!(project.faults(&page(text)), [format!("docs/testing.md: {fault}")], "{text}");
    }
    for text in [
        "see [the front page](../README.md) and [there](https://example.com/none.md)",
        "`tools/lab/src/lib.rs`, .ci/run, tools/lab/, `lib.rs`; a/b; 1/2",
        "`cargo test -p mlx5-lab --test vfio -- --test nosuch`",
        "`[no link](nowhere.html)`, `Guest::check`, `CqOptions::entries`, `Vec::len()`, `std::fs`",
    ] {
        assert_eq!(project.faults(&page(text)), [""; 0], "{text}");
    }
}

#[test]
fn headings_have_anchors() {
    let text = "# What it *is*: `one`\n```\n# no heading\n```\n## How\ntext\n## How\n";
    assert_eq!(anchors(text), ["what-it-is-one", "how", "how-1"]);
}
