//! The program on the software card: without arguments, the README's first command; and what it measures.

use std::process::{Command, Output};

fn perf(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvme_rdma"));
    command.arg("perf").args(arguments.split_whitespace()).output().expect("it runs")
}

#[test]
fn each_queue_has_as_many_ios_as_asked_for_and_the_card_is_named() {
    for (arguments, heading, row, depth) in [
        ("lat read -n 50", "t_typical[usec]", [4096.0, 50.0], "1"),
        ("lat write -n 30 -s 512", "t_typical[usec]", [512.0, 30.0], "1"),
        ("bw read -n 300 -q 2 --depth 8", "MsgRate[Mpps]", [4096.0, 600.0], "8"),
        ("bw write -n 100 -s 16384 --fast-keys --no-in-capsule", "MsgRate[Mpps]", [16384.0, 100.0], "32"),
    ] {
        let output = perf(arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let mut lines = said.lines().skip_while(|line| !(line.starts_with(" #bytes") && line.contains(heading)));
        let found = lines.nth(1).unwrap_or_else(|| panic!("{said}"));
        let found: Vec<f64> = found.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert_eq!(found[..2], row, "{arguments}: {said}");
        assert!(found[2..].iter().skip(1).all(|figure| *figure > 0.0), "{said}");
        assert!(said.lines().any(|line| line.split(" : ").map(str::trim).eq(["TX depth", depth])), "{said}");
        assert!(said.ends_with("(software card: not a card's figure)\n"), "{said}");
    }
}

#[test]
fn a_device_without_a_target_and_sizes_that_are_no_blocks_are_refused() {
    for (arguments, why) in [
        ("lat read -d devx:mlx5_0", "give its ADDRESS"),
        ("bw write -s 1000", "in blocks of 512"),
        ("bw write -s 134217728", "the namespace has 67108864 bytes"),
    ] {
        let output = perf(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{arguments}: {said}");
    }
}

#[test]
fn both_ends_run_on_the_software_card_in_one_process() {
    let output = Command::new(env!("CARGO_BIN_EXE_nvme_rdma")).output().expect("it runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("every block read held what was written last"), "{said}");
}
