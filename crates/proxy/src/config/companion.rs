//! Applications that get requests of another one: a canary serves some of them, a mirror sees
//! copies of some.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Share, Size};

/// Which requests of another application this one serves. It has no hosts and paths of its own,
/// and sections that it leaves out are those of the other application.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The application whose requests it serves.
    #[schemars(example = &"shop")]
    pub of: String,
    /// Header that decides: `always` is the canary, `never` is not, anything else decides nothing.
    #[serde(default)]
    #[schemars(example = &"x-canary")]
    pub header: Option<String>,
    /// The value of `header` that means the canary, instead of `always`.
    #[serde(default)]
    #[schemars(example = &"beta")]
    pub header_value: Option<String>,
    /// Cookie that decides where the header does not: `always` or `never`.
    #[serde(default)]
    #[schemars(example = &"canary")]
    pub cookie: Option<String>,
    /// Share of the requests for which neither header nor cookie decides.
    #[serde(default)]
    #[schemars(example = &"5%")]
    pub share: Share,
    /// What the share is a share of: `request`, or `address`, so that a client stays where it is.
    #[serde(default)]
    pub by: ShareOf,
    /// Whether a request that the canary would shed, or cannot be reached for, goes to the other
    /// application.
    #[serde(default = "yes")]
    pub fallback: bool,
}

/// What a share is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareOf {
    /// Requests.
    #[default]
    Request,
    /// Client addresses, seen through proxies in `forward.trust`.
    Address,
}

/// Of which requests of another application this one gets copies. Its answers are thrown away. It
/// has no hosts and paths of its own, and sections that it leaves out are those of the other
/// application.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// The application whose requests are copied.
    #[schemars(example = &"shop")]
    pub of: String,
    /// Share of the admitted requests that are copied.
    #[serde(default = "all")]
    pub share: Share,
    /// Requests with a larger body are not copied, nor those whose body is not read ahead in whole.
    #[serde(default = "body_bytes")]
    pub body_bytes: Size,
    /// Copies that are under way at a time; beyond it none is made.
    #[serde(default = "concurrency")]
    #[schemars(range(min = 1))]
    pub concurrency: u32,
}

fn yes() -> bool {
    true
}

fn all() -> Share {
    Share(1.0)
}

fn body_bytes() -> Size {
    Size(64 << 10)
}

fn concurrency() -> u32 {
    64
}

/// What an application is to the one whose requests it gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Companion {
    /// It serves some of them.
    Canary(Canary),
    /// It gets copies of some.
    Mirror(Mirror),
}

impl Companion {
    /// The application whose requests it gets.
    #[must_use]
    pub fn of(&self) -> &str {
        match self {
            Self::Canary(canary) => &canary.of,
            Self::Mirror(mirror) => &mirror.of,
        }
    }
}
