//! What is due for one application, from what there is: the part of the driver that decides.
//!
//! More servers are set at once. Fewer servers are prepared first:
//!
//! ```text
//! target below the scale ─► victims chosen ─► marked in the cluster, drained in every proxy
//!    ─► no request inside, or `drain_time` is over ─► scale set ─► pods go ─► out of the pools
//! ```
//!
//! A mark makes Kubernetes delete the victims and no others. Everything follows from what is there
//! at a look, so an action that failed is due again at the next one. A scale that somebody else
//! set in between is the new truth: what was prepared is taken back.
//!
//! Decision: docs/decisions/0231-drain-before-scale.md.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_kubernetes::Endpoint;
use tidegate_planed::{Drain, KubernetesDriverConfig, Member, PoolBy};

/// A proxy that follows the Service may finish requests of a pod that has left its pool, and does
/// not show how many. Chosen: longer than most requests; the pod's grace period comes after it.
const LEFT_POOL_TIME: Duration = Duration::from_secs(5);

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Kubernetes is to delete this pod first.
    Mark(String),
    /// This pod is to stay.
    Unmark(String),
    /// Sets the number of servers.
    Scale(u32),
    /// Changes the pool of a proxy.
    Pool(usize, Change, String),
}

/// A change of a proxy's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Add,
    Drain,
    Undrain,
    Remove,
}

/// What there is.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    pub(crate) now: Instant,
    /// The number of servers that is set.
    pub(crate) scale: Option<u32>,
    /// Nothing until the Service was read once.
    pub(crate) endpoints: Option<&'a [Endpoint]>,
    /// The pool of each proxy, if it answers.
    pub(crate) pools: &'a [Option<Vec<Member>>],
}

/// Fewer servers, in preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScaleIn {
    from: u32,
    to: u32,
}

/// A server that was drained by us.
type Since = BTreeMap<SocketAddr, Instant>;

/// The state of one application.
#[derive(Debug)]
pub(crate) struct Scaler {
    drain: Drain,
    /// A StatefulSet deletes the pod of the highest number, whatever is marked.
    by_number: bool,
    drain_time: Duration,
    pool: PoolBy,
    scale: Option<u32>,
    scale_in: Option<ScaleIn>,
    /// Pods to be given back, and since when.
    victims: BTreeMap<String, Instant>,
    /// Victims that no proxy has in its pool, and since when.
    left_pools: BTreeMap<String, Instant>,
    marked: BTreeSet<String>,
    /// Servers that are, or were, endpoints of the Service.
    ours: BTreeSet<SocketAddr>,
    /// Servers that we drained.
    drained: Since,
    /// Nothing was looked at yet: what is drained was drained by an earlier daemon.
    fresh: bool,
    ready: u32,
}

impl Scaler {
    pub(crate) fn new(config: &KubernetesDriverConfig, ours: BTreeSet<SocketAddr>) -> Self {
        Self {
            drain: config.drain,
            by_number: config.kind == "StatefulSet",
            drain_time: config.drain_time.0,
            pool: config.pool,
            scale: None,
            scale_in: None,
            victims: BTreeMap::new(),
            left_pools: BTreeMap::new(),
            marked: BTreeSet::new(),
            ours,
            drained: Since::new(),
            fresh: true,
            ready: 0,
        }
    }

    /// Servers that are set, or will be when they are drained.
    pub(crate) fn desired(&self) -> Option<u32> {
        self.scale_in.map(|it| it.to).or(self.scale)
    }

    /// Servers that serve, victims aside.
    pub(crate) fn ready(&self) -> u32 {
        self.ready
    }

    /// Servers to be remembered over a restart.
    #[cfg(feature = "client")]
    pub(crate) fn ours(&self) -> impl Iterator<Item = SocketAddr> {
        self.ours.iter().copied()
    }

    pub(crate) fn is_victim(&self, pod: &str) -> bool {
        self.victims.contains_key(pod)
    }

    /// Whether a pod can be chosen.
    fn chooses(&self) -> bool {
        self.by_number || self.drain != Drain::None
    }

    /// Whether pods are marked in the cluster.
    fn marks(&self) -> bool {
        !self.by_number && self.drain != Drain::None
    }

    /// A number of servers to get to. Returns the scale to be set at once, if any.
    pub(crate) fn set(&mut self, scale: u32, to: u32) -> Option<u32> {
        self.scale = Some(scale);
        if to >= scale || !self.chooses() {
            self.scale_in = None;
            return Some(to);
        }
        self.scale_in = Some(ScaleIn { from: scale, to });
        None
    }

    pub(crate) fn on_marked(&mut self, pod: &str) {
        self.marked.insert(pod.to_owned());
    }

    pub(crate) fn on_unmarked(&mut self, pod: &str) {
        self.marked.remove(pod);
    }

    /// Marks of an earlier daemon; they are taken back unless the pods are victims again.
    pub(crate) fn on_found_marks(&mut self, pods: impl IntoIterator<Item = String>) {
        self.marked.extend(pods);
    }

    pub(crate) fn on_scaled(&mut self, scale: u32) {
        self.scale = Some(scale);
        self.scale_in = None;
    }

    /// Notes what there is, without doing anything.
    pub(crate) fn observe(&mut self, look: &Look<'_>) {
        if let Some(scale) = look.scale {
            self.scale = Some(scale);
        }
        let Some(endpoints) = look.endpoints else {
            return;
        };
        self.ours.extend(endpoints.iter().map(|it| it.address));
        let serves = |it: &&Endpoint| it.ready && !self.is_victim_endpoint(it);
        self.ready = endpoints.iter().filter(serves).count() as u32;
    }

    fn is_victim_endpoint(&self, endpoint: &Endpoint) -> bool {
        let pod = endpoint.pod.as_ref();
        pod.is_some_and(|pod| self.victims.contains_key(pod))
    }

    /// What is due now.
    pub(crate) fn plan(&mut self, look: &Look<'_>) -> Vec<Action> {
        self.follow_scale(look);
        let Some(endpoints) = look.endpoints else {
            self.observe(look);
            return Vec::new();
        };
        self.forget_victims(endpoints);
        let waiting = self.choose_victims(look, endpoints);
        self.observe(look);
        let mut actions = self.marks_due();
        actions.extend(self.pools_due(look, endpoints));
        if let Some(scale_in) = self.scale_in.filter(|_| !waiting)
            && self.are_drained(look, endpoints)
        {
            actions.push(Action::Scale(scale_in.to));
        }
        self.fresh = false;
        actions
    }

    /// A scale that is not the one that was prepared for was set by somebody else.
    fn follow_scale(&mut self, look: &Look<'_>) {
        if let (Some(scale), Some(scale_in)) = (look.scale, self.scale_in)
            && scale != scale_in.from
        {
            self.scale_in = None;
            if scale > scale_in.to {
                self.victims.clear();
            }
        }
    }

    /// Victims that are gone are none any more.
    fn forget_victims(&mut self, endpoints: &[Endpoint]) {
        let pods: BTreeSet<&str> = endpoints
            .iter()
            .filter_map(|it| it.pod.as_deref())
            .collect();
        self.victims.retain(|pod, _| pods.contains(pod.as_str()));
        let victims = &self.victims;
        self.left_pools.retain(|pod, _| victims.contains_key(pod));
        self.marked
            .retain(|pod| self.fresh || pods.contains(pod.as_str()));
        // The scale was set: pods that Kubernetes did not delete stay, and serve.
        if self.scale_in.is_none() && self.surplus(endpoints) == 0 {
            let going = |pod: &String| {
                let found = endpoints.iter().find(|it| it.pod.as_ref() == Some(pod));
                found.is_some_and(|it| it.terminating)
            };
            self.victims.retain(|pod, _| going(pod));
        }
    }

    /// Pods beyond the scale: Kubernetes has not deleted them yet.
    fn surplus(&self, endpoints: &[Endpoint]) -> usize {
        let there = endpoints.iter().filter(|it| !it.terminating).count();
        there.saturating_sub(self.scale.unwrap_or(0) as usize)
    }

    /// Chooses as many as are to go. Returns whether fewer could be chosen than are needed.
    fn choose_victims(&mut self, look: &Look<'_>, endpoints: &[Endpoint]) -> bool {
        let Some(ScaleIn { from, to }) = self.scale_in else {
            return false;
        };
        let mut there: Vec<&Endpoint> = endpoints
            .iter()
            .filter(|it| !it.terminating && it.pod.is_some())
            .collect();
        // Pods without an address yet are deleted before all others.
        let pending = from.saturating_sub(there.len() as u32);
        let wanted = (from - to).saturating_sub(pending) as usize;
        there.sort_by_key(|it| self.order(look, it));
        let chosen: Vec<String> = there
            .iter()
            .take(wanted)
            .filter_map(|it| it.pod.clone())
            .collect();
        self.victims.retain(|pod, _| chosen.contains(pod));
        let short = chosen.len() < wanted;
        for pod in chosen {
            self.victims.entry(pod).or_insert(look.now);
        }
        short
    }

    /// Who goes first: of a StatefulSet the highest number; elsewhere one that was chosen already,
    /// that is marked, that is not ready, that holds the fewest requests.
    fn order(&self, look: &Look<'_>, endpoint: &Endpoint) -> (u64, [bool; 3], u64, String) {
        let pod = endpoint.pod.clone().unwrap_or_default();
        if self.by_number {
            let number = pod.rsplit('-').next().and_then(|it| it.parse().ok());
            return (u64::MAX - number.unwrap_or(0), [false; 3], 0, pod);
        }
        let members = look.pools.iter().flatten().flatten();
        let busy = members
            .filter(|it| address_of(&it.url) == Some(endpoint.address))
            .map(|it| u64::from(it.in_flight) + u64::from(it.streams))
            .sum();
        let first = [
            !self.victims.contains_key(&pod),
            !self.marked.contains(&pod),
            endpoint.ready,
        ];
        (0, first, busy, pod)
    }

    fn marks_due(&self) -> Vec<Action> {
        if !self.marks() {
            return Vec::new();
        }
        let new = self
            .victims
            .keys()
            .filter(|pod| !self.marked.contains(*pod));
        let over = self.marked.iter().filter(|pod| !self.is_victim(pod));
        new.cloned()
            .map(Action::Mark)
            .chain(over.cloned().map(Action::Unmark))
            .collect()
    }

    /// What to change in the proxies' pools.
    fn pools_due(&mut self, look: &Look<'_>, endpoints: &[Endpoint]) -> Vec<Action> {
        if self.pool == PoolBy::Proxy {
            return Vec::new();
        }
        let serving: BTreeSet<SocketAddr> = endpoints
            .iter()
            .filter(|it| it.ready && !self.is_victim_endpoint(it))
            .map(|it| it.address)
            .collect();
        let gone = |address: &SocketAddr| {
            let known = endpoints.iter().find(|it| it.address == *address);
            known.is_none_or(|it| it.terminating)
        };
        let mut actions = Vec::new();
        for (proxy, members) in look.pools.iter().enumerate() {
            let Some(members) = members else { continue };
            let known: BTreeMap<SocketAddr, &Member> = members
                .iter()
                .filter_map(|it| Some((address_of(&it.url)?, it)))
                .collect();
            for address in &serving {
                match known.get(address) {
                    None => actions.push((proxy, Change::Add, url(*address))),
                    Some(it) if it.is_draining() && self.ours_to_undrain(address) => {
                        actions.push((proxy, Change::Undrain, it.url.clone()));
                    }
                    Some(_) => {}
                }
            }
            // If no server is ready, something else is wrong: the pool stays as it is.
            let ours = known.iter().filter(|(it, _)| self.ours.contains(it));
            for (address, member) in ours.filter(|_| !serving.is_empty()) {
                if serving.contains(address) {
                    continue;
                }
                let since = *self.drained.entry(*address).or_insert(look.now);
                let late = look.now.duration_since(since) > self.drain_time;
                if !member.is_draining() {
                    actions.push((proxy, Change::Drain, member.url.clone()));
                } else if gone(address) && (late || !member.is_busy()) {
                    actions.push((proxy, Change::Remove, member.url.clone()));
                }
            }
        }
        self.drained.retain(|address, _| !serving.contains(address));
        self.forget_servers(look, endpoints);
        actions
            .into_iter()
            .map(|(proxy, change, url)| Action::Pool(proxy, change, url))
            .collect()
    }

    /// A drained server gets requests again if we drained it, or an earlier daemon may have.
    fn ours_to_undrain(&self, address: &SocketAddr) -> bool {
        self.fresh || self.drained.contains_key(address)
    }

    /// Servers that are no endpoints and in no pool are forgotten.
    fn forget_servers(&mut self, look: &Look<'_>, endpoints: &[Endpoint]) {
        if look.pools.iter().any(Option::is_none) {
            return;
        }
        let members = look.pools.iter().flatten().flatten();
        let pooled: BTreeSet<SocketAddr> = members.filter_map(|it| address_of(&it.url)).collect();
        let known = |it: &SocketAddr| {
            pooled.contains(it) || endpoints.iter().any(|endpoint| endpoint.address == *it)
        };
        self.ours.retain(known);
        self.drained.retain(|it, _| known(it));
    }

    /// Whether all victims are marked, and hold no request or had time enough.
    fn are_drained(&mut self, look: &Look<'_>, endpoints: &[Endpoint]) -> bool {
        let victims: Vec<(String, Instant)> = self.victims.clone().into_iter().collect();
        let mut all = true;
        for (pod, since) in victims {
            let found = endpoints.iter().find(|it| it.pod.as_ref() == Some(&pod));
            let late = look.now.duration_since(since) > self.drain_time;
            let marked = !self.marks() || self.marked.contains(&pod);
            let empty = found.is_none_or(|it| self.is_empty(look, &pod, it.address));
            all &= marked && (late || empty);
        }
        all
    }

    /// Whether no proxy has a request at the server, nor would send one.
    fn is_empty(&mut self, look: &Look<'_>, pod: &str, address: SocketAddr) -> bool {
        if look.pools.iter().any(Option::is_none) {
            return false;
        }
        let members = look.pools.iter().flatten().flatten();
        let mut at = members.filter(|it| address_of(&it.url) == Some(address));
        match (self.pool, self.drain) {
            (PoolBy::Plane, _) => at.all(|it| it.is_draining() && !it.is_busy()),
            // The proxies see that a pod is not ready.
            (PoolBy::Proxy, Drain::Readiness) => {
                if at.next().is_some() {
                    self.left_pools.remove(pod);
                    return false;
                }
                let left = self.left_pools.entry(pod.to_owned()).or_insert(look.now);
                look.now.duration_since(*left) >= LEFT_POOL_TIME.min(self.drain_time)
            }
            // They do not see an annotation, nor which pod has the highest number.
            (PoolBy::Proxy, _) => true,
        }
    }
}

/// The address in a URL of a pod.
pub(crate) fn address_of(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    authority.parse().ok().or_else(|| {
        let ip = authority.trim_matches(['[', ']']).parse().ok()?;
        Some(SocketAddr::new(ip, 80))
    })
}

/// The URL of a pod.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN_TIME: Duration = Duration::from_secs(30);

    /// A cluster and one proxy, which do what is asked of them.
    struct World {
        scaler: Scaler,
        now: Instant,
        scale: u32,
        endpoints: Vec<Endpoint>,
        pool: Vec<Member>,
        log: Vec<Action>,
        /// Pods that Kubernetes deletes first.
        marked: Vec<String>,
    }

    fn config(text: &str) -> KubernetesDriverConfig {
        let pool = if text.contains("pool") {
            ""
        } else {
            "pool = 'plane'"
        };
        let text = format!("name = 'shop'\n{pool}\n{text}");
        tidegate_config::parse("driver", &text).expect("valid")
    }

    fn endpoint(number: u8) -> Endpoint {
        Endpoint {
            address: SocketAddr::from(([10, 0, 0, number], 8080)),
            ready: true,
            terminating: false,
            pod: Some(format!("shop-{number}")),
        }
    }

    impl World {
        fn new(text: &str, pods: u8) -> Self {
            let mut world = Self {
                scaler: Scaler::new(&config(text), BTreeSet::new()),
                now: Instant::now(),
                scale: pods.into(),
                endpoints: (1..=pods).map(endpoint).collect(),
                pool: Vec::new(),
                log: Vec::new(),
                marked: Vec::new(),
            };
            world.look();
            world
        }

        /// One look; Kubernetes then deletes pods as it does.
        fn look(&mut self) -> Vec<Action> {
            let pools = [Some(self.pool.clone())];
            let actions = self.scaler.plan(&Look {
                now: self.now,
                scale: Some(self.scale),
                endpoints: Some(&self.endpoints),
                pools: &pools,
            });
            for action in &actions {
                self.act(action);
            }
            self.log.extend(actions.clone());
            self.delete_surplus();
            self.now += Duration::from_secs(1);
            actions
        }

        fn act(&mut self, action: &Action) {
            match action {
                Action::Mark(pod) => {
                    self.marked.push(pod.clone());
                    self.scaler.on_marked(pod);
                }
                Action::Unmark(pod) => {
                    self.marked.retain(|it| it != pod);
                    self.scaler.on_unmarked(pod);
                }
                Action::Scale(scale) => {
                    self.scale = *scale;
                    self.scaler.on_scaled(*scale);
                }
                Action::Pool(_, Change::Add, url) => self.pool.push(Member {
                    url: format!("{url}/"),
                    in_flight: 2,
                    streams: 0,
                    state: "active".into(),
                    healthy: true,
                }),
                Action::Pool(_, Change::Remove, url) => self.pool.retain(|it| it.url != *url),
                Action::Pool(_, change, url) => {
                    let member = self.pool.iter_mut().find(|it| it.url == *url);
                    let member = member.expect("it is in the pool");
                    let drained = *change == Change::Drain;
                    member.state = if drained { "draining" } else { "active" }.into();
                }
            }
        }

        fn delete_surplus(&mut self) {
            while self.endpoints.len() > self.scale as usize {
                let marked =
                    |it: &Endpoint| it.pod.as_ref().is_some_and(|pod| self.marked.contains(pod));
                let index = self.endpoints.iter().position(marked);
                self.endpoints.remove(index.unwrap_or(0));
            }
        }

        fn set(&mut self, to: u32) {
            if let Some(scale) = self.scaler.set(self.scale, to) {
                self.scale = scale;
                self.scaler.on_scaled(scale);
            }
        }

        fn finish_requests(&mut self) {
            for member in &mut self.pool {
                if member.is_draining() {
                    member.in_flight = 0;
                }
            }
        }

        fn pooled(&self) -> Vec<String> {
            let shown = |it: &Member| format!("{} {}", it.url, it.state);
            self.pool.iter().map(shown).collect()
        }
    }

    #[test]
    fn more_servers_are_set_at_once_and_pooled_when_they_are_ready() {
        let mut world = World::new("", 2);
        assert_eq!(world.pool.len(), 2);
        world.set(4);
        assert_eq!((world.scale, world.scaler.desired()), (4, Some(4)));
        world.endpoints.push(Endpoint {
            ready: false,
            ..endpoint(3)
        });
        world.look();
        assert_eq!((world.pool.len(), world.scaler.ready()), (2, 2));
        world.endpoints[2].ready = true;
        world.look();
        world.look();
        assert_eq!((world.pool.len(), world.scaler.ready()), (3, 3));
        assert_eq!(world.look(), [], "nothing is due twice");
    }

    #[test]
    fn servers_are_marked_and_drained_before_the_scale_is_set() {
        let mut world = World::new("", 4);
        world.pool[1].in_flight = 0; // shop-2 holds the fewest requests
        world.pool[3].in_flight = 1;
        world.set(2);
        assert_eq!((world.scale, world.scaler.desired()), (4, Some(2)));
        world.look();
        assert_eq!(world.marked, ["shop-2", "shop-4"]);
        let drained: Vec<_> = world.pool.iter().filter(|it| it.is_draining()).collect();
        assert_eq!(drained.len(), 2);
        for _ in 0..5 {
            world.look();
            assert_eq!(world.scale, 4, "shop-4 holds a request");
        }
        world.finish_requests();
        world.look();
        assert_eq!(world.scale, 2);
        world.look();
        let left: Vec<_> = world
            .endpoints
            .iter()
            .filter_map(|it| it.pod.clone())
            .collect();
        assert_eq!(left, ["shop-1", "shop-3"]);
        world.look();
        assert_eq!(
            world.pooled(),
            [
                "http://10.0.0.1:8080/ active",
                "http://10.0.0.3:8080/ active"
            ]
        );
        assert_eq!(world.look(), []);
    }

    #[test]
    fn server_that_keeps_its_requests_is_given_back_after_the_drain_time() {
        let mut world = World::new("", 2);
        world.set(1);
        let begun = world.now;
        while world.scale == 2 {
            world.look();
            assert!(world.now - begun < 2 * DRAIN_TIME);
        }
        assert!(world.now - begun > DRAIN_TIME);
    }

    #[test]
    fn scale_that_somebody_else_set_ends_the_preparation() {
        let mut world = World::new("", 4);
        world.set(2);
        world.look();
        assert_eq!(world.marked.len(), 2);
        world.scale = 5;
        world.look();
        assert_eq!(world.scaler.desired(), Some(5));
        world.look();
        assert!(world.marked.is_empty());
        assert!(
            world.pool.iter().all(|it| !it.is_draining()),
            "{:?}",
            world.pooled()
        );
    }

    #[test]
    fn more_servers_wanted_while_fewer_are_prepared_takes_the_preparation_back() {
        let mut world = World::new("", 4);
        world.set(2);
        world.look();
        world.set(4);
        world.look();
        assert!(world.marked.is_empty(), "{:?}", world.log);
        assert!(
            world.pool.iter().all(|it| !it.is_draining()),
            "{:?}",
            world.pooled()
        );
        assert_eq!(world.scale, 4);
    }

    #[test]
    fn marks_and_drains_of_a_daemon_that_died_are_taken_back() {
        let mut world = World::new("", 3);
        world.set(2);
        world.look();
        // Another daemon takes over, with what the first one left.
        let marked = world.marked.clone();
        world.scaler = Scaler::new(&config(""), BTreeSet::new());
        world.scaler.on_found_marks(marked);
        world.look();
        assert!(world.marked.is_empty());
        assert!(
            world.pool.iter().all(|it| !it.is_draining()),
            "{:?}",
            world.pooled()
        );
        // What an operator drains from now on stays drained.
        world.pool[0].state = "draining".into();
        world.look();
        assert!(world.pool[0].is_draining());
    }

    #[test]
    fn pools_stay_while_no_server_is_ready_or_nothing_is_known() {
        let mut world = World::new("", 2);
        for endpoint in &mut world.endpoints {
            endpoint.ready = false;
        }
        assert_eq!(world.look(), []);
        let unknown = Look {
            now: world.now,
            scale: None,
            endpoints: None,
            pools: &[Some(world.pool.clone())],
        };
        assert_eq!(world.scaler.plan(&unknown), []);
        world.endpoints[0].ready = true;
        let actions = world.look();
        assert_eq!(
            actions,
            [Action::Pool(
                0,
                Change::Drain,
                "http://10.0.0.2:8080/".into()
            )]
        );
        world.endpoints[1].ready = true;
        world.look();
        assert!(world.pool.iter().all(|it| !it.is_draining()));
    }

    #[test]
    fn stateful_set_gives_back_the_highest_number_without_marks() {
        let mut world = World::new("kind = 'StatefulSet'", 12);
        world.set(10);
        let actions = world.look();
        let expected = ["http://10.0.0.11:8080/", "http://10.0.0.12:8080/"];
        let expected = expected.map(|url| Action::Pool(0, Change::Drain, url.into()));
        assert_eq!(actions, expected);
        world.finish_requests();
        world.look();
        assert_eq!(world.scale, 10);
    }

    #[test]
    fn without_draining_the_scale_is_set_at_once() {
        let mut world = World::new("drain = 'none'", 4);
        world.set(1);
        assert_eq!(world.scale, 1);
        world.look();
        assert!(world.marked.is_empty());
    }

    #[test]
    fn proxies_that_follow_the_service_are_left_alone() {
        let mut world = World::new("pool = 'proxy'\ndrain = 'readiness'", 3);
        assert!(world.pool.is_empty());
        let member = |number: u8| Member {
            url: url(endpoint(number).address),
            in_flight: 1,
            streams: 0,
            state: "active".into(),
            healthy: true,
        };
        world.pool = (1..=3).map(member).collect();
        world.set(2);
        assert_eq!(world.look(), [Action::Mark("shop-1".into())]);
        world.look();
        assert_eq!(world.scale, 3, "the proxy still has it");
        world.endpoints[0].ready = false;
        world.pool.remove(0);
        for _ in 0..LEFT_POOL_TIME.as_secs() {
            world.look();
            assert_eq!(world.scale, 3, "it may hold requests");
        }
        world.look();
        assert_eq!(world.scale, 2);
    }

    #[test]
    fn pods_that_proxies_follow_are_marked_and_given_back_by_their_own_grace_period() {
        let mut world = World::new("pool = 'proxy'", 3);
        world.set(2);
        assert_eq!(
            world.look(),
            [Action::Mark("shop-1".into())],
            "the scale is set once the mark is written"
        );
        assert_eq!(world.look(), [Action::Scale(2)]);
    }

    #[test]
    fn addresses_are_read_from_urls_of_any_spelling() {
        let v4 = Some(SocketAddr::from(([10, 0, 0, 1], 80)));
        assert_eq!(address_of("http://10.0.0.1/"), v4);
        assert_eq!(address_of("http://10.0.0.1:80"), v4);
        assert_eq!(
            address_of("http://[fd00::1]:8080/"),
            "[fd00::1]:8080".parse().ok()
        );
        assert_eq!(address_of("unix:/run/app"), None);
        assert_eq!(url(endpoint(1).address), "http://10.0.0.1:8080");
    }
}
