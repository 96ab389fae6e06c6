//! Messages against the world: examples for other languages, and a hundred thousand forgeries.
//!
//! `vectors.json` is part of the protocol. After a deliberate change of the format run this test
//! with `TIDEGATE_UPDATE_GOLDENS=1` and raise the version.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;
use std::{env, fs};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use tidegate_channel::message::{from_text, to_text};
use tidegate_channel::stamp::Content;
use tidegate_channel::strategy::{Class, Groups};
use tidegate_channel::{ClientId, ControlMessage, PublicKey, SecretKey, Strategy, Terms, Verifier};
use tidegate_control::Timestamp;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors.json");
const ISSUED_MS: u64 = 1_767_225_600_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn key() -> SecretKey {
    SecretKey::from_seed(&std::array::from_fn(|index| index as u8))
}

fn message(seq: u64, strategy: Strategy) -> ControlMessage {
    ControlMessage {
        seq,
        issued: at(ISSUED_MS),
        validity: Duration::from_secs(30),
        setpoint: Duration::from_secs(1),
        strategy,
        successor: None,
        terms: Terms::default(),
    }
}

fn examples() -> Vec<(&'static str, ControlMessage)> {
    let slot = Duration::from_secs(4);
    let pairs = [(2, 0), (8, 3)].map(|(divisor, modulo)| Class { divisor, modulo });
    let groups = Groups {
        slot,
        classes: pairs.to_vec(),
    };
    let rotating = ControlMessage {
        successor: Some(PublicKey([0xab; 32])),
        ..message(4, Strategy::Open)
    };
    let prolonged = ControlMessage {
        terms: Terms {
            prolonged: Duration::from_secs(120),
            deadline: Some(at(ISSUED_MS + 60_000)),
        },
        ..message(5, Strategy::Open)
    };
    vec![
        ("open", message(1, Strategy::Open)),
        ("group", message(2, Strategy::Group(groups))),
        (
            "interval",
            message(3, Strategy::Interval(Duration::from_millis(80_500))),
        ),
        ("open, announcing the next key", rotating),
        ("open, with a deadline that was prolonged", prolonged),
    ]
}

fn vectors() -> Value {
    let entry = |(name, message): &(&str, ControlMessage)| {
        json!({
            "name": name,
            "seq": message.seq,
            "issued_ms": ISSUED_MS,
            "validity_ms": 30_000,
            "setpoint_ms": 1000,
            "strategy": message.strategy,
            "successor": message.successor.map(|key| key.to_string()),
            "prolonged_s": message.terms.prolonged.as_secs(),
            "deadline_ms": message.terms.deadline.map(|time| time.as_nanos() / 1_000_000),
            "text": to_text(&message.sign(&key())),
        })
    };
    let phase = |id: u64| json!({ "client": id, "phase": ClientId(id).phase() });
    let phases = [0, 1, 2, 1_000_000_007].map(phase);
    let content = |(method, target, body): (&str, &str, &str)| {
        let content = Content::of(method, target, body.as_bytes());
        let hex: String = content.0.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "method": method, "target": target, "body": body, "content": hex })
    };
    let contents = [("POST", "/bids", "amount=120"), ("DELETE", "/a?b=%20", "")].map(content);
    json!({
        "seed": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "public_key": key().public().to_string(),
        "messages": examples().iter().map(entry).collect::<Vec<_>>(),
        "phases": phases,
        "contents": contents,
    })
}

#[test]
fn examples_for_other_languages_are_what_we_write() {
    if env::var_os("TIDEGATE_UPDATE_GOLDENS").is_some() {
        fs::write(VECTORS, format!("{:#}\n", vectors())).unwrap();
    }
    let stored: Value = serde_json::from_str(&fs::read_to_string(VECTORS).unwrap()).unwrap();
    assert_eq!(stored, vectors());
}

#[test]
fn examples_are_accepted() {
    let stored: Value = serde_json::from_str(&fs::read_to_string(VECTORS).unwrap()).unwrap();
    let public: PublicKey = stored["public_key"].as_str().unwrap().parse().unwrap();
    let mut verifier = Verifier::new(&[public]);
    for (entry, (_, message)) in stored["messages"]
        .as_array()
        .unwrap()
        .iter()
        .zip(examples())
    {
        let bytes = from_text(entry["text"].as_str().unwrap()).unwrap();
        assert_eq!(verifier.accept(at(ISSUED_MS + 1), &bytes), Ok(message));
    }
}

/// Bits flipped, bytes changed, cut, doubled, spliced from two valid messages: none is accepted.
#[test]
fn hundred_thousand_mutated_messages_and_none_is_accepted() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let valid: Vec<Vec<u8>> = examples().iter().map(|(_, m)| m.sign(&key())).collect();
    let mut verifier = Verifier::new(&[key().public()]);
    for _ in 0..100_000 {
        let original = &valid[rng.random_range(0..valid.len())];
        let other = &valid[rng.random_range(0..valid.len())];
        let mutated = mutate(&mut rng, original, other);
        if valid.contains(&mutated) {
            continue;
        }
        assert!(verifier.accept(at(ISSUED_MS + 1), &mutated).is_err());
    }
    let counts = verifier.counts();
    assert_eq!(counts.accepted, 0);
    assert!(
        counts.forged > 10_000 && counts.malformed > 10_000,
        "{counts:?}"
    );
}

fn mutate(rng: &mut Xoshiro256PlusPlus, original: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    let position = rng.random_range(0..bytes.len());
    match rng.random_range(0..6_u8) {
        0 => bytes[position] ^= 1 << rng.random_range(0..8_u8),
        1 => bytes[position] = rng.random(),
        2 => bytes.truncate(position),
        3 => bytes.insert(position, rng.random()),
        4 => {
            let cut = position.min(other.len());
            bytes.truncate(cut);
            bytes.extend_from_slice(&other[cut..]);
        }
        _ => {
            for _ in 0..8 {
                let position = rng.random_range(0..bytes.len());
                bytes[position] = rng.random();
            }
        }
    }
    bytes
}
