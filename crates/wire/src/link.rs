//! What each link carries, and in which direction: a closed set of messages for every receiver.
//!
//! All messages share one space of numbers ([`crate::message`]). A receiver decodes only the messages of its own set;
//! any other number is refused before the fields behind it are read. The compiler checks that no number stands twice
//! in a set.

use crate::codec::{DecodeError, Reader, Wire};
use crate::frame::{self, FRAME_HEADER_BYTES, Kind};
use crate::message::*;
use crate::version::WireVersion;

/// A message, or a closed set of messages.
pub trait Message: Wire {
    /// The numbers that it carries, a bit each.
    const CARRIED: u128;

    /// The message's name, for logs.
    fn name(&self) -> &'static str;

    /// Takes the fields of the message with this number.
    ///
    /// # Errors
    /// If the set lacks the number, or the bytes are no fields.
    fn take_fields(number: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Whether a message with this number is one of these.
    #[must_use]
    fn carries(number: u8) -> bool {
        number < 128 && Self::CARRIED >> number & 1 == 1
    }

    /// Whether a frame has one of these messages, by its number alone.
    #[must_use]
    fn is_in(kind: u8, payload: &[u8]) -> bool {
        kind == Kind::Message as u8 && payload.first().is_some_and(|&number| Self::carries(number))
    }

    /// The message of a frame, if it is one of these.
    #[must_use]
    fn from_frame(kind: u8, payload: &[u8]) -> Option<Self> {
        if Self::is_in(kind, payload) { Self::decode(payload).ok() } else { None }
    }

    /// Appends a whole frame: of the handshake's version, if it greets.
    fn encode(&self, out: &mut Vec<u8>) {
        let begins = out.len();
        crate::hot::encode_small(Kind::Message, self, out);
        let number = out[begins + FRAME_HEADER_BYTES];
        if Hello::carries(number) || Welcome::carries(number) {
            frame::restamp(&mut out[begins..], WireVersion::HANDSHAKE);
        }
    }

    /// Reads a whole payload.
    ///
    /// # Errors
    /// If it is none of these messages.
    fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        crate::hot::decode_small(payload)
    }
}

/// Why a set of messages lacks this number.
pub(crate) fn unexpected(number: u8) -> DecodeError {
    let row = TABLE.iter().find(|row| row.1 == number);
    row.map_or(DecodeError::Invalid("a message's number"), |row| DecodeError::OtherLink(row.0))
}

/// The union of sets of numbers that have none in common.
pub(crate) const fn disjoint(sets: &[u128]) -> u128 {
    let (mut all, mut index) = (0, 0);
    while index < sets.len() {
        assert!(all & sets[index] == 0, "a message's number stands here twice");
        all |= sets[index];
        index += 1;
    }
    all
}

/// Makes an enum of messages, and of smaller sets of messages.
macro_rules! carries {
    ($($(#[$doc:meta])* $link:ident { $($part:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub enum $link { $(#[doc = concat!("See [`", stringify!($part), "`].")] $part($part)),* }

        const _: u128 = <$link as Message>::CARRIED;

        impl Message for $link {
            const CARRIED: u128 = $crate::link::disjoint(&[$($part::CARRIED),*]);
            fn name(&self) -> &'static str {
                match self { $(Self::$part(part) => part.name()),* }
            }
            fn take_fields(number: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                $(if $part::carries(number) { return $part::take_fields(number, from).map(Self::$part); })*
                Err(unexpected(number))
            }
        }

        impl Wire for $link {
            fn put(&self, out: &mut Vec<u8>) {
                match self { $(Self::$part(part) => part.put(out)),* }
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let number = from.take()?;
                Self::take_fields(number, from)
            }
        }

        impl std::fmt::Debug for $link {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self { $(Self::$part(part) => part.fmt(f)),* }
            }
        }

        $(impl From<$part> for $link {
            fn from(part: $part) -> Self {
                Self::$part(part)
            }
        })*
    )*};
}
pub(crate) use carries;

carries! {
    /// How a connection begins and ends. The shell handles it; a machine that is told of it does nothing.
    Handshake { Hello, Welcome, Goodbye }

    /// Questions for the event loop itself, whatever its machine is.
    ToLoop { GetUsage, GetTurns }

    /// Clients, operators and cores to the coordinator.
    ToCoordinator {
        Handshake, GetConfiguration, OpenSession, RenewLease, TableRequest, GiveUp, Administer, Heartbeat, LeaseQuery,
        Grouped,
    }

    /// The coordinator to a client.
    ToSession { SessionOpened, LeaseRenewed, LeaseLost, TableAnswer }
    /// Everybody to a client.
    ToClient { ConfigurationIs, ToSession, StatusIs, TurnsAre, TimeIs, NotLeader }

    /// The coordinator to an operator.
    ToOperator { GivenUp, Administered, NotLeader, Goodbye }

    /// The coordinator to a node: time and terms. No other word counts, since they could not be taken back (F2).
    Orders { ConfigurationIs, HeartbeatAnswer, LeaseVerdict }
    /// A primary to a member of its replica set.
    ToMember { Fence, Attach, CopySegment, FetchLog }
    /// A primary to a witness.
    ToWitness { FreezeWitness, Gc }
    /// Members and witnesses to their primary, and primaries of other shards.
    ToPrimary { FenceReport, Attached, Mismatch, SegmentCopied, LogPiece, WitnessHolds, GcDone, Words }
    /// Everybody to a node.
    ToNode { Orders, NotLeader, GetConfiguration, GetStatus, Ping, Pong, ToMember, ToWitness, ToPrimary, Welcome, Goodbye }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_a_receiver() {
        // `UsageIs` answers whoever measures a loop, and is decoded alone.
        let received = [
            Handshake::CARRIED,
            ToLoop::CARRIED,
            ToCoordinator::CARRIED,
            ToClient::CARRIED,
            ToOperator::CARRIED,
            ToNode::CARRIED,
            UsageIs::CARRIED,
        ];
        assert_eq!(received.iter().fold(0, |all, set| all | set), AnyMessage::CARRIED);
    }

    #[test]
    fn a_number_stands_once() {
        let numbers: std::collections::BTreeSet<u8> = TABLE.iter().map(|row| row.1).collect();
        assert_eq!((numbers.len(), AnyMessage::CARRIED.count_ones() as usize), (TABLE.len(), TABLE.len()));
        assert!((0..=u8::MAX).filter(|&number| AnyMessage::carries(number)).eq(numbers));
        assert!(std::panic::catch_unwind(|| disjoint(&[Ping::CARRIED, ToNode::CARRIED])).is_err());
    }

    #[test]
    fn a_link_refuses_what_it_does_not_carry() {
        let mut payload = Vec::new();
        Ping { sent: kasha_types::Tick(7) }.put(&mut payload);
        assert_eq!(ToNode::decode(&payload), Ok(ToNode::Ping(Ping { sent: kasha_types::Tick(7) })));
        assert_eq!(ToNode::decode(&payload[..4]), Err(DecodeError::Truncated));
        assert_eq!(ToCoordinator::decode(&payload[..4]), Err(DecodeError::OtherLink("Ping")));
        assert_eq!(Pong::decode(&payload), Err(DecodeError::OtherLink("Ping")));
        for number in [0, 23, 45, 127, 128, 255] {
            assert_eq!(AnyMessage::decode(&[number]), Err(DecodeError::Invalid("a message's number")), "{number}");
        }
    }

    #[test]
    fn a_frame_is_told_by_its_kind_and_number() {
        let message = Kind::Message as u8;
        assert!((0..=u8::MAX).filter(|&number| Handshake::is_in(message, &[number])).eq(1..=3));
        assert!((0..=u8::MAX).filter(|&number| ToLoop::is_in(message, &[number])).eq([19, 30]));
        assert!(!Handshake::is_in(Kind::Answer as u8, &[1]) && !Handshake::is_in(message, &[]));
    }
}
