//! The service behind the proxy: its replicas and how to speak with them.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_config::Dur;

use super::types::{Addr, one_or_many, written_as_string};

/// The service to protect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// The replicas, each an URL or a table. All of them serve the same requests.
    #[serde(deserialize_with = "replicas")]
    pub replicas: Vec<Replica>,
    /// Where more replicas are found while the proxy runs.
    pub discover: Vec<Discover>,
    /// Which HTTP version replicas are spoken to in.
    pub http2: Http2,
    /// The `Host` that replicas see.
    pub host: HostHeader,
    /// What an answer that comes piece by piece is to a replica: events (`text/event-stream`), and
    /// gRPC that lasts longer than a second.
    pub streams: Streams,
    /// Where the JSON of an answer says what its request cost, with dots between names: read when
    /// the answer is complete, or from the last event of an event stream that has it. For
    /// `protect.auto.cost_by = "report"`.
    #[schemars(example = &"usage.total_tokens")]
    pub cost_json: Option<String>,
    /// Connections per replica, over all threads, HTTP/1.1 only. Requests beyond it wait for one
    /// that comes free; the admission window normally keeps far below.
    #[schemars(range(min = 1))]
    pub connections_max: usize,
    /// Idle connections kept open per replica and thread.
    pub idle_max: usize,
    /// How often the names of replicas are looked up again, when connections are opened. While
    /// that fails the last known addresses stay, and connections that work are kept.
    pub resolve_interval: Dur,
    /// How often replicas report their load out of band, by ORCA's gRPC service `OpenRcaService`:
    /// utilization is known then while a replica gets no requests. Without this they are not asked.
    #[schemars(example = &"1s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_reports: Option<Dur>,
    /// How to verify replicas whose URL is `https`.
    pub tls: UpstreamTls,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            replicas: Vec::new(),
            discover: Vec::new(),
            http2: Http2::Auto,
            host: HostHeader::Client,
            streams: Streams::Idle,
            cost_json: None,
            connections_max: 4096,
            idle_max: 256,
            // Replicas move when they are redeployed, which takes longer.
            resolve_interval: Dur(Duration::from_secs(5)),
            load_reports: None,
            tls: UpstreamTls::default(),
        }
    }
}

impl Upstream {
    /// Whether `replicas` has this one.
    pub(crate) fn names(&self, url: &Origin) -> bool {
        self.replicas.iter().any(|replica| replica.url == *url)
    }
}

impl From<Vec<Replica>> for Upstream {
    fn from(replicas: Vec<Replica>) -> Self {
        Self {
            replicas,
            ..Self::default()
        }
    }
}

/// Where replicas are found while the proxy runs: one of `dns`, `srv`, `file` and `kubernetes`.
/// What was found last stays while it fails.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discover {
    /// A name of which every address (A and AAAA) is a replica: `"http://app.internal:3000"`.
    #[schemars(example = &"http://app.internal:3000")]
    pub dns: Option<Origin>,
    /// A service in the DNS (SRV) with ports and weights: `"http://_http._tcp.app.internal"`.
    #[schemars(example = &"http://_http._tcp.app.internal")]
    pub srv: Option<Origin>,
    /// A file that something else writes: a JSON list, or one replica per line. Looked at every
    /// second.
    #[schemars(example = &"replicas.json")]
    pub file: Option<PathBuf>,
    /// A Service of Kubernetes, whose ready endpoints are followed. Needs a build with the feature
    /// `kubernetes`.
    pub kubernetes: Option<KubernetesService>,
    /// The name server to ask, instead of those of the system.
    #[schemars(example = &"127.0.0.1:53")]
    pub nameserver: Option<Addr>,
    /// An answer is believed at least this long, however short its time to live, and a source that
    /// fails is asked again after it.
    pub ttl_min: Dur,
    /// An answer is believed at most this long.
    pub ttl_max: Dur,
}

impl Default for Discover {
    fn default() -> Self {
        Self {
            dns: None,
            srv: None,
            file: None,
            kubernetes: None,
            nameserver: None,
            ttl_min: Dur(Duration::from_secs(1)),
            ttl_max: Dur(Duration::from_secs(60)),
        }
    }
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(service) = &self.kubernetes {
            return write!(f, "endpoints of Service {}", service.service);
        }
        match (&self.dns, &self.srv, &self.file) {
            (Some(origin), _, _) => write!(f, "addresses of {origin}"),
            (_, Some(origin), _) => write!(f, "services of {}", origin.host),
            (_, _, Some(path)) => write!(f, "replicas in {}", path.display()),
            _ => f.write_str("nothing"),
        }
    }
}

/// A Service of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KubernetesService {
    /// Its name.
    #[schemars(example = &"shop")]
    pub service: String,
    /// Its namespace. Without it, that of the pod or of the kubeconfig.
    pub namespace: Option<String>,
    /// The port: its name in the Service, or its number in the pods. Without it, the only one.
    #[serde(default)]
    #[schemars(example = &"http")]
    pub port: String,
    /// Whether the pods are spoken to by TLS.
    #[serde(default)]
    pub tls: bool,
    /// Which objects are read. `auto` reads EndpointSlices, and Endpoints where a cluster has none.
    #[serde(default)]
    pub source: EndpointSource,
    /// A kubeconfig file. Without it, the service account of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
}

/// Which objects hold the endpoints of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointSource {
    /// EndpointSlices, and Endpoints where a cluster has none.
    #[default]
    Auto,
    /// EndpointSlices, from Kubernetes 1.17 on.
    EndpointSlices,
    /// Endpoints, which every version has.
    Endpoints,
}

/// One replica of the service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// Scheme, host and port: `"http://10.0.0.7:3000"`. Without a port, 80 or 443. Or a Unix
    /// socket: `"unix:/run/app.sock"`.
    #[schemars(example = &"http://10.0.0.7:3000")]
    pub url: Origin,
    /// What it is meant to carry, relative to the others: one of weight 2 gets twice the requests
    /// of one of weight 1, twice the slots (`protect.limits.slots`) and twice the window to begin
    /// with. In short: `"http://10.0.0.7:3000 weight=2"`.
    #[serde(default = "one")]
    pub weight: NonZeroU32,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl FromStr for Replica {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (url, more) = text.trim().split_once(' ').unwrap_or((text, ""));
        let weight = match more.trim() {
            "" => one(),
            more => more
                .strip_prefix("weight=")
                .and_then(|weight| weight.parse().ok())
                .ok_or_else(|| {
                    format!("`{more}` is no weight: write \"{url} weight=2\", a number from 1")
                })?,
        };
        url.trim().parse().map(|url| Self { url, weight })
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight {
            NonZeroU32::MIN => self.url.fmt(f),
            weight => write!(f, "{} (weight {weight})", self.url),
        }
    }
}

/// Scheme, host and port of a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Whether it is `https`.
    pub tls: bool,
    /// Name or address; IPv6 without its brackets. Of a Unix socket its path, which begins with
    /// `/`.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Origin {
    /// The path of its Unix socket, where it is one.
    #[must_use]
    pub fn unix_path(&self) -> Option<&str> {
        self.host.starts_with('/').then_some(self.host.as_str())
    }

    /// `host:port` as a `Host` header or a connect address wants it.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.unix_path().is_some() {
            return "localhost".to_owned();
        }
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("`{text}` is not a replica's URL: {why}");
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') && path.len() > 1 {
                Ok(Self {
                    tls: false,
                    host: path.to_owned(),
                    port: 0,
                })
            } else {
                Err(refused("write the whole path, \"unix:/run/app.sock\""))
            };
        }
        if !text.contains("://") {
            return Err(refused(&format!(
                "the scheme is missing, write \"http://{text}\""
            )));
        }
        let uri: Uri = text
            .parse()
            .map_err(|error| refused(&format!("{error}, write \"http://host:port\"")))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(refused("the scheme must be http or https")),
        };
        if uri.path().len() > 1 || uri.query().is_some() {
            return Err(refused(
                "requests keep their own path, so remove everything after host and port",
            ));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(refused("remove the user name before `@`"));
        }
        let host = uri.host().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let port = match authority.strip_prefix(host).unwrap_or_default() {
            "" if tls => Some(443),
            "" => Some(80),
            port => port[1..].parse().ok().filter(|port| *port != 0),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (host, port) {
            ("", _) => Err(refused("the host is missing, write \"http://host:port\"")),
            (_, None) => Err(refused("the port must be a number from 1 to 65535")),
            (host, Some(port)) => Ok(Self {
                tls,
                host: host.to_owned(),
                port,
            }),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.unix_path() {
            return write!(f, "unix:{path}");
        }
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

written_as_string!(Origin, "Scheme, host and port of a replica.");

/// Which HTTP version replicas are spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Http2 {
    /// HTTP/2 where TLS negotiates it, HTTP/1.1 otherwise.
    #[default]
    Auto,
    /// Always HTTP/2; without TLS by prior knowledge (h2c), as gRPC servers expect.
    Always,
    /// Always HTTP/1.1.
    Never,
}

/// The `Host` that replicas see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostHeader {
    /// What the client sent.
    #[default]
    Client,
    /// The replica's own host and port.
    Replica,
}

/// What an answer that comes piece by piece is to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// It waits for news, as long as somebody listens: its slot is free when it begins, and its
    /// time is no service time.
    #[default]
    Idle,
    /// It computes each piece, as a language model does: the slot is taken until the end, and the
    /// time until then is the service time.
    Work,
}

/// How to verify replicas whose URL is `https`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTls {
    /// PEM file with the authorities to trust, instead of the system's. A replica's own certificate
    /// may be among them, also one that signs itself.
    #[schemars(example = &"ca.pem")]
    pub ca: Option<PathBuf>,
    /// Name to verify and to send as SNI, instead of the URL's host.
    #[schemars(example = &"shop.internal")]
    pub server_name: Option<String>,
    /// PEM file with a certificate to present to replicas; needs `client_key`.
    #[schemars(example = &"proxy.pem")]
    pub client_cert: Option<PathBuf>,
    /// PEM file with the key of `client_cert`.
    #[schemars(example = &"proxy.key")]
    pub client_key: Option<PathBuf>,
    /// Accept any certificate. Anybody on the path can then read and change everything.
    pub insecure: bool,
}

fn replicas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Replica>, D::Error> {
    one_or_many(deserializer)
}

/// Reads the upstream from an URL, a list of replicas or the whole table.
pub(super) fn upstream<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Upstream, D::Error> {
    deserializer.deserialize_any(UpstreamVisitor)
}

struct UpstreamVisitor;

impl<'de> Visitor<'de> for UpstreamVisitor {
    type Value = Upstream;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an URL, a list of them or a table")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Upstream, E> {
        let replica: Replica = text.parse().map_err(E::custom)?;
        Ok(vec![replica].into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Upstream, A::Error> {
        replicas(SeqAccessDeserializer::new(seq)).map(Upstream::from)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Upstream, A::Error> {
        Upstream::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Result<String, String> {
        text.parse::<Origin>().map(|origin| origin.to_string())
    }

    #[test]
    fn an_origin_has_a_port() {
        assert_eq!(origin("http://a:3000").unwrap(), "http://a:3000");
        assert_eq!(origin("https://a/").unwrap(), "https://a:443");
        assert_eq!(origin("http://[::1]:9").unwrap(), "http://[::1]:9");
    }

    #[test]
    fn a_replica_has_a_weight() {
        let shown = |text: &str| text.parse::<Replica>().map(|replica| replica.to_string());
        assert_eq!(shown("http://a:1").unwrap(), "http://a:1");
        assert_eq!(
            shown("http://a:1 weight=3").unwrap(),
            "http://a:1 (weight 3)"
        );
        for wrong in [
            "http://a:1 weight=0",
            "http://a:1 weight=-1",
            "http://a:1 backup",
        ] {
            assert!(shown(wrong).unwrap_err().contains("weight=2"), "{wrong}");
        }
        let config = crate::config::Config::from_text(
            "t.toml",
            "upstream = ['http://a:1 weight=2', { url = 'http://b:1', weight = 5 }, 'http://c:1']",
        );
        let weights = config
            .unwrap()
            .upstream
            .replicas
            .into_iter()
            .map(|r| r.weight.get());
        assert_eq!(weights.collect::<Vec<_>>(), [2, 5, 1]);
    }

    #[test]
    fn what_is_not_an_origin_is_refused_with_a_remedy() {
        assert!(origin("a:3000").unwrap_err().contains("\"http://a:3000\""));
        assert!(origin("ftp://a:1").unwrap_err().contains("http or https"));
        assert!(origin("http://a:1/x").unwrap_err().contains("own path"));
        assert!(origin("http://u@a:1").unwrap_err().contains('@'));
        assert!(origin("http://a:0").unwrap_err().contains("65535"));
        assert!(origin("http://a:70000").unwrap_err().contains("65535"));
        assert!(origin("http://").is_err());
    }
}
