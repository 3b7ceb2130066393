//! Makes Rust constants of the module's own header, so that C and Rust name the same things by the same values.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let header = "src/ffi/redislock.h";
    println!("cargo:rerun-if-changed={header}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bindings = bindgen::Builder::default()
        .header(header)
        .allowlist_item("REDISLOCK_.*")
        .generate_cstr(true)
        .generate()
        .expect("the header is plain C")
        .to_string();
    // Nothing of it is for other crates: a module has none.
    let names = bindings.replace("pub const", "pub(crate) const");
    fs::write(out.join("redislock.rs"), names).expect("OUT_DIR is writable");
}
