//! kill -9 at random points: no accepted item is lost, and none gets another number.
//!
//! The test starts itself again as the process that is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate_client::outbox::{Outbox, StoredItem};

const FILE: &str = "TIDEGATE_CRASH_TEST_OUTBOX";
/// How often it is killed.
const ROUNDS: u64 = 12;

fn item(number: u64) -> StoredItem {
    StoredItem {
        key: None,
        made_ms: number,
        delay_max_ms: 1000,
        stamp: String::new(),
        method: "POST".to_owned(),
        uri: "http://127.0.0.1/".to_owned(),
        headers: Vec::new(),
        body: number.to_be_bytes().repeat(50),
    }
}

/// Accepts items for ever and deletes every third; says so after each commit, and before each
/// deletion.
#[test]
fn child() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    let outbox = Outbox::open(Path::new(&file)).unwrap();
    let mut out = std::io::stdout();
    loop {
        let number = outbox.next_number().unwrap();
        outbox.accept(number, &item(number)).unwrap();
        writeln!(out, "\naccepted {number}").unwrap();
        out.flush().unwrap();
        if number.is_multiple_of(3) {
            writeln!(out, "\ndeleting {number}").unwrap();
            out.flush().unwrap();
            outbox.delete(&[number]).unwrap();
        }
    }
}

#[test]
fn kill_at_any_point_loses_nothing_that_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outbox.redb");
    let (mut accepted, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..ROUNDS {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(FILE, &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // Another number of steps each time; the kill falls somewhere into the next one.
        let mut steps = 1 + (round * 7) % 11;
        for line in lines {
            let Ok(line) = line else { break };
            let Some((word, number)) = line.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word {
                "accepted" => assert!(accepted.insert(number), "{number} was given twice"),
                "deleting" => assert!(deleted.insert(number), "{number} was deleted twice"),
                _ => continue,
            }
            steps = steps.saturating_sub(1);
            if steps == 0 {
                // SIGKILL; what the process still wrote is read until its end.
                let _ = process.kill();
            }
        }
        process.wait().unwrap();
        let outbox = Outbox::open(&file).unwrap();
        let kept: BTreeSet<u64> = outbox.items().unwrap().iter().map(|(n, _)| *n).collect();
        for number in accepted.difference(&deleted) {
            assert!(kept.contains(number), "{number} was accepted and is lost");
        }
        for (number, stored) in outbox.items().unwrap() {
            assert_eq!(stored, item(number), "{number} was damaged");
        }
    }
    assert!(accepted.len() > 20, "{} items", accepted.len());
}
