//! A queue of jobs: each is put in once, taken by one worker at a time, and what it does in Kasha takes effect exactly once.
//! `cargo run --release --example jobs`, next to a running `kasha start`.

use std::time::Duration;

use kasha_client::{Client, Error, Table, Transaction, TransactionOutcome};

/// How long a worker may take for a job before another one gets it.
const LEASE: Duration = Duration::from_secs(2);
/// How long a producer that was told nothing may repeat itself.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// Jobs that are looked at together.
const WINDOW: i64 = 16;

/// A queue. Its keys have a common `{tag}`, so that each step below is a transaction of one shard.
#[derive(Clone)]
struct Queue {
    client: Client,
    table: Table,
    name: String,
}

struct Job {
    number: i64,
    text: String,
    /// The version of the lease, which tells it from every other lease of the same job.
    lease: u64,
}

impl Queue {
    fn key(&self, what: &str) -> String {
        format!("{{{}}}{what}", self.name)
    }

    fn job(&self, number: i64) -> String {
        self.key(&format!("job:{number}"))
    }

    fn lease(&self, number: i64) -> String {
        self.key(&format!("lease:{number}"))
    }

    /// Puts a job in, once for each `id`, behind all others. Returns its number.
    async fn push(&self, id: &str, text: &str) -> Result<i64, Error> {
        let (newest, pushed) = (self.key("newest"), self.key(&format!("pushed:{id}")));
        let push = self.client.in_transaction(|transaction| {
            let (newest, pushed) = (&newest, &pushed);
            async move {
                if let Some(number) = transaction.get_number(&self.table, pushed).await? {
                    return Ok(number);
                }
                let number = transaction.increment(&self.table, newest, 1).await?;
                transaction.put(&self.table, self.job(number), text);
                transaction.put_expiring(&self.table, pushed, number.to_string(), REMEMBERED);
                Ok(number)
            }
        });
        push.await
    }

    /// Takes the oldest job that nobody is at work on.
    async fn take(&self, worker: &str) -> Result<Option<Job>, Error> {
        let [done, newest] =
            self.table.multi_get(&[self.key("done"), self.key("newest")]).await?.try_into().expect("two");
        let number = |value: &Option<kasha_client::Value>| value.as_ref().and_then(|value| value.as_i64()).unwrap_or(0);
        let (mut all_done, mut from, newest) = (true, number(&done) + 1, number(&newest));
        while from <= newest {
            let numbers: Vec<i64> = (from..=newest.min(from + WINDOW - 1)).collect();
            let jobs: Vec<_> = numbers.iter().map(|&number| self.job(number)).collect();
            for (&number, job) in numbers.iter().zip(self.table.multi_get(&jobs).await?) {
                let Some(job) = job else { continue };
                if all_done && number > from {
                    // What lies before need not be looked at again. Others say the same.
                    self.table.put(self.key("done"), (number - 1).to_string()).await?;
                }
                all_done = false;
                let mut take = self.client.transaction();
                take.check_version(&self.table, self.job(number), job.version);
                take.check_absent(&self.table, self.lease(number));
                let lease = take.put_expiring(&self.table, self.lease(number), worker, LEASE);
                if let TransactionOutcome::Committed(results) = take.commit().await? {
                    let text = job.as_str().unwrap_or_default().to_owned();
                    return Ok(Some(Job { number, text, lease: results.of(lease) }));
                }
            }
            from += WINDOW;
        }
        Ok(None)
    }

    /// Acknowledges a job. `effect` adds what the job does in Kasha, which takes effect at the same moment. `false`: the lease was
    /// over, another worker has the job, and nothing happened.
    async fn finish(&self, job: &Job, effect: impl FnOnce(&mut Transaction)) -> Result<bool, Error> {
        let mut finish = self.client.transaction();
        finish.check_version(&self.table, self.lease(job.number), job.lease);
        finish.delete(&self.table, self.lease(job.number));
        finish.delete(&self.table, self.job(job.number));
        effect(&mut finish);
        Ok(matches!(finish.commit().await?, TransactionOutcome::Committed(_)))
    }
}

const JOBS: i64 = 60;

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let table = client.create_table("jobs").await?;
    let queue = Queue { client: client.clone(), table, name: format!("mail-{}", std::process::id()) };
    for number in 1..=JOBS {
        let first = queue.push(&format!("mail-{number}"), &format!("to customer {number}")).await?;
        let again = queue.push(&format!("mail-{number}"), &format!("to customer {number}")).await?;
        assert_eq!(first, again, "a job is put in once");
    }
    let mut workers = Vec::new();
    for worker in 0..4 {
        let queue = queue.clone();
        workers.push(tokio::spawn(async move {
            let (name, mut finished, mut dropped) = (format!("worker-{worker}"), 0, 0);
            loop {
                let Some(job) = queue.take(&name).await? else {
                    match queue.table.get_number(queue.key("sent")).await?.map_or(0, |sent| sent.value) {
                        JOBS.. => return Ok::<_, Error>((finished, dropped)),
                        // Somebody is at work, or has died at it: then the lease ends.
                        _ => tokio::time::sleep(LEASE / 20).await,
                    }
                    continue;
                };
                if worker == 0 && dropped < 2 {
                    // This worker dies at its first two jobs: others get them when the leases are over.
                    println!("{name} dies at job {}, {:?}", job.number, job.text);
                    dropped += 1;
                    continue;
                }
                let sent = |effect: &mut Transaction| _ = effect.increment(&queue.table, queue.key("sent"), 1);
                finished += i64::from(queue.finish(&job, sent).await?);
            }
        }));
    }
    let mut finished = Vec::new();
    for worker in workers {
        finished.push(worker.await.expect("no worker panics")?.0);
    }
    let sent = queue.table.get_number(queue.key("sent")).await?.expect("mail was sent").value;
    println!("{sent} of {JOBS} jobs had their effect; finished by each worker: {finished:?}");
    assert_eq!((sent, finished.iter().sum::<i64>()), (JOBS, JOBS), "each exactly once");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
