//! A small codec for everything that is not hot: fields in order, little endian, lengths as `u32`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use kasha_types::{
    AckedBelow, AttachId, BodyHash, BootId, ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Epoch,
    Incarnation, KeyHash, ListVersion, LogEnd, LogPosition, MemberId, NodeId, Round, RpcId, SegmentId, Sequence,
    ShardId, Slot, TableId, Tick, UnixMillis, ViewNumber,
};

/// Bytes that are not what they should be. The connection they came on is closed; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Truncated,
    /// There are more than there should be.
    TrailingBytes,
    /// A tag, length or count has a value that means nothing.
    Invalid(&'static str),
    /// Something exceeds its limit.
    TooLarge(&'static str),
    /// A message of this name, which the link does not carry.
    OtherLink(&'static str),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => write!(f, "the message ends too early"),
            Self::TrailingBytes => write!(f, "the message has bytes behind its end"),
            Self::Invalid(what) => write!(f, "{what} has a value that means nothing"),
            Self::TooLarge(what) => write!(f, "{what} exceeds its limit"),
            Self::OtherLink(name) => write!(f, "a {name} message is not for this link"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Takes fields off the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Skips reserved bytes.
    ///
    /// # Errors
    /// If one is not 0: every value has one encoding, so that a reserved field can be given a meaning later.
    pub fn reserved(&mut self, len: usize) -> Result<(), DecodeError> {
        // All of them, so that no branch stands between two bytes.
        let bits = self.bytes(len)?.iter().fold(0, |bits, byte| bits | byte);
        if bits == 0 { Ok(()) } else { Err(DecodeError::Invalid("a reserved field")) }
    }

    /// The bytes that were not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// If something is.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }

    /// The next value.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn take<T: Wire>(&mut self) -> Result<T, DecodeError> {
        T::take(self)
    }
}

/// A value with one encoding.
pub trait Wire: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes a value off the front.
    ///
    /// # Errors
    /// If the bytes are none.
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! integer {
    ($($ty:ty),*) => {$(
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes = from.bytes(size_of::<$ty>())?;
                Ok(<$ty>::from_le_bytes(bytes.try_into().expect("as many bytes as asked for")))
            }
        }
    )*};
}
integer!(u8, u16, u32, u64, u128, i64);

macro_rules! newtype {
    ($($ty:ident),*) => {$(
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self(from.take()?))
            }
        }
    )*};
}
newtype!(
    AckedBelow,
    BodyHash,
    BootId,
    ClientId,
    ClusterId,
    ClusterTime,
    UnixMillis,
    ConfigVersion,
    Epoch,
    Incarnation,
    KeyHash,
    AttachId,
    ListVersion,
    LogEnd,
    MemberId,
    ViewNumber,
    NodeId,
    Round,
    SegmentId,
    Sequence,
    ShardId,
    Slot,
    TableId,
    Tick
);

/// Gives a struct with named fields the encoding of its fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::Wire::put(&self.$field, out);)*
            }
            fn take(from: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                let _ = &from;
                Ok(Self { $($field: from.take()?),* })
            }
        }
    )*};
}

wire_struct! {
    RpcId { client, sequence }
    CoreId { node, core }
    LogPosition { epoch, offset }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.take::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("a flag")),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if from.take::<bool>()? { Ok(Some(from.take()?)) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::new(from.take()?))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("lists are far below 2^32 items").put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = from.take::<u32>()? as usize;
        // Every item takes at least a byte, so a count that was made up cannot reserve more than it was sent.
        if count > from.rest().len() {
            return Err(DecodeError::Truncated);
        }
        // Items can be larger in memory than they were sent, but not by much more than this.
        let likely = from.rest().len() * 8 / size_of::<T>().max(1);
        let mut items = Vec::with_capacity(count.min(1024).min(likely));
        for _ in 0..count {
            items.push(from.take()?);
        }
        Ok(items)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        Bytes(self.as_bytes().to_vec()).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = from.take::<Bytes>()?.0;
        Self::from_utf8(bytes).map_err(|_| DecodeError::Invalid("a text"))
    }
}

/// A byte string with its length.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.0.len()).expect("byte strings are far below 4 GiB").put(out);
        out.extend_from_slice(&self.0);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = from.take::<u32>()? as usize;
        Ok(Self(from.bytes(len)?.to_vec()))
    }
}

impl Wire for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        match self.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        self.port().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ip = match from.take::<u8>()? {
            4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(from.bytes(4)?).expect("4 bytes"))),
            6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(from.bytes(16)?).expect("16 bytes"))),
            _ => return Err(DecodeError::Invalid("an address family")),
        };
        Ok(Self::new(ip, from.take()?))
    }
}
