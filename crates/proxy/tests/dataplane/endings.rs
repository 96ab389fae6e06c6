//! What became of a request that was not served is found by its id.

use tidegate_proxy::Running;
use tidegate_proxy::metrics::{Ending, Failing, Outcome};

use crate::support::*;

const TRUST: &str = "forward.trust = ['127.0.0.0/8']";

fn named(path: &str, id: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-request-id: {id}\r\n\r\n")
}

fn found(proxy: &Running, id: &str) -> Option<Failing> {
    match proxy.state().metrics().find_request(id)?.ending {
        Ending::Other(failing) => Some(failing),
        Ending::Shed(refusal) => panic!("{refusal:?}"),
    }
}

#[tokio::test]
async fn request_that_a_replica_fails_is_found_with_the_replica() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = proxy(&[service], "timeouts.request = '200ms'");
    let answer = ask(proxy.local_addr(), GET).await;
    assert_eq!(answer.status, 504);
    let failing = found(&proxy, answer.header("x-request-id").unwrap()).unwrap();
    assert_eq!(
        (failing.outcome, failing.reason),
        (Outcome::Failed, "deadline")
    );
    assert_eq!(failing.status, 504);
    assert!(failing.replica.is_some() && failing.class.is_some());
    assert!(failing.took.as_millis() >= 200, "{:?}", failing.took);
}

#[tokio::test]
async fn request_beyond_a_quota_is_found_with_the_quota() {
    let service = Service::echo().await;
    let quota = "[[edge.quotas]]\nname = 'login'\nrate = '1/h'\nburst = 1";
    let proxy = proxy(&[service.addr], &format!("{TRUST}\n{quota}"));
    let mut client = Client::connect(proxy.local_addr()).await;
    assert_eq!(client.ask(named("/", "first")).await.status, 200);
    assert_eq!(client.ask(named("/", "second")).await.status, 429);
    assert_eq!(found(&proxy, "first"), None, "it was served");
    let second = found(&proxy, "second").unwrap();
    assert_eq!(
        (second.outcome, second.reason),
        (Outcome::Rejected, "quota")
    );
    assert_eq!(second.quota.as_deref(), Some("login"));
    assert_eq!(second.replica, None);
}

#[tokio::test]
async fn malformed_request_is_found() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let two_hosts = "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n";
    let answer = ask(proxy.local_addr(), two_hosts).await;
    assert_eq!(answer.status, 400);
    let rejected = found(&proxy, answer.header("x-request-id").unwrap()).unwrap();
    assert_eq!(
        (rejected.outcome, rejected.status),
        (Outcome::Rejected, 400)
    );
}

#[tokio::test]
async fn request_whose_client_leaves_is_found_as_abandoned() {
    let (service, _held) = Service::held().await;
    let proxy = proxy(&[service.addr], TRUST);
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(named("/", "edge-9")).await;
    eventually("it is inside", || service.count() == 1).await;
    drop(client);
    eventually("it is found", || found(&proxy, "edge-9").is_some()).await;
    let left = found(&proxy, "edge-9").unwrap();
    assert_eq!(
        (left.outcome, left.reason),
        (Outcome::Abandoned, "abandoned")
    );
    assert!(left.replica.is_some(), "it was with a replica");
    assert_eq!(left.status, 0, "no answer");
}
