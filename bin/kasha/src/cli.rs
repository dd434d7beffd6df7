//! `kasha cli`: one command per call, for people and, with `--json`, for scripts. Exit codes are in docs/running.md.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use kasha_client::{
    Bounded, Client, Condition, Conditional, Counter, Cursor, Error, Exchanged, Listed, Replaced, Scan, ScannedKey,
    ScannedValue, Table, TimeToLive, UpdateCall, Value,
};
use kasha_runtime::say;
use serde_json::{Value as Json, json};

use crate::argument::Argument;
use crate::connect::{Address, NoCluster, connect};
use crate::stderr::complain;
use crate::told::{Done, Told, json_bytes, json_value, show};
use crate::txn;

#[derive(Args)]
pub struct CliArguments {
    #[command(flatten)]
    cluster: Address,
    /// The table to use.
    #[arg(long, global = true, default_value = "default")]
    table: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print a value's bytes as they are, and nothing else.
    #[arg(long, global = true, conflicts_with = "json")]
    raw: bool,
    /// An operation key: if the command is sent again under the same key, by anyone, the update still happens once.
    #[arg(long, global = true)]
    once: Option<String>,
    /// How long the operation key is remembered.
    #[arg(long, global = true, value_parser = crate::duration::parse, requires = "once")]
    remember_for: Option<Duration>,
    /// How long to wait.
    #[arg(long, global = true, default_value = "30s", value_parser = crate::duration::parse)]
    deadline: Duration,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Print a key's value.
    Get { key: Argument },
    /// Set a key's value. The value - is standard input, here and in every other command that writes one value.
    Put {
        key: Argument,
        value: Argument,
        #[command(flatten)]
        ends: Ends,
    },
    /// Set a key's value only if its version is this one.
    PutIfVersion {
        key: Argument,
        version: u64,
        value: Argument,
        #[command(flatten)]
        ends: Ends,
    },
    /// Set a key's value only if it has none.
    PutIfAbsent {
        key: Argument,
        value: Argument,
        #[command(flatten)]
        ends: Ends,
    },
    /// Set a key's value only if it has this value now.
    CompareAndPut {
        key: Argument,
        expected: Argument,
        value: Argument,
        #[command(flatten)]
        ends: Ends,
    },
    /// Give a key's value another time to live, counted from now.
    Expire {
        key: Argument,
        #[arg(value_parser = crate::duration::parse)]
        time: Duration,
    },
    /// Let a key's value live on without end.
    Persist { key: Argument },
    /// Print how long a key's value still lives.
    #[command(alias = "ttl")]
    TimeToLive { key: Argument },
    /// Set a key's value and print the value that it had.
    GetAndPut {
        key: Argument,
        value: Argument,
        /// Only if the key has no value; else print what it has.
        #[arg(long, conflicts_with = "if_version")]
        if_absent: bool,
        /// Only if the key has this version; else print what it has.
        #[arg(long)]
        if_version: Option<u64>,
        #[command(flatten)]
        ends: Ends,
    },
    /// Delete a key and print the value that it had.
    GetAndDelete { key: Argument },
    /// Delete a key.
    Delete { key: Argument },
    /// Delete a key only if its version is this one.
    DeleteIfVersion { key: Argument, version: u64 },
    /// Add to a number and print the sum.
    #[command(alias = "increment")]
    Incr {
        key: Argument,
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
        /// Reject it, with the number as it is, if the sum would be above this.
        #[arg(long, allow_negative_numbers = true)]
        at_most: Option<i64>,
        /// Reject it, with the number as it is, if the sum would be below this.
        #[arg(long, allow_negative_numbers = true)]
        at_least: Option<i64>,
        #[command(flatten)]
        ends: Ends,
    },
    /// Append to a key's value.
    Append { key: Argument, value: Argument },
    /// Print whether a key has a value.
    Exists { key: Argument },
    /// Print several keys' values, which were there together at one moment.
    Mget { keys: Vec<Argument> },
    /// Set several keys together: key value key value …
    Mput { pairs: Vec<Argument> },
    /// Delete several keys together.
    Mdelete { keys: Vec<Argument> },
    /// Add to several numbers together: key delta key delta …
    Mincr {
        #[arg(allow_negative_numbers = true)]
        pairs: Vec<Argument>,
    },
    /// Run a transaction: a script with one operation on each line, all of which take effect or none.
    Txn {
        /// The script; - for standard input.
        #[arg(default_value = "-")]
        script: PathBuf,
    },
    /// List a table's keys, in no order.
    Scan {
        /// Only keys that begin with this.
        #[arg(long, default_value = "")]
        prefix: Argument,
        /// Show each key's value, too.
        #[arg(long)]
        values: bool,
        /// Go on where another listing ended: its last line says where, and "cursor" of its JSON.
        #[arg(long)]
        cursor: Option<Cursor>,
        /// Stop after about so many keys, and say where to go on.
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Print how many keys of a table have a value.
    Count,
    /// Create a table.
    CreateTable { name: String },
    /// Drop a table with everything in it.
    DropTable { name: String },
    /// List the tables.
    Tables,
}

/// When a value ends.
#[derive(Args)]
struct Ends {
    /// Delete the value after this time. Of a number: after this time from the first increment, and the next begins at 0.
    #[arg(long, value_parser = crate::duration::parse)]
    expires_in: Option<Duration>,
}

impl Ends {
    fn of<T>(&self, call: UpdateCall<T>, with: impl FnOnce(UpdateCall<T>, Duration) -> UpdateCall<T>) -> UpdateCall<T> {
        match self.expires_in {
            Some(time) => with(call, time),
            None => call,
        }
    }
}

pub fn run(arguments: &CliArguments) -> Result<Done> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(async {
        check(arguments)?;
        let client = connect(&arguments.cluster, arguments.deadline).await?;
        execute(&client, arguments).await
    });
    match told {
        Ok((human, json, done)) => {
            match (&done, arguments.json) {
                (_, true) => say!("{json}"),
                // Written already.
                (Done::Yes, false) if arguments.raw => {}
                (Done::Yes, false) => say!("{human}"),
                // The text is not printed on standard output, where it could be taken for a value.
                (Done::No, false) => complain(&human),
            }
            Ok(done)
        }
        Err(error) => {
            if arguments.json {
                say!("{}", json!({ "error": format!("{error:#}"), "outcome": outcome_of(&error) }));
            }
            match error.downcast_ref::<Error>() {
                // An answer: the update was executed, and changed nothing.
                Some(Error::Rejected(_)) => {
                    complain(&crate::explain::told(&error));
                    Ok(Done::No)
                }
                _ => Err(error),
            }
        }
    }
}

/// The name of the outcome, by which scripts tell the outcomes apart.
fn outcome_of(error: &anyhow::Error) -> &'static str {
    if error.is::<NoCluster>() {
        return "not executed";
    }
    match error.downcast_ref::<Error>() {
        Some(Error::Unknown { .. }) => "unknown",
        Some(Error::Rejected(_) | Error::NotCommitted(_)) => "rejected",
        Some(
            Error::NotExecuted(_)
            | Error::NoTable(_)
            | Error::NotBegun { .. }
            | Error::TableRefused(_)
            | Error::Connect(_),
        ) => "not executed",
        Some(Error::Failed(_) | Error::Stopped | Error::Forked | Error::Answer(_)) | None => "failed",
    }
}

/// A value for people. With `--raw`, its bytes are written at once.
fn show_value(value: Option<&Value>, arguments: &CliArguments) -> Result<String> {
    use std::io::Write;
    let Some(value) = value else { return Ok("(no value)".to_owned()) };
    if arguments.raw {
        let mut out = std::io::stdout().lock();
        out.write_all(&value.bytes).and_then(|()| out.flush()).context("standard output cannot be written (K0403)")?;
    }
    Ok(show(&value.bytes))
}

fn conditional(outcome: Conditional, what: &str) -> Told {
    match outcome {
        Conditional::Done(version) => {
            (format!("{what} (version {version})"), json!({ "done": true, "version": version }), Done::Yes)
        }
        Conditional::Failed(Some(version)) => {
            let human = format!("not {what}: the key has version {version}");
            (human, json!({ "done": false, "outcome": "rejected", "version": version }), Done::No)
        }
        Conditional::Failed(None) => (
            format!("not {what}: the key has no value"),
            json!({ "done": false, "outcome": "rejected", "version": null }),
            Done::No,
        ),
    }
}

fn if_so(so: bool) -> Done {
    if so { Done::Yes } else { Done::No }
}

/// A flag that the command does not use is an error, and is not ignored.
fn check(arguments: &CliArguments) -> Result<()> {
    let is_update = !matches!(
        arguments.command,
        CliCommand::Get { .. }
            | CliCommand::Exists { .. }
            | CliCommand::TimeToLive { .. }
            | CliCommand::Scan { .. }
            | CliCommand::Count
            | CliCommand::Mget { .. }
            | CliCommand::CreateTable { .. }
            | CliCommand::DropTable { .. }
            | CliCommand::Tables
    );
    if arguments.once.is_some() && !is_update {
        bail!("--once is for updates of keys: leave it away here (K0403)");
    }
    let shows_a_value = matches!(
        arguments.command,
        CliCommand::Get { .. } | CliCommand::GetAndPut { .. } | CliCommand::GetAndDelete { .. }
    );
    if arguments.raw && !shows_a_value {
        bail!("--raw is for commands that print one value: leave it away here (K0403)");
    }
    if arguments.remember_for.is_some_and(|time| time.is_zero()) {
        bail!("--remember-for 0 remembers nothing: give a longer time, or leave --once away (K0403)");
    }
    Ok(())
}

fn update<T>(call: UpdateCall<T>, arguments: &CliArguments) -> UpdateCall<T> {
    match (&arguments.once, arguments.remember_for) {
        (Some(key), Some(time)) => call.once(key).remember_for(time),
        (Some(key), None) => call.once(key),
        (None, _) => call,
    }
}

/// Refuses what a cluster that has not begun would be silent about. A program may wait for it, a person wants to know.
async fn check_begun(client: &Client) -> Result<()> {
    let known = client.configuration().await?;
    if known.is_none_or(|known| known.shards.is_empty())
        && let Some(missing) = client.fresh_configuration().await?.missing_to_begin()
    {
        return Err(Error::NotBegun { missing }.into());
    }
    Ok(())
}

async fn execute(client: &Client, arguments: &CliArguments) -> Result<Told> {
    match &arguments.command {
        CliCommand::CreateTable { name } => {
            check_begun(client).await?;
            let table = client.create_table(name).await?;
            return Ok((format!("{name} is there"), json!({ "table": name, "id": table.id().0 }), Done::Yes));
        }
        CliCommand::DropTable { name } => {
            check_begun(client).await?;
            let dropped = client.drop_table(name).await?;
            let human = if dropped { format!("dropped {name}") } else { format!("there was no table {name}") };
            return Ok((human, json!({ "dropped": dropped }), if_so(dropped)));
        }
        CliCommand::Tables => {
            check_begun(client).await?;
            let tables = client.list_tables().await?;
            return Ok((tables.join("\n"), json!(tables), Done::Yes));
        }
        CliCommand::Txn { script } => {
            let script = txn::script(script)?;
            return txn::run(client, &arguments.table, &script, |call| update(call, arguments)).await;
        }
        _ => {}
    }
    let table = client.table(&arguments.table).await?;
    on_table(&table, arguments).await
}

async fn on_table(table: &Table, arguments: &CliArguments) -> Result<Told> {
    let mut done = Done::Yes;
    let (human, json) = match &arguments.command {
        CliCommand::Get { key } => {
            let value = table.get(key).await?;
            done = if_so(value.is_some());
            (show_value(value.as_ref(), arguments)?, json_value(value.as_ref()))
        }
        CliCommand::Exists { key } => {
            let exists = table.exists(key).await?;
            done = if_so(exists);
            (exists.to_string(), json!(exists))
        }
        CliCommand::Put { key, value, ends } => {
            let put = ends.of(table.put(key, value.value()?), UpdateCall::<u64>::expires_in);
            let version = update(put, arguments).await?;
            (format!("done (version {version})"), json!({ "version": version }))
        }
        CliCommand::PutIfVersion { .. }
        | CliCommand::PutIfAbsent { .. }
        | CliCommand::CompareAndPut { .. }
        | CliCommand::DeleteIfVersion { .. } => return on_condition(table, arguments).await,
        CliCommand::Expire { .. } | CliCommand::Persist { .. } | CliCommand::TimeToLive { .. } => {
            return on_end(table, arguments).await;
        }
        CliCommand::GetAndPut { .. } => return on_exchange(table, arguments).await,
        CliCommand::GetAndDelete { key } => {
            let old = update(table.get_and_delete(key), arguments).await?;
            done = if_so(old.is_some());
            (show_value(old.as_ref(), arguments)?, json_value(old.as_ref()))
        }
        CliCommand::Delete { key } => {
            let is_deleted = update(table.delete(key), arguments).await?.is_some();
            done = if_so(is_deleted);
            let human = if is_deleted { "deleted" } else { "there was no value" };
            (human.to_owned(), json!({ "deleted": is_deleted }))
        }
        CliCommand::Incr { key, by, at_most: None, at_least: None, ends } => {
            let call = ends.of(table.increment(key, *by), UpdateCall::<Counter>::expires_in);
            counted(update(call, arguments).await?)
        }
        CliCommand::Incr { .. } => return on_bounds(table, arguments).await,
        CliCommand::Append { key, value } => {
            let appended = update(table.append(key, value.value()?), arguments).await?;
            (format!("{} bytes", appended.length), json!({ "length": appended.length, "version": appended.version }))
        }
        CliCommand::Scan { prefix, values, cursor, limit } => {
            let scan = table.scan().prefix(prefix);
            return if *values {
                list_values(scan, *cursor, *limit).await
            } else {
                list_keys(scan, *cursor, *limit).await
            };
        }
        CliCommand::Count => {
            let count = table.count().await?;
            (count.to_string(), json!(count))
        }
        CliCommand::Mget { .. } | CliCommand::Mput { .. } | CliCommand::Mdelete { .. } | CliCommand::Mincr { .. } => {
            on_keys(table, arguments).await?
        }
        CliCommand::Txn { .. } | CliCommand::CreateTable { .. } | CliCommand::DropTable { .. } | CliCommand::Tables => {
            unreachable!("done before")
        }
    };
    Ok((human, json, done))
}

async fn list_keys(scan: Scan<ScannedKey>, cursor: Option<Cursor>, limit: Option<u32>) -> Result<Told> {
    let told = |key: &ScannedKey| (show(&key.key), json_bytes(&key.key));
    list(scan, cursor, limit, ("keys", told)).await
}

async fn list_values(scan: Scan<ScannedKey>, cursor: Option<Cursor>, limit: Option<u32>) -> Result<Told> {
    let told = |listed: &ScannedValue| {
        let human = format!("{}\t{}", show(&listed.key), show(&listed.value.bytes));
        (human, json!({ "key": json_bytes(&listed.key), "value": json_value(Some(&listed.value)) }))
    };
    list(scan.values(), cursor, limit, ("values", told)).await
}

/// Keys, one on each line, and where to go on if there may be more.
async fn list<T: Listed>(
    mut scan: Scan<T>,
    cursor: Option<Cursor>,
    limit: Option<u32>,
    (name, told): (&str, impl Fn(&T) -> (String, Json)),
) -> Result<Told> {
    if let Some(limit) = limit {
        scan = scan.page(limit);
    }
    if let Some(cursor) = cursor {
        scan = scan.resume(cursor)?;
    }
    let mut keys = Vec::new();
    while limit.is_none_or(|limit| keys.len() < limit as usize)
        && let Some(page) = scan.next_page().await?
    {
        keys.extend(page);
    }
    let cursor = scan.cursor().map(|cursor| cursor.to_string());
    let (mut lines, keys): (Vec<_>, Vec<_>) = keys.iter().map(told).unzip();
    lines.extend(cursor.iter().map(|cursor| format!("(more: --cursor {cursor})")));
    Ok((lines.join("\n"), json!({ name: keys, "cursor": cursor }), Done::Yes))
}

/// An update with a condition.
async fn on_condition(table: &Table, arguments: &CliArguments) -> Result<Told> {
    let ending = UpdateCall::<Conditional>::expires_in;
    let (call, what) = match &arguments.command {
        CliCommand::PutIfVersion { key, version, value, ends } => {
            (ends.of(table.put_if_version(key, *version, value.value()?), ending), "done")
        }
        CliCommand::PutIfAbsent { key, value, ends } => {
            (ends.of(table.put_if_absent(key, value.value()?), ending), "done")
        }
        CliCommand::CompareAndPut { key, expected, value, ends } => {
            (ends.of(table.compare_and_put(key, expected, value.value()?), ending), "done")
        }
        CliCommand::DeleteIfVersion { key, version } => (table.delete_if_version(key, *version), "deleted"),
        _ => unreachable!("no condition"),
    };
    Ok(conditional(update(call, arguments).await?, what))
}

/// A put that tells the value before, or the one that its condition met instead.
async fn on_exchange(table: &Table, arguments: &CliArguments) -> Result<Told> {
    let CliCommand::GetAndPut { key, value, if_absent, if_version, ends } = &arguments.command else {
        unreachable!("no exchange")
    };
    let put = ends.of(table.get_and_put(key, value.value()?), UpdateCall::<Replaced>::expires_in);
    let exchanged = match if_absent.then_some(Condition::ABSENT).or(if_version.map(Condition::Version)) {
        Some(condition) => update(put.only_if(condition), arguments).await?,
        None => Exchanged::Done(update(put, arguments).await?),
    };
    let (version, old) = match exchanged {
        Exchanged::Done(Replaced { version, old }) => (Some(version), old),
        Exchanged::Failed(old) => (None, old),
    };
    let json = json!({ "version": version, "old": json_value(old.as_ref()) });
    Ok((show_value(old.as_ref(), arguments)?, json, if_so(version.is_some())))
}

/// What is about the end of a value.
async fn on_end(table: &Table, arguments: &CliArguments) -> Result<Told> {
    let version = match &arguments.command {
        CliCommand::Expire { key, time } => update(table.expire(key, *time), arguments).await?,
        CliCommand::Persist { key } => update(table.persist(key), arguments).await?,
        CliCommand::TimeToLive { key } => {
            return Ok(match table.time_to_live(key).await? {
                None => ("(no value)".to_owned(), Json::Null, Done::No),
                Some(TimeToLive::Forever) => ("no end".to_owned(), json!({ "millis": null }), Done::Yes),
                Some(TimeToLive::For(time)) => {
                    (format!("{time:?}"), json!({ "millis": time.as_millis() as u64 }), Done::Yes)
                }
            });
        }
        _ => unreachable!("no end"),
    };
    let human = version.map_or_else(|| "there was no value".to_owned(), |version| format!("done (version {version})"));
    Ok((human, json!({ "version": version }), if_so(version.is_some())))
}

/// An increment with bounds.
async fn on_bounds(table: &Table, arguments: &CliArguments) -> Result<Told> {
    let CliCommand::Incr { key, by, at_most, at_least, ends } = &arguments.command else { unreachable!("no bounds") };
    let (least, most) = (at_least.unwrap_or(i64::MIN), at_most.unwrap_or(i64::MAX));
    let call = ends.of(table.increment(key, *by).at_least(least).at_most(most), UpdateCall::<Bounded>::expires_in);
    Ok(match update(call, arguments).await? {
        Bounded::Done(counter) => {
            let (human, json) = counted(counter);
            (human, json, Done::Yes)
        }
        Bounded::Rejected { value, version } => {
            let json = json!({ "outcome": "rejected", "value": value, "version": version });
            (format!("rejected: the number is {value}"), json, Done::No)
        }
    })
}

fn counted(Counter { value, version }: Counter) -> (String, Json) {
    (value.to_string(), json!({ "value": value, "version": version }))
}

/// Several keys, as one operation.
async fn on_keys(table: &Table, arguments: &CliArguments) -> Result<(String, Json)> {
    Ok(match &arguments.command {
        CliCommand::Mget { keys } => {
            let values = table.multi_get(keys).await?;
            let lines = keys.iter().zip(&values);
            let human = lines.map(|(key, value)| match value {
                Some(value) => format!("{}\t{}", key.shown(), show(&value.bytes)),
                None => format!("{}\t(no value)", key.shown()),
            });
            (human.collect::<Vec<_>>().join("\n"), values.iter().map(|value| json_value(value.as_ref())).collect())
        }
        CliCommand::Mput { pairs } => {
            let pairs = in_pairs(pairs, "value")?;
            let versions = update(table.multi_put(&pairs), arguments).await?;
            (format!("done ({} keys)", versions.len()), json!({ "versions": versions }))
        }
        CliCommand::Mdelete { keys } => {
            let deleted = update(table.multi_delete(keys), arguments).await?;
            (format!("deleted {}", deleted.iter().filter(|&&deleted| deleted).count()), json!({ "deleted": deleted }))
        }
        CliCommand::Mincr { pairs } => {
            let pairs = in_pairs(pairs, "delta")?;
            let deltas =
                pairs.iter().map(|(key, delta)| Ok((key, std::str::from_utf8(delta.as_ref())?.parse::<i64>()?)));
            let deltas = deltas.collect::<Result<Vec<_>>>().context(NO_NUMBER)?;
            let counters = update(table.multi_increment(&deltas), arguments).await?;
            let values: Vec<_> = counters.iter().map(|counter| counter.value).collect();
            (values.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), json!({ "values": values }))
        }
        _ => unreachable!("one key, or none"),
    })
}

const NO_NUMBER: &str = "a delta is no 64-bit number: write it as digits (K0403)";

fn in_pairs(words: &[Argument], second: &str) -> Result<Vec<(Argument, Argument)>> {
    if words.is_empty() || !words.len().is_multiple_of(2) {
        bail!("the words are not pairs: write key {second} key {second} … (K0403)");
    }
    Ok(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}
