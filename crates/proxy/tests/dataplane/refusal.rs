//! How overload is refused.

use crate::support::*;

/// A proxy that sheds everything.
async fn shedding() -> (Service, tidegate_proxy::Running) {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "protect.mode = 'static'\nprotect.static.share = '0%'",
    );
    (service, proxy)
}

#[tokio::test]
async fn people_and_programs_read_it_in_their_own_form() {
    let (service, proxy) = shedding().await;
    let mut client = Client::connect(proxy.local_addr()).await;
    for (accept, content_type, begins) in [
        (
            "accept: text/html,*/*;q=0.8\r\n",
            "text/html; charset=utf-8",
            "<!doctype html>",
        ),
        ("accept: application/json\r\n", "application/json", "{"),
        ("", "text/plain; charset=utf-8", "503 Service Unavailable"),
    ] {
        let answer = client
            .ask(format!("GET / HTTP/1.1\r\nhost: a\r\n{accept}\r\n"))
            .await;
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert!(answer.text().starts_with(begins), "{}", answer.text());
        assert!(answer.text().contains("again"));
        assert!(answer.header("tidegate-shed").is_some());
        assert!(
            answer
                .header("retry-after")
                .unwrap()
                .parse::<u32>()
                .unwrap()
                >= 1
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(
            answer.header("connection"),
            None,
            "the connection stays open"
        );
    }
    assert_eq!(service.count(), 0);
}

#[tokio::test]
async fn page_for_people_counts_down_as_long_as_its_head_says() {
    let (_service, proxy) = shedding().await;
    let mut client = Client::connect(proxy.local_addr()).await;
    let mut page = async |method: &str| {
        let head = format!("{method} / HTTP/1.1\r\nhost: a\r\naccept: text/html\r\n\r\n");
        client.ask(head).await
    };
    let get = page("GET").await;
    let seconds: u32 = get.header("retry-after").unwrap().parse().unwrap();
    let seconds = seconds.max(5);
    let text = get.text();
    let said = text.split("data-seconds=\"").nth(1).unwrap();
    let said: u32 = said[..3].parse().unwrap();
    assert!((seconds..=seconds + seconds / 2).contains(&said), "{text}");
    assert!(text.contains("<noscript><meta http-equiv=\"refresh\""));
    let form = page("POST").await.text();
    assert!(
        !form.contains("refresh") && !form.contains("<script"),
        "{form}"
    );
}

#[tokio::test]
async fn a_client_that_writes_first_reads_the_refusal() {
    let (_service, proxy) = shedding().await;
    let mut client = Client::connect(proxy.local_addr()).await;
    let small = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{}",
        "x".repeat(1000)
    );
    assert_eq!(client.ask(&small).await.status, 503);
    assert_eq!(client.ask(&small).await.status, 503, "and may go on");
    let large = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n{}",
        "x".repeat(900_000)
    );
    assert_eq!(client.ask(&large).await.status, 503);
}

#[tokio::test]
async fn an_endless_upload_is_refused_and_cut_off() {
    let service = Service::echo().await;
    let extra = "protect.mode = 'static'\nprotect.static.share = '0%'\nlimits.refused_body = '64KiB'\n\
         limits.upload_buffer = '32KiB'";
    let proxy = proxy(&[service.addr], extra);
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n")
        .await;
    let piece = vec![0; 64 << 10];
    client.send(&piece).await;
    assert_eq!(client.answer().await.status, 503);
    let cut_off = async { while client.try_send(&piece).await {} };
    within(cut_off).await;
}

#[tokio::test]
async fn who_waits_for_100_continue_is_refused_without_its_body() {
    let (_service, proxy) = shedding().await;
    let mut client = Client::connect(proxy.local_addr()).await;
    let answer = client
        .ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(answer.status, 503);
}

#[tokio::test]
async fn the_operators_own_words_are_used() {
    let service = Service::echo().await;
    let extra = "protect.mode = 'static'\nprotect.static.share = '0%'\nrefusal.message = 'Come back at five.'";
    let proxy = proxy(&[service.addr], extra);
    assert!(
        ask(proxy.local_addr(), GET)
            .await
            .text()
            .contains("Come back at five.")
    );
}
