//! After `fork()` parent and child used one session: its parent was told that the lease had ended, or panicked. Now the child
//! is told so, whatever it does, and the parent goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use kasha_client::{Client, Commit, Error, Table};
use kasha_process_tests::apart::{Apart, Size};
use tokio::runtime::{Builder, Runtime};

/// How long the child goes on with the copy of the parent's runtime, and how often the parent puts meanwhile and after that.
const CHILD: Duration = Duration::from_millis(500);
const PUTS: u32 = 300;
/// For the child to end.
const PATIENCE: Duration = Duration::from_secs(120);

const SIZE: Size = Size { nodes: 3, faults: 1, shards: 3, lease: "500ms" };

/// This process forks; `Some`: this is the parent, and that is its child.
fn fork() -> Option<i32> {
    // SAFETY: the child ends with `_exit`, and until then runs only code of this test, on this thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "there is no more room for processes");
    (child > 0).then_some(child)
}

/// The child's code: how many of these checks hold, without a panic. (The harness must not report for a child.)
fn end_child(checks: impl FnOnce() -> u8) -> ! {
    let code = catch_unwind(AssertUnwindSafe(checks)).unwrap_or(u8::MAX);
    // SAFETY: it ends the process.
    unsafe { libc::_exit(i32::from(code)) }
}

/// How the child has ended; `None`: it runs.
fn ended(child: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: it writes one number, which outlives the call.
    let which = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    assert!(which >= 0, "it is a child of this process");
    (which == child).then(|| if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 })
}

fn says_fork<T>(result: Result<T, Error>) -> u8 {
    match result {
        Err(error @ Error::Forked) => u8::from(error.to_string().contains("K0350")),
        Ok(_) | Err(_) => 0,
    }
}

async fn connect(cluster: &Apart) -> (Client, Table) {
    let client = Client::connect(cluster.addresses()).await.unwrap();
    let table = client.create_table("forked").await.unwrap();
    table.put("before", "v").await.unwrap();
    (client, table)
}

async fn parent_goes_on(client: &Client, table: &Table, child: i32, checks: i32) {
    let (mut code, began) = (None, Instant::now());
    let before = client.stats().await.unwrap();
    for number in 0.. {
        let put = table.put(format!("key-{number}"), "x").deadline(Duration::from_secs(10)).await;
        put.unwrap_or_else(|error| panic!("put {number} of the parent: {error}"));
        code = code.or_else(|| ended(child));
        if number >= PUTS && code.is_some() {
            break;
        }
        if began.elapsed() > PATIENCE {
            // SAFETY: it ends a child of this process.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child does not end");
        }
    }
    assert_eq!(code, Some(checks), "what the child was told");
    let stats = client.stats().await.unwrap();
    assert_eq!((stats.leases_lost, stats.bad_frames), (before.leases_lost, before.bad_frames));
    assert_eq!(table.get("before").await.unwrap().map(|value| value.bytes), Some(b"v".to_vec()));
}

/// The child goes on where the parent is: in the middle of a transaction, with an update under way, in the parent's runtime. It
/// even drops that runtime, as a child does that returns from `main`.
#[test]
fn a_child_that_goes_on_in_the_middle_of_a_transaction_leaves_the_session_to_its_parent() {
    let cluster = Apart::start("fork", SIZE);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (client, table) = runtime.block_on(connect(&cluster));
    let checks = runtime.block_on(async {
        let transaction = client.begin();
        transaction.get(&table, "before").await.unwrap();
        transaction.put(&table, "of the transaction", "x");
        let mut under_way = table.put("under way", "x").into_future();
        let polled = under_way.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "nothing was sent yet");
        tokio::task::yield_now().await;
        match fork() {
            Some(child) => {
                under_way.await.unwrap();
                assert!(matches!(transaction.commit().await.unwrap(), Commit::Committed));
                parent_goes_on(&client, &table, child, 4).await;
                None
            }
            None => {
                tokio::time::sleep(CHILD).await;
                let mut checks = says_fork(under_way.await);
                checks += says_fork(transaction.commit().await);
                checks += says_fork(table.put("of the child", "x").await);
                checks += says_fork(table.get("before").await);
                Some(checks)
            }
        }
    });
    if let Some(checks) = checks {
        end_child(move || {
            drop((table, client, runtime, cluster_is_the_parents(cluster)));
            checks
        });
    }
    let of_child = runtime.block_on(async { table.get("of the child").await });
    assert_eq!(of_child.unwrap().map(|value| value.bytes), None);
}

/// A child must not end the servers.
fn cluster_is_the_parents(cluster: Apart) {
    std::mem::forget(cluster);
}

/// Threads of a runtime are not forked: nobody would ever answer the child.
#[test]
fn a_child_without_the_threads_of_its_parent_is_told_at_once() {
    let cluster = Apart::start("fork-threads", SIZE);
    let runtime: Runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, table) = runtime.block_on(connect(&cluster));
    // The runtime's own thread may have the answer before the first poll returns: then the next put is the one under way.
    let under_way = loop {
        let mut put = table.put("under way", "x").into_future();
        match runtime.block_on(async { put.as_mut().poll(&mut Context::from_waker(Waker::noop())) }) {
            Poll::Pending => break put,
            Poll::Ready(answer) => drop(answer.unwrap()),
        }
    };
    match fork() {
        Some(child) => {
            runtime.block_on(under_way).unwrap();
            runtime.block_on(parent_goes_on(&client, &table, child, 3));
        }
        None => end_child(|| {
            drop(under_way);
            let checks = runtime.block_on(async {
                let transaction = client.begin();
                transaction.put(&table, "of the child", "x");
                let checks = says_fork(transaction.commit().await) + says_fork(table.put("of the child", "x").await);
                checks + says_fork(table.get("before").await)
            });
            drop((table, client));
            std::mem::forget((runtime, cluster));
            checks
        }),
    }
}
