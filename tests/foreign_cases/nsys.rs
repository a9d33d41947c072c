use super::{has_its_kernels, text};

#[test]
fn the_plain_file_has_its_kernels_and_its_bottleneck() {
    has_its_kernels("base.sqlite.gz");
    let (code, text) = text("base.sqlite.gz");
    assert!(code == 0 && text.contains("ynchronization"), "{code}: {text}");
}
