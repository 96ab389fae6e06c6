//! Connections that wait without a task are served like all others.

use tidegate_proxy::Running;
use tidegate_proxy::config::Config;

use crate::support::*;

const SHEDS: &str = "protect.mode = 'static'\nprotect.static.share = '0%'";

/// Refusals after which a connection rests, and a few more.
const MANY: usize = 12;

fn resting(proxy: &Running) -> u64 {
    proxy.state().metrics().totals().resting
}

/// A proxy that sheds everything, and a client of it that rests.
async fn refused() -> (Service, Running, Client) {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], SHEDS);
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..MANY {
        assert_eq!(client.ask(GET).await.status, 503);
    }
    eventually("it rests", || resting(&proxy) == 1).await;
    (service, proxy, client)
}

/// A proxy that lets everything in, and a client of it that has been idle.
async fn idle(extra: &str) -> (Service, Running, Client) {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], extra);
    let mut client = Client::connect(proxy.local_addr()).await;
    assert_eq!(client.ask(GET).await.status, 200);
    eventually("it rests", || resting(&proxy) == 1).await;
    (service, proxy, client)
}

/// Lets everything in from now on, or nothing.
fn set_mode(proxy: &Running, service: &Service, mode: &str) {
    let text = format!(
        "upstream = 'http://{}'\nadmin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\n{mode}",
        service.addr
    );
    let config = Config::from_text("test.toml", &text).unwrap();
    proxy.state().apply(config).unwrap();
}

#[tokio::test]
async fn who_rests_is_refused_until_there_is_room() {
    let (service, proxy, mut client) = refused().await;
    for accept in ["text/html", "application/json", "text/plain"] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\naccept: {accept}\r\n\r\n");
        let answer = client.ask(request).await;
        assert_eq!(answer.status, 503);
        assert!(answer.header("content-type").unwrap().starts_with(accept));
    }
    assert_eq!(resting(&proxy), 1, "it rests all the while");

    set_mode(&proxy, &service, "protect.mode = 'off'");
    for _ in 0..MANY {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert_eq!(resting(&proxy), 0, "it has a task again");

    set_mode(&proxy, &service, SHEDS);
    for _ in 0..MANY {
        assert_eq!(client.ask(GET).await.status, 503);
    }
    eventually("it rests again", || resting(&proxy) == 1).await;
}

#[tokio::test]
async fn requests_that_come_together_or_in_pieces_are_all_answered() {
    let (_service, proxy, mut client) = refused().await;
    client.send(GET.repeat(5)).await;
    for _ in 0..5 {
        assert_eq!(client.answer().await.status, 503);
    }
    for _ in 0..MANY {
        let (first, rest) = GET.split_at(20);
        client.send(first).await;
        tokio::task::yield_now().await;
        client.send(rest).await;
        assert_eq!(client.answer().await.status, 503);
    }
    // More than is read at once, and then the head of another.
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(6000));
    client.send(long + GET).await;
    assert_eq!(client.answer().await.status, 503);
    assert_eq!(client.answer().await.status, 503);
    eventually("it rests again", || resting(&proxy) == 1).await;
}

#[tokio::test]
async fn what_is_more_than_a_refusal_is_done_as_ever() {
    let (service, proxy, mut client) = refused().await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
    for _ in 0..3 {
        assert_eq!(client.ask(post).await.status, 503);
    }
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.try_answer(true).await.unwrap().status, 503);
    let last = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = client.ask(last).await;
    assert_eq!(
        (answer.status, answer.header("connection")),
        (503, Some("close"))
    );
    assert!(client.is_closed().await);

    let mut other = Client::connect(proxy.local_addr()).await;
    for _ in 0..MANY {
        other.ask(GET).await;
    }
    eventually("it rests", || resting(&proxy) == 1).await;
    assert_eq!(other.ask("no request\r\n\r\n").await.status, 400);
    assert!(other.is_closed().await);
    assert_eq!(service.count(), 0);
}

#[tokio::test]
async fn who_was_idle_is_served_and_may_be_idle_again() {
    let (_service, proxy, mut client) = idle("").await;
    assert_eq!(client.ask(GET).await.status, 200);
    eventually("it rests again", || resting(&proxy) == 1).await;
}

#[tokio::test]
async fn who_is_idle_for_too_long_is_let_go() {
    let (_service, proxy, mut client) = idle("timeouts.client_idle = '2s'").await;
    assert!(client.is_closed().await);
    eventually("nobody is left", || proxy.state().connections() == 0).await;
    assert_eq!(resting(&proxy), 0);
}

#[tokio::test]
async fn who_leaves_while_it_rests_is_forgotten() {
    let (_service, proxy, client) = refused().await;
    drop(client);
    eventually("nobody is left", || proxy.state().connections() == 0).await;
    assert_eq!(resting(&proxy), 0);
}

#[tokio::test]
async fn a_shutdown_lets_those_go_who_rest_and_hears_their_last_words() {
    let (_service, mut proxy, mut client) = refused().await;
    let mut speaks = Client::connect(proxy.local_addr()).await;
    for _ in 0..MANY {
        speaks.ask(GET).await;
    }
    eventually("both rest", || resting(&proxy) == 2).await;
    proxy.shut_down();
    let answer = speaks.ask(GET).await;
    assert_eq!(
        (answer.status, answer.header("connection")),
        (503, Some("close"))
    );
    assert!(client.is_closed().await);
    within(proxy.finished()).await;
}

#[tokio::test]
async fn more_than_one_turn_of_clients_are_all_answered() {
    let (_service, proxy, _client) = refused().await;
    let mut clients = Vec::new();
    for _ in 0..150 {
        clients.push(Client::connect(proxy.local_addr()).await);
    }
    for round in 0..MANY + 20 {
        for client in &mut clients {
            client.send(GET).await;
        }
        for client in &mut clients {
            assert_eq!(client.answer().await.status, 503, "round {round}");
        }
    }
    eventually("all rest", || resting(&proxy) == 151).await;
}
