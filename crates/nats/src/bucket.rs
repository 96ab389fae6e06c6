//! A bucket of a server, opened by one proxy.
//!
//! A session ends with its first error, and when the connection was renewed: what a server has
//! forgotten in between, a bucket in memory or a consumer, is made anew with the next one.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv::{Config, Operation, Store, Watch};
use async_nats::jetstream::stream::StorageType;
use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, jetstream, rustls,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::timeout;

/// Time for connecting, finding the bucket and watching it.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Entries live at least this long; the server takes no less than a tenth of it.
const TTL_MIN: Duration = Duration::from_secs(1);

/// A subject of all keys.
const ALL_KEYS: &str = ">";

/// A server, or several of one cluster, and how a proxy shows who it is.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// Addresses, as `nats://host:4222`.
    pub urls: Vec<String>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// A file of credentials: JWT and key.
    pub credentials_file: Option<PathBuf>,
    /// The authority of the server's certificate, beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// This client's certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A bucket and the key that is this proxy's own.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The key to put.
    pub key: String,
    /// Servers that keep it.
    pub replicas: usize,
    /// Time for which the server keeps what is not put again.
    pub ttl: Duration,
}

/// Why a server cannot be used: cause and remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NatsError(String);

/// A bucket that is open, with what is put into it.
pub struct Watched {
    client: Client,
    store: Store,
    watch: Watch,
    key: String,
    said: Said,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// What the server said last that is not the answer to a request: missing rights, for example.
type Said = Arc<Mutex<Option<String>>>;

impl Server {
    fn shown(&self) -> String {
        self.urls.join(", ")
    }

    async fn options(&self, said: &Said) -> Result<ConnectOptions, NatsError> {
        let mut options = ConnectOptions::new().name("tidegate");
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(path) = &self.credentials_file {
            let read = options.credentials_file(path).await;
            options = read.map_err(|error| {
                NatsError(format!(
                    "the credentials in {} cannot be used: {error}; give the file that `nsc generate \
                     creds` writes",
                    path.display()
                ))
            })?;
        }
        if let Some(path) = &self.ca_file {
            options = options.add_root_certificates(path.clone());
        }
        if let Some((cert, key)) = &self.certificate {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        let said = Arc::clone(said);
        Ok(options.event_callback(move |event| {
            let said = Arc::clone(&said);
            async move {
                if let Event::ServerError(error) = event {
                    *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
            }
        }))
    }

    async fn connect(&self, said: &Said) -> Result<Client, NatsError> {
        let options = self.options(said).await?;
        let connected = options.connect(self.urls.as_slice()).await;
        connected.map_err(|error| {
            let remedy = match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    return NatsError(format!(
                        "the NATS server at {} refuses this proxy: {}; see `fleet.nats.user`, \
                         `password_file` and `credentials_file`",
                        self.shown(),
                        self.identity()
                    ));
                }
                _ if is_of_tls(&error) => "give the server's authority as `fleet.nats.ca`",
                _ => "start it, or correct `fleet.nats`",
            };
            NatsError(format!(
                "the NATS server at {} cannot be reached: {error}; {remedy}",
                self.shown()
            ))
        })
    }

    fn identity(&self) -> String {
        match (&self.user, &self.credentials_file) {
            (_, Some(path)) => format!("the credentials in {} are wrong", path.display()),
            (Some((user, _)), None) => {
                format!("the password is wrong or there is no user `{user}`")
            }
            (None, None) => "it wants to know who this is".to_owned(),
        }
    }
}

impl Watched {
    /// Connects, makes the bucket where there is none, puts the first value, and watches.
    ///
    /// # Errors
    /// Cause and remedy.
    pub async fn open(server: &Server, bucket: &Bucket, first: Bytes) -> Result<Self, NatsError> {
        let said = Said::default();
        let opened = timeout(OPEN_MAX, Self::open_slowly(server, bucket, first, &said)).await;
        opened.unwrap_or_else(|_| {
            Err(NatsError(format!(
                "the NATS server at {} does not answer about bucket `{}`{}; it needs JetStream, and \
                 this proxy the right to make, read and write the bucket",
                server.shown(),
                bucket.name,
                last_words(&said),
            )))
        })
    }

    async fn open_slowly(
        server: &Server,
        bucket: &Bucket,
        first: Bytes,
        said: &Said,
    ) -> Result<Self, NatsError> {
        let client = server.connect(said).await?;
        let context = jetstream::new(client.clone());
        let store = match context.get_key_value(&bucket.name).await {
            Ok(store) => store,
            Err(_) => make(&context, bucket).await.map_err(|cause| {
                NatsError(format!(
                    "bucket `{}` cannot be made at {}: {cause}{}; the server needs JetStream \
                     (`nats-server -js`), and this proxy the right to make it, or make it by hand",
                    bucket.name,
                    server.shown(),
                    last_words(said),
                ))
            })?,
        };
        // Before the watch, which would show what an earlier start of this proxy left.
        put(&client, &store, &bucket.key, first, said).await?;
        let watch = store.watch_with_history(ALL_KEYS).await.map_err(|error| {
            NatsError(format!(
                "bucket `{}` cannot be watched: {error}{}; give this proxy the right to read it",
                bucket.name,
                last_words(said),
            ))
        })?;
        Ok(Self {
            client,
            store,
            watch,
            key: bucket.key.clone(),
            said: Arc::clone(said),
        })
    }

    /// Puts this proxy's value; done when the server has it.
    ///
    /// # Errors
    /// Cause and remedy; the session is of no use any more.
    pub async fn put(&mut self, value: Bytes) -> Result<(), NatsError> {
        if self.client.statistics().connects.load(Ordering::Relaxed) > 1 {
            return Err(NatsError("the connection was lost".to_owned()));
        }
        put(&self.client, &self.store, &self.key, value, &self.said).await
    }

    /// The next value that was put, this proxy's own ones included. Nothing is lost when the future
    /// is dropped.
    ///
    /// # Errors
    /// The session is of no use any more.
    pub async fn next(&mut self) -> Result<Bytes, NatsError> {
        loop {
            match self.watch.next().await {
                Some(Ok(entry)) if entry.operation == Operation::Put => return Ok(entry.value),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(NatsError(format!("the watch ended: {error}"))),
                None => return Err(NatsError("the watch ended".to_owned())),
            }
        }
    }
}

/// Whether the connection failed by its certificate, which comes as an error of reading.
fn is_of_tls(error: &ConnectError) -> bool {
    let cause = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    let inner = cause.and_then(io::Error::get_ref);
    error.kind() == ConnectErrorKind::Tls || inner.is_some_and(|it| it.is::<rustls::Error>())
}

async fn make(context: &jetstream::Context, bucket: &Bucket) -> Result<Store, String> {
    let config = Config {
        bucket: bucket.name.clone(),
        description: "Reports of the proxies of a fleet".to_owned(),
        history: 1,
        max_age: bucket.ttl.max(TTL_MIN),
        // What is older than a few intervals is worth nothing.
        storage: StorageType::Memory,
        num_replicas: bucket.replicas,
        ..Config::default()
    };
    match context.create_key_value(config).await {
        Ok(store) => Ok(store),
        // Another proxy was faster.
        Err(error) => match context.get_key_value(&bucket.name).await {
            Ok(store) => Ok(store),
            Err(_) => Err(error.to_string()),
        },
    }
}

async fn put(
    client: &Client,
    store: &Store,
    key: &str,
    value: Bytes,
    said: &Said,
) -> Result<(), NatsError> {
    let most = client.max_payload();
    if value.len() > most {
        return Err(NatsError(format!(
            "a report has {} bytes and the NATS server takes {most}: raise its `max_payload`",
            value.len()
        )));
    }
    match store.put(key, value).await {
        Ok(_) => Ok(()),
        Err(error) => Err(NatsError(format!(
            "a report cannot be put: {error}{}",
            last_words(said)
        ))),
    }
}

fn last_words(said: &Said) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let words = said
        .as_ref()
        .map(|words| format!(" (the server says: {words})"));
    words.unwrap_or_default()
}
