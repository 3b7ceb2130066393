// The module that test servers load: `REDISLOCK_MODULE`, or the one that was built last in the target folder.

fn module_under_test() -> std::path::PathBuf {
    if std::env::var_os("REDISLOCK_MODULE").is_some() {
        return redislock_testkit::module_path();
    }
    let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), Into::into);
    let built = |profile: &str| {
        let path = target.join(profile).join("libredislock.so");
        Some((path.metadata().ok()?.modified().ok()?, path))
    };
    let newest = [built("release"), built("debug")].into_iter().flatten().max();
    newest.expect("build the module first: cargo build --release -p redislock").1
}
