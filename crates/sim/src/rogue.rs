//! A client that breaks the rules: its updates are well-formed, but no honest session numbers, names or dates them like
//! this.
//!
//! Each of its bad requests must be refused (R4.3, R4.9, section 4): a sequence far above its acknowledgement; another
//! body under a used id; a client id that nobody has granted; an operation key whose time limit was over long ago. It
//! never acknowledges anything, and writes only to keys of its own.
//!
//! It also uses ids again at a witness. It never sends these requests to a primary, so the witness holds them for long.
//! When the witness has dropped one, it may accept another body. The checker `gates_respected` looks whether an
//! accepted body is still in the file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, Rng};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{
    AckedBelow, ClientId, ClusterTime, ConfigVersion, CoreId, Epoch, ListVersion, LogSlice, RpcId, Sequence, ShardId,
    Tick, slot_of,
};
use kasha_wire::frame::Kind;
use kasha_wire::message::{ConfigurationIs, SessionOpened};
use kasha_wire::{
    AnswerView, Body, BodyHead, Configuration, Envelope, Message, Recorded, RecordedVerdict, RequestView, ShardConfig,
    Update, hot, message,
};

use crate::clients::Stage;
use crate::clock::{SimTime, millis};
use crate::process::Actor;
use crate::world::{Sent, View};

/// The name of its process.
pub const NAME: &str = "rogue";

/// Ids below this one are for honest updates; some of these ids are then used again.
const HONEST_MAX: u64 = 200;

/// The shortest and the longest time between two requests.
const PAUSE: (u64, u64) = (millis(2), millis(15));

/// The client's id and lease, as the coordinator granted them.
#[derive(Clone, Copy, Debug)]
struct Granted {
    client: ClientId,
    lease_expiry: ClusterTime,
}

/// The error in a request; `None`: the request is honest.
type Wrong = Option<&'static str>;

/// A witness, and the request that it was asked to hold.
#[derive(Clone, Copy, Debug)]
struct Held {
    head: BodyHead,
    witness: CoreId,
    shard: ShardId,
    list: ListVersion,
}

/// The client program.
pub struct Rogue {
    rng: Rng,
    stage: Rc<RefCell<Stage>>,
    configuration: Option<Configuration>,
    granted: Option<Granted>,
    /// The error of each attempt that was sent.
    sent: BTreeMap<(RpcId, u32), Wrong>,
    /// Honest updates that are synced, by sequence.
    synced: Vec<u64>,
    /// The requests that were recorded at a witness, and whether the witness has accepted them.
    recorded: BTreeMap<RpcId, Held>,
    accepted: Vec<Held>,
    next: u64,
    attempts: u32,
    next_at: SimTime,
}

/// Whether a frame comes from such a client, whose bodies change.
pub(crate) fn is_from(sent: &Sent<'_>, view: &View<'_>) -> bool {
    view.processes[sent.from.0].name == NAME
}

fn key_of(sequence: u64) -> Vec<u8> {
    format!("rogue-{sequence}").into_bytes()
}

/// The shard of an update's key.
fn owner<'c>(configuration: &'c Configuration, head: &BodyHead) -> Option<&'c ShardConfig> {
    configuration.shard(configuration.owner(head.table, slot_of(&key_of(head.rpc.sequence.0)))?)
}

impl Rogue {
    /// A client that knows the coordinator.
    pub fn new(seed: u64, stage: Rc<RefCell<Stage>>, coordinator: SocketAddr, out: &mut Effects) -> Self {
        out.push(Effect::Route { to: Endpoint::Coordinator, address: coordinator });
        Self {
            rng: Rng::new(seed),
            stage,
            configuration: None,
            granted: None,
            sent: BTreeMap::new(),
            synced: Vec::new(),
            recorded: BTreeMap::new(),
            accepted: Vec::new(),
            next: 1,
            attempts: 0,
            next_at: SimTime(0),
        }
    }

    fn tell(to: Endpoint, message: &impl Message, out: &mut Effects) {
        let mark = out.mark();
        message.encode(out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
    }

    fn on_message(&mut self, payload: &[u8], out: &mut Effects) {
        if let Ok(SessionOpened { client, lease_expiry, .. }) = Message::decode(payload) {
            self.granted.get_or_insert(Granted { client, lease_expiry });
        }
        if let Ok(ConfigurationIs { configuration, .. }) = Message::decode(payload) {
            for info in &configuration.nodes {
                for (core, &address) in (0..).zip(&info.cores) {
                    out.push(Effect::Route { to: Endpoint::Core(CoreId { node: info.node, core }), address });
                }
            }
            self.configuration = Some(configuration);
        }
    }

    fn on_answer(&mut self, answer: &AnswerView<'_>) {
        match self.sent.get(&(answer.rpc, answer.attempt)) {
            Some(Some(wrong)) => {
                let text = format!("rogue_is_refused: {} was answered: {wrong}", answer.rpc);
                self.stage.borrow_mut().violations.push(text);
            }
            Some(None) if answer.synced => self.synced.push(answer.rpc.sequence.0),
            Some(None) | None => {}
        }
    }

    fn on_recorded(&mut self, recorded: &Recorded) {
        if recorded.verdict == RecordedVerdict::Accepted {
            self.accepted.extend(self.recorded.remove(&recorded.rpc));
        }
    }

    /// Sends a witness another body under an id that it holds, or a request to hold.
    fn record(&mut self, head: BodyHead, out: &mut Effects) {
        if !self.accepted.is_empty() && self.rng.chance(1, 2) {
            let held = *self.rng.pick(&self.accepted);
            return self.send_record(held, b"another", out);
        }
        let configuration = self.configuration.as_ref().expect("asked when there is one");
        let Some(config) = owner(configuration, &head).filter(|config| !config.witnesses.is_empty()) else { return };
        let (node, shard, list) = (*self.rng.pick(&config.witnesses), config.shard, config.list);
        let Some(witness) = configuration.core_of(node, shard) else { return };
        self.next += 1;
        let held = Held { head, witness, shard, list };
        self.recorded.insert(head.rpc, held);
        self.send_record(held, b"honest", out);
    }

    fn send_record(&mut self, Held { head, witness, shard, list }: Held, value: &[u8], out: &mut Effects) {
        self.attempts += 1;
        let key = key_of(head.rpc.sequence.0);
        let mut body = Vec::new();
        Body::encode(&head, None, &Update::put(&key, value), &mut body);
        let envelope =
            Envelope { shard, epoch: Epoch(0), list, cluster_time: ClusterTime(0), attempt: self.attempts, turn: None };
        let mark = out.mark();
        RequestView::encode(Kind::Record, &envelope, &body, out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: Endpoint::Core(witness), head, tail: None, gate: Gate::Now });
    }

    /// The next request: an honest one, or one with an error.
    fn request(&mut self, granted: Granted, out: &mut Effects) {
        let Granted { client, lease_expiry } = granted;
        let mut head = BodyHead {
            rpc: RpcId { client, sequence: Sequence(self.next) },
            acknowledgement: AckedBelow(1),
            lease_expiry,
            not_after: ClusterTime(0),
            begun: ClusterTime(0),
            table: self.configuration.as_ref().expect("asked when there is one").tables[0].table,
        };
        let (mut value, mut operation_key, mut wrong) = (&b"honest"[..], None, None);
        match self.rng.below(6) {
            0 => {
                head.rpc.sequence.0 = OUTSTANDING_MAX + 2 + self.rng.below(1 << 20);
                wrong = Some("its sequence is far above its acknowledgement (R4.3)");
            }
            1 if !self.synced.is_empty() => {
                head.rpc.sequence = Sequence(*self.rng.pick(&self.synced));
                value = b"another";
                wrong = Some("its id was used for another body (section 4)");
            }
            2 => {
                head.rpc = RpcId { client: ClientId(1 << 40 | self.rng.below(1 << 20)), sequence: Sequence(1) };
                wrong = Some("nobody has granted its client id (R4.3)");
            }
            3 if self.next < HONEST_MAX => {
                self.next += 1;
                (head.not_after, operation_key) = (ClusterTime(1), Some(key_of(head.rpc.sequence.0)));
                wrong = Some("the time limit of its operation key is over (R4.9)");
            }
            4 if self.next < HONEST_MAX => return self.record(head, out),
            _ if self.next < HONEST_MAX => self.next += 1,
            _ => return,
        }
        let key = key_of(head.rpc.sequence.0);
        let mut body = Vec::new();
        Body::encode(&head, operation_key.as_deref(), &Update::put(&key, value), &mut body);
        self.send(&head, &body, wrong, out);
    }

    fn send(&mut self, head: &BodyHead, body: &[u8], wrong: Wrong, out: &mut Effects) {
        let configuration = self.configuration.as_ref().expect("asked when there is one");
        let Some(config) = owner(configuration, head) else { return };
        let (shard, epoch) = (config.shard, config.epoch);
        let Some(core) = configuration.core_of(config.primary, shard) else { return };
        self.attempts += 1;
        self.sent.insert((head.rpc, self.attempts), wrong);
        let (list, cluster_time) = (ListVersion::NONE, ClusterTime(0));
        let envelope = Envelope { shard, epoch, list, cluster_time, attempt: self.attempts, turn: None };
        let mark = out.mark();
        RequestView::encode(Kind::Request, &envelope, body, out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: Endpoint::Core(core), head, tail: None, gate: Gate::Now });
    }
}

impl Machine for Rogue {
    fn step(&mut self, _now: Tick, input: Input<'_>, out: &mut Effects) {
        let Input::Frame { kind, payload, .. } = input else { return };
        match Kind::from_number(kind) {
            Some(Kind::Message) => self.on_message(payload, out),
            Some(Kind::Answer) => AnswerView::decode(payload).iter().for_each(|answer| self.on_answer(answer)),
            Some(Kind::Recorded) => hot::decode_small(payload).iter().for_each(|recorded| self.on_recorded(recorded)),
            _ => {}
        }
    }
    fn end_turn(&mut self, _now: Tick, _out: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _gate: Gate) -> bool {
        true
    }
    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("a client has no log")
    }
}

impl Actor for Rogue {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }

    fn drive(&mut self, _now: Tick, at: SimTime, out: &mut Effects) {
        if at < self.next_at {
            return;
        }
        self.next_at = at.after(self.rng.between(PAUSE.0, PAUSE.1));
        let is_placed = self.configuration.as_ref().is_some_and(|known| !known.tables.is_empty());
        match self.granted.filter(|_| is_placed && !self.rng.chance(1, 20)) {
            Some(granted) => self.request(granted, out),
            None => {
                let nonce = self.rng.next_u64();
                Self::tell(Endpoint::Coordinator, &message::OpenSession { nonce }, out);
                let have = self.configuration.as_ref().map_or(ConfigVersion(0), |known| known.version);
                Self::tell(Endpoint::Coordinator, &message::GetConfiguration { have }, out);
            }
        }
    }

    fn wake(&self) -> Option<SimTime> {
        Some(self.next_at)
    }
}
