//! The expiry floor and the cleaner. R5.11: while a floor waits for its sync, nothing is copied. R5.8: the copy of a floor
//! forgets nobody. Three cores, whose frames are carried by hand.

use crate::common::cluster::Cluster;
use crate::common::stories::{self, about_to_clean, cleaning};
use crate::common::{Core, Heard};
use kasha_types::{ClientId, ClusterTime, ListVersion};
use kasha_wire::status::CleanerState;
use kasha_wire::{BodyHead, Refusal, Update, message};

#[test]
fn r5_11_nothing_is_copied_before_a_floor_is_synced() {
    let increment = Update::increment(b"a", 1);
    let shorter = |head: &mut BodyHead| head.lease_expiry = ClusterTime(150_000);
    let first = Core::body_with((1, 1), 1, None, &increment, shorter);
    let (mut cluster, mut filler) = about_to_clean(&first);
    assert_eq!(cleaning(&cluster).copied_bytes, 0);
    cluster.it_is(600_000);
    cluster.settle();
    let (cluster_time, expired) = (ClusterTime(600_000), vec![ClientId(1)]);
    cluster.on(1, |core| {
        core.message(message::LeaseVerdict {
            cluster_time,
            expired,
            alive: Vec::new(),
            view: kasha_types::ViewNumber(1),
        })
    });
    for _ in 0..40 {
        filler.update(&mut cluster);
    }
    assert_eq!((cleaning(&cluster).copied_bytes, cleaning(&cluster).cleaner), (0, CleanerState::WaitsForFloor));

    // The floor is synced: it settles in that turn, and the cleaner goes on in the next.
    cluster.carry();
    filler.update(&mut cluster);
    assert_ne!(cleaning(&cluster).cleaner, CleanerState::WaitsForFloor);
    for _ in 0..40 {
        filler.update(&mut cluster);
        cluster.carry();
    }
    assert!(cleaning(&cluster).copied_bytes > 0);

    // Both primaries know the same of client 1: nothing.
    let refused = [Heard::Refused(Refusal::LeaseExpired)];
    let retry = |cluster: &mut Cluster| {
        let mut heard = cluster.send(1, ListVersion::NONE, &first);
        cluster.settle();
        heard.append(&mut cluster.heard(1));
        heard
    };
    assert_eq!(retry(&mut cluster), refused);
    cluster.fail_over_to(2);
    assert_eq!(retry(&mut cluster), refused);
}

#[test]
fn r5_8_the_copy_of_a_floor_forgets_nobody() {
    stories::the_copy_of_a_floor_forgets_nobody();
}
