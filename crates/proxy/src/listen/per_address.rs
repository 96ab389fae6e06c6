//! Client connections by address.
//!
//! A client that may open any number of connections keeps the others out. So one address has at
//! most a share of `limits.connections` (`limits.connections_per_address`). An IPv6 network of 64
//! bits counts as one address: that is what one customer is given (RFC 6177). Proxies in
//! `forward.trust` speak for many clients and are not counted; behind a balancer with the PROXY
//! protocol it is the client's address that counts.
//!
//! What breaks it: an attack from many addresses, which `limits.connections` meets alone.
//!
//! Decision: docs/decisions/0125-connections-per-address.md.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;

/// Parts of the table with a lock of their own. Chosen: more than there are threads that accept.
const SHARDS: usize = 64;

/// Bits of an IPv6 address that tell one customer from another.
const CUSTOMER_BITS: u32 = 64;

/// The address that a connection counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address(IpAddr);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() >> CUSTOMER_BITS << CUSTOMER_BITS;
                Ipv6Addr::from_bits(network).into()
            }
            ip => ip,
        })
    }
}

/// Open connections of each address, over all threads.
#[derive(Debug)]
pub(crate) struct ConnectionsByAddress {
    shards: [Mutex<HashMap<Address, usize>>; SHARDS],
    hasher: RandomState,
}

impl Default for ConnectionsByAddress {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        }
    }
}

impl ConnectionsByAddress {
    fn shard(&self, address: Address) -> &Mutex<HashMap<Address, usize>> {
        &self.shards[self.hasher.hash_one(address) as usize % SHARDS]
    }

    /// One more, whatever the limit; gives the new number.
    pub(crate) fn add(&self, address: Address) -> usize {
        let mut counts = self.shard(address).lock();
        let count = counts.entry(address).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn remove(&self, address: Address) {
        let mut counts = self.shard(address).lock();
        let Some(count) = counts.get_mut(&address) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(&address);
        }
    }

    pub(crate) fn of(&self, address: Address) -> usize {
        self.shard(address)
            .lock()
            .get(&address)
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn ipv6_customer_is_one_address() {
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1:2:3"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    #[test]
    fn address_without_connections_takes_no_memory() {
        let table = ConnectionsByAddress::default();
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert_eq!(
            (table.add(one), table.add(one), table.add(other)),
            (1, 2, 1)
        );
        table.remove(one);
        assert_eq!(table.of(one), 1);
        table.remove(one);
        table.remove(other);
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
