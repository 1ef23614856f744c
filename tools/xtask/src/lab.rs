//! One test program of the lab, and its logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::logs::Logs;
use crate::run::cargo_test_watched;

/// Prints the test programs of the lab, each with its first sentence.
pub fn list(workspace: &Path) -> Result<bool, String> {
    let programs = programs(workspace)?;
    let width = programs.iter().map(|program| program.name.len()).max().unwrap_or(0);
    for program in programs {
        println!("{:width$}  {}", program.name, program.about()?);
    }
    Ok(true)
}

/// Runs the test program `name`, or those of its tests that `rest` filters; says where the logs lie, and prints the
/// ends of those of tests that failed.
pub fn run(workspace: &Path, name: &str, rest: &[&str]) -> Result<bool, String> {
    let programs = programs(workspace)?;
    if !programs.iter().any(|program| program.name == name) {
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        return Err(format!("the lab has no test program `{name}`, only {}", names.join(", ")));
    }
    let logs = Logs::of(&target_dir(workspace), name);
    eprintln!("logs: {}/TEST/", logs.dir().display());
    eprintln!(
        "    GUEST/kernel.log  console.log  qemu.log  run/N.{{sh,out,err}}   the guest's kernel, its console, each command"
    );
    eprintln!(
        "    model/stderr  stdout                                          the software card (RUST_LOG chooses what it says)"
    );
    eprintln!("    *.pcap                                                        what was on the wire");
    let begin = SystemTime::now();
    let (mut failed, mut running) = (Vec::new(), None);
    let passed = cargo_test_watched(&["--package", "mlx5-lab", "--test", name], rest, |line| {
        failed.extend(failed_test(line).map(str::to_owned));
        running = running_tests(line).or(running);
    })?;
    if running == Some(0) {
        return Err(format!("no test of `{name}` is chosen by `{}`: nothing was tested", rest.join(" ")));
    }
    for test in &failed {
        logs.print_ends(test, begin)?;
    }
    eprintln!("\nlogs of this run:");
    for file in logs.written_since(begin)? {
        eprintln!("    {}", file.display());
    }
    Ok(passed)
}

/// The name of a test that a line of the test runner says has failed.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// How many tests the test runner says it runs.
fn running_tests(line: &str) -> Option<usize> {
    line.strip_prefix("running ")?.split_once(" test")?.0.parse().ok()
}

/// A test program of the lab.
struct Program {
    name: String,
    source: PathBuf,
}

impl Program {
    /// The first sentence of its documentation.
    fn about(&self) -> Result<String, String> {
        let text = fs::read_to_string(&self.source).map_err(|error| format!("{}: {error}", self.source.display()))?;
        let lines: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        Ok(first_sentence(&lines.join(" ")).to_owned())
    }
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Those that cargo finds in tools/lab/tests.
fn programs(workspace: &Path) -> Result<Vec<Program>, String> {
    let dir = workspace.join("tools/lab/tests");
    let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut programs: Vec<Program> = entries.flatten().filter_map(|entry| program(&entry.path())).collect();
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// The program that a file or folder is.
fn program(path: &Path) -> Option<Program> {
    let main = path.join("main.rs");
    let source = if main.is_file() { main } else { path.to_path_buf() };
    let is_program = source.extension()? == "rs" && source.is_file();
    is_program.then_some(Program { name: path.file_stem()?.to_str()?.to_owned(), source })
}

/// Cargo's target folder: this program lies in it.
fn target_dir(workspace: &Path) -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let found = executable.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    found.map_or_else(|| workspace.join("target"), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_told_from_others() {
        assert_eq!(failed_test("test controls::it_fails ... FAILED"), Some("controls::it_fails"));
        assert_eq!(failed_test("test it_passes ... ok"), None);
        assert_eq!(failed_test("test it_waits ... ignored, MLX5_LAB=skip"), None);
        assert_eq!(failed_test("test result: FAILED. 0 passed"), None);
    }

    #[test]
    fn the_number_of_tests_is_read() {
        assert_eq!(running_tests("running 0 tests"), Some(0));
        assert_eq!(running_tests("running 1 test"), Some(1));
        assert_eq!(running_tests("running out of names"), None);
        assert_eq!(running_tests("test running 3 tests"), None);
    }

    #[test]
    fn a_program_is_described_by_its_first_sentence() {
        assert_eq!(first_sentence("Boots e.g.a guest. Then more."), "Boots e.g.a guest.");
        assert_eq!(first_sentence("Without an end"), "Without an end");
    }

    #[test]
    fn files_and_folders_are_programs() {
        let names: Vec<_> = programs(&crate::workspace()).unwrap().into_iter().map(|program| program.name).collect();
        assert!(["boot", "layouts", "vfio"].iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
        // Neither shared modules nor C programs.
        assert!(!["common", "verbs", "icrc"].iter().any(|name| names.iter().any(|found| found == name)), "{names:?}");
    }
}
