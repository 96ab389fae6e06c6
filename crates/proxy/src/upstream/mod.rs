//! The replicas behind the proxy: where they are and how to speak with them.

pub(crate) mod budget;
pub(crate) mod connect;
pub(crate) mod download;
pub(crate) mod http1;
pub(crate) mod once;
mod pin;
pub(crate) mod pool;
pub(crate) mod resolve;
pub(crate) mod send;
mod shape;
pub(crate) mod tls;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Scheme;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::sync::Semaphore;

use crate::config::{Config, Http2, Origin, Upstream};
use crate::pool::Pool;
use crate::settings::SettingsError;
use resolve::{Addresses, System};

/// How all replicas of a configuration are spoken to.
#[derive(Debug)]
pub(crate) struct Transport {
    upstream: Upstream,
    /// For how long connections are kept that nothing uses.
    idle_max: Duration,
    tls: Option<tls::ClientTls>,
}

/// Equal if connections made with the one can be used with the other.
impl PartialEq for Transport {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.upstream, &other.upstream);
        (a.http2, &a.tls, a.connections_max) == (b.http2, &b.tls, b.connections_max)
            && a.resolve_interval == b.resolve_interval
            && self.idle_max == other.idle_max
            // Files may have changed under their names.
            && self.tls.is_none() == other.tls.is_none()
            && self.tls.as_ref().map(|tls| &tls.files) == other.tls.as_ref().map(|tls| &tls.files)
    }
}

impl Transport {
    pub(crate) fn new(config: &Config, pool: &Pool) -> Result<Self, SettingsError> {
        let upstream = config.upstream.clone();
        let needed = pool.members.iter().any(|member| member.url.tls);
        Ok(Self {
            tls: needed.then(|| tls::load(&upstream)).transpose()?,
            upstream,
            idle_max: *config.timeouts.upstream_idle,
        })
    }
}

/// One replica of the service.
#[derive(Debug)]
pub struct Replica {
    /// Tells connections of this replica from those of one that had its place before.
    uid: u64,
    origin: Origin,
    transport: Arc<Transport>,
    addresses: Arc<Addresses>,
    /// Connections that may still be opened.
    connections: Arc<Semaphore>,
    host: HeaderValue,
    /// Why the last connection that failed did.
    unreachable: Mutex<Option<String>>,
    /// Why the last health check that failed did.
    failed_check: Mutex<Option<String>>,
}

impl Replica {
    pub(crate) fn new(origin: Origin, transport: Arc<Transport>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let authority = origin.authority();
        let interval = *transport.upstream.resolve_interval;
        Self {
            uid: NEXT.fetch_add(1, Ordering::Relaxed),
            connections: Arc::new(Semaphore::new(transport.upstream.connections_max)),
            addresses: Addresses::new(&origin, interval, System),
            host: HeaderValue::try_from(authority).unwrap_or(HeaderValue::from_static("invalid")),
            unreachable: Mutex::default(),
            failed_check: Mutex::default(),
            origin,
            transport,
        }
    }

    /// Remembers why it could not be connected to, for status and log.
    pub(crate) fn note_unreachable(&self, cause: &io::Error) {
        *self.unreachable.lock() = Some(cause.to_string());
    }

    /// Why the last connection that failed did, in the words of the system or of TLS.
    pub(crate) fn unreachable(&self) -> Option<String> {
        self.unreachable.lock().clone()
    }

    /// Remembers why a health check failed.
    pub(crate) fn note_failed_check(&self, cause: String) {
        *self.failed_check.lock() = Some(cause);
    }

    /// Why the last health check that failed did.
    pub(crate) fn failed_check(&self) -> Option<String> {
        self.failed_check.lock().clone()
    }

    /// Its URL.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// Its host and port as a `Host` header has them.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.origin.tls {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        }
    }

    /// For how long connections to it are kept that nothing uses.
    pub(crate) fn idle_max(&self) -> Duration {
        self.transport.idle_max
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.connections.available_permits() == 0
    }

    /// Whether every connection is HTTP/2, so that one is enough.
    pub(crate) fn is_http2(&self) -> bool {
        self.transport.upstream.http2 == Http2::Always
    }

    /// TLS and the name to verify, if it speaks TLS.
    fn tls(&self) -> Option<(&tls::ClientTls, ServerName<'static>)> {
        let tls = self.transport.tls.as_ref().filter(|_| self.origin.tls)?;
        let options = &self.transport.upstream.tls;
        let name = options.server_name.as_ref().unwrap_or(&self.origin.host);
        Some((tls, ServerName::try_from(name.clone()).ok()?))
    }
}
