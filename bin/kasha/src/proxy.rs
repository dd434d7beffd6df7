//! `kasha proxy`: programs that speak the Redis protocol on the one side, a cluster on the other.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use kasha_client::session::{CoreQuestion, Session};
use kasha_gateway::RedisOptions;
use kasha_machine::Effects;
use kasha_runtime::limits::Limits;
use kasha_runtime::{Application, Control, EventLoop, LoopOptions, raise_descriptor_limit, say};
use kasha_types::{CoreId, Tick};

use crate::connect::Address;
use crate::host::abort_on_panic;
use crate::redis::{ENDS_WITHIN, Front, Port, RedisPlace, front, placement};
use crate::stopping::StopRequest;

/// The arguments of `kasha proxy`.
#[derive(Args)]
pub struct ProxyArguments {
    #[command(flatten)]
    address: Address,
    /// Where programs that speak the Redis protocol connect: ip:port, or unix:/path for a socket that only this user reaches; several with
    /// commas. Whoever reaches it may do everything: let only this machine reach it.
    #[arg(long, env = "KASHA_REDIS", default_value = "127.0.0.1:6379", value_delimiter = ',', value_parser = RedisPlace::parse)]
    redis: Vec<RedisPlace>,
    /// The password that programs have to say (`AUTH`); better in the environment, since others see command lines.
    #[arg(long, env = "KASHA_REDIS_PASSWORD", hide_env_values = true)]
    redis_password: Option<String>,
    /// Databases that are made through this proxy are spread over all shards; by default each is in one shard, as in one server of Redis.
    #[arg(long, env = "KASHA_REDIS_SPREAD")]
    redis_spread: bool,
}

/// Logs that the cluster is away, and that it is back. What lasts no longer than a moment is not told.
#[derive(Debug, Default)]
struct TellCluster {
    /// Since when it is away. `None`: it is not, as far as was told.
    away: Option<Tick>,
    /// Since when it is otherwise.
    otherwise: Option<Tick>,
    looks_at: Option<Tick>,
}

impl TellCluster {
    const LOOKS_EVERY: Duration = Duration::from_millis(250);
    const MOMENT: Duration = Duration::from_secs(1);

    /// If nobody has been heard although there was a reason to say something, asks all nodes: who is there answers at once.
    fn look(&mut self, now: Tick, machine: &mut Front, out: &mut Effects) {
        if self.looks_at.is_some_and(|at| now < at) {
            return;
        }
        self.looks_at = Some(now.after(Self::LOOKS_EVERY));
        let (front, session) = machine.parts_mut();
        let silent = session.unheard_since().map(|since| now.since(since));
        if silent.is_some_and(|silent| silent >= Self::LOOKS_EVERY) {
            for core in first_cores(session) {
                session.ask_core(now, core, CoreQuestion::Status, out);
            }
        }
        if front.is_cluster_silent() || silent.is_some_and(|silent| silent >= Self::MOMENT) {
            front.search_silent_cluster(now, session, out);
        }
        if let Some(line) = self.news(now, front.waits_for(session)) {
            tracing::warn!("{line}");
        }
    }

    fn news(&mut self, now: Tick, waits_for: Option<String>) -> Option<String> {
        if waits_for.is_some() == self.away.is_some() {
            self.otherwise = None;
            return None;
        }
        let since = *self.otherwise.get_or_insert(now);
        if now.since(since) < Self::MOMENT {
            return None;
        }
        self.otherwise = None;
        match (waits_for, self.away) {
            (Some(what), _) => {
                self.away = Some(since);
                Some(format!("commands wait for {what}"))
            }
            (None, Some(away)) => {
                self.away = None;
                Some(format!("commands are executed again, after {:.1} s", since.since(away).as_secs_f32()))
            }
            (None, None) => None,
        }
    }
}

/// A core of each node that is not lost.
fn first_cores(session: &Session) -> Vec<CoreId> {
    let nodes = session.configuration().into_iter().flat_map(|configuration| &configuration.nodes);
    let there = nodes.filter(|info| info.alive && !info.cores.is_empty());
    there.map(|info| CoreId { node: info.node, core: 0 }).collect()
}

/// Ends in good order when that is asked for (R10.5).
struct Ending {
    asked: StopRequest,
    since: Option<Tick>,
    cluster: TellCluster,
}

impl Application<Front> for Ending {
    fn next_wake(&self) -> Option<Tick> {
        self.cluster.looks_at
    }

    fn turn(&mut self, now: Tick, machine: &mut Front, out: &mut Effects) -> Control {
        self.cluster.look(now, machine, out);
        if !self.asked.came() {
            return Control::Continue;
        }
        let (front, session) = machine.parts_mut();
        let since = *self.since.get_or_insert_with(|| {
            front.begin_end(now, session, out);
            now
        });
        if front.is_idle() || now.since(since) >= ENDS_WITHIN { Control::Exit } else { Control::Continue }
    }
}

/// The addresses of the cluster, as numbers.
fn seeds(address: &Address) -> Result<Vec<SocketAddr>> {
    let mut seeds = Vec::new();
    for name in &address.addresses {
        let found =
            name.to_socket_addrs().with_context(|| format!("{name:?} leads nowhere: write host:port (K0403)"))?;
        seeds.extend(found);
    }
    seeds.dedup();
    if seeds.is_empty() {
        Err(anyhow!("the names of the cluster have no address; name it with --address (K0403)"))
    } else {
        Ok(seeds)
    }
}

pub fn run(arguments: &ProxyArguments) -> Result<()> {
    let seeds = seeds(&arguments.address)?;
    abort_on_panic();
    let limits = Limits::within(raise_descriptor_limit(), 1)?.with_requesters();
    let password = arguments.redis_password.clone();
    let placement = placement(arguments.redis_spread);
    let options = RedisOptions { password, placement, clients_max: limits.requesters, ..RedisOptions::default() };
    let (port, at) = Port::listen_at(&arguments.redis, options)?;
    let options = LoopOptions {
        name: "proxy".into(),
        listen: port.listeners()?,
        limits,
        port: Some(port.counted(0)),
        ..LoopOptions::default()
    };
    let mut event_loop =
        EventLoop::new(options, |_, now, out| Ok(front(seeds.into(), None, port.options(0), now, out)))?;
    let asked = StopRequest::listen()?;
    let (handle, wakes) = (event_loop.handle(), asked.again());
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        while !wakes.came() {
            std::thread::sleep(Duration::from_millis(50));
        }
        // Until the loop has ended.
        loop {
            handle.wake();
            std::thread::sleep(Duration::from_millis(20));
        }
    })?;
    let at: Vec<_> = at.iter().map(ToString::to_string).collect();
    say!("the Redis protocol at {}, for the cluster at {}", at.join(", "), arguments.address.addresses.join(", "));
    event_loop.run(&mut Ending { asked, since: None, cluster: TellCluster::default() })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_told_once_and_its_end_once() {
        let mut tell = TellCluster::default();
        let mut told = Vec::new();
        // A moment, then for long, with a moment in between.
        for tenth in 0..400u64 {
            let now = Tick(0).after(Duration::from_millis(100 * tenth));
            let is_away = matches!(tenth, 10..18 | 100..200 | 205..300);
            told.extend(tell.news(now, is_away.then(|| format!("what is away at {tenth}"))).map(|line| (tenth, line)));
        }
        let lines = [
            (110, "commands wait for what is away at 110".to_owned()),
            (310, "commands are executed again, after 20.0 s".to_owned()),
        ];
        assert_eq!(told, lines);
    }
}
