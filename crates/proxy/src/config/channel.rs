//! The channel that tells clients when to send.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Size};

use super::Certificate;
use super::listen::certificates;
use super::types::Addr;

/// Tells clients when to send (see `docs/channel.md`): a signed message goes out every period, and
/// clients that understand it hold back what can wait.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Channel {
    /// Where clients and relays listen for messages.
    pub listen: Addr,
    /// The address by which they reach it, if it is another: `"http://auction.example:8090"`.
    #[schemars(example = &"http://auction.example:8090")]
    pub url: Option<String>,
    /// Certificates. With at least one of them the listener speaks https, and `url` has to name it
    /// as they do. Read at the start only.
    #[serde(deserialize_with = "certificates")]
    pub tls: Vec<Certificate>,
    /// File with the key that signs messages; `tidegate channel keygen FILE` writes one.
    pub key_file: PathBuf,
    /// File with the key that will follow. Its public half is announced in every message, so that
    /// clients believe it when it takes over.
    #[schemars(example = &"next.key")]
    pub next_key_file: Option<PathBuf>,
    /// Another proxy's channel, to which this proxy's clients listen too. Then it publishes nothing
    /// itself: it is one of that channel's relays, checks requests against what is said there, and
    /// `key_file` is its key as a member.
    #[schemars(example = &"http://first.example:8090")]
    pub follow: Option<String>,
    /// The public key of the channel that is followed.
    #[schemars(example = &"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")]
    pub follow_key: Option<String>,
    /// What is commanded.
    pub means: ChannelMeans,
    /// Wanted delay: waiting plus service.
    pub setpoint: Dur,
    /// Wanted number of requests inside, waiting or in service, in place of the wanted delay. Gains
    /// stay those of a delay: this many requests count as one `setpoint`.
    #[schemars(example = 10)]
    pub queue: Option<f64>,
    /// Time between two steps of the controller.
    pub period: Dur,
    /// A message goes out this often even when nothing changed.
    pub keep_alive: Dur,
    /// How long a message may be believed.
    pub validity: Dur,
    /// How long a group is active.
    pub slot: Dur,
    /// Longest interval between two items of a client.
    pub interval_max: Dur,
    /// Gain of the controller, per second of delay; `tidegate tune` finds it.
    pub gain: f64,
    /// Its integral time.
    pub integral_time: Dur,
    /// Its derivative time.
    pub derivative_time: Dur,
    /// Whether one step changes the command by at most a tenth of what the number of clients and
    /// their work make sensible.
    pub bounded: bool,
    /// Whether a Smith predictor takes the channel's dead time out of the loop (groups only).
    pub predict: bool,
    /// The dead time that is taken out. Without it the median of what `members` say counts, and
    /// nothing where there are none.
    #[schemars(example = &"300ms")]
    pub dead_time: Option<Dur>,
    /// Listeners that the proxy and each relay take.
    #[schemars(range(min = 1))]
    pub arity: usize,
    /// Listeners that the proxy takes at most, where there are no relays for them.
    #[schemars(range(min = 1))]
    pub listeners_max: usize,
    /// What one address may ask for.
    pub per_address: PerAddress,
    /// Public keys of the clients that may take part; empty for anybody.
    pub members: Vec<String>,
    /// Public keys of relays that are reached at another address than the one they register from,
    /// in a group that is open to anybody.
    pub relays: Vec<String>,
    /// Paths below which only requests with the stamp of such a client are served, reading
    /// excepted. Empty with a `deadline` means everything.
    #[schemars(example = &["/bids"])]
    pub paths: Vec<String>,
    /// Items made later than this are refused: seconds since the Unix epoch.
    #[schemars(example = 1_767_225_600)]
    pub deadline: Option<u64>,
    /// No item may come later than this after it was made.
    pub delay_max: Dur,
    /// Added to the longest delay of every item, after an outage; clients are told.
    pub prolong: Dur,
    /// The most that counts as error of a client's clock, in the client's favour.
    pub clock_error_max: Dur,
    /// Largest body of a stamped item: it is read whole before it is passed on.
    pub item_bytes: Size,
    /// Where deadlines that an operator has moved outlive a restart; `key_file` with `.state`
    /// behind it if missing.
    #[schemars(example = &"channel.state")]
    pub state_file: Option<PathBuf>,
    /// What happens to clients that do not hold back.
    pub compliance: Compliance,
}

/// What one address may ask for. An IPv6 network of 64 bits counts as one.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PerAddress {
    /// Connections to the channel at a time.
    pub connections: usize,
    /// Listeners at a time.
    pub listeners: usize,
    /// Relays that it may register.
    pub relays: usize,
    /// Questions where to listen, of which ten seconds' worth may come at once.
    pub joins: Rate,
    /// Comparisons of clocks, of which ten seconds' worth may come at once.
    pub times: Rate,
}

impl Default for PerAddress {
    fn default() -> Self {
        Self {
            connections: 256,
            listeners: 64,
            relays: 8,
            joins: Rate(10.0),
            times: Rate(10.0),
        }
    }
}

/// What is commanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelMeans {
    /// The share of clients that may send at a time.
    #[default]
    Group,
    /// The interval between two items of a client.
    Interval,
}

/// What happens to clients that do not hold back.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compliance {
    /// Whether anything happens; else offences are only counted.
    pub enforce: bool,
    /// For a message to arrive, and for clocks to differ.
    pub slack: Dur,
    /// The interval that clients without a channel keep to.
    pub fallback: Dur,
    /// Offences from which requests out of order are refused.
    pub throttle_after: u32,
    /// Offences from which everything from the client is refused.
    pub ban_after: u32,
    /// How long.
    pub ban_for: Dur,
    /// An offence is forgotten after this long without another.
    pub forgive_after: Dur,
}

impl Default for Channel {
    /// Gains: two thirds of what a relay experiment gave on 100 clients and 100 ms of work
    /// (`experiments/papers/001-8-group.toml`).
    fn default() -> Self {
        let seconds = |seconds| Dur(Duration::from_secs(seconds));
        Self {
            listen: Addr::loopback(8090),
            url: None,
            tls: Vec::new(),
            key_file: PathBuf::from("channel.key"),
            next_key_file: None,
            follow: None,
            follow_key: None,
            means: ChannelMeans::default(),
            setpoint: seconds(1),
            queue: None,
            period: seconds(1),
            keep_alive: seconds(2),
            validity: seconds(30),
            slot: seconds(4),
            interval_max: seconds(300),
            gain: 0.04,
            integral_time: seconds(2),
            derivative_time: Dur(Duration::from_millis(560)),
            bounded: false,
            predict: false,
            dead_time: None,
            arity: 8,
            listeners_max: 1000,
            per_address: PerAddress::default(),
            members: Vec::new(),
            relays: Vec::new(),
            paths: Vec::new(),
            deadline: None,
            delay_max: seconds(3600),
            prolong: seconds(0),
            clock_error_max: seconds(1),
            item_bytes: Size(256 << 10),
            state_file: None,
            compliance: Compliance::default(),
        }
    }
}

impl Default for Compliance {
    fn default() -> Self {
        let seconds = |seconds| Dur(Duration::from_secs(seconds));
        Self {
            enforce: true,
            slack: seconds(5),
            fallback: seconds(60),
            throttle_after: 5,
            ban_after: 50,
            ban_for: seconds(600),
            forgive_after: seconds(60),
        }
    }
}
