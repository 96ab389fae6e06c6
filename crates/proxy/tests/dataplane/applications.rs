//! Several applications behind one listener, and pools that change while requests are inside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_proxy::Running;
use tidegate_proxy::config::Config;
use tidegate_proxy::pool::{Member, MemberState, PoolCommand};
use tidegate_sentry::PhaseName;

use crate::support::{Client, Service, ask, eventually, proxy, proxy_from, text, within};

const TOP: &str = "admin = 'off'\nthreads = 2\nlisten = '127.0.0.1:0'\n";

async fn named(name: &'static str) -> Service {
    Service::start(move |_| async move { text(name) }).await
}

fn application(name: &str, keys: &str, replicas: &[SocketAddr]) -> String {
    let urls = replicas.iter().map(|addr| format!("'http://{addr}'"));
    let urls = urls.collect::<Vec<_>>().join(", ");
    format!("[[application]]\nname = '{name}'\nupstream = [{urls}]\n{keys}\n")
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

async fn asked(proxy: &Running, host: &str, path: &str) -> (u16, String) {
    let answer = ask(proxy.local_addr(), get(host, path)).await;
    (answer.status, answer.text())
}

#[tokio::test]
async fn host_and_path_choose_the_application() {
    let (shop, api, rest) = (named("shop").await, named("api").await, named("rest").await);
    let file = [
        TOP.to_owned(),
        application(
            "shop",
            "hosts = ['shop.example', '*.shop.example']",
            &[shop.addr],
        ),
        application(
            "api",
            "hosts = ['shop.example']\npaths = ['/api']",
            &[api.addr],
        ),
        application("health", "paths = ['/health']", &[rest.addr]),
    ];
    let proxy = proxy_from(&file.concat());
    for (host, path, expected) in [
        ("shop.example", "/", "shop"),
        ("Shop.Example:8080", "/apis", "shop"),
        ("de.shop.example", "/api", "shop"),
        ("shop.example", "/api/users?x=1", "api"),
        ("other.example", "/health", "rest"),
    ] {
        let answer = asked(&proxy, host, path).await;
        assert_eq!(answer, (200, expected.to_owned()), "{host}{path}");
    }
    let (status, said) = asked(&proxy, "other.example", "/").await;
    assert_eq!(status, 404, "{said}");
    assert!(said.contains("no application"), "{said}");
    assert_eq!(proxy.state().metrics().totals().unrouted, 1);
    let shop = proxy.state().application("shop").unwrap();
    assert_eq!(shop.metrics().totals().responses[1], 3);
}

#[tokio::test]
async fn request_without_application_keeps_its_connection_and_its_body_apart() {
    let shop = named("shop").await;
    let file = TOP.to_owned() + &application("shop", "hosts = ['shop.example']", &[shop.addr]);
    let proxy = proxy_from(&file);
    let mut client = Client::connect(proxy.local_addr()).await;
    assert_eq!(client.ask(get("other.example", "/")).await.status, 404);
    assert_eq!(client.ask(get("shop.example", "/")).await.status, 200);
    let post = "POST / HTTP/1.1\r\nhost: other.example\r\ncontent-length: 5\r\n\r\nhello";
    assert_eq!(ask(proxy.local_addr(), post).await.status, 404);
    let two = "GET / HTTP/1.1\r\nhost: shop.example\r\nhost: other.example\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), two).await.status, 400);
}

#[tokio::test]
async fn default_application_gets_what_fits_none() {
    let (shop, rest) = (named("shop").await, named("rest").await);
    let file = [
        "default_application = 'rest'\n".to_owned() + TOP,
        application("shop", "hosts = ['shop.example']", &[shop.addr]),
        application("rest", "hosts = ['rest.example']", &[rest.addr]),
    ];
    let proxy = proxy_from(&file.concat());
    assert_eq!(asked(&proxy, "other", "/").await, (200, "rest".to_owned()));
    assert_eq!(proxy.state().metrics().totals().unrouted, 0);
}

/// One application has no slot left and no room to wait; the others do not notice.
#[tokio::test]
async fn overload_of_one_application_leaves_the_others_alone() {
    let (busy, permits) = Service::held().await;
    let (fast, off) = (named("fast").await, named("off").await);
    let full = "hosts = ['busy']\nprotect = { mode = 'static', static.window = 100, \
                limits.slots = 1, queue.max_requests = 1, target = '20s' }";
    let file = [
        TOP.to_owned(),
        application("busy", full, &[busy.addr]),
        application("fast", "hosts = ['fast']", &[fast.addr]),
        application("off", "hosts = ['off']\nprotect.mode = 'off'", &[off.addr]),
    ];
    let proxy = Arc::new(proxy_from(&file.concat()));
    let addr = proxy.local_addr();
    let inside: Vec<_> = (0..2)
        .map(|_| tokio::spawn(ask(addr, get("busy", "/"))))
        .collect();
    let its = proxy.state().application("busy").unwrap();
    eventually("one inside and one waiting", || {
        let status = its.sentry().status(its.now());
        (status.replicas[0].in_flight, status.queue.requests) == (1, 1)
    })
    .await;
    for _ in 0..50 {
        assert_eq!(asked(&proxy, "busy", "/").await.0, 503);
        assert_eq!(asked(&proxy, "fast", "/").await.0, 200);
        assert_eq!(asked(&proxy, "off", "/").await.0, 200);
    }
    let shed = |name: &str| -> u64 {
        let application = proxy.state().application(name).unwrap();
        let classes = application.sentry().status(application.now()).classes;
        classes[0].shed.iter().map(|(_, count)| count).sum()
    };
    assert_eq!((shed("busy"), shed("fast"), shed("off")), (50, 0, 0));
    permits.add_permits(2);
    for answer in inside {
        assert_eq!(within(answer).await.unwrap().status, 200);
    }
}

/// Many clients at once for each of three applications with different modes. What each engine
/// counted is what its own clients met with.
#[tokio::test]
async fn three_modes_on_one_listener_under_load_decide_each_for_themselves() {
    const CLIENTS: usize = 12;
    const EACH: usize = 25;
    let services = [
        Service::echo().await,
        Service::echo().await,
        Service::echo().await,
    ];
    let [tight, auto, off] = services.each_ref().map(|service| service.addr);
    let full = "hosts = ['tight']\nprotect = { mode = 'static', static.window = 100, \
                limits.slots = 1, queue.max_requests = 1, target = '20s' }";
    let file = [
        TOP.to_owned(),
        application("tight", full, &[tight]),
        application("auto", "hosts = ['auto']\nprotect.target = '20s'", &[auto]),
        application("off", "hosts = ['off']\nprotect.mode = 'off'", &[off]),
    ];
    let proxy = proxy_from(&file.concat());
    let addr = proxy.local_addr();
    let client = |host: &'static str| async move {
        let mut client = Client::connect(addr).await;
        let mut statuses = Vec::new();
        for _ in 0..EACH {
            statuses.push(client.ask(get(host, "/")).await.status);
        }
        statuses
    };
    let crowds = ["tight", "auto", "off"].map(|host| {
        let clients = (0..CLIENTS).map(|_| tokio::spawn(client(host)));
        (host, clients.collect::<Vec<_>>())
    });
    for (host, clients) in crowds {
        let mut statuses = Vec::new();
        for client in clients {
            statuses.extend(within(client).await.unwrap());
        }
        let count = |status| statuses.iter().filter(|&&it| it == status).count() as u64;
        let (served, refused) = (count(200), count(503));
        assert_eq!(
            served + refused,
            (CLIENTS * EACH) as u64,
            "{host}: {statuses:?}"
        );
        let its = proxy.state().application(host).unwrap();
        let class = || its.sentry().status(its.now()).classes.remove(0);
        eventually("the last answer is counted", || class().served == served).await;
        let shed: u64 = class().shed.iter().map(|(_, count)| count).sum();
        assert_eq!(
            (class().arrived, shed),
            (served + refused, refused),
            "{host}"
        );
        if host == "tight" {
            assert!(refused > 0, "one is inside, one waits, and ten ask");
        } else {
            assert_eq!(refused, 0, "{host}");
        }
    }
}

/// One application whose requests do not end holds half of the client connections and its share of
/// the other half; others have theirs.
#[tokio::test]
async fn client_connections_have_a_share_for_each_application() {
    let ((stuck, permits), other) = (Service::held().await, named("other").await);
    let endless = "hosts = ['stuck']\nprotect.mode = 'off'";
    let file = [
        "listen = '127.0.0.1:0'\nthreads = 1\nlimits.connections = 12\n\
         limits.connections_per_address = '100%'\n"
            .to_owned(),
        application("stuck", endless, &[stuck.addr]),
        application("other", "hosts = ['other']", &[other.addr]),
    ];
    let proxy = proxy_from(&file.concat());
    let addr = proxy.local_addr();
    let mut inside = Vec::new();
    // Six are for the first that come, and three of the other six are its own.
    for number in 1..=6 {
        inside.push(tokio::spawn(ask(addr, get("stuck", "/"))));
        eventually("it is inside", || stuck.count() == number).await;
    }
    let refused = ask(addr, get("stuck", "/")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("connection"), Some("close"));
    for _ in 0..20 {
        assert_eq!(asked(&proxy, "other", "/").await.0, 200);
    }
    permits.add_permits(6);
    for answer in inside {
        assert_eq!(within(answer).await.unwrap().status, 200);
    }
    permits.add_permits(1);
    assert_eq!(asked(&proxy, "stuck", "/").await.0, 200);
}

/// Clients that ask one host without a pause until they are told to stop.
struct Crowd {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn of(addr: SocketAddr, host: &'static str) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..4).map(|_| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            tokio::spawn(async move {
                let mut client = Client::connect(addr).await;
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.ask(get(host, "/")).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    served.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let clients = clients.collect();
        Self {
            stop,
            served,
            clients,
        }
    }

    /// Waits for some more requests to be served.
    async fn go_on(&self) {
        let now = self.served.load(Ordering::SeqCst);
        eventually("more requests", || {
            self.served.load(Ordering::SeqCst) > now + 20
        })
        .await;
    }

    /// Fails if one request was not answered with 200.
    async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            within(client).await.unwrap();
        }
    }
}

#[tokio::test]
async fn reload_that_adds_changes_and_removes_applications_loses_no_request() {
    let (a, b, c) = (named("a").await, named("b").await, named("c").await);
    let (slow, permits) = Service::held().await;
    let stays = |mode: &str| {
        application(
            "stays",
            &format!("hosts = ['a']\nprotect.mode = '{mode}'"),
            &[a.addr],
        )
    };
    let goes = application("goes", "hosts = ['slow']", &[slow.addr]);
    let comes = application("comes", "hosts = ['c']", &[c.addr]);
    let first = [TOP.to_owned(), stays("auto"), goes].concat();
    let second = [TOP.to_owned(), comes, stays("off")].concat();
    let moved = application("stays", "hosts = ['a']", &[b.addr]);
    let third = [TOP.to_owned(), moved].concat();
    let proxy = proxy_from(&first);
    let addr = proxy.local_addr();
    let apply = |text: &str| {
        let config = Config::from_text("t.toml", text).unwrap();
        proxy.state().apply(config).unwrap();
    };
    let crowd = Crowd::of(addr, "a");
    let inside = tokio::spawn(ask(addr, get("slow", "/")));
    eventually("it is inside", || slow.count() == 1).await;
    crowd.go_on().await;
    apply(&second);
    crowd.go_on().await;
    assert_eq!(asked(&proxy, "c", "/").await, (200, "c".to_owned()));
    assert_eq!(asked(&proxy, "slow", "/").await.0, 404);
    permits.add_permits(1);
    assert_eq!(
        within(inside).await.unwrap().status,
        200,
        "its application is gone"
    );
    apply(&third);
    crowd.go_on().await;
    assert_eq!(asked(&proxy, "a", "/").await, (200, "b".to_owned()));
    crowd.end().await;
}

/// A request may be admitted to a new replica before the settings that name it are in force.
#[tokio::test]
async fn reload_that_replaces_all_replicas_loses_no_request() {
    let (a, b) = (named("a").await, named("b").await);
    let file = |addr| {
        [
            TOP.to_owned(),
            application("shop", "hosts = ['a']", &[addr]),
        ]
        .concat()
    };
    let proxy = proxy_from(&file(a.addr));
    let crowd = Crowd::of(proxy.local_addr(), "a");
    for addr in [b.addr, a.addr].into_iter().cycle().take(100) {
        tokio::task::yield_now().await;
        let config = Config::from_text("t.toml", &file(addr)).unwrap();
        proxy.state().apply(config).unwrap();
    }
    crowd.end().await;
}

#[tokio::test]
async fn reload_is_whole_or_not_at_all_over_applications() {
    let (a, b) = (named("a").await, named("b").await);
    let file = |wrong: &str, target: &str| {
        let first = format!("hosts = ['a']\nprotect.target = '{target}'");
        let second = format!("hosts = ['b']\n{wrong}");
        let config = [
            TOP.to_owned(),
            application("first", &first, &[a.addr]),
            application("second", &second, &[b.addr]),
        ];
        config.concat()
    };
    let proxy = proxy_from(&file("", "1s"));
    let target = || {
        let first = proxy.state().application("first").unwrap();
        first.sentry().config().target.unwrap().as_millis()
    };
    let wrong = file("protect.mode = 'static'", "2s");
    let config = Config::from_text("t.toml", &wrong).unwrap();
    let error = proxy.state().apply(config).unwrap_err();
    assert!(
        error.to_string().contains("application `second`"),
        "{error}"
    );
    assert_eq!(target(), 1000, "the first application is as it was");
    let crowded: Vec<_> = (1..=10_001)
        .map(|port| ([10, 0, 0, 1], port).into())
        .collect();
    let first = "hosts = ['a']\nprotect.target = '2s'";
    let too_many = [
        TOP.to_owned(),
        application("first", first, &[a.addr]),
        application("second", "hosts = ['b']", &crowded),
    ];
    let config = Config::from_text("t.toml", &too_many.concat()).unwrap();
    let error = proxy.state().apply(config).unwrap_err();
    assert!(error.to_string().contains("replicas"), "{error}");
    assert_eq!(target(), 1000, "the first application is as it was");
    assert_eq!(asked(&proxy, "b", "/").await, (200, "b".to_owned()));
    let config = Config::from_text("t.toml", &file("", "3s")).unwrap();
    proxy.state().apply(config).unwrap();
    assert_eq!(target(), 3000);
}

fn member(addr: SocketAddr, state: MemberState) -> Member {
    Member {
        url: format!("http://{addr}").parse().unwrap(),
        weight: std::num::NonZeroU32::MIN,
        state,
    }
}

fn set_pool(proxy: &Running, members: Vec<Member>) {
    let put = PoolCommand::Put(members);
    let set = proxy.state().change_pool("default", &put);
    assert!(set.unwrap().is_some());
}

#[tokio::test]
async fn pool_that_changes_under_load_loses_no_request() {
    let (a, b, c) = (named("a").await, named("b").await, named("c").await);
    let proxy = proxy(&[a.addr], "");
    let crowd = Crowd::of(proxy.local_addr(), "x");
    let active = |service: &Service| member(service.addr, MemberState::Active);
    crowd.go_on().await;
    set_pool(&proxy, vec![active(&a), active(&b)]);
    eventually("the new one gets requests", || b.count() > 10).await;
    set_pool(&proxy, vec![active(&c), active(&b)]);
    let before = a.count();
    eventually("the third one gets requests", || c.count() > 10).await;
    crowd.go_on().await;
    assert!(
        a.count() <= before + 4,
        "it was removed: {} {before}",
        a.count()
    );
    let drained = member(b.addr, MemberState::Draining);
    set_pool(&proxy, vec![active(&c), drained]);
    let before = b.count();
    crowd.go_on().await;
    assert!(
        b.count() <= before + 4,
        "it is drained: {} {before}",
        b.count()
    );
    set_pool(&proxy, vec![active(&c), active(&b)]);
    let before = b.count();
    eventually("it gets requests again", || b.count() > before + 10).await;
    crowd.end().await;
}

#[tokio::test]
async fn draining_replica_finishes_what_is_inside() {
    let ((slow, permits), other) = (Service::held().await, named("other").await);
    let proxy = proxy(&[slow.addr], "");
    let inside = tokio::spawn(ask(proxy.local_addr(), get("x", "/")));
    eventually("it is inside", || slow.count() == 1).await;
    let drained = member(slow.addr, MemberState::Draining);
    set_pool(
        &proxy,
        vec![drained, member(other.addr, MemberState::Active)],
    );
    assert_eq!(asked(&proxy, "x", "/").await, (200, "other".to_owned()));
    permits.add_permits(1);
    assert_eq!(within(inside).await.unwrap().text(), "served");
    assert_eq!(slow.count(), 1);
}

#[tokio::test]
async fn sticky_session_moves_on_when_its_replica_is_drained_and_stays_there() {
    let (a, b) = (named("a").await, named("b").await);
    let proxy = proxy(&[a.addr, b.addr], "sticky.cookie = 'lane'");
    let mut client = Client::connect(proxy.local_addr()).await;
    let cookie_of = |answer: &tidegate_testing::Answer| {
        let set = answer.header("set-cookie")?;
        set.split(';').next().map(str::to_owned)
    };
    let first = client.ask(get("x", "/")).await;
    let cookie = cookie_of(&first).unwrap();
    let with = |cookie: &str| format!("GET / HTTP/1.1\r\nhost: x\r\ncookie: {cookie}\r\n\r\n");
    let (lane, other) = if first.text() == "a" {
        (&a, &b)
    } else {
        (&b, &a)
    };
    let drained = member(lane.addr, MemberState::Draining);
    let active = member(other.addr, MemberState::Active);
    set_pool(&proxy, vec![drained, active.clone()]);
    let moved = client.ask(with(&cookie)).await;
    assert_ne!(moved.text(), first.text());
    let cookie = cookie_of(&moved).unwrap();
    set_pool(&proxy, vec![member(lane.addr, MemberState::Active), active]);
    for _ in 0..20 {
        let answer = client.ask(with(&cookie)).await;
        assert_eq!(answer.text(), moved.text(), "it does not move back");
    }
}

/// More requests than the first window holds wait at the replica until its window has grown.
#[tokio::test]
async fn serving_proxy_adapts_without_anything_beside_it() {
    let (service, permits) = Service::held().await;
    let proxy = proxy(&[service.addr], "protect.mode = 'auto'");
    let address = proxy.local_addr();
    let application = proxy.state().first();
    let replica = || application.sentry().status(application.now()).replicas[0].clone();
    let first = replica().window.expect("mode `auto` has a window");
    let waiting: Vec<_> = (0..2 * first)
        .map(|_| tokio::spawn(ask(address, get("x", "/"))))
        .collect();
    let full = || service.count() >= first as usize;
    eventually("the first window is full", full).await;
    // Each that is answered makes room for two: slow start. Some wait at every tick.
    let ticks = || application.metrics().totals().ticks.count();
    let mut last = ticks();
    let mut moved = || {
        if ticks() > last {
            last = ticks();
            permits.add_permits(1);
        }
        let now = replica();
        now.phase != Some(PhaseName::Idle) && now.window > Some(first)
    };
    eventually("the window moves", &mut moved).await;
    permits.add_permits(waiting.len());
    for request in waiting {
        within(request).await.unwrap();
    }
}
