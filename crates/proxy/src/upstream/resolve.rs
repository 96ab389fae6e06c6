//! Addresses of a replica. A name is looked up again when it is old; if that fails, the last known
//! addresses stay.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::Origin;

/// How long an answer is believed. Replicas move when they are redeployed, which takes longer.
const FRESH: Duration = Duration::from_secs(5);

/// The addresses of one replica.
#[derive(Debug)]
pub(crate) struct Addresses {
    name: Name,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Name {
    Address(SocketAddr),
    Host(String, u16),
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    at: Option<Instant>,
}

impl Addresses {
    pub(crate) fn new(origin: &Origin) -> Self {
        let name = match origin.host.parse::<IpAddr>() {
            Ok(ip) => Name::Address(SocketAddr::new(ip, origin.port)),
            Err(_) => Name::Host(origin.host.clone(), origin.port),
        };
        Self {
            name,
            known: Mutex::default(),
        }
    }

    /// Where to connect, in order of preference.
    pub(crate) async fn get(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = match &self.name {
            Name::Address(address) => return Ok(vec![*address]),
            Name::Host(host, port) => (host.as_str(), *port),
        };
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let answer = tokio::net::lookup_host((host, port)).await;
        self.learn(answer.map(Iterator::collect))
    }

    fn fresh(&self) -> Option<Vec<SocketAddr>> {
        let known = self.known.lock();
        let is_fresh = known.at.is_some_and(|at| at.elapsed() < FRESH);
        is_fresh.then(|| known.addresses.clone())
    }

    /// Takes an answer over; a failed one only if nothing is known.
    fn learn(&self, answer: io::Result<Vec<SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
        let mut known = self.known.lock();
        match answer {
            Ok(addresses) if !addresses.is_empty() => {
                known.addresses = addresses;
                known.at = Some(Instant::now());
            }
            Err(error) if known.addresses.is_empty() => return Err(error),
            _ if known.addresses.is_empty() => return Err(io::ErrorKind::NotFound.into()),
            _ => {}
        }
        Ok(known.addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_lookup_keeps_the_last_known_addresses() {
        let origin = "http://shop.example:80".parse().unwrap();
        let addresses = Addresses::new(&origin);
        let failure = || Err(io::Error::from(io::ErrorKind::TimedOut));
        assert!(addresses.learn(failure()).is_err());
        assert!(addresses.learn(Ok(vec![])).is_err());
        let found = vec![SocketAddr::from(([192, 0, 2, 1], 80))];
        assert_eq!(addresses.learn(Ok(found.clone())).unwrap(), found);
        assert_eq!(addresses.learn(failure()).unwrap(), found);
        assert_eq!(addresses.learn(Ok(vec![])).unwrap(), found);
    }
}
