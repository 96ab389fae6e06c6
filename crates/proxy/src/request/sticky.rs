//! Keeps a client on the replica that served it first.
//!
//! By cookie: the proxy sets one whose value is a keyed hash of the replica's URL, so that it
//! tells nobody anything, survives restarts and a changed order of replicas, and cannot be made
//! up for a replica that does not exist. By header: rendezvous hashing (Thaler and Ravishankar
//! 1998), the replica with the highest hash of (value, replica) wins, so that a change of the list
//! moves only the clients of the replicas that changed. The engine ignores the choice while the
//! replica is down.

use http::header::SET_COOKIE;
use http::{HeaderName, HeaderValue};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_sentry::ReplicaId;

use super::cookie::cookies;
use crate::config::{self, Origin};
use crate::message::Fields;

/// What makes a session sticky.
#[derive(Debug)]
pub(crate) struct Sticky {
    by: By,
    secret: Vec<u8>,
    replicas: Vec<Marked>,
}

#[derive(Debug)]
enum By {
    Cookie(String),
    Header(HeaderName),
}

/// A replica under its keyed hash.
#[derive(Debug)]
struct Marked {
    id: ReplicaId,
    mark: String,
    hash: u64,
}

impl Sticky {
    /// Sticky sessions as configured; `before` is kept as the source of a secret that was drawn.
    pub(crate) fn new(config: Option<&config::Sticky>, before: Option<&Self>) -> Option<Self> {
        let config = config?;
        let by = match (&config.cookie, &config.header) {
            (Some(cookie), _) => By::Cookie(cookie.clone()),
            (None, Some(header)) => By::Header(header.parse().ok()?),
            (None, None) => return None,
        };
        let secret = match (&config.secret, before) {
            (Some(secret), _) => secret.expose().as_bytes().to_vec(),
            (None, Some(before)) => before.secret.clone(),
            (None, None) => draw_secret(),
        };
        Some(Self {
            by,
            secret,
            replicas: Vec::new(),
        })
    }

    pub(crate) fn set_replicas<'a>(
        &mut self,
        origins: impl Iterator<Item = (ReplicaId, &'a Origin)>,
    ) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        self.replicas = origins
            .map(|(id, origin)| {
                let tag = hmac::sign(&key, origin.to_string().as_bytes());
                let mut hash = [0; 8];
                hash.copy_from_slice(&tag.as_ref()[..8]);
                let hash = u64::from_be_bytes(hash);
                Marked {
                    id,
                    mark: format!("{hash:016x}"),
                    hash,
                }
            })
            .collect();
    }

    /// The replica a request belongs to, if it says so.
    pub(crate) fn replica(&self, headers: &Fields) -> Option<ReplicaId> {
        match &self.by {
            By::Cookie(name) => {
                let mark = cookies(headers, name).next()?;
                self.replicas.iter().find(|r| r.mark == mark).map(|r| r.id)
            }
            By::Header(name) => {
                let value = fnv1a(headers.get(name)?.as_bytes());
                let score = |replica: &&Marked| mix(value ^ replica.hash);
                self.replicas.iter().max_by_key(score).map(|r| r.id)
            }
        }
    }

    /// Tells the client where it was served, unless it knows.
    pub(crate) fn mark(
        &self,
        served: ReplicaId,
        asked: Option<ReplicaId>,
        response: &mut Fields,
        tls: bool,
    ) {
        let (By::Cookie(name), true) = (&self.by, asked != Some(served)) else {
            return;
        };
        let Some(replica) = self.replicas.iter().find(|replica| replica.id == served) else {
            return;
        };
        let secure = if tls { "; Secure" } else { "" };
        let cookie = format!(
            "{name}={}; Path=/; HttpOnly; SameSite=Lax{secure}",
            replica.mark
        );
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            response.append(SET_COOKIE, cookie);
        }
    }
}

fn draw_secret() -> Vec<u8> {
    let mut secret = vec![0; 32];
    SystemRandom::new()
        .fill(&mut secret)
        .expect("the system has a source of randomness");
    secret
}

/// FNV-1a (Fowler, Noll and Vo): the value is the client's choice and only picks a replica, so
/// the hash has to spread, not to resist.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64 (Steele et al. 2014).
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sticky(config: &config::Sticky, ports: &[u16]) -> Sticky {
        let origins: Vec<Origin> = ports
            .iter()
            .map(|port| format!("http://a:{port}").parse().unwrap())
            .collect();
        let mut sticky = Sticky::new(Some(config), None).unwrap();
        let ids = (0..).map(ReplicaId).zip(&origins);
        sticky.set_replicas(ids);
        sticky
    }

    fn by_cookie() -> config::Sticky {
        config::Sticky {
            cookie: Some("lane".into()),
            secret: Some(config::Secret::new("s")),
            ..config::Sticky::default()
        }
    }

    fn headers(name: &'static str, value: &str) -> Fields {
        let value = HeaderValue::from_str(value).unwrap();
        Fields::from_iter([(HeaderName::from_static(name), value)])
    }

    #[test]
    fn the_cookie_given_leads_back_to_the_same_replica() {
        let sticky = sticky(&by_cookie(), &[1, 2, 3]);
        let mut response = Fields::new();
        sticky.mark(ReplicaId(1), None, &mut response, true);
        let cookie = response[SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"),
            "{cookie}"
        );
        let pair = format!("x=y; {}", cookie.split(';').next().unwrap());
        assert_eq!(
            sticky.replica(&headers("cookie", &pair)),
            Some(ReplicaId(1))
        );
        let mut again = Fields::new();
        sticky.mark(ReplicaId(1), Some(ReplicaId(1)), &mut again, true);
        assert!(again.is_empty(), "who knows is not told again");
    }

    #[test]
    fn marks_follow_the_replica_not_its_place_in_the_list() {
        let (before, after) = (
            sticky(&by_cookie(), &[1, 2, 3]),
            sticky(&by_cookie(), &[3, 1]),
        );
        assert_eq!(before.replicas[2].mark, after.replicas[0].mark);
    }

    #[test]
    fn foreign_cookies_choose_nothing() {
        let sticky = sticky(&by_cookie(), &[1, 2]);
        for value in ["lane=0000000000000000", "lane=", "other=1", ";;="] {
            assert_eq!(sticky.replica(&headers("cookie", value)), None, "{value}");
        }
    }

    #[test]
    fn a_removed_replica_moves_only_its_own_clients() {
        let config = config::Sticky {
            header: Some("x-user".into()),
            secret: Some(config::Secret::new("s")),
            ..config::Sticky::default()
        };
        let (all, fewer) = (sticky(&config, &[1, 2, 3, 4]), sticky(&config, &[1, 2, 3]));
        let mut counts = [0; 4];
        for user in 0..1000 {
            let headers = headers("x-user", &format!("user-{user}"));
            let before = all.replica(&headers).unwrap();
            counts[usize::from(before.0)] += 1;
            if before != ReplicaId(3) {
                assert_eq!(fewer.replica(&headers), Some(before));
            }
        }
        assert!(
            counts.iter().all(|count| (180..320).contains(count)),
            "{counts:?}"
        );
    }
}
