//! What a single request may take and how it is carried: timeouts, limits, retries, sticky
//! sessions, forwarding headers and the texts of refusals.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share, Size};

use super::types::Secret;

/// Times after which the proxy gives up waiting.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From a request's arrival to the head of its response, waiting included. Then 504. Of a
    /// request that takes long to send its body: from the end of the body.
    pub request: Dur,
    /// For a connection to a replica, TLS included. Then another replica, or 502.
    pub connect: Dur,
    /// For a client to finish a request's head. Then 408.
    pub head: Dur,
    /// For a client's TLS handshake and PROXY protocol header. Then the connection is closed.
    pub handshake: Dur,
    /// For a client to send a request's body, however large. Then 408. gRPC streams to HTTP/2
    /// replicas may take longer.
    pub upload: Dur,
    /// Without a byte of a request's or a response's body. Streams and WebSockets included.
    pub body_idle: Dur,
    /// For a client's connection between requests.
    pub client_idle: Dur,
    /// For an idle connection to a replica; choose it below the replica's own keep-alive time.
    pub upstream_idle: Dur,
    /// For requests in flight to finish at shutdown.
    pub grace: Dur,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |seconds| Dur(Duration::from_secs(seconds));
        Self {
            request: seconds(30),
            connect: seconds(2),
            head: seconds(10),
            handshake: seconds(10),
            upload: seconds(3600),
            body_idle: seconds(300),
            client_idle: seconds(75),
            upstream_idle: seconds(30),
            // Kubernetes ends what is left after 30 s.
            grace: seconds(25),
        }
    }
}

/// Bounds on what clients and replicas may send.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Client connections, over all listeners. Beyond it those that have sent no whole head for a
    /// second, or are idle, are closed for new ones; if there are none, the new ones.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// Share of `connections` that one address may have; of IPv6 a network of 64 bits. Beyond it
    /// its connections that have sent no whole head for a second, are idle, or keep the proxy
    /// waiting are closed for its new ones. Proxies in `forward.trust` are not counted; with the
    /// PROXY protocol it is the client's address that counts. `"100%"` for no such limit.
    pub connections_per_address: Share,
    /// Bytes of a request's head: request line and headers together. Then 431.
    pub head_bytes: Size,
    /// Headers in a request. Then 431.
    #[schemars(range(min = 1))]
    pub headers: usize,
    /// Bytes of a request's body; bodies are streamed, so there is none by default. Then 413.
    pub body_bytes: Option<Size>,
    /// Bytes of a request's body that are read before a slot is asked for. A smaller body is
    /// complete by then; of a larger one the rest is passed on as it comes.
    pub upload_buffer: Size,
    /// Bytes of request bodies held so, over all requests. Beyond it 16 KiB of each are. With
    /// several applications half of it is divided among them, so that none can use up all.
    pub upload_memory: Size,
    /// Bytes per second that a client has to send of a request's body, over ten seconds. Then 408.
    /// 0 for no such limit.
    pub upload_rate: Size,
    /// Bodies larger than `upload_buffer` that may be on their way into replicas at a time, as a
    /// share of the replicas' slots, which they do not take; at least one per replica. One tenant,
    /// or one address where `tenant` is not set, may have half of them.
    pub upload_share: Share,
    /// Requests in flight on one HTTP/2 connection.
    #[schemars(range(min = 1))]
    pub streams: u32,
    /// HTTP/2 requests that a client may cancel before they are answered, over the life of a
    /// connection; once it has cancelled one, those in flight count as well. Then it is told to go
    /// away, and further requests on that connection are refused unseen.
    #[schemars(range(min = 1))]
    pub early_resets: u32,
    /// Bytes of a response held for a client that reads slower than the replica sends, so that the
    /// replica's slot comes free.
    pub response_buffer: Size,
    /// Bytes of a refused request's body that are read and thrown away, so that a client which
    /// writes first sees the refusal. Beyond it the connection is closed.
    pub refused_body: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: Share(0.5),
            head_bytes: Size(32 << 10),
            headers: 100,
            body_bytes: None,
            upload_buffer: Size(128 << 10),
            upload_memory: Size(256 << 20),
            upload_rate: Size(1 << 10),
            upload_share: Share(0.5),
            streams: 100,
            early_resets: 100,
            response_buffer: Size(64 << 10),
            refused_body: Size(1 << 20),
        }
    }
}

/// When a request is sent a second time, to another replica. A request that a replica may have
/// begun to work on is repeated only if its method is idempotent; POST never is.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts after the first; 0 turns retries off.
    pub attempts: u32,
    /// Retries as a share of all requests. It bounds what retries add to an overload.
    pub budget: Share,
    /// Retries allowed whatever the share, so that a quiet service can retry at all.
    pub floor: Rate,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 1,
            budget: Share(0.1),
            floor: Rate(1.0),
        }
    }
}

/// Keeps a client on the replica that served it first, while that one is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sticky {
    /// Name of a cookie that the proxy sets. Give either this or `header`.
    #[schemars(example = &"tidegate")]
    pub cookie: Option<String>,
    /// Name of a request header whose value chooses the replica.
    #[schemars(example = &"x-customer")]
    pub header: Option<String>,
    /// Key that the cookie's value is derived with. Proxies that share clients need the same one;
    /// without it a new one is drawn at every start.
    #[schemars(example = &"3f9c0b0d6a5e4c12")]
    pub secret: Option<Secret>,
    /// File that holds the key, instead of `secret`.
    #[schemars(example = &"/run/secrets/sticky")]
    pub secret_file: Option<PathBuf>,
}

/// Headers that tell replicas about the client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Forward {
    /// Networks of proxies in front of this one. `X-Forwarded-*` is believed and extended when it
    /// comes from there, replaced otherwise.
    #[schemars(with = "Vec<String>")]
    pub trust: Vec<IpNet>,
    /// Whether to send `X-Forwarded-For`, `-Proto` and `-Host`.
    pub x_forwarded: bool,
    /// Whether to add `Via`.
    pub via: bool,
    /// Whether to send `X-Request-Id`. The id of a proxy in `trust` is taken over, any other
    /// replaced. The access log and refusals have the same id.
    pub request_id: bool,
}

impl Default for Forward {
    fn default() -> Self {
        Self {
            trust: Vec::new(),
            x_forwarded: true,
            via: false,
            request_id: true,
        }
    }
}

/// What people and programs read when their request is refused. Each text replaces the built-in one
/// of its format, chosen by the request's `Accept`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RefusalTexts {
    /// Heading of the built-in page for people.
    #[schemars(example = &"One moment, please")]
    pub title: Option<String>,
    /// One sentence for the built-in page, instead of the usual one.
    #[schemars(example = &"We are very busy. Your cart is safe.")]
    pub message: Option<String>,
    /// What the built-in page counts down with; `{seconds}` stands for the seconds left.
    #[schemars(example = &"Next try in {seconds} s")]
    pub countdown: Option<String>,
    /// CSS added to that of the built-in page.
    #[schemars(example = &"body { font-family: Georgia, serif }")]
    pub style: Option<String>,
    /// File with a whole HTML page.
    #[schemars(example = &"busy.html")]
    pub html: Option<PathBuf>,
    /// File with a JSON document.
    #[schemars(example = &"busy.json")]
    pub json: Option<PathBuf>,
    /// File with plain text.
    #[schemars(example = &"busy.txt")]
    pub text: Option<PathBuf>,
}
