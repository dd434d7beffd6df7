//! The bytes of `replica.meta`, format 3. `UPDATE=1 cargo test -p kasha-replication golden::` rewrites the file.
//! That is wrong unless the number of the format changes too.
#![allow(missing_docs)]

use std::fmt::Write;

use kasha_replication::ReplicaMeta;
use kasha_types::{BootId, ClusterId, ConfigVersion, Epoch, LogEnd, ShardId};

fn samples() -> [(&'static str, ReplicaMeta); 4] {
    let meta = ReplicaMeta {
        shard: ShardId(0x0102),
        cluster: ClusterId(0x1112_1314_1516_1718),
        promised: Epoch(0x2122_2324),
        acknowledged: LogEnd(0x3132_3334_3536_3738),
        base: LogEnd(0x4142_4344_4546_4748),
        boot: BootId(0x5152_5354_5556_5758_595a_5b5c_5d5e_5f60),
        intact: true,
        complete: true,
        whole: Epoch(0x6162_6364),
        set: ConfigVersion(0x7172_7374_7576_7778),
    };
    [
        ("fresh", ReplicaMeta::fresh(ClusterId(1), ShardId(0), BootId(0))),
        ("whole", meta),
        ("joining", ReplicaMeta { complete: false, ..meta }),
        ("lost power", ReplicaMeta { intact: false, ..meta }),
    ]
}

#[test]
fn replica_meta() {
    let mut text = String::new();
    for (name, meta) in samples() {
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        assert_eq!(ReplicaMeta::decode(&bytes, meta.cluster, meta.shard), Ok(meta));
        write!(text, "{name}:").unwrap();
        bytes.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/replica_meta.hex");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
