//! Replicas take over from each other, lag, diverge and are made equal. The common prefix that their histories show is
//! the common prefix of their bytes (DESIGN section 7).

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::{Log, Screen, common_prefix};
use kasha_types::LogEnd;

use super::common::{SHARD, append, config};
use crate::draw;
use crate::property::Property;

#[derive(Debug)]
enum Step {
    TakeOver(usize),
    Append(u16),
    /// To this replica; pieces of this many bytes, so many of them.
    Ship(usize, u16, u8),
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::weighted(u, &[1, 2, 1])? {
            0 => Self::TakeOver(draw::below(u, 3)?),
            1 => Self::Append(u.int_in_range(0..=1500)?),
            _ => Self::Ship(draw::below(u, 3)?, u.int_in_range(1..=1500)?, u.int_in_range(0..=7)?),
        })
    }
}

fn prefix(a: &Log, b: &Log) -> LogEnd {
    common_prefix(a.epoch_history(), a.end().offset, b.epoch_history(), b.end().offset)
}

fn common_by_bytes(a: &Log, b: &Log) -> LogEnd {
    let bytes =
        |log: &Log, start: u64, end: LogEnd| log.bytes(start, u32::try_from(end.0 - start).expect("a group")).to_vec();
    let groups = |log: &Log| log.groups().map(|group| (group.start, group.end)).collect::<Vec<_>>();
    let pairs = groups(a).into_iter().zip(groups(b));
    let same = pairs.take_while(|(x, y)| x == y && bytes(a, x.0, x.1) == bytes(b, y.0, y.1));
    same.last().map_or(LogEnd::START, |(group, _)| group.1)
}

/// See the module.
#[derive(Debug)]
pub struct LogReplicas(Vec<Step>);

impl<'a> Arbitrary<'a> for LogReplicas {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::until_empty(u, 60).map(Self)
    }
}

impl Property for LogReplicas {
    const NAME: &'static str = "log_replicas";
    const INPUT_BYTES_MAX: usize = 220;

    fn hold(self) {
        let mut replicas: [Log; 3] = std::array::from_fn(|_| Log::new(SHARD, config(100)));
        let (mut epoch, mut primary) = (0, None);
        for step in self.0 {
            match (step, primary) {
                (Step::TakeOver(one), _) => {
                    (epoch, primary) = (epoch + 1, Some(one));
                    append(&mut replicas[one], epoch, &[&[1]]);
                }
                (Step::Append(len), Some(primary)) => {
                    append(&mut replicas[primary], epoch, &[&vec![1; usize::from(len)]]);
                }
                (Step::Ship(other, piece, pieces), Some(primary)) if other != primary => {
                    let [from, to] = replicas.get_disjoint_mut([primary, other]).expect("two replicas");
                    let common = prefix(from, to);
                    to.truncate(common).expect("the end of a group");
                    let all: Vec<_> = from.pieces(common, from.end().offset, u32::from(piece)).collect();
                    for slice in all.iter().take(usize::from(pieces)) {
                        to.append_raw(from.slice(*slice), Screen::NONE).expect("what follows");
                    }
                }
                _ => {}
            }
            for (a, b) in [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
                assert_eq!(prefix(&replicas[a], &replicas[b]), common_by_bytes(&replicas[a], &replicas[b]));
            }
        }
    }
}
