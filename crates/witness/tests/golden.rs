//! The file's bytes do not change by accident. After a change on purpose raise `FORMAT_VERSION` and rewrite the golden
//! file with `UPDATE=1`.

mod common;

use std::fmt::Write;

use common::*;

/// The file's rows that are not zero.
fn dump(file: &[u8]) -> String {
    let mut text = String::new();
    for (number, row) in file.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|&byte| byte != 0)) {
        write!(text, "{:06x} ", number * 16).unwrap();
        row.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

#[test]
fn the_layout_is_the_golden_one() {
    let mut witness = small();
    record(&mut witness, 1, &[0x1122_3344_5566_7788], b"one key").unwrap();
    record(&mut witness, 2, &[0xa1, 0xa2], b"two keys, one body, two slots").unwrap();
    record(&mut witness, 3, &[0xa3], b"dropped").unwrap();
    let mut file = new_file(&witness);
    flush(&mut witness, &mut file);
    gc(&mut witness, &[(0xa3, 3)]);
    flush(&mut witness, &mut file);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/file.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, dump(&file)).unwrap();
    }
    assert_eq!(dump(&file), std::fs::read_to_string(path).unwrap());
    assert_eq!(held(&reload(&witness, &file)), held(&witness));
}
