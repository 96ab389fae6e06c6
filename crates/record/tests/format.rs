//! The format from outside: what is written is read, and damage costs no more than what it hit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tidegate_record::{
    Decision, Ending, Event, FileWriter, Message, Meta, NameKind, ProblemKind, RecordError,
    Recorder, Recording, Request, Rotation, Tables, files,
};

fn any_request() -> impl Strategy<Value = Request> {
    let times = (
        0..1_u64 << 50,
        0..1_u64 << 40,
        0..1_u64 << 40,
        0..1_u64 << 41,
    );
    let ids = (
        any::<u16>(),
        any::<u16>(),
        prop_oneof![Just(0), 1..20_u64],
        any::<u64>(),
    );
    let outcome = (0..6_u64, any::<u8>(), 0..5_u64, any::<u16>(), any::<u16>());
    let sizes = (
        any::<u64>(),
        any::<u64>(),
        0..1_u64 << 40,
        any::<u32>(),
        any::<u32>(),
    );
    (times, ids, outcome, sizes).prop_map(|(times, ids, outcome, sizes)| Request {
        at_us: times.0,
        waiting_us: times.1,
        service_us: times.2,
        response_us: times.3,
        application: ids.0,
        class: ids.1,
        path: ids.2,
        tenant: ids.3,
        decision: Decision::of_code(outcome.0),
        reason: outcome.1,
        ending: Ending::of_code(outcome.2),
        status: outcome.3,
        replica: outcome.4,
        request_bytes: sizes.0,
        response_bytes: sizes.1,
        deadline_us: sizes.2,
        retry_after_ms: u64::from(sizes.3),
        client: sizes.4,
    })
}

/// A recording of these requests, `per_frame` of them in a frame.
fn written(requests: &[Request], per_frame: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tgrec");
    let mut writer = FileWriter::create_file(&path, Meta::default()).unwrap();
    for part in requests.chunks(per_frame.max(1)) {
        part.iter().for_each(|&request| writer.request(request));
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    fs::read(path).unwrap()
}

fn sorted(requests: &[Request]) -> Vec<Request> {
    let mut sorted = requests.to_vec();
    sorted.sort_by_key(|request| request.at_us);
    sorted
}

/// Traffic as a service has it: Poisson-like gaps, exponential-like times, few paths.
fn traffic(count: u64) -> Vec<Request> {
    let mut state = 7_u64;
    let mut draw = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 1.0) / (1_u64 << 31) as f64
    };
    let mut at_us = 0;
    (0..count)
        .map(|_| {
            at_us += (-draw().ln() * 5_000.0) as u64;
            let service_us = (-draw().ln() * 25_000.0) as u64;
            let waiting_us = if draw() < 0.5 {
                (-draw().ln() * 50_000.0) as u64
            } else {
                0
            };
            let shed = draw() < 0.3;
            Request {
                at_us,
                application: 0,
                class: (draw() * 3.0) as u16,
                path: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(1 + (draw() * 40.0) as u64),
                tenant: 0xbf58_476d_1ce4_e5b9_u64.wrapping_mul(1 + (draw() * 500.0) as u64),
                client: 1 + (draw() * f64::from((1 << 21) - 1)) as u32,
                decision: if shed {
                    Decision::Shed
                } else {
                    Decision::Admitted
                },
                reason: u8::from(shed),
                ending: if shed { Ending::Unsent } else { Ending::Served },
                status: if shed { 503 } else { 200 },
                replica: if shed { 0 } else { 1 + (draw() * 4.0) as u16 },
                waiting_us: if shed { 0 } else { waiting_us },
                service_us: if shed { 0 } else { service_us },
                response_us: if shed {
                    40
                } else {
                    waiting_us + service_us + 60
                },
                request_bytes: 0,
                response_bytes: if shed {
                    120
                } else {
                    (-draw().ln() * 8_000.0) as u64
                },
                deadline_us: 0,
                retry_after_ms: if shed {
                    1000 + (draw() * 5.0) as u64 * 1000
                } else {
                    0
                },
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn requests_survive_the_file(
        requests in prop::collection::vec(any_request(), 0..200),
        per_frame in 1..80_usize,
    ) {
        let recording = Recording::parse("a", &written(&requests, per_frame)).unwrap();
        prop_assert!(recording.problems.is_empty());
        prop_assert_eq!(recording.requests, sorted(&requests));
    }

    #[test]
    fn file_cut_at_any_byte_loses_only_its_tail(
        requests in prop::collection::vec(any_request(), 1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = written(&requests, 10);
        let cut = cut.index(bytes.len());
        let recording = Recording::parse("a", &bytes[..cut]).unwrap();
        let kept = recording.requests.len();
        prop_assert!(kept.is_multiple_of(10) || kept == requests.len());
        let mut expected = requests[..kept].to_vec();
        expected.sort_by_key(|request| request.at_us);
        prop_assert_eq!(recording.requests, expected);
        prop_assert!(recording.problems.iter().all(|p| p.kind == ProblemKind::TornTail));
        prop_assert!(recording.problems.len() <= 1);
    }

    #[test]
    fn damage_anywhere_costs_one_frame_and_is_located(
        requests in prop::collection::vec(any_request(), 30..60),
        place in any::<prop::sample::Index>(),
        flip in 1..255_u8,
    ) {
        let mut bytes = written(&requests, 10);
        let place = 8 + place.index(bytes.len() - 8);
        bytes[place] ^= flip;
        let recording = Recording::parse("a", &bytes).unwrap();
        prop_assert!(recording.requests.len() + 10 >= requests.len());
        prop_assert!(!recording.problems.is_empty());
        let problem = &recording.problems[0];
        prop_assert!(problem.offset <= place as u64);
        prop_assert!(problem.offset + problem.skipped >= place as u64);
    }

    #[test]
    fn no_bytes_make_the_reader_fail(noise in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut bytes = b"TGREC\n\x01\x00".to_vec();
        bytes.extend(&noise);
        let recording = Recording::parse("noise", &bytes).unwrap();
        prop_assert!(noise.is_empty() || !recording.problems.is_empty());
    }

    /// Frames with a good checksum and any content at all.
    #[test]
    fn no_content_makes_the_reader_fail(
        kind in 0..9_u8,
        noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = b"TGREC\n\x01\x00".to_vec();
        let mut head = vec![kind, 0, 0, 0];
        head.extend((noise.len() as u32).to_le_bytes());
        head.extend((noise.len() as u32).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head);
        hasher.update(&noise);
        bytes.extend([0xF5, b'T', b'G', 0xFA]);
        bytes.extend(&head);
        bytes.extend(hasher.finalize().to_le_bytes());
        bytes.extend(&noise);
        drop(Recording::parse("noise", &bytes));
    }
}

#[test]
fn request_takes_at_most_24_bytes() {
    let requests = traffic(40_000);
    // A frame every two seconds at 200/s, as the recorder writes them.
    let bytes = written(&requests, 400).len();
    let each = bytes as f64 / requests.len() as f64;
    println!("{each:.1} bytes per request");
    assert!(each <= 24.0, "{each:.1}");
}

#[test]
fn other_files_are_refused_with_the_remedy() {
    let error = Recording::parse("access.log", b"1.2.3.4 - -")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("byte 0") && error.contains("recording import"),
        "{error}"
    );
    let error = Recording::parse("x", b"TGREC\n\x09\x00")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("version 9") && error.contains("update"),
        "{error}"
    );
}

fn rotated(dir: &Path, rotation: Rotation) -> Recording {
    let mut writer = FileWriter::create(dir, Meta::default(), rotation).unwrap();
    writer.name(NameKind::Path, 1, "/a");
    for part in traffic(20_000).chunks(500) {
        part.iter().for_each(|&request| writer.request(request));
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    Recording::open(dir).unwrap()
}

#[test]
fn files_rotate_and_each_can_be_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        file_bytes: 50_000,
        ..Rotation::default()
    };
    let recording = rotated(dir.path(), rotation);
    assert_eq!(recording.requests, sorted(&traffic(20_000)));
    let files = files(dir.path()).unwrap();
    assert!(files.len() > 3, "{}", files.len());
    for file in &files {
        let alone = Recording::open(file).unwrap();
        assert_eq!(alone.names.path(1), "/a", "{}", file.display());
    }
}

#[test]
fn oldest_files_are_removed_at_the_cap() {
    let dir = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        file_bytes: 50_000,
        total_bytes: 150_000,
        keep_first: false,
    };
    let recording = rotated(dir.path(), rotation);
    assert!(recording.bytes <= 150_000 + 20_000, "{}", recording.bytes);
    let all = traffic(20_000);
    let kept = recording.requests.len();
    assert!(kept > 1000 && kept < all.len());
    assert_eq!(
        recording.requests.last().unwrap().at_us,
        all.last().unwrap().at_us
    );
}

#[test]
fn what_has_to_be_whole_ends_at_the_cap() {
    let dir = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        file_bytes: 50_000,
        total_bytes: 150_000,
        keep_first: true,
    };
    let recording = rotated(dir.path(), rotation);
    assert!(recording.bytes <= 150_000, "{}", recording.bytes);
    let all = traffic(20_000);
    assert_eq!(recording.requests[0].at_us, all[0].at_us);
}

#[test]
fn removed_directory_is_made_again_and_what_follows_is_read() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("recording");
    let mut writer = FileWriter::create(&dir, Meta::default(), Rotation::default()).unwrap();
    writer.name(NameKind::Path, 1, "/a");
    writer.request(Request::default());
    writer.flush().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let rest = &traffic(100);
    rest.iter().for_each(|&request| writer.request(request));
    writer.flush().unwrap();
    let written = fs::metadata(writer.path()).unwrap().len();
    assert_eq!(writer.total_bytes(), written, "removed files do not count");
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.requests, sorted(rest));
    assert_eq!(recording.names.path(1), "/a");
    assert_eq!(recording.problems, []);
}

#[test]
fn directory_that_cannot_be_made_again_loses_rows_and_counts_them() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("recording");
    let mut writer = FileWriter::create(&dir, Meta::default(), Rotation::default()).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way").unwrap();
    let before = writer.total_bytes();
    for _ in 0..3 {
        writer.request(Request::default());
        writer.flush().unwrap_err();
    }
    assert_eq!(
        writer.total_bytes(),
        before,
        "nothing goes where no name leads"
    );
    assert_eq!(writer.lost_total(), 3);
    fs::remove_file(&dir).unwrap();
    writer.request(Request::default());
    writer.finish().unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!((recording.requests.len(), recording.lost()), (1, 3));
}

#[test]
fn recorder_loses_nothing_that_fits_and_counts_the_rest() {
    const SENT: u64 = 300_000;
    static COMPLAINED: AtomicBool = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let writer = FileWriter::create(dir.path(), Meta::default(), Rotation::default()).unwrap();
    let recorder = Recorder::start(writer, |_| COMPLAINED.store(true, Ordering::Relaxed)).unwrap();
    recorder.send(Message::Event(Event {
        at_us: 3,
        json: r#"{"event":"x"}"#.into(),
    }));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let recorder = &recorder;
            scope.spawn(move || {
                for number in 0..SENT / 3 {
                    recorder.name(NameKind::Path, 1 + number % 5, || {
                        format!("/{number}").into()
                    });
                    let at_us = number * 3 + thread;
                    recorder.request(Request {
                        at_us,
                        path: 1 + number % 5,
                        ..Request::default()
                    });
                }
            });
        }
    });
    let status = recorder.stop();
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.requests.len() as u64, status.requests);
    assert_eq!(status.requests + status.lost, SENT);
    assert_eq!(recording.lost(), status.lost, "the loss stands in the file");
    assert_eq!(recording.names.len(), 5);
    assert_eq!(recording.events.len(), 1);
    assert!(!COMPLAINED.load(Ordering::Relaxed));
}

fn tables(applications: &[&str], classes: &[(&str, u16)], reasons: &[&str]) -> Tables {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Tables {
        applications: texts(applications),
        classes: classes.iter().map(|(name, _)| (*name).to_owned()).collect(),
        class_applications: classes.iter().map(|(_, of)| *of).collect(),
        reasons: texts(reasons),
        ..Tables::default()
    }
}

/// Part of a recording by one process, which begins at `epoch_unix_us`.
fn write_session(dir: &Path, process: u64, tables: Tables, requests: &[Request], path: &str) {
    let meta = Meta {
        process,
        epoch_unix_us: process * 1_000_000,
        tables,
        ..Meta::default()
    };
    let mut writer = FileWriter::create(dir, meta, Rotation::default()).unwrap();
    for &request in requests {
        writer.request(request);
        writer.name(NameKind::Path, request.path, path);
    }
    writer.event(&Event {
        at_us: 1,
        json: "{\"event\":\"a\",\"application\":\"shop\"}".to_owned(),
    });
    writer.finish().unwrap();
}

#[test]
fn rows_of_a_restarted_process_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let request = |application, class, reason, path| Request {
        application,
        class,
        reason,
        path,
        ..Request::default()
    };
    let first = tables(&["shop"], &[("gold", 0), ("default", 0)], &["full", "late"]);
    write_session(dir.path(), 1, first, &[request(0, 1, 2, 11)], "/a");
    // Another order of everything, another key of the hashes, and a class of another application
    // that is called like one of the first.
    let second = tables(
        &["blog", "shop"],
        &[("default", 0), ("gold", 1), ("default", 1)],
        &["late", "new"],
    );
    let rows = [
        request(0, 0, 2, 7),
        request(1, 1, 1, 7),
        request(1, 2, 0, 7),
    ];
    write_session(dir.path(), 2, second, &rows, "/a");
    let recording = Recording::open(dir.path()).unwrap();
    assert_eq!(recording.restarts, [1_000_000]);
    let tables = &recording.meta.tables;
    let named: Vec<_> = recording
        .requests
        .iter()
        .map(|row| {
            (
                row.at_us,
                tables.application(row),
                tables.class(row),
                tables.reason(row),
            )
        })
        .collect();
    let expected = [
        (0, "shop", "default", "late"),
        (1_000_000, "blog", "default", "new"),
        (1_000_000, "shop", "gold", "late"),
        (1_000_000, "shop", "default", ""),
    ];
    assert_eq!(named, expected);
    let class = |index: usize| recording.requests[index].class;
    assert_eq!(class(0), class(3), "one class of one application");
    assert_ne!(class(0), class(1), "another application's");
    let hashes: Vec<_> = recording.requests.iter().map(|row| row.path).collect();
    assert_eq!(hashes, [7; 4], "one path is one");
    let mut shop = recording.clone();
    shop.retain_application("shop").unwrap();
    assert_eq!((shop.requests.len(), shop.events.len()), (3, 2));
    shop.retain_application("blog").unwrap();
    assert_eq!((shop.requests.len(), shop.events.len()), (0, 0));
    assert_eq!(
        shop.retain_application("x"),
        Err(vec!["shop".to_owned(), "blog".to_owned()])
    );
}

#[test]
fn outline_gives_the_requests_by_arrival_without_having_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut requests = traffic(30_000);
    // Rows stand by their ends: some come long after later arrivals.
    requests.sort_by_key(|request| request.at_us + request.response_us);
    let rotation = Rotation {
        file_bytes: 100_000,
        ..Rotation::default()
    };
    let mut writer = FileWriter::create(dir.path(), Meta::default(), rotation).unwrap();
    for part in requests.chunks(500) {
        part.iter().for_each(|&request| writer.request(request));
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    let whole = Recording::open(dir.path()).unwrap();
    let outline = Recording::outline(dir.path(), false).unwrap();
    assert!(outline.files.len() > 2 && outline.requests.is_empty());
    assert_eq!(outline.len(), whole.len());
    assert_eq!(outline.span_us(), whole.span_us());
    let mut given = Vec::new();
    let visit = |request: &Request| {
        given.push(*request);
        Ok::<(), RecordError>(())
    };
    outline.each(visit).unwrap();
    assert_eq!(given, whole.requests);
}
