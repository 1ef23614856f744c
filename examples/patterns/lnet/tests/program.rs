//! The program without arguments: the README's first command.

use std::process::Command;

#[test]
fn both_ends_run_on_the_software_card_in_one_process() {
    let output = Command::new(env!("CARGO_BIN_EXE_lnet")).output().expect("it runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("with gaps: all bytes compared"), "{said}");
}
