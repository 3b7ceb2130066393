//! Builds the clock that tests put servers on (clock.c), with the C compiler that links Rust programs anyway.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=clock.c");
    println!("cargo::rerun-if-env-changed=CC");
    let library = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("libclock.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([library.as_os_str(), "clock.c".as_ref()])
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("{} does not build clock.c: {other:?}", compiler.display()),
    }
    println!("cargo::rustc-env=REDISLOCK_CLOCK_LIBRARY={}", library.display());
}
