//! Many client sessions on one event loop. With 64 threads for 64 clients, a small machine would measure its scheduler.
//! Each session has its own id, lease and window, as if it were alone; connections are shared.

use std::collections::HashMap;

use kasha_client::session::Session;
use kasha_machine::{Effects, Gate, Input, Machine};
use kasha_runtime::{Application, Clock, Control, EventLoop};
use kasha_types::{ClientId, LogSlice, Tick};
use kasha_wire::{Kind, Reader};

use crate::limits;

/// The sessions of the event loop, and their calls.
#[derive(Debug)]
pub(crate) struct Crowd {
    sessions: Vec<Session>,
    of_client: HashMap<ClientId, usize>,
}

impl Crowd {
    pub(crate) fn new(sessions: Vec<Session>) -> Self {
        Self { sessions, of_client: HashMap::new() }
    }

    pub(crate) fn sessions(&mut self) -> &mut [Session] {
        &mut self.sessions
    }

    /// Whether all sessions can send at once.
    pub(crate) fn is_open(&self) -> bool {
        self.sessions.iter().all(Session::is_open)
    }

    /// The session that a frame is for. Messages about an update begin with the update's id.
    fn addressee(&self, kind: u8, payload: &[u8]) -> Option<usize> {
        match Kind::from_number(kind)? {
            Kind::Answer | Kind::Refuse | Kind::Recorded | Kind::Synced => {
                let client: ClientId = Reader::new(payload).take().ok()?;
                self.of_client.get(&client).copied()
            }
            _ => None,
        }
    }

    fn learn_clients(&mut self) {
        let clients = self.sessions.iter().enumerate();
        self.of_client =
            clients.flat_map(|(index, session)| session.clients().map(move |client| (client, index))).collect();
    }
}

impl Machine for Crowd {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        if let Input::Frame { kind, payload, .. } = input
            && let Some(index) = self.addressee(kind, payload)
        {
            return self.sessions[index].step(now, input, out);
        }
        // Every session receives it; one that did not ask ignores it.
        for session in &mut self.sessions {
            session.step(now, input, out);
        }
        if matches!(input, Input::Frame { kind, .. } if kind == Kind::Message as u8) {
            self.learn_clients();
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.sessions.iter_mut().for_each(|session| session.end_turn(now, out));
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.sessions.iter().filter_map(Machine::next_deadline).min()
    }

    fn is_open(&self, gate: Gate) -> bool {
        gate == Gate::Now
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        unreachable!("clients have no log: {slice:?}")
    }
}

/// Runs until every session can send.
pub(crate) fn open(event_loop: &mut EventLoop<Crowd>) -> anyhow::Result<()> {
    struct Opening(Tick);
    impl Application<Crowd> for Opening {
        fn turn(&mut self, now: Tick, crowd: &mut Crowd, _: &mut Effects) -> Control {
            if crowd.is_open() || now >= self.0 { Control::Exit } else { Control::Continue }
        }
        fn next_wake(&self) -> Option<Tick> {
            Some(self.0)
        }
    }
    event_loop.run(&mut Opening(Clock::now().after(limits::DRAIN)))?;
    anyhow::ensure!(event_loop.machine().is_open(), "some clients got no id within {:?}", limits::DRAIN);
    Ok(())
}
