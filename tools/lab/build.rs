//! Turns two environment variables into `cfg`s, so that a test that cannot run is reported as ignored, not as passed.

use std::env;

fn main() {
    let is = |name: &str, wanted: fn(&str) -> bool| {
        println!("cargo::rerun-if-env-changed={name}");
        env::var(name).is_ok_and(|value| wanted(&value))
    };
    println!("cargo::rustc-check-cfg=cfg(lab_skipped, iommufd_kernel)");
    if is("MLX5_LAB", |value| value == "skip") {
        println!("cargo::rustc-cfg=lab_skipped");
    }
    if is("MLX5_LAB_IOMMUFD_KERNEL", |value| !value.is_empty()) {
        println!("cargo::rustc-cfg=iommufd_kernel");
    }
}
