//! Addresses of a replica.
//!
//! A name is looked up when it is first needed, and again at the first use when the answer is
//! older than `upstream.resolve_interval`. Only the first look-up is waited for: afterwards the
//! last known addresses are used until a new answer is there, so that a name service that fails,
//! or does not answer, costs no request anything. Connections that work are kept whatever it says.
//!
//! Decision: docs/decisions/0038-dns-names.md.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::Origin;

/// Who knows the addresses of a name.
pub(crate) trait Resolve: Send + Sync + 'static {
    fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// The system's resolver.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The addresses of one replica.
#[derive(Debug)]
pub(crate) struct Addresses<R = System> {
    name: Name,
    /// How long an answer is believed.
    believed: Duration,
    known: Mutex<Known>,
    resolver: R,
}

#[derive(Debug)]
enum Name {
    Address(SocketAddr),
    Host(String, u16),
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// When the name was last looked up, whatever came of it.
    asked: Option<Instant>,
}

impl<R: Resolve> Addresses<R> {
    pub(crate) fn new(origin: &Origin, believed: Duration, resolver: R) -> Arc<Self> {
        let name = match origin.host.parse::<IpAddr>() {
            Ok(ip) => Name::Address(SocketAddr::new(ip, origin.port)),
            Err(_) => Name::Host(origin.host.clone(), origin.port),
        };
        Arc::new(Self {
            name,
            believed,
            known: Mutex::default(),
            resolver,
        })
    }

    /// Where to connect, in order of preference.
    pub(crate) async fn get(self: &Arc<Self>, now: Instant) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = match &self.name {
            Name::Address(address) => return Ok(vec![*address]),
            Name::Host(host, port) => (host.as_str(), *port),
        };
        let (known, is_old) = self.look(now);
        if known.is_empty() {
            return self.learn(self.resolver.resolve(host, port).await);
        }
        if is_old {
            let (own, host) = (Arc::clone(self), host.to_owned());
            tokio::spawn(async move { own.learn(own.resolver.resolve(&host, port).await) });
        }
        Ok(known)
    }

    /// What is known, and whether the caller is to ask again: one does, once per interval.
    fn look(&self, now: Instant) -> (Vec<SocketAddr>, bool) {
        let mut known = self.known.lock();
        let asked = known.asked.unwrap_or(now);
        let is_old = now.saturating_duration_since(asked) >= self.believed;
        if is_old || known.asked.is_none() {
            known.asked = Some(now);
        }
        (known.addresses.clone(), is_old)
    }

    /// Takes an answer over; a failed one leaves what is known.
    fn learn(&self, answer: io::Result<Vec<SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
        let mut known = self.known.lock();
        match answer {
            Ok(addresses) if !addresses.is_empty() => known.addresses = addresses,
            Err(error) if known.addresses.is_empty() => return Err(error),
            _ if known.addresses.is_empty() => return Err(io::ErrorKind::NotFound.into()),
            _ => {}
        }
        Ok(known.addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    type Answer = io::Result<Vec<SocketAddr>>;

    /// Answers what it is given, in turn; until then a look-up waits.
    struct Scripted(tokio::sync::Mutex<UnboundedReceiver<Answer>>);

    impl Resolve for Scripted {
        async fn resolve(&self, _: &str, _: u16) -> Answer {
            let mut answers = self.0.lock().await;
            answers.recv().await.expect("the script goes on")
        }
    }

    const INTERVAL: Duration = Duration::from_secs(5);

    fn scripted() -> (Arc<Addresses<Scripted>>, UnboundedSender<Answer>) {
        let (script, answers) = unbounded_channel();
        let origin = "http://shop.example:80".parse().expect("an origin");
        let resolver = Scripted(tokio::sync::Mutex::new(answers));
        (Addresses::new(&origin, INTERVAL, resolver), script)
    }

    fn host(last: u8) -> Vec<SocketAddr> {
        vec![SocketAddr::from(([192, 0, 2, last], 80))]
    }

    /// Asks until the answer is the wanted one, which a task of its own brings.
    async fn becomes(addresses: &Arc<Addresses<Scripted>>, now: Instant, wanted: &[SocketAddr]) {
        while addresses.get(now).await.expect("something is known") != wanted {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_address_is_its_own_answer() {
        let origin = "http://192.0.2.9:80".parse().unwrap();
        let addresses = Addresses::new(&origin, INTERVAL, System);
        assert_eq!(addresses.get(Instant::now()).await.unwrap(), host(9));
    }

    #[tokio::test]
    async fn a_name_that_was_never_found_is_asked_for_each_time() {
        let (addresses, script) = scripted();
        let now = Instant::now();
        script.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
        assert!(addresses.get(now).await.is_err());
        script.send(Ok(Vec::new())).unwrap();
        assert!(addresses.get(now).await.is_err());
        script.send(Ok(host(1))).unwrap();
        assert_eq!(addresses.get(now).await.unwrap(), host(1));
    }

    #[tokio::test]
    async fn an_old_answer_serves_until_a_new_one_is_there() {
        let (addresses, script) = scripted();
        let start = Instant::now();
        script.send(Ok(host(1))).unwrap();
        assert_eq!(addresses.get(start).await.unwrap(), host(1));
        let later = start + INTERVAL;
        // The name service does not answer yet, and nobody waits for it.
        assert_eq!(addresses.get(later).await.unwrap(), host(1));
        script.send(Ok(host(2))).unwrap();
        becomes(&addresses, later, &host(2)).await;
    }

    #[tokio::test]
    async fn a_failed_look_up_keeps_the_last_known_addresses() {
        let (addresses, script) = scripted();
        let start = Instant::now();
        script.send(Ok(host(1))).unwrap();
        assert_eq!(addresses.get(start).await.unwrap(), host(1));
        script.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
        script.send(Ok(Vec::new())).unwrap();
        script.send(Ok(host(3))).unwrap();
        for interval in 1..=2 {
            let now = start + interval * INTERVAL;
            assert_eq!(addresses.get(now).await.unwrap(), host(1));
            tokio::task::yield_now().await;
        }
        becomes(&addresses, start + 3 * INTERVAL, &host(3)).await;
    }
}
