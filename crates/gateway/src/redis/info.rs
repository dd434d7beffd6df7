//! `INFO`, and what is said of a connection.

use std::fmt::Write;

use kasha_commands::{Item, ReplyWriter};

use super::connection::Connection;
use super::local::{Known, REDIS_VERSION};
use crate::resp::Protocol;

/// The sections, in order, with what each says.
fn sections(known: Known<'_>) -> [(&'static str, String); 7] {
    let server = format!(
        "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:kasha\r\nkasha_version:{}\r\ntcp_port:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        known.options.port
    );
    let port = known.counts.of_port(known.options.counted.as_ref(), known.clients);
    let clients = format!("connected_clients:{}\r\nmaxclients:{}\r\n", port.connections, known.options.clients_max);
    let stats = format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\ntotal_net_input_bytes:{}\r\n\
         total_net_output_bytes:{}\r\nrejected_connections:{}\r\n",
        port.accepted, port.commands, port.bytes_in, port.bytes_out, port.refused
    );
    // A driver waits while a server is loading. Nothing is executed as long as the cluster is not known.
    let waits = match known.waits_for() {
        None => "kasha_waits_for:nothing\r\n".to_owned(),
        Some(what) => format!("kasha_waits_for:{what}\r\n"),
    };
    [
        ("Server", server),
        ("Clients", clients),
        ("Persistence", "loading:0\r\nasync_loading:0\r\naof_enabled:1\r\n".to_owned()),
        ("Stats", stats),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Cluster", format!("cluster_enabled:0\r\n{waits}")),
        ("Keyspace", String::new()),
    ]
}

/// `INFO [section…]`.
pub fn info(wanted: &[&[u8]], known: Known<'_>, out: &mut ReplyWriter<'_>) {
    let is_all = wanted.is_empty()
        || wanted
            .iter()
            .any(|word| [&b"all"[..], b"default", b"everything"].iter().any(|all| word.eq_ignore_ascii_case(all)));
    let mut text = String::new();
    for (name, lines) in sections(known) {
        if is_all || wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            write!(text, "{gap}# {name}\r\n{lines}").expect("a string takes everything");
        }
    }
    out.item(Item::Text(&text));
}

/// What `CLIENT INFO` and `CLIENT LIST` say of a connection.
pub fn line_of(connection: &Connection) -> String {
    let Connection { id, database, about, protocol, queued, watched, .. } = connection;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let multi = queued.as_ref().map_or(-1, |queued| i64::try_from(queued.requests.len()).unwrap_or(i64::MAX));
    let resp = match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    format!(
        "id={id} name={} db={database} multi={multi} watch={} user=default resp={resp} lib-name={} lib-ver={}",
        text(&about.name),
        watched.len(),
        text(&about.library),
        text(&about.library_version),
    )
}
