//! Who may talk to whom: the first frame in each direction.

use kasha_machine::Endpoint;
use kasha_types::ClusterId;
use kasha_wire::link::Handshake;
use kasha_wire::message::{Goodbye, Hello, Welcome};
use kasha_wire::{Message, WireVersion};

use crate::options::Identity;

/// The first frame to a peer that we dialled.
pub(crate) fn hello(identity: &Identity, peer: Endpoint) -> Hello {
    let to = match peer {
        Endpoint::Core(core) => Some(core),
        Endpoint::Coordinator | Endpoint::Member(_) | Endpoint::Seed(_) | Endpoint::Conn(_) => None,
    };
    let Identity { versions, cluster, core, incarnation } = identity;
    Hello { versions: *versions, cluster: cluster.get(), from: *core, incarnation: *incarnation, to }
}

/// The answer to the first frame on an accepted connection; an error is the reason of a goodbye.
pub(crate) fn answer_hello(identity: &Identity, kind: u8, payload: &[u8]) -> Result<Welcome, String> {
    let Some(Hello { versions, cluster, to, .. }) = Hello::from_frame_of_any_version(kind, payload) else {
        return Err("the first frame must be a Hello: let only Kasha's programs connect here (K0202)".to_owned());
    };
    let Some(version) = identity.versions.agreed_with(versions) else {
        return Err(format!(
            "{versions}, but this side speaks {}: run releases of Kasha on both sides that have a version in common (K0206)",
            identity.versions
        ));
    };
    let ours = identity.cluster.get();
    if cluster != ClusterId(0) && cluster != ours {
        return Err(format!("this is {ours}, not {cluster}: check the address that you were given (K0203)"));
    }
    if let Some(to) = to
        && identity.core != Some(to)
    {
        let ours = name(identity);
        return Err(format!("this is {ours}, not {to}: refresh the configuration, or check the address (K0204)"));
    }
    Ok(Welcome { version, cluster: ours, core: identity.core, incarnation: identity.incarnation })
}

/// Judges the first frame from a peer that we dialled; joins its cluster if we are in none yet. Returns the version that is spoken
/// from now on.
pub(crate) fn judge_welcome(
    identity: &Identity,
    peer: Endpoint,
    kind: u8,
    payload: &[u8],
) -> Result<WireVersion, String> {
    let (version, cluster, core) = match Message::from_frame(kind, payload) {
        Some(Handshake::Welcome(Welcome { version, cluster, core, .. })) => (version, cluster, core),
        Some(Handshake::Goodbye(Goodbye { reason })) => return Err(format!("it refused: {reason}")),
        Some(Handshake::Hello(_)) | None => {
            let reason = "its first frame is no Welcome, so no Kasha of this version listens there: check the address \
                          and the versions (K0202)";
            return Err(reason.to_owned());
        }
    };
    if !identity.versions.include(version) {
        return Err(format!("it wants to speak wire version {version}, which was not offered (K0206)"));
    }
    let right = match peer {
        Endpoint::Core(wanted) => core == Some(wanted),
        Endpoint::Coordinator | Endpoint::Member(_) => core.is_none(),
        Endpoint::Seed(_) | Endpoint::Conn(_) => true,
    };
    if !right {
        let other = core.map_or_else(|| "the coordinator".to_owned(), |core| core.to_string());
        return Err(format!("{other} listens there: check the addresses that the nodes were given (K0204)"));
    }
    if cluster != ClusterId(0) {
        identity.cluster.join(cluster).map_err(|ours| {
            format!("it is of {cluster}, but this is {ours}: check the addresses that this process was given (K0203)")
        })?;
    }
    Ok(version)
}

fn name(identity: &Identity) -> String {
    identity.core.map_or_else(|| "the coordinator".to_owned(), |core| core.to_string())
}

#[cfg(test)]
mod tests {
    use kasha_types::{CoreId, Incarnation, NodeId};
    use kasha_wire::{Kind, WIRE_VERSION, WireVersions};

    use super::*;
    use crate::ClusterCell;

    fn core(node: u16) -> CoreId {
        CoreId { node: NodeId(node), core: 0 }
    }

    fn identity(cluster: u64, node: u16) -> Identity {
        Identity {
            cluster: ClusterCell::new(ClusterId(cluster)),
            core: Some(core(node)),
            incarnation: Incarnation(1),
            versions: WireVersions::OURS,
        }
    }

    fn payload(message: &impl Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.put(&mut out);
        out
    }

    fn answered(server: &Identity, client: &Identity, to: Endpoint) -> Result<WireVersion, String> {
        let kind = Kind::Message as u8;
        let welcome = answer_hello(server, kind, &payload(&hello(client, to)))?;
        judge_welcome(client, to, kind, &payload(&welcome))
    }

    #[test]
    fn only_the_right_core_of_the_right_cluster_is_talked_to() {
        let (one, two) = (Endpoint::Core(core(1)), Endpoint::Core(core(2)));
        answered(&identity(7, 1), &identity(7, 2), one).unwrap();
        assert!(answered(&identity(7, 1), &identity(8, 2), one).unwrap_err().contains("not cluster-8"));
        assert!(answered(&identity(7, 1), &identity(7, 2), two).unwrap_err().contains("this is node-1/0"));
        assert!(answered(&identity(7, 1), &identity(7, 2), Endpoint::Coordinator).is_err());
    }

    /// R7.6.
    #[test]
    fn the_latest_common_version_is_spoken() {
        let speaking = |node, least, latest| {
            let versions = WireVersions::new(WireVersion(least), WireVersion(latest)).expect("in order");
            Identity { versions, ..identity(7, node) }
        };
        let one = Endpoint::Core(core(1));
        assert_eq!(answered(&speaking(1, 11, 13), &speaking(2, 12, 14), one), Ok(WireVersion(13)));
        assert_eq!(answered(&speaking(1, 12, 14), &speaking(2, 11, 13), one), Ok(WireVersion(13)));
        let why = answered(&speaking(1, 11, 12), &speaking(2, 13, 14), one).unwrap_err();
        assert!(why.starts_with("wire versions 13 to 14, but this side speaks wire versions 11 to 12"), "{why}");
        let forced = Welcome {
            version: WireVersion(13),
            cluster: ClusterId(7),
            core: Some(core(1)),
            incarnation: Incarnation(1),
        };
        assert!(judge_welcome(&speaking(2, 11, 12), one, Kind::Message as u8, &payload(&forced)).is_err());
    }

    /// A later version's greeting may have more fields.
    #[test]
    fn a_hello_may_say_more_than_we_know() {
        let (server, client, one) = (identity(7, 1), identity(7, 2), Endpoint::Core(core(1)));
        let mut longer = payload(&hello(&client, one));
        longer.extend([1, 2, 3]);
        assert_eq!(answer_hello(&server, Kind::Message as u8, &longer).unwrap().version, WIRE_VERSION);
        assert!(answer_hello(&server, Kind::Message as u8, &longer[..9]).is_err());
    }

    #[test]
    fn a_client_in_no_cluster_joins_the_first_that_it_meets() {
        let client = Identity::default();
        answered(&identity(7, 1), &client, Endpoint::Seed(0)).unwrap();
        assert_eq!(client.cluster.get(), ClusterId(7));
        assert!(answered(&identity(8, 1), &client, Endpoint::Seed(1)).is_err());
        let welcome =
            payload(&Welcome { version: WIRE_VERSION, cluster: ClusterId(8), core: None, incarnation: Incarnation(0) });
        assert!(judge_welcome(&client, Endpoint::Seed(1), Kind::Message as u8, &welcome).is_err());
    }
}
