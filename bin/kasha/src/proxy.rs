//! `kasha proxy`: programs that speak the Redis protocol on the one side, a cluster on the other.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use kasha_gateway::RedisOptions;
use kasha_machine::Effects;
use kasha_runtime::limits::Limits;
use kasha_runtime::{Application, Control, EventLoop, LoopOptions, raise_descriptor_limit, say};
use kasha_types::Tick;

use crate::connect::Address;
use crate::host::abort_on_panic;
use crate::redis::{ENDS_WITHIN, Front, Port, PortSpec, front, placement};
use crate::stopping::StopRequest;

/// The arguments of `kasha proxy`.
#[derive(Args)]
pub struct ProxyArguments {
    #[command(flatten)]
    address: Address,
    /// Where programs that speak the Redis protocol connect. Whoever reaches it may do everything: let only this machine reach it.
    #[arg(long, env = "KASHA_REDIS", default_value = "127.0.0.1:6379")]
    redis: SocketAddr,
    /// The password that programs have to say (`AUTH`); better in the environment, since others see command lines.
    #[arg(long, env = "KASHA_REDIS_PASSWORD", hide_env_values = true)]
    redis_password: Option<String>,
    /// Databases that are made through this proxy are spread over all shards; by default each is in one shard, as in one server of Redis.
    #[arg(long, env = "KASHA_REDIS_SPREAD")]
    redis_spread: bool,
}

/// Ends in good order when that is asked for (R10.5).
struct Ending {
    asked: StopRequest,
    since: Option<Tick>,
}

impl Application<Front> for Ending {
    fn turn(&mut self, now: Tick, machine: &mut Front, out: &mut Effects) -> Control {
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
    let (port, at) = Port::listen(&PortSpec { address: arguments.redis, options }, 1)?;
    let options = LoopOptions {
        name: "proxy".into(),
        listen: vec![port.listener()?],
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
    say!("the Redis protocol at {at}, for the cluster at {}", arguments.address.addresses.join(", "));
    event_loop.run(&mut Ending { asked, since: None })?;
    Ok(())
}
