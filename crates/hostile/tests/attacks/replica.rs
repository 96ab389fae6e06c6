//! Replicas that lie or stall, in every phase of an answer.

use crate::stage::Stage;

const ASK: &str = "GET /lie HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// The client is told that the replica failed.
async fn is_failed(bytes: impl Into<Vec<u8>>, closes: bool, status: &str) {
    let stage = Stage::lying(bytes, closes).await;
    let mut client = stage.connect().await;
    client.send(ASK).await;
    let answer = client.read_to_end().await;
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status}")),
        "{answer}"
    );
    stage.is_unharmed().await;
}

#[tokio::test]
async fn answer_with_length_and_chunks_fails() {
    is_failed(
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn answer_with_two_lengths_fails() {
    is_failed(
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn answer_with_a_length_beyond_64_bits_fails() {
    is_failed(
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn answer_with_a_negative_length_fails() {
    is_failed(
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn answer_whose_head_never_ends_fails() {
    let head = format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(100_000));
    is_failed(head, false, "502").await;
}

#[tokio::test]
async fn answer_with_a_status_that_is_none_fails() {
    for line in [
        "HTTP/1.1 99 Low",
        "HTTP/1.1 1000 High",
        "HTTP/1.1 abc No",
        "HTTP/3.9 200 OK",
        "nonsense",
    ] {
        is_failed(format!("{line}\r\ncontent-length: 0\r\n\r\n"), true, "502").await;
    }
}

#[tokio::test]
async fn switch_of_protocols_that_nobody_asked_for_fails() {
    is_failed(
        "HTTP/1.1 101 Switching\r\nupgrade: evil\r\nconnection: upgrade\r\n\r\nevil",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    is_failed("", false, "504").await;
}

#[tokio::test]
async fn half_a_head_ends_at_the_deadline() {
    is_failed("HTTP/1.1 200 OK\r\ncontent-le", false, "504").await;
}

#[tokio::test]
async fn close_without_an_answer_fails() {
    is_failed("", true, "502").await;
}

#[tokio::test]
async fn close_within_a_head_fails() {
    is_failed("HTTP/1.1 200 OK\r\ncontent-", true, "502").await;
}

/// An answer that is not complete is seen as that: never as a shorter one.
async fn is_cut(bytes: &str, tail: &str) {
    let stage = Stage::lying(bytes, true).await;
    let mut client = stage.connect().await;
    client.send(ASK).await;
    let answer = client.read_to_end().await;
    assert!(!answer.ends_with(tail), "{answer}");
    stage.is_unharmed().await;
}

#[tokio::test]
async fn answer_that_breaks_off_within_a_chunk_is_cut() {
    is_cut(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        "0\r\n\r\n",
    )
    .await;
}

#[tokio::test]
async fn answer_that_breaks_off_between_chunks_is_cut() {
    is_cut(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "0\r\n\r\n",
    )
    .await;
}

#[tokio::test]
async fn answer_with_a_chunk_size_that_is_none_is_cut() {
    is_cut(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
        "0\r\n\r\n",
    )
    .await;
}

/// What a replica sends behind its answer is no answer to the next client.
async fn leaves_nothing_for_others(lie: &str, method: &str) {
    let evil = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let stage = Stage::lying(format!("{lie}{evil}"), false).await;
    let mut client = stage.connect().await;
    client
        .send(format!(
            "{method} /lie HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        ))
        .await;
    client.read_to_end().await;
    for _ in 0..5 {
        stage.is_unharmed().await;
    }
}

#[tokio::test]
async fn bytes_behind_an_answer_reach_no_other_client() {
    leaves_nothing_for_others("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "GET").await;
}

#[tokio::test]
async fn body_of_a_204_reaches_no_other_client() {
    leaves_nothing_for_others("HTTP/1.1 204 No Content\r\n\r\n", "GET").await;
}

#[tokio::test]
async fn body_of_a_304_reaches_no_other_client() {
    leaves_nothing_for_others(
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 44\r\n\r\n",
        "GET",
    )
    .await;
}

#[tokio::test]
async fn body_of_an_answer_to_head_reaches_no_other_client() {
    leaves_nothing_for_others("HTTP/1.1 200 OK\r\ncontent-length: 44\r\n\r\n", "HEAD").await;
}

#[tokio::test]
async fn thousands_of_interim_answers_harm_nobody() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(5000);
    let stage = Stage::lying(
        format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        false,
    )
    .await;
    let mut client = stage.connect().await;
    client.send(ASK).await;
    let answer = client.read_to_end().await;
    assert!(
        answer.ends_with("ok") || answer.contains("HTTP/1.1 502"),
        "{}",
        answer.len()
    );
    stage.is_unharmed().await;
}

#[tokio::test]
async fn answer_before_the_upload_is_read_reaches_the_client() {
    let early =
        "HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig";
    let stage = Stage::lying(early, false).await;
    let mut client = stage.connect().await;
    client
        .send(
            "POST /lie HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4000000\r\n\r\n",
        )
        .await;
    client.send(vec![b'x'; 400_000]).await;
    let answer = client.read_until("big").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    drop(client);
    stage.is_unharmed().await;
}

#[tokio::test]
async fn header_that_splits_an_answer_fails() {
    is_failed(
        "HTTP/1.1 200 OK\r\nx: a\rset-cookie: evil=1\r\ncontent-length: 0\r\n\r\n",
        false,
        "502",
    )
    .await;
}

#[tokio::test]
async fn load_that_a_replica_makes_up_is_not_believed_and_not_passed_on() {
    let lie = "HTTP/1.1 200 OK\r\ntidegate-utilization: NaN\r\ntidegate-demand: 999999999999\r\n\
               tidegate-service-ms: -1\r\nendpoint-load-metrics: TEXT cpu_utilization=1e309\r\n\
               content-length: 2\r\n\r\nok";
    let stage = Stage::lying(lie, false).await;
    let mut client = stage.connect().await;
    client.send(ASK).await;
    let answer = client.read_to_end().await;
    assert!(
        answer.ends_with("ok") && !answer.contains("tidegate-"),
        "{answer}"
    );
    stage.is_unharmed().await;
}

#[tokio::test]
async fn cost_that_a_replica_makes_up_is_not_passed_on() {
    for lie in [
        "tidegate-cost: NaN",
        "tidegate-cost: -1",
        "tidegate-cost: 1e308",
        "tidegate-cost: 1e-320",
        "endpoint-load-metrics: JSON {\"request_cost\":{\"a\":1e308,\"b\":1e308}}",
        "endpoint-load-metrics: TEXT request_cost.a=-1e308",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{lie}\r\ncontent-length: 2\r\n\r\nok");
        let stage = Stage::lying(answer, false).await;
        let mut client = stage.connect().await;
        client.send(ASK).await;
        let answer = client.read_to_end().await;
        assert!(answer.ends_with("ok"), "{answer}");
        assert!(!answer.contains("cost"), "{answer}");
        stage.is_unharmed().await;
    }
}
