//! Shutting down and reloading lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_proxy::config::Config;
use tidegate_proxy::{BindError, Proxy};

use crate::support::*;

#[tokio::test]
async fn what_is_in_flight_is_finished_and_told_to_close() {
    let (service, permits) = Service::held().await;
    let mut proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let mut client = Client::connect(addr).await;
    client.send(GET).await;
    eventually("it is in service", || service.count() == 1).await;
    proxy.shut_down();
    permits.add_permits(1);
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close"))
    );
    assert!(client.is_closed().await);
    within(proxy.finished()).await;
    assert!(
        tokio::net::TcpStream::connect(addr).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn busy_connections_lose_no_request() {
    let service = Service::echo().await;
    let mut proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for _ in 0..20 {
        let answered = Arc::clone(&answered);
        clients.push(tokio::spawn(async move {
            let mut client = Client::connect(addr).await;
            loop {
                // A client without a `close` may send, and is answered.
                let answer = client.ask(GET).await;
                assert_eq!(answer.status, 200);
                answered.fetch_add(1, Ordering::SeqCst);
                if answer.header("connection") == Some("close") {
                    return;
                }
            }
        }));
    }
    eventually("traffic flows", || answered.load(Ordering::SeqCst) > 200).await;
    proxy.shut_down();
    for client in clients {
        within(client).await.unwrap();
    }
    within(proxy.finished()).await;
}

#[tokio::test]
async fn who_has_connected_and_not_spoken_yet_is_answered() {
    let service = Service::echo().await;
    for defers in [true, false] {
        let mut proxy = proxy_from(&format!(
            "admin = 'off'\nupstream = 'http://{}'\n\
             listen = {{ addr = '127.0.0.1:0', defer_accept = {defers} }}",
            service.addr
        ));
        let mut client = Client::connect(proxy.local_addr()).await;
        proxy.shut_down();
        let answer = client.ask(GET).await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("close"))
        );
        within(proxy.finished()).await;
    }
}

#[tokio::test]
async fn idle_connections_are_let_go_and_stuck_ones_cut_off() {
    let service = Service::start(|_| async { std::future::pending::<Reply>().await }).await;
    let mut proxy = proxy(&[service.addr], "timeouts.grace = '1500ms'");
    let mut idle = Client::connect(proxy.local_addr()).await;
    let mut stuck = Client::connect(proxy.local_addr()).await;
    stuck.send(GET).await;
    eventually("it is in service", || service.count() == 1).await;
    proxy.shut_down();
    assert!(idle.is_closed().await);
    within(proxy.finished()).await;
    assert!(stuck.is_closed().await);
}

#[tokio::test]
async fn reloads_under_load_lose_nothing() {
    let services = [
        Service::echo().await,
        Service::echo().await,
        Service::echo().await,
    ];
    let addrs = services.each_ref().map(|service| service.addr);
    let proxy = proxy(&addrs[..2], "");
    let addr = proxy.local_addr();
    let stop = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut client = Client::connect(addr).await;
                while stop.load(Ordering::SeqCst) == 0 {
                    assert_eq!(
                        client
                            .ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
                            .await
                            .status,
                        200
                    );
                }
            })
        })
        .collect();
    for round in 0..100 {
        let mut config: Config = (*proxy.state().config()).clone();
        let pair = [addrs[round % 3], addrs[(round + 1) % 3]];
        config.upstream.replicas = pair
            .map(|addr| format!("http://{addr}").parse().unwrap())
            .to_vec();
        proxy.state().apply(config).unwrap();
        let seen = services.iter().map(Service::count).sum::<usize>();
        eventually("traffic flows", || {
            services.iter().map(Service::count).sum::<usize>() > seen + 5
        })
        .await;
    }
    stop.store(1, Ordering::SeqCst);
    for client in clients {
        within(client).await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_bound_is_said_with_a_remedy() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let text = format!(
        "admin = 'off'\nlisten = '{addr}'\nupstream = 'http://{}'",
        service.addr
    );
    let error = Proxy::bind(Config::from_text("t.toml", &text).unwrap()).unwrap_err();
    assert!(matches!(error, BindError::Listen(_)));
    let message = error.to_string();
    assert!(
        message.contains(&addr.to_string()) && message.contains("choose another port"),
        "{message}"
    );
}
