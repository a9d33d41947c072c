//! `capi/include/gpuwhy.h` is the output of cbindgen for the crate, and compiles as C and as C++.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_header_is_that_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_src(root.join("src/lib.rs")).with_config(config).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    // "Safety" is a heading of Rust's documentation; the sentences below it are kept.
    let made = String::from_utf8(made).unwrap().replace(" * # Safety\n", "");
    let file = root.join("include/gpuwhy.h");
    if std::env::var_os("GPUWHY_BLESS").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == made, "{}: run this test with GPUWHY_BLESS=1 to renew it", file.display());
    for language in ["c", "c++"] {
        let mut compiler = Command::new("cc");
        let status =
            compiler.args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]).arg(&file).status();
        assert!(status.unwrap().success(), "{language}");
    }
}
