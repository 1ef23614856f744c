//! aarch64: uar's tests pass, each barrier is the documented instruction, and driver and card compile and run in
//! virtual time as they do on x86-64. Only what is disassembled is built for release: the rest runs for seconds, and
//! compiles for minutes. Compiler and disassembler are Debian's, the processor is QEMU's. aarch64 orders loads and
//! stores more weakly than x86-64.

use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5_lab::{Aarch64, Build};

use crate::common::TestResult;
use crate::disassembly::{instructions, printed, workspace, write_package, write_probe};

/// Barriers, and their documented instructions.
const BARRIERS: [(&str, &str); 7] = [
    ("to_device", "dmb oshst"),
    ("order_writes", "dmb oshst"),
    ("before_doorbell", "dmb oshst"),
    ("before_wc", "dsb st"),
    ("flush_wc", "dsb st"),
    ("from_device", "dmb oshld"),
    ("before_reuse", "dmb oshld"),
];

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_doorbells_tests_pass_there() -> TestResult {
    let aarch64 = Aarch64::ready()?;
    let said = printed(aarch64.cargo("test").args(["--package", "uar", "--lib"]))?;
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed"));
    let (count, _) = passed.ok_or_else(|| format!("no result of the tests:\n{said}"))?;
    assert!(count.parse::<u32>()? >= 9, "{said}");
    Ok(())
}

/// The disassembly of the functions in `judge/instructions.rs`.
fn probe(aarch64: &Aarch64) -> Result<String, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let manifest = write_probe(dir.path())?;
    printed(aarch64.cargo("build").args(["--release", "--manifest-path"]).arg(manifest))?;
    printed(&mut aarch64.disassemble(&aarch64.release_dir().join("libinstructions.rlib")))
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn each_barrier_is_the_instruction_it_promises() -> TestResult {
    let text = probe(&Aarch64::ready()?)?;
    for (barrier, promised) in BARRIERS {
        let all = instructions(&text, barrier);
        let barriers: Vec<_> = all.iter().filter(|one| one.starts_with("dmb") || one.starts_with("dsb")).collect();
        assert_eq!(barriers, [promised], "{barrier} is {all:?} in\n{text}");
    }
    Ok(())
}

/// The register is written by one instruction of 64 bytes, after the ring's stores, and flushed before anything else.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn blue_flame_stores_a_block_whole() -> TestResult {
    let text = probe(&Aarch64::ready()?)?;
    let all = instructions(&text, "blue_flame");
    let vectors: Vec<_> = all.iter().filter(|one| one.contains("v0") || one.contains(" q")).collect();
    let [load, store] = vectors[..] else { panic!("{all:?} in\n{text}") };
    assert!(load.starts_with("ld1 {v0.2d-v3.2d}, ["), "{load}");
    assert!(store.starts_with("st1 {v0.2d-v3.2d}, ["), "{store}");
    let order: Vec<_> = all.iter().filter(|one| *one == store || one.starts_with("dsb")).collect();
    assert_eq!(order, ["dsb st", store, "dsb st"], "{all:?}");
    Ok(())
}

/// What the example `virtual_time` imports.
const IMPORTS: &str = "clap = { version = \"4\", features = [\"derive\"] }\n";
/// Its imports of this workspace, and where they are.
const OURS: [(&str, &str); 4] =
    [("mlx5-dv", "mlx5-dv"), ("mlx5-open", "tools/open"), ("mlx5-prm", "mlx5-prm"), ("mlx5-sim", "tools/sim")];

/// Writes a package of that example alone to `dir`; returns its manifest's path. The package of all examples needs half
/// as many crates again.
fn write_example(dir: &Path) -> std::io::Result<PathBuf> {
    let program =
        format!("[[bin]]\nname = \"virtual_time\"\npath = {:?}\n", workspace().join("examples/virtual_time.rs"));
    let ours = OURS.map(|(name, place)| format!("{name}.path = {:?}\n", workspace().join(place)));
    write_package(dir, "virtual_time", &format!("{program}[dependencies]\n{IMPORTS}{}", ours.concat()))
}

/// Two drivers and two cards on another processor: the same commands, packets, CQEs and EQEs at the same virtual times.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_run_in_virtual_time_is_the_same_there() -> TestResult {
    let aarch64 = Aarch64::ready()?;
    let dir = tempfile::tempdir()?;
    let manifest = write_example(dir.path())?;
    let build = Build::dev(&[], &["virtual_time"])?;
    for (seed, messages) in [("1", "500"), ("2", "500")] {
        let run = ["--seed", seed, "--messages", messages, "--runs", "2"];
        let here = printed(Command::new(build.program("virtual_time")?).args(run))?;
        let mut example = aarch64.cargo("run");
        let there = printed(example.args(["--quiet", "--manifest-path"]).arg(&manifest).arg("--").args(run))?;
        println!("x86-64:\n{here}aarch64:\n{there}");
        // The hash and the counts; the time that it took follows.
        let same = |said: &str| said.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(same(&there), same(&here));
    }
    Ok(())
}
