//! Clients that bend HTTP/1.1.

use crate::stage::Stage;

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// The attack is answered with one of these, or cut off, and `/evil` never reaches the replica.
async fn is_rejected(bytes: impl AsRef<[u8]>, statuses: &[&str]) {
    let stage = Stage::start().await;
    let answer = stage.exchange(bytes).await;
    let status = status(&answer);
    assert!(statuses.contains(&status), "{status}: {answer}");
    assert!(!stage.replica_saw("/evil"), "{:?}", stage.heads());
    stage.is_unharmed().await;
}

#[tokio::test]
async fn thousand_pipelined_requests_are_answered_in_order() {
    let stage = Stage::start().await;
    let requests: String = (0..1000)
        .map(|number| format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n"))
        .collect();
    let mut attacker = stage.connect().await;
    let mut answers = 0;
    for part in requests.as_bytes().chunks(40_000) {
        attacker.send(part).await;
    }
    attacker
        .send("GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    answers += attacker.read_to_end().await.matches("HTTP/1.1 200").count();
    assert_eq!(answers, 1001);
    let paths: Vec<_> = stage
        .heads()
        .iter()
        .map(|head| head.split(' ').nth(1).map(str::to_owned))
        .collect();
    let mut expected: Vec<_> = (0..1000).map(|number| Some(format!("/{number}"))).collect();
    expected.push(Some("/last".to_owned()));
    assert_eq!(paths, expected);
    stage.is_unharmed().await;
}

#[tokio::test]
async fn malformed_request_in_a_pipeline_ends_it_and_nothing_behind_it_is_read() {
    let stage = Stage::start().await;
    let answer = stage
        .exchange(
            "GET /one HTTP/1.1\r\nhost: a\r\n\r\nGET /two HTTP/1.1\r\nhost: a\r\nbad name: x\r\n\r\n\
             GET /evil HTTP/1.1\r\nhost: a\r\n\r\n",
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("HTTP/1.1 400"),
        "{answer}"
    );
    assert!(!stage.replica_saw("/evil") && !stage.replica_saw("/two"));
    stage.is_unharmed().await;
}

#[tokio::test]
async fn head_in_pieces_of_one_byte_is_served() {
    let stage = Stage::start().await;
    let mut attacker = stage.connect().await;
    for byte in b"GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" {
        attacker.send([*byte]).await;
    }
    assert!(attacker.read_to_end().await.starts_with("HTTP/1.1 200"));
    stage.is_unharmed().await;
}

#[tokio::test]
async fn header_flood_is_rejected() {
    let fields: String = (0..5000)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect();
    is_rejected(
        format!("GET /evil HTTP/1.1\r\nhost: a\r\n{fields}\r\n"),
        &["431", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn header_of_a_megabyte_is_rejected() {
    let value = "v".repeat(1 << 20);
    is_rejected(
        format!("GET /evil HTTP/1.1\r\nhost: a\r\nx: {value}\r\n\r\n"),
        &["431", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn target_of_a_megabyte_is_rejected() {
    let path = "p".repeat(1 << 20);
    is_rejected(
        format!("GET /evil{path} HTTP/1.1\r\nhost: a\r\n\r\n"),
        &["414", "431", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn flood_of_empty_lines_is_cut_off() {
    is_rejected("\r\n".repeat(50_000), &["400", "414", "431", "408", "none"]).await;
}

#[tokio::test]
async fn chunk_extensions_without_end_are_rejected() {
    let extension = ";x=".repeat(30_000);
    let head = "POST /post HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    is_rejected(
        format!("{head}1{extension}\r\nx\r\n0\r\n\r\n"),
        &["400", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn chunk_size_beyond_64_bits_is_rejected() {
    let head = "POST /post HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    is_rejected(
        format!("{head}10000000000000005\r\nhello\r\n0\r\n\r\n"),
        &["400", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn chunk_size_of_endless_zeros_is_rejected() {
    let head = "POST /post HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let zeros = "0".repeat(100_000);
    is_rejected(
        format!("{head}{zeros}1\r\nx\r\n0\r\n\r\n"),
        &["400", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn trailer_flood_is_rejected() {
    let head =
        "POST /post HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
    let trailers: String = (0..20_000)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect();
    is_rejected(
        format!("{head}{trailers}\r\n"),
        &["400", "431", "408", "none"],
    )
    .await;
}

#[tokio::test]
async fn trailers_never_speak_for_the_proxy() {
    let stage = Stage::start().await;
    let request = "POST /post HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
                   1\r\nx\r\n0\r\nhost: evil\r\ncontent-length: 777777\r\ntidegate-class: gold\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";
    stage.exchange(request).await;
    for smuggled in ["evil", "777777", "gold", "6.6.6.6"] {
        assert!(
            !stage.replica_saw(smuggled),
            "{smuggled}: {:?}",
            stage.heads()
        );
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn expectation_that_nobody_knows_is_rejected() {
    let request =
        "POST /evil HTTP/1.1\r\nhost: a\r\nexpect: 999-gift\r\ncontent-length: 1\r\n\r\nx";
    is_rejected(request, &["417", "400"]).await;
}

#[tokio::test]
async fn connect_opens_no_tunnel() {
    is_rejected(
        "CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\nGET /evil",
        &["400", "405", "501"],
    )
    .await;
}

#[tokio::test]
async fn version_0_9_is_rejected() {
    is_rejected("GET /evil\r\n\r\n", &["400", "505"]).await;
}

#[tokio::test]
async fn chunked_body_of_http_1_0_is_rejected() {
    let request = "POST /evil HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    is_rejected(request, &["400"]).await;
}

#[tokio::test]
async fn upgrade_to_http2_is_not_smuggled_through() {
    let stage = Stage::start().await;
    let request = "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings, close\r\n\
                   upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    stage.exchange(request).await;
    assert!(!stage.replica_saw("http2-settings") && !stage.replica_saw("PRI "));
    stage.is_unharmed().await;
}

#[tokio::test]
async fn connection_field_cannot_remove_what_the_proxy_adds() {
    let stage = Stage::start().await;
    let request = "GET /hop HTTP/1.1\r\nhost: a\r\nconnection: close, x-forwarded-for, host, content-length\r\n\r\n";
    stage.exchange(request).await;
    let head = stage.heads().pop().unwrap_or_default();
    assert!(head.contains("x-forwarded-for: 127.0.0.1"), "{head}");
    assert!(head.contains("host: "), "{head}");
    stage.is_unharmed().await;
}

#[tokio::test]
async fn absolute_target_and_host_cannot_differ() {
    let stage = Stage::start().await;
    stage
        .exchange("GET http://b/abs HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    // RFC 9112 section 3.2.2: the target's host wins and replaces the field.
    for head in stage.heads() {
        assert!(
            head.contains("host: b\r\n") && !head.contains("host: a"),
            "{head}"
        );
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn control_characters_in_values_are_rejected() {
    for byte in [0u8, 1, 0x0b, 0x7f] {
        let request = [
            b"GET /evil HTTP/1.1\r\nhost: a\r\nx: a".as_slice(),
            &[byte],
            b"b\r\n\r\n",
        ]
        .concat();
        is_rejected(request, &["400"]).await;
    }
}

#[tokio::test]
async fn announced_body_that_never_comes_holds_nothing() {
    let stage = Stage::start().await;
    let mut attackers = Vec::new();
    for _ in 0..50 {
        let mut attacker = stage.connect().await;
        attacker
            .send("POST /never HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
            .await;
        attackers.push(attacker);
    }
    let answer = stage.exchange(crate::stage::HONEST).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(attackers);
    stage.is_unharmed().await;
    assert!(!stage.replica_saw("/never"));
}

#[tokio::test]
async fn body_that_was_asked_for_and_never_comes_holds_nothing() {
    let stage = Stage::start().await;
    let mut attackers = Vec::new();
    for _ in 0..50 {
        let mut attacker = stage.connect().await;
        attacker
            .send("POST /never HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1000\r\n\r\n")
            .await;
        attackers.push(attacker);
    }
    let answer = stage.exchange(crate::stage::HONEST).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(attackers);
    stage.is_unharmed().await;
}

#[tokio::test]
async fn tls_hello_on_a_plain_listener_is_rejected() {
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0u8; 200]].concat();
    is_rejected(hello, &["400", "408", "none"]).await;
}

#[tokio::test]
async fn random_bytes_are_rejected() {
    use rand::{Rng, SeedableRng};
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
    for _ in 0..20 {
        let mut bytes = vec![0; 4096];
        random.fill_bytes(&mut bytes);
        // As a line that ends.
        bytes.extend_from_slice(b"\r\n\r\n");
        is_rejected(bytes, &["400", "431", "505", "408", "none"]).await;
    }
}

#[tokio::test]
async fn ten_hosts_are_no_host() {
    let hosts = "host: a\r\n".repeat(10);
    is_rejected(format!("GET /evil HTTP/1.1\r\n{hosts}\r\n"), &["400"]).await;
}
