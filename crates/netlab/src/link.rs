//! One direction between two hosts. What happens to each packet follows from the seed, the settings and the packet's
//! number (N3). This module knows no clock and no device: `now` is an argument.

use std::time::Duration;

use kasha_machine::Rng;

/// Nanoseconds since the switch began.
pub(crate) type Nanos = u64;

/// A link with a limited rate delays packets by this much at most. Later packets are lost, as in a router.
const BACKLOG_MAX: Duration = Duration::from_millis(100);

/// The settings of one direction of a link. By default it forwards everything at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Time that a packet is under way.
    pub delay: Duration,
    /// The greatest addition to a packet's delay; each packet's is drawn evenly, so that packets overtake each other.
    pub jitter: Duration,
    /// Of a thousand packets, how many are lost.
    pub loss_per_mille: u16,
    /// Of a thousand packets, how many arrive twice. The second copy has a delay of its own.
    pub duplicate_per_mille: u16,
    /// No packet passes, and packets that are under way are lost.
    pub is_cut: bool,
    /// The line's rate; packets wait for one another. `None` is no limit.
    pub bytes_per_second: Option<u64>,
}

impl Link {
    /// A perfect link with this delay.
    #[must_use]
    pub fn delayed(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }
}

/// What happened to the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets read from the sender.
    pub packets: u64,
    /// Bytes of these packets, IP headers included.
    pub bytes: u64,
    /// Packets written to the receiver; duplicates count.
    pub delivered: u64,
    /// Packets lost by a draw.
    pub lost: u64,
    /// Packets lost because the link was cut, before or while they were under way.
    pub cut: u64,
    /// Packets of which a second copy was made.
    pub duplicated: u64,
    /// Packets lost because too many were under way, or waited for the line.
    pub overflowed: u64,
    /// Packets that the receiver's kernel did not accept.
    pub refused: u64,
    /// The sum of how much later than due packets were written. This is the error that the machine adds to the delays.
    pub late_total: Duration,
    /// The largest delay error of one packet.
    pub late_max: Duration,
}

impl Counters {
    /// The mean error of the delays; zero if nothing was delivered.
    #[must_use]
    pub fn late_mean(&self) -> Duration {
        let mean = self.late_total.as_nanos() / u128::from(self.delivered.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

impl Counters {
    /// The sum of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            cut: self.cut + other.cut,
            duplicated: self.duplicated + other.duplicated,
            overflowed: self.overflowed + other.overflowed,
            refused: self.refused + other.refused,
            late_total: self.late_total + other.late_total,
            late_max: self.late_max.max(other.late_max),
        }
    }
}

/// When the copies of a packet are due; at most two.
pub(crate) type Copies = [Option<Nanos>; 2];

/// The working state of one direction.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) link: Link,
    pub(crate) counters: Counters,
    rng: Rng,
    /// When the line will have sent everything that it was given.
    free_at: Nanos,
}

impl Direction {
    pub(crate) fn new(link: Link, rng: Rng) -> Self {
        Self { link, counters: Counters::default(), rng, free_at: 0 }
    }

    /// Accepts a packet. Each packet makes the same draws, whatever the settings are (N3).
    pub(crate) fn admit(&mut self, now: Nanos, bytes: usize) -> Copies {
        let Link { delay, jitter, loss_per_mille, duplicate_per_mille, is_cut, bytes_per_second } = self.link;
        let is_lost = self.rng.chance(u64::from(loss_per_mille), 1000);
        let is_doubled = self.rng.chance(u64::from(duplicate_per_mille), 1000);
        let extra = [0, 1].map(|_| self.rng.below(nanos(jitter) + 1));
        self.counters.packets += 1;
        self.counters.bytes += bytes as u64;
        if is_cut {
            self.counters.cut += 1;
            return [None; 2];
        }
        let Some(sent) = self.send(now, bytes as u64, bytes_per_second) else {
            self.counters.overflowed += 1;
            return [None; 2];
        };
        if is_lost {
            self.counters.lost += 1;
            return [None; 2];
        }
        self.counters.duplicated += u64::from(is_doubled);
        let due = extra.map(|extra| Some(sent.saturating_add(nanos(delay)).saturating_add(extra)));
        [due[0], due[1].filter(|_| is_doubled)]
    }

    /// When the line will have sent the packet; `None` if the packet would wait too long for its turn. A lost packet
    /// uses the line, too.
    fn send(&mut self, now: Nanos, bytes: u64, rate: Option<u64>) -> Option<Nanos> {
        let Some(rate) = rate else { return Some(now) };
        let start = self.free_at.max(now);
        if start - now > nanos(BACKLOG_MAX) {
            return None;
        }
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        self.free_at = start.saturating_add(u64::try_from(time).unwrap_or(u64::MAX));
        Some(self.free_at)
    }
}

/// As nanoseconds; what is longer than 500 years is 500 years.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(link: Link, seed: u64, packets: u64) -> Vec<Copies> {
        let mut direction = Direction::new(link, Rng::new(seed));
        (0..packets).map(|packet| direction.admit(packet * 1000, 100)).collect()
    }

    #[test]
    fn n1_no_packet_is_early_whatever_is_drawn() {
        let link = Link {
            delay: Duration::from_micros(500),
            jitter: Duration::from_micros(300),
            duplicate_per_mille: 300,
            loss_per_mille: 100,
            bytes_per_second: Some(1_000_000_000),
            ..Link::default()
        };
        let admitted = due(link, 7, 5000);
        for (packet, copies) in (0..).zip(&admitted) {
            for due in copies.iter().flatten() {
                let sent = packet * 1000 + 100;
                assert!((sent + 500_000..=sent + 800_000).contains(due), "packet {packet} is due at {due}");
            }
        }
        let orders =
            |pair: &[Copies]| matches!((pair[0][0], pair[1][0]), (Some(first), Some(second)) if first > second);
        assert!(admitted.windows(2).any(orders), "jitter reorders");
        let lost = admitted.iter().filter(|copies| copies[0].is_none()).count();
        let doubled = admitted.iter().filter(|copies| copies[1].is_some()).count();
        assert!((400..600).contains(&lost) && (1200..1500).contains(&doubled), "{lost} lost, {doubled} doubled");
    }

    #[test]
    fn n3_the_draws_of_a_packet_do_not_depend_on_the_settings_before_it() {
        let lossy = Link { loss_per_mille: 500, ..Link::default() };
        let jittery = Link { jitter: Duration::from_millis(1), duplicate_per_mille: 200, ..lossy };
        let is_lost = |copies: &Copies| copies[0].is_none();
        let lost = |link| due(link, 3, 200).iter().map(is_lost).collect::<Vec<_>>();
        assert_eq!(lost(lossy), lost(jittery));
        let cut = Link { is_cut: true, ..lossy };
        let mut direction = Direction::new(cut, Rng::new(3));
        (0..100).for_each(|_| assert_eq!(direction.admit(0, 100), [None; 2]));
        direction.link = lossy;
        let after: Vec<bool> = (100..200).map(|_| is_lost(&direction.admit(0, 100))).collect();
        assert_eq!(after, lost(lossy)[100..], "a cut takes packets, not draws");
        assert_eq!(direction.counters.cut, 100);
    }

    #[test]
    fn a_line_sends_one_packet_after_the_other_and_drops_what_would_wait_too_long() {
        let link = Link { bytes_per_second: Some(1_000_000), ..Link::default() };
        let mut direction = Direction::new(link, Rng::new(1));
        assert_eq!(direction.admit(0, 1000)[0], Some(1_000_000), "a thousand bytes take a millisecond");
        assert_eq!(direction.admit(0, 1000)[0], Some(2_000_000));
        let passed = (0..1000).filter(|_| direction.admit(0, 1000)[0].is_some()).count();
        assert_eq!(passed, 99, "100 ms wait, no more");
        assert_eq!(direction.counters.overflowed, 901);
        assert_eq!(direction.admit(500_000_000, 1000)[0], Some(501_000_000), "an idle line begins anew");
    }
}
