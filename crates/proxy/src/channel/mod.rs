//! Client-side control in the proxy (paper 001): tells clients when to send, and checks that they
//! did.
//!
//! ```text
//!  metrics ─► delay ─► regulator ─► message, signed ─► hub ─► listeners, relays, responses
//!                                        │
//!  request ─► who, stamp ─► auditor ◄────┘ what they were told
//! ```
//!
//! Deferral is the first line: what reaches the proxy has held back already. Behind it stand, as
//! ever, brownout and refusal by class; this module sees requests before the engine does and
//! refuses only those of clients that were told to wait and did not, or whose item is too late.

mod check;
mod control;
mod lags;
mod operate;
mod saved_terms;

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_channel::compliance::{Auditor, AuditorConfig, DeadlinePolicy};
use tidegate_channel::net::tracker::Room;
use tidegate_channel::net::{Desk, Hub, Limits, PerAddress, Tracker};
use tidegate_channel::regulate::{Means, Regulator, RegulatorConfig, Scale};
use tidegate_channel::{ControlMessage, Ledger, PublicKey, SecretKey, Terms};
use tidegate_control::controller::PidGains;
use tokio_rustls::TlsAcceptor;

pub(crate) use check::{Claim, Held, Proven, attest, comply, piggyback, prove};
pub(crate) use control::run;
pub use operate::{ChannelCommand, ChannelStatus};

use crate::config::{Channel as Config, ChannelMeans, Listener};
use crate::listen::{self, tls};
use crate::settings::SettingsError;

/// Clients that are remembered.
const CLIENTS_MAX: usize = 100_000;

/// Items that are remembered: two hundred megabytes, filled by 280 items a second within an hour.
const ITEMS_MAX: usize = 1 << 20;

/// Everything the channel keeps.
#[derive(Debug)]
pub struct Channel {
    config: Config,
    desk: Arc<Desk>,
    key: Arc<SecretKey>,
    successor: Option<PublicKey>,
    members: HashSet<PublicKey>,
    /// The key of the proxy whose messages are passed on, if this one does not publish.
    followed: Option<PublicKey>,
    auditor: Mutex<Auditor>,
    policy: Mutex<DeadlinePolicy>,
    ledger: Mutex<Ledger>,
    regulator: Mutex<Regulator>,
    measured: Mutex<Measured>,
}

/// What the channel knows about itself.
#[derive(Debug)]
struct Measured {
    /// How long messages take to arrive, as members say.
    lags: lags::Lags,
    /// Mean delay of the last period.
    delay_s: f64,
    /// Clients, and their work.
    scale: Scale,
    /// The message in force.
    message: Option<ControlMessage>,
    late: u64,
    strangers: u64,
}

impl Channel {
    /// Reads keys and builds the loop.
    ///
    /// # Errors
    /// A key that cannot be read, gains that mean nothing.
    pub(crate) fn new(config: &Config) -> Result<Self, SettingsError> {
        let key = Arc::new(read_key(&config.key_file)?);
        let successor = config.next_key_file.as_deref().map(read_key).transpose()?;
        let members = keys("members", &config.members)?;
        let relays = keys("relays", &config.relays)?;
        let followed = config.follow_key.as_deref().map(str::parse::<PublicKey>);
        let unusable = |error| refused(format!("`channel.follow_key`: {error}"));
        let followed = followed.transpose().map_err(unusable)?;
        let publishes = followed.is_none();
        let hub = Hub::default();
        let scale = Scale {
            clients: 100.0,
            service_s: 0.1,
        };
        let regulator = Regulator::new(regulator_config(config, scale, Duration::ZERO))
            .map_err(|error| refused(format!("`channel`: {error}")))?;
        Ok(Self {
            desk: Arc::new(
                if publishes {
                    publisher_desk(config, hub, &key, &members, relays)
                } else {
                    Desk::relay(hub).with_limits(limits(config))
                }
                .with_tls(acceptor(config)?),
            ),
            key,
            successor: successor.map(|key| key.public()),
            members,
            followed,
            auditor: Mutex::new(Auditor::new(auditor_config(config))),
            policy: Mutex::new(policy(config)?),
            ledger: Mutex::new(Ledger::new(ITEMS_MAX)),
            regulator: Mutex::new(regulator),
            measured: Mutex::new(Measured {
                lags: lags::Lags::default(),
                delay_s: f64::NAN,
                scale,
                message: None,
                late: 0,
                strangers: 0,
            }),
            config: config.clone(),
        })
    }

    /// Opens the listener for clients and relays. When many lose their parents at once they all
    /// come to the tracker, so as many may wait here as before the data plane.
    pub(crate) fn listen(&self) -> std::io::Result<TcpListener> {
        listen::open(*self.config.listen, false)
    }

    /// Where it is configured to listen.
    pub(crate) fn addr(&self) -> std::net::SocketAddr {
        *self.config.listen
    }

    /// What clients are told about deadlines.
    fn terms(&self) -> Terms {
        let policy = self.policy.lock();
        Terms {
            prolonged: policy.prolonged,
            deadline: policy.deadline,
        }
    }

    /// The key that clients verify with.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.followed.unwrap_or_else(|| self.key.public())
    }
}

fn keys(name: &str, texts: &[String]) -> Result<HashSet<PublicKey>, SettingsError> {
    let parse = |text: &String| {
        let unusable = |error| refused(format!("`channel.{name}`: {error}"));
        text.parse().map_err(unusable)
    };
    texts.iter().map(parse).collect()
}

/// What strangers may ask for.
fn limits(config: &Config) -> Limits {
    let from = &config.per_address;
    let per_address = PerAddress {
        connections: from.connections,
        listeners: from.listeners,
        relays: from.relays,
        joins_per_s: from.joins.0,
        times_per_s: from.times.0,
    };
    Limits::new(per_address, config.listeners_max, config.arity)
}

fn publisher_desk(
    config: &Config,
    hub: Hub,
    key: &Arc<SecretKey>,
    members: &HashSet<PublicKey>,
    relays: HashSet<PublicKey>,
) -> Desk {
    let room = Room {
        arity: config.arity,
        listeners_max: config.listeners_max,
        per_address: config.per_address.listeners,
    };
    // Its address is known once it listens.
    let tracker = Tracker::new("", room);
    let key = Arc::clone(key);
    Desk::publisher(hub, limits(config), key, tracker, members.clone(), relays)
}

fn policy(config: &Config) -> Result<DeadlinePolicy, SettingsError> {
    let terms = saved_terms::read(config).map_err(|error| {
        let file = saved_terms::path(config);
        let file = file.display();
        refused(format!(
            "{file}: {error}; it holds deadlines that were moved: mend it, or delete it to go by the configuration"
        ))
    })?;
    Ok(DeadlinePolicy {
        deadline: terms.deadline,
        delay_max: *config.delay_max,
        prolonged: terms.prolonged,
        error_max: *config.clock_error_max,
    })
}

/// Encrypts what listeners receive, where there are certificates.
fn acceptor(config: &Config) -> Result<Option<TlsAcceptor>, SettingsError> {
    let listener = Listener {
        tls: config.tls.clone(),
        http2: false,
        ..Listener::default()
    };
    let loaded = tls::load(&[listener], &[])?.pop().flatten();
    Ok(loaded.map(|tls| TlsAcceptor::from(tls.config)))
}

fn read_key(path: &Path) -> Result<SecretKey, SettingsError> {
    let text = fs::read_to_string(path).map_err(|cause| SettingsError::File {
        path: path.to_owned(),
        cause,
    })?;
    let unusable = |error| refused(format!("{}: {error}", path.display()));
    text.parse().map_err(unusable)
}

fn refused(message: String) -> SettingsError {
    SettingsError::Channel(message)
}

fn auditor_config(config: &Config) -> AuditorConfig {
    let compliance = &config.compliance;
    AuditorConfig {
        slack: *compliance.slack,
        fallback: *compliance.fallback,
        throttle_after: compliance.throttle_after,
        ban_after: compliance.ban_after,
        ban_for: *compliance.ban_for,
        forgive_after: *compliance.forgive_after,
        clients_max: CLIENTS_MAX,
    }
}

fn regulator_config(config: &Config, scale: Scale, dead_time: Duration) -> RegulatorConfig {
    RegulatorConfig {
        means: match config.means {
            ChannelMeans::Group => Means::Group { slot: *config.slot },
            ChannelMeans::Interval => Means::Interval {
                max: *config.interval_max,
            },
        },
        setpoint: *config.setpoint,
        period: *config.period,
        gains: PidGains::pid(config.gain, *config.integral_time, *config.derivative_time),
        bounded: config.bounded,
        closing: !config.bounded,
        dead_time: config.predict.then_some(dead_time),
        scale,
    }
}
