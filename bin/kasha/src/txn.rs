//! `kasha cli txn`: a transaction from a script, one part on each line.
//!
//! ```text
//! # A line is an operation, a key, and what the operation needs; a value is the rest of its line.
//! table accounts
//! check-version {u7}credit 3
//! increment {u7}credit -10
//! table journal
//! append {u7}log spent 10;
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kasha_client::{Client, Results, Table, Transaction, TransactionOutcome, UpdateCall};
use kasha_wire::Outcome;
use serde_json::{Value as Json, json};

use crate::told::{Done, Told, json_value, show};

/// The operations, for the message about one that there is not.
const OPERATIONS: &str = "get, exists, put, delete, increment, append, get-and-put, get-and-delete, expire, persist, \
                          check-version, check-value, check-absent";

/// A line that is a part of the transaction, as it is shown.
struct Line {
    number: usize,
    text: String,
}

/// A line as it is, unless its value is long.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The script's text: of a file, or of standard input for `-`.
pub fn script(from: &Path) -> Result<String> {
    let text = match from.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(from),
    };
    text.with_context(|| format!("the script {} cannot be read (K0403)", from.display()))
}

/// Runs a script. `default`: the table of the lines before the first `table` line.
pub async fn run(
    client: &Client,
    default: &str,
    script: &str,
    options: impl FnOnce(UpdateCall<TransactionOutcome>) -> UpdateCall<TransactionOutcome>,
) -> Result<Told> {
    let (mut transaction, mut lines) = (client.transaction(), Vec::new());
    let (mut tables, mut name): (BTreeMap<String, Table>, _) = (BTreeMap::new(), default.to_owned());
    for (number, text) in (1..).zip(script.lines()) {
        let text = text.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(next) = text.strip_prefix("table ") {
            name = next.trim().to_owned();
            continue;
        }
        if !tables.contains_key(&name) {
            tables.insert(name.clone(), client.table(&name).await?);
        }
        add(&mut transaction, &tables[&name], text).with_context(|| format!("line {number} of the script"))?;
        lines.push(Line { number, text: shortened(text) });
    }
    if lines.is_empty() {
        bail!("the script has no operation: write one on each line, as `increment key 1` (K0403)");
    }
    Ok(match options(transaction.commit()).await? {
        TransactionOutcome::Committed(results) => committed(&lines, &results),
        TransactionOutcome::NotCommitted(failure) => {
            let Line { number, text } = &lines[failure.part];
            let human = format!("not committed, and nothing changed: line {number}, {text:?}: {}", failure.why);
            let json =
                json!({ "committed": false, "outcome": "rejected", "line": number, "why": failure.why.to_string() });
            (human, json, Done::No)
        }
    })
}

fn add(transaction: &mut Transaction, table: &Table, text: &str) -> Result<()> {
    let (operation, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim_start();
    let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = |what| value.trim().parse::<i64>().with_context(|| format!("{value:?} is no {what} (K0403)"));
    if key.is_empty() {
        bail!("a key is missing: write `{operation} key …` (K0403)");
    }
    let takes_more = !matches!(operation, "get" | "exists" | "delete" | "get-and-delete" | "persist" | "check-absent");
    if !takes_more && !value.trim().is_empty() {
        bail!("{operation} takes a key and nothing else, not {value:?} (K0403)");
    }
    let writes_text = matches!(operation, "put" | "append" | "get-and-put" | "check-value");
    if writes_text && !rest.contains(' ') {
        bail!(
            "a value is missing: write `{operation} {key} value`, or a space behind the key for an empty one (K0403)"
        );
    }
    match operation {
        "get" => _ = transaction.get(table, key),
        "exists" => _ = transaction.exists(table, key),
        "put" => _ = transaction.put(table, key, value),
        "delete" => _ = transaction.delete(table, key),
        "increment" | "incr" => increment(transaction, table, key, value)?,
        "append" => _ = transaction.append(table, key, value),
        "get-and-put" => _ = transaction.get_and_put(table, key, value),
        "get-and-delete" => _ = transaction.get_and_delete(table, key),
        "expire" => {
            let time = crate::duration::parse(value.trim()).map_err(anyhow::Error::msg)?;
            _ = transaction.expire(table, key, time);
        }
        "persist" => _ = transaction.persist(table, key),
        "check-version" => {
            let version = u64::try_from(number("version")?).context("a version is not negative (K0403)")?;
            transaction.check_version(table, key, version);
        }
        "check-value" => _ = transaction.check_value(table, key, value),
        "check-absent" => transaction.check_absent(table, key),
        other => bail!("{other:?} is no operation: use one of {OPERATIONS} (K0403)"),
    }
    Ok(())
}

/// `delta`, and perhaps `at-most number` and `at-least number` behind it.
fn increment(transaction: &mut Transaction, table: &Table, key: &str, arguments: &str) -> Result<()> {
    let number = |text: &str| text.parse::<i64>().with_context(|| format!("{text:?} is no number (K0403)"));
    let mut words = arguments.split_whitespace();
    let delta = number(words.next().unwrap_or_default())?;
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    while let Some(word) = words.next() {
        let bound = number(words.next().unwrap_or_default());
        match word {
            "at-most" => most = bound?,
            "at-least" => least = bound?,
            other => bail!("{other:?} is no bound: write `increment key {delta} at-least 0` or `at-most 10` (K0403)"),
        }
    }
    if (least, most) == (i64::MIN, i64::MAX) {
        transaction.increment(table, key, delta);
    } else {
        transaction.increment_within(table, key, delta, least..=most);
    }
    Ok(())
}

fn committed(lines: &[Line], results: &Results) -> Told {
    let (mut human, mut json) = (Vec::new(), Vec::new());
    for (Line { text, .. }, came_to) in lines.iter().zip(results.outcomes()) {
        let (shown, result) = outcome(came_to);
        human.push(format!("{text}\t{}", if text.starts_with("check-") { "holds" } else { &shown }));
        json.push(result);
    }
    (human.join("\n"), json!({ "committed": true, "results": json }), Done::Yes)
}

fn outcome(outcome: &Outcome) -> (String, Json) {
    let value = |version: &u64, bytes: &[u8]| {
        (show(bytes), json_value(Some(&kasha_client::Value { version: *version, bytes: bytes.to_vec() })))
    };
    match outcome {
        Outcome::Version(version) => (format!("done (version {version})"), json!({ "version": version })),
        Outcome::Number(sum, version) => (sum.to_string(), json!({ "value": sum, "version": version })),
        Outcome::Length(length, version) => {
            (format!("{length} bytes"), json!({ "length": length, "version": version }))
        }
        Outcome::Flags(flags) => {
            let flag = flags.first().copied().unwrap_or_default();
            (flag.to_string(), json!(flag))
        }
        Outcome::Value(version, bytes) => value(version, bytes),
        Outcome::Replaced(version, old) => {
            let (human, old) = match old {
                Some((version, bytes)) => value(version, bytes),
                None => ("(no value)".to_owned(), Json::Null),
            };
            (human, json!({ "version": version, "old": old }))
        }
        Outcome::NotFound => ("(no value)".to_owned(), Json::Null),
        other => (format!("{other:?}"), Json::Null),
    }
}
