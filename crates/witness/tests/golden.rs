//! The file's bytes do not change by accident. After a change on purpose raise `FORMAT_VERSION` and rewrite the golden
//! file with `UPDATE=1`.

use std::fmt::Write;

use crate::common::*;
use kasha_types::{BootId, ClusterId, ListVersion, ShardId};
use kasha_witness::{Ledger, Mode};

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

fn compare(name: &str, text: &str) {
    let path = format!("{}/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn the_marks_are_the_golden_ones() {
    let boot = BootId(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff01);
    let mut text = String::new();
    for (frozen, sure) in [(false, true), (true, true), (true, false)] {
        writeln!(text, "mode: frozen {frozen}, sure {sure}").unwrap();
        text += &dump(&Mode { frozen, sure, boot }.encode());
    }
    let mut ledger = Ledger::new(ClusterId(11), 2);
    text += "ledger: empty\n";
    text += &dump(&ledger.encode());
    ledger.enter(ShardId(3), ListVersion(5));
    ledger.enter(ShardId(0x0102), ListVersion(7));
    text += "ledger: two shards\n";
    text += &dump(&ledger.encode());
    compare("marks", &text);
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
    compare("file", &dump(&file));
    assert_eq!(held(&reload(&witness, &file)), held(&witness));
}
