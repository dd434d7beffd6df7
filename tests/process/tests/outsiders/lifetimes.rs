//! Restarts of the coordinator take nothing from the lifetimes of values: ClusterTime goes on as the machine's clock does, and a
//! connected client hears it with its answers.
//!
//! What a client tells is compared with what has passed by the test's own clock, which a slow machine only makes longer.

use std::time::{Duration, Instant};

use kasha_client::{Client, Table, TimeToLive};
use kasha_process_tests::apart::block_on;
use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::wait_for;

const HOUR: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_secs(3);
/// What a client may be off: it does not know how long an answer was under way.
const OFF: Duration = Duration::from_millis(500);

async fn left(table: &Table, key: &str) -> Option<Duration> {
    match table.time_to_live(key).await.expect("an answer") {
        Some(TimeToLive::For(left)) => Some(left),
        Some(TimeToLive::Forever) => panic!("{key} has an end"),
        None => None,
    }
}

async fn connect(cluster: &Cluster) -> Table {
    let client = Client::connect(cluster.addresses()).await.expect("the cluster");
    client.table("default").await.expect("the table that every cluster has")
}

/// Each restart moved ClusterTime half a second to a second ahead, and a connected client did not hear of it for 100 s: what it put
/// for 3 s was gone after 250 ms.
#[test]
fn five_restarts_of_the_coordinator_take_nothing_from_a_lifetime() {
    let mut cluster = Cluster::start("outsiders-lifetimes", "500ms", 2);
    block_on(async {
        let connected = connect(&cluster).await;
        connected.put("hour", "v").expires_in(HOUR).await.expect("a put");
        let began = Instant::now();
        let at_first = left(&connected, "hour").await.expect("it is there");
        for _ in 0..5 {
            cluster.kill(1);
            cluster.start_node(1);
            std::thread::sleep(Duration::from_millis(500));
        }
        cluster.wait_until_healthy();
        for (who, table) in [("connected", &connected), ("new", &connect(&cluster).await)] {
            let now = left(table, "hour").await.expect("it is there");
            let (lost, passed) = (at_first.saturating_sub(now), began.elapsed());
            assert!(lost <= passed + OFF, "{who}: the value of an hour lost {lost:?} in {passed:?}");
        }
        let (began, other) = (Instant::now(), connect(&cluster).await);
        let put = Instant::now();
        connected.put("short", "v").expires_in(SHORT).await.expect("a put");
        for table in [&connected, &other] {
            let told = left(table, "short").await;
            let (passed, least) = (put.elapsed(), SHORT.saturating_sub(put.elapsed() + OFF));
            assert!(told.unwrap_or_default() >= least, "{told:?} of {SHORT:?} are left after {passed:?}");
            let most = SHORT + began.elapsed() + OFF;
            assert!(told.is_none_or(|told| told <= most), "{told:?} of {SHORT:?} are left");
        }
    });
    wait_for("a value that ends", || {
        block_on(async {
            let table = connect(&cluster).await;
            if table.exists("short").await.expect("an answer") { Err("it is still there".to_owned()) } else { Ok(()) }
        })
    });
    cluster.is_unharmed();
}
