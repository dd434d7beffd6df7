//! Passes each frame to the part of the session that expects it. A frame that nobody expects, or that comes from an
//! endpoint which must not send it, is counted and ignored.

use kasha_machine::{Effects, Endpoint};
use kasha_types::Tick;
use kasha_wire::link::{ToClient, ToSession};
use kasha_wire::{DecodeError, Kind as FrameKind, Message};

use super::call::Stage;
use super::frames::Known;
use super::{CoreAnswer, Session};

impl Session {
    pub(super) fn on_frame(&mut self, from: Endpoint, kind: u8, payload: &[u8], now: Tick, out: &mut Effects) {
        self.unheard = None;
        if let Endpoint::Core(core) = from
            && self.silence.is_any_absent()
        {
            self.silence.note_heard(core);
        }
        let handled = match (FrameKind::from_number(kind), from) {
            (Some(FrameKind::Answer), Endpoint::Core(core)) => self.on_answer(core, payload, now, out),
            (Some(FrameKind::Refuse), Endpoint::Core(_)) => self.on_refused(payload, now, out),
            (Some(FrameKind::Recorded), Endpoint::Core(core)) => self.on_recorded(core, payload, now, out),
            (Some(FrameKind::Synced), Endpoint::Core(core)) => self.on_synced(core, payload, now, out),
            (Some(FrameKind::ReadAnswer), Endpoint::Core(core)) => self.on_read_answer(core, payload, now, out),
            (Some(FrameKind::ReadRefuse), Endpoint::Core(_)) => self.on_read_refused(payload, now),
            (
                Some(FrameKind::Message),
                Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Member(_) | Endpoint::Seed(_),
            ) => match Message::decode(payload) {
                Err(DecodeError::OtherLink(_)) => Ok(Known::No),
                message => message.map(|message| self.on_message(from, message, now, out)),
            },
            // Messages between servers, or from an endpoint that must not send them.
            _ => Ok(Known::No),
        };
        match handled {
            Ok(Known::Yes) => {}
            Ok(Known::No) => self.stats.stray_frames += 1,
            Err(_) => self.stats.bad_frames += 1,
        }
    }

    fn on_message(&mut self, from: Endpoint, message: ToClient, now: Tick, out: &mut Effects) -> Known {
        let from_coordinator = self.cluster.coordinator.is_leader(from);
        match message {
            ToClient::ConfigurationIs(told) => {
                self.cluster.coordinator.note_leader(from);
                self.on_configuration(told, from_coordinator, now, out)
            }
            ToClient::StatusIs(told) => self.on_core_answer(from, told.id, CoreAnswer::Status(Box::new(told.status))),
            ToClient::TurnsAre(told) => self.on_core_answer(from, told.id, CoreAnswer::Turns(told.turns)),
            ToClient::TimeIs(told) => self.cluster.correct_time(&told, now),
            ToClient::NotLeader(_) if matches!(from, Endpoint::Core(_)) => Known::No,
            ToClient::NotLeader(told) => {
                let before = self.cluster.coordinator.leader();
                let known = self.cluster.on_not_leader(told, now, out);
                if self.cluster.coordinator.leader() != before {
                    self.identities.ask_soon(now);
                }
                known
            }
            ToClient::ToSession(_) if !from_coordinator => Known::No,
            ToClient::ToSession(said) => {
                self.cluster.coordinator.note_leader(from);
                match said {
                    ToSession::SessionOpened(opened) => self.on_session_opened(&opened, now),
                    ToSession::LeaseRenewed(renewed) => self.on_lease_renewed(&renewed, now),
                    ToSession::LeaseLost(lost) => self.on_lease_lost(lost.client, now),
                    ToSession::TableAnswer(answer) => self.on_table_answer(answer),
                }
            }
        }
    }

    pub(super) fn on_unreachable(&mut self, endpoint: Endpoint, now: Tick, out: &mut Effects) {
        self.unheard.get_or_insert(now);
        match endpoint {
            Endpoint::Core(core) => {
                self.cluster.want_configuration();
                self.silence.note_unreachable(core);
                for slot in self.calls.slots() {
                    let Some(call) = self.calls.get(slot).filter(|call| call.stage == Stage::InFlight) else {
                        continue;
                    };
                    if call.participants.targets().any(|target| target.primary == core) {
                        self.pause(slot, true, now);
                    } else {
                        self.on_witness_gone(slot, core, now, out);
                    }
                }
            }
            Endpoint::Seed(_) => self.cluster.on_seed_unreachable(now),
            Endpoint::Coordinator | Endpoint::Member(_) => {
                let before = self.cluster.coordinator.leader();
                self.cluster.coordinator.note_unreachable(endpoint);
                if self.cluster.coordinator.leader() != before {
                    self.identities.ask_soon(now);
                }
                self.cluster.on_coordinator_unreachable(now);
            }
            Endpoint::Conn(_) => {}
        }
    }
}
