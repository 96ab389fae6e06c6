//! What one address may ask for, and all of them together: how many connections, listeners, joins
//! and readings of the clock. Pure.
//!
//! The channel's listener is open to strangers, so whatever it does for one of them is bounded by
//! where it comes from. An IPv6 client has a /64 to itself and counts as one address. Rates are
//! token buckets of ten seconds' worth, so that a client that starts, or many behind one address,
//! are not held up.
//!
//! What breaks it: many clients behind one address (a balancer, a carrier's NAT). Then the limits
//! of the configuration have to be larger.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::Timestamp;

/// A bucket holds this many seconds' worth.
const BURST_S: f64 = 10.0;

/// Readings of the clock that are signed per second, for all together: a tenth of a core.
const TIMES_PER_SECOND: f64 = 2000.0;

/// Addresses that are remembered. Those that have been idle for ten seconds are forgotten first.
const ADDRESSES_MAX: usize = 1 << 16;

/// Connections beside those of listeners.
const CONNECTIONS_SPARE: usize = 1024;

/// What one address may ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerAddress {
    /// Connections at a time.
    pub connections: usize,
    /// Listeners at a time.
    pub listeners: usize,
    /// Relays that it may register.
    pub relays: usize,
    /// Questions to the tracker per second.
    pub joins_per_s: f64,
    /// Readings of the clock per second.
    pub times_per_s: f64,
}

impl Default for PerAddress {
    fn default() -> Self {
        Self {
            connections: 256,
            listeners: 64,
            relays: 8,
            joins_per_s: 10.0,
            times_per_s: 10.0,
        }
    }
}

impl PerAddress {
    /// No limits, for those who are all on one machine.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            connections: usize::MAX,
            listeners: usize::MAX,
            relays: usize::MAX,
            joins_per_s: f64::INFINITY,
            times_per_s: f64::INFINITY,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Timestamp,
}

impl Bucket {
    fn full(now: Timestamp, rate: f64) -> Self {
        Self {
            tokens: rate * BURST_S,
            filled: now,
        }
    }

    fn fill(&mut self, now: Timestamp, rate: f64) {
        let passed_s = now.since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed_s * rate).min(rate * BURST_S);
        self.filled = self.filled.max(now);
    }

    fn take(&mut self, now: Timestamp, rate: f64) -> bool {
        if rate.is_infinite() {
            return true;
        }
        self.fill(now, rate);
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }
}

#[derive(Debug)]
struct Usage {
    joins: Bucket,
    times: Bucket,
    connections: usize,
    listeners: usize,
    seen: Timestamp,
}

#[derive(Debug)]
struct Table {
    usage: HashMap<IpAddr, Usage>,
    times: Bucket,
    connections: usize,
    listeners: usize,
    /// Of these, those that the tracker did not send.
    uninvited: usize,
}

/// Counts what addresses ask for.
#[derive(Debug, Clone)]
pub struct Limits {
    per_address: PerAddress,
    listeners_max: usize,
    uninvited_max: usize,
    table: Arc<Mutex<Table>>,
}

/// A connection or a listener; given back when dropped.
#[derive(Debug)]
pub struct Place {
    table: Arc<Mutex<Table>>,
    address: IpAddr,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connection,
    Listener { invited: bool },
}

impl Limits {
    /// At most `listeners_max` listeners, `uninvited_max` of them without the tracker's word.
    #[must_use]
    pub fn new(per_address: PerAddress, listeners_max: usize, uninvited_max: usize) -> Self {
        let table = Table {
            usage: HashMap::new(),
            times: Bucket::full(Timestamp::ZERO, TIMES_PER_SECOND),
            connections: 0,
            listeners: 0,
            uninvited: 0,
        };
        Self {
            per_address,
            listeners_max,
            uninvited_max,
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// What one address may ask for.
    #[must_use]
    pub fn per_address(&self) -> &PerAddress {
        &self.per_address
    }

    /// The most listeners there can be.
    #[must_use]
    pub fn listeners_max(&self) -> usize {
        self.listeners_max
    }

    /// A connection; `None` when there are too many.
    #[must_use]
    pub fn connect(&self, now: Timestamp, peer: IpAddr) -> Option<Place> {
        let address = group(peer);
        let mut table = self.table.lock();
        let connections_max = self.listeners_max.saturating_add(CONNECTIONS_SPARE);
        let room = table.connections < connections_max;
        let usage = table.usage(now, address, &self.per_address)?;
        if !room || usage.connections >= self.per_address.connections {
            return None;
        }
        usage.connections += 1;
        table.connections += 1;
        Some(self.place(address, Kind::Connection))
    }

    /// A listener; `None` when there are too many. One that the tracker sent is `invited`.
    #[must_use]
    pub fn listen(&self, now: Timestamp, peer: IpAddr, invited: bool) -> Option<Place> {
        let address = group(peer);
        let mut table = self.table.lock();
        let room = table.listeners < self.listeners_max
            && (invited || table.uninvited < self.uninvited_max);
        let usage = table.usage(now, address, &self.per_address)?;
        if !room || usage.listeners >= self.per_address.listeners {
            return None;
        }
        usage.listeners += 1;
        table.listeners += 1;
        table.uninvited += usize::from(!invited);
        Some(self.place(address, Kind::Listener { invited }))
    }

    fn place(&self, address: IpAddr, kind: Kind) -> Place {
        Place {
            table: Arc::clone(&self.table),
            address,
            kind,
        }
    }

    /// Whether this address may ask the tracker now.
    #[must_use]
    pub fn join(&self, now: Timestamp, peer: IpAddr) -> bool {
        let rate = self.per_address.joins_per_s;
        let mut table = self.table.lock();
        let usage = table.usage(now, group(peer), &self.per_address);
        usage.is_some_and(|usage| usage.joins.take(now, rate))
    }

    /// Whether the clock is read for this address now.
    #[must_use]
    pub fn time(&self, now: Timestamp, peer: IpAddr) -> bool {
        let rate = self.per_address.times_per_s;
        let mut table = self.table.lock();
        let usage = table.usage(now, group(peer), &self.per_address);
        usage.is_some_and(|usage| usage.times.take(now, rate))
            && table.times.take(now, TIMES_PER_SECOND)
    }

    /// Listeners that the tracker sent.
    #[must_use]
    pub fn invited(&self) -> usize {
        let table = self.table.lock();
        table.listeners - table.uninvited
    }

    /// Listeners of one address.
    #[must_use]
    pub fn listeners_of(&self, peer: IpAddr) -> usize {
        let table = self.table.lock();
        let usage = table.usage.get(&group(peer));
        usage.map_or(0, |usage| usage.listeners)
    }
}

impl Table {
    /// What an address uses; `None` when too many addresses are busy.
    fn usage(&mut self, now: Timestamp, address: IpAddr, to: &PerAddress) -> Option<&mut Usage> {
        if self.usage.len() >= ADDRESSES_MAX && !self.usage.contains_key(&address) {
            let idle_for = Duration::from_secs_f64(BURST_S);
            let busy = |usage: &Usage| usage.connections + usage.listeners > 0;
            self.usage
                .retain(|_, usage| busy(usage) || now.since(usage.seen) < idle_for);
            if self.usage.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        let usage = self.usage.entry(address).or_insert_with(|| Usage {
            joins: Bucket::full(now, to.joins_per_s),
            times: Bucket::full(now, to.times_per_s),
            connections: 0,
            listeners: 0,
            seen: now,
        });
        usage.seen = usage.seen.max(now);
        Some(usage)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        let usage = table.usage.get_mut(&self.address);
        match self.kind {
            Kind::Connection => {
                if let Some(usage) = usage {
                    usage.connections -= 1;
                }
                table.connections -= 1;
            }
            Kind::Listener { invited } => {
                if let Some(usage) = usage {
                    usage.listeners -= 1;
                }
                table.listeners -= 1;
                table.uninvited -= usize::from(!invited);
            }
        }
    }
}

/// The address by which a client is counted.
pub(super) fn group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(prefix.into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn limits() -> Limits {
        let per_address = PerAddress {
            listeners: 3,
            connections: 4,
            ..PerAddress::default()
        };
        Limits::new(per_address, 10, 5)
    }

    #[test]
    fn listeners_are_bounded_by_address_and_together_and_given_back() {
        let limits = limits();
        let mut places = Vec::new();
        for host in 0..9_u8 {
            for _ in 0..5 {
                let peer = IpAddr::from([192, 0, 2, host]);
                places.extend(limits.listen(at(1.0), peer, false));
            }
        }
        // Three of one address, five that the tracker did not send.
        assert_eq!(places.len(), 5);
        let sent: Vec<_> = (0..9_u8)
            .filter_map(|host| limits.listen(at(1.0), IpAddr::from([192, 0, 2, host]), true))
            .collect();
        assert_eq!((sent.len(), limits.invited()), (5, 5));
        drop((places, sent));
        assert_eq!(limits.invited(), 0);
        assert!(
            limits
                .listen(at(1.0), address("192.0.2.1"), false)
                .is_some()
        );
        assert_eq!(limits.listeners_of(address("192.0.2.1")), 0);
    }

    #[test]
    fn rates_are_those_of_an_address_and_a_network_counts_as_one() {
        let limits = limits();
        let asked = |from: &dyn Fn(u16) -> IpAddr| {
            let allowed = (0..1000).filter(|&index| limits.join(at(1.0), from(index)));
            allowed.count()
        };
        assert_eq!(asked(&|_| address("192.0.2.1")), 100);
        let network = |index: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, index, 0, 0, 1]);
        assert_eq!(asked(&network), 100);
        // Ten a second come back.
        assert!(!limits.join(at(1.0), address("192.0.2.1")));
        assert!(limits.join(at(1.2), address("192.0.2.1")));
    }

    #[test]
    fn clock_is_read_for_all_together_so_often() {
        let limits = limits();
        let read = (0..60_000_u32).filter(|index| {
            let [_, a, b, c] = index.to_be_bytes();
            limits.time(at(1.0), IpAddr::from([10, a, b, c]))
        });
        assert_eq!(read.count(), 20_000);
    }

    #[test]
    fn connections_of_an_address_are_bounded() {
        let limits = limits();
        let open: Vec<_> = (0..9)
            .filter_map(|_| limits.connect(at(1.0), address("192.0.2.1")))
            .collect();
        assert_eq!(open.len(), 4);
        assert!(limits.connect(at(1.0), address("192.0.2.2")).is_some());
    }

    #[test]
    fn addresses_are_forgotten_when_they_are_idle_and_not_before() {
        let limits = limits();
        for index in 0..ADDRESSES_MAX as u32 {
            let [_, a, b, c] = index.to_be_bytes();
            assert!(limits.join(at(1.0), IpAddr::from([10, a, b, c])));
        }
        assert!(!limits.join(at(2.0), address("192.0.2.1")));
        assert!(limits.join(at(12.0), address("192.0.2.1")));
    }
}
