//! Puts the pages of `docs/errors` into the binary, for `kasha explain`, and lets the linker compress the lines by which traces are read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    let pages = std::fs::read_dir(&folder).expect("the pages are in the repository");
    let mut pages: Vec<PathBuf> = pages.map(|page| page.expect("a page").path()).collect();
    pages.sort();
    let mut table = "&[".to_owned();
    for page in &pages {
        let code = page.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if code.starts_with('K') {
            println!("cargo::rerun-if-changed={}", page.display());
            write!(table, "({code:?}, include_str!({:?})),", page.display().to_string()).expect("a string takes it");
        }
    }
    table.push(']');
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("pages.rs"), table).expect("cargo's folder can be written");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
