//! Where the module under test is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The folder of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("this package lies two folders below the workspace")
}

/// The shared object to load: `REDISLOCK_MODULE`, or the one built beside this test (`target/debug/libredislock.so`).
///
/// Cargo doesn't always build it together with a test, so in the second case it is built first when a source is newer.
///
/// # Panics
/// When there is none.
pub fn module_path() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("REDISLOCK_MODULE") {
        Some(path) => {
            let path = PathBuf::from(path);
            // Tests run in the folder of their package, while developers name the file from that of the workspace.
            let path = if path.is_relative() && !path.exists() { workspace().join(path) } else { path };
            path.canonicalize().unwrap_or_else(|error| panic!("REDISLOCK_MODULE={}: {error}", path.display()))
        }
        None => beside_test(),
    })
    .clone()
}

fn beside_test() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/<profile>/deps/<test>
    let profile_dir = test.parent().and_then(Path::parent).expect("a test lies in a target folder");
    let module = profile_dir.join("libredislock.so");
    if is_stale(&module) {
        build(profile_dir);
    }
    assert!(module.exists(), "{} is missing: run `make build` or set REDISLOCK_MODULE", module.display());
    module
}

fn build(profile_dir: &Path) {
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = profile_dir.parent().expect("a profile lies in a target folder");
    cargo_build(target, &["--profile", profile]);
}

fn cargo_build(target: &Path, args: &[&str]) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace())
        .args(["build", "--quiet", "--package", "redislock", "--target-dir"])
        .arg(target)
        .args(args)
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the module does not build");
}

/// A debug build of the module with a feature, made beside the other builds. Returns the shared object.
///
/// # Panics
/// When it doesn't build.
pub fn build_module_with(feature: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let target = test.ancestors().nth(3).expect("a test lies in a target folder");
    cargo_build(target, &["--features", feature]);
    let (built, kept) = (target.join("debug/libredislock.so"), target.join(format!("debug/{feature}.so")));
    // By another name at first: a server may have the last one loaded.
    let fresh = target.join(format!("debug/{feature}.{}", std::process::id()));
    std::fs::copy(&built, &fresh).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    std::fs::rename(&fresh, &kept).expect("it stays in its folder");
    // What is built without the feature takes its place again, which costs next to nothing.
    cargo_build(target, &[]);
    kept
}

fn is_stale(module: &Path) -> bool {
    let Some(built) = modified(module) else { return true };
    let root = workspace();
    let sources = ["src", "build.rs", "Cargo.toml", "crates/core/src", "crates/core/Cargo.toml"];
    sources.iter().any(|source| newest(&root.join(source)).is_some_and(|time| time > built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn newest(path: &Path) -> Option<SystemTime> {
    let Ok(entries) = path.read_dir() else { return modified(path) };
    entries.flatten().filter_map(|entry| newest(&entry.path())).chain(modified(path)).max()
}
