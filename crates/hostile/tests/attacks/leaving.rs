//! Clients that leave at the worst moment, and come back at once.

use tidegate_testing::eventually;

use crate::stage::{Lie, Stage};

/// Where a client leaves, as bytes it has sent until then.
const MOMENTS: [&str; 5] = [
    "",
    "GET /gone HT",
    "POST /gone HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf",
    "POST /gone HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
    "GET /gone HTTP/1.1\r\nhost: a\r\n\r\nGET /gone HTTP/1.1\r\n",
];

#[tokio::test]
async fn clients_that_reset_at_any_moment_leave_nothing_behind() {
    let stage = Stage::start().await;
    for round in 0..100 {
        let mut attacker = stage.connect().await;
        attacker.send(MOMENTS[round % MOMENTS.len()]).await;
        attacker.reset();
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn clients_that_close_at_any_moment_leave_nothing_behind() {
    let stage = Stage::start().await;
    for round in 0..100 {
        let mut attacker = stage.connect().await;
        attacker.send(MOMENTS[round % MOMENTS.len()]).await;
        drop(attacker);
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn connection_per_request_flood_balances() {
    let stage = Stage::start().await;
    for _ in 0..300 {
        let answer = stage.exchange(crate::stage::HONEST).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let totals = stage.proxy.state().metrics().totals();
    assert_eq!(totals.opened, 300);
    stage.is_unharmed().await;
}

#[tokio::test]
async fn client_that_leaves_while_the_replica_works_gives_its_slot_back() {
    let quiet = Lie {
        bytes: Vec::new(),
        closes: false,
    };
    let stage = Stage::with("timeouts.request = '60s'", quiet).await;
    for _ in 0..3 {
        let mut attacker = stage.connect().await;
        attacker.send("GET /lie HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let before = stage.heads().len();
        eventually("the replica has it", || {
            stage.heads().len() >= before.max(1)
        })
        .await;
        drop(attacker);
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn reader_that_stops_in_the_middle_of_a_large_answer_holds_no_slot() {
    let body = vec![b'x'; 8 << 20];
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let large = Lie {
        bytes: [head.into_bytes(), body].concat(),
        closes: true,
    };
    let stage = Stage::with("", large).await;
    let mut attackers = Vec::new();
    // More than there are slots.
    for _ in 0..20 {
        let mut attacker = stage.connect().await;
        attacker.send("GET /lie HTTP/1.1\r\nhost: a\r\n\r\n").await;
        attackers.push(attacker);
    }
    for attacker in &mut attackers {
        let start = attacker.read_until("xxxx").await;
        assert!(start.starts_with("HTTP/1.1 200"), "{start}");
    }
    let answer = stage.exchange(crate::stage::HONEST).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(attackers);
    stage.is_unharmed().await;
}
