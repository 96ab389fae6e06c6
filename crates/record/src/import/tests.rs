use super::*;
use crate::request::{Decision, Ending};

fn fold(target: &str) -> (u64, String) {
    (target.len() as u64, target.to_owned())
}

fn import(text: &str, format: Option<Format>) -> (Imported, Summary) {
    read(text.as_bytes(), format, fold).unwrap()
}

#[test]
fn nginx_lines_arrive_before_they_end() {
    let log = r#"192.0.2.1 - - [10/Oct/2026:13:55:36 +0200] "GET /a?x=1 HTTP/1.1" 200 2326 "-" "curl/8" 0.250 0.100, 0.050
192.0.2.1 - bob [10/Oct/2026:13:55:36 +0200] "POST /b HTTP/1.1" 499 0 "-" "curl "x"" 3.000 -
192.0.2.1 - - [10/Oct/2026:13:55:37 +0200] "GET /c HTTP/1.1" 504 0 "-" "-" 1.000 1.000
"#;
    let (imported, summary) = import(log, None);
    assert_eq!((summary.requests, summary.refused_count), (3, 0));
    let ends = 1_791_633_336_000_000;
    let [first, second, third] = &imported.requests[..] else {
        panic!("three requests")
    };
    // Sorted by arrival, to the second: the one that took three seconds came first.
    assert_eq!(first.at_us, ends - 2_500_000);
    assert_eq!(
        (first.ending, first.response_us),
        (Ending::Abandoned, 3_000_000)
    );
    let inside = &[second, third];
    assert!(inside.iter().any(|request| request.service_us == 150_000));
    assert!(
        inside
            .iter()
            .any(|request| request.ending == Ending::Failed)
    );
}

#[test]
fn nginx_lines_of_a_second_are_spread_over_it() {
    let line = "1.2.3.4 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let (imported, summary) = import(&line.repeat(4), None);
    let within: Vec<u64> = imported
        .requests
        .iter()
        .map(|r| r.at_us % 1_000_000)
        .collect();
    assert_eq!(within, [125_000, 375_000, 625_000, 875_000]);
    assert_eq!(summary.without_time, 4);
}

#[test]
fn haproxy_lines_say_where_the_time_went() {
    let log = r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2026:12:14:14.655] http-in static/srv1 10/5/30/69/119 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
10.0.1.2:33317 [06/Feb/2026:12:14:15.000] http-in static/<NOSRV> 0/2000/-1/-1/2000 503 212 - - sQ-- 1/1/1/1/0 0/9 "GET /x HTTP/1.1"
10.0.1.2:33317 [06/Feb/2026:12:14:16.000] http-in static/srv2 0/0/1/-1/300 -1 0 - - CD-- 1/1/1/1/0 0/0 "GET /y HTTP/1.1"
"#;
    let (imported, summary) = import(log, None);
    assert_eq!(
        (summary.requests, summary.refused_count),
        (3, 0),
        "{summary:?}"
    );
    let [served, expired, left] = &imported.requests[..] else {
        panic!("three requests")
    };
    assert_eq!((served.waiting_us, served.service_us), (5_000, 104_000));
    assert_eq!(served.decision, Decision::Waited);
    assert_eq!(imported.tables.replica(served), "srv1");
    assert_eq!(imported.tables.application(served), "static");
    assert_eq!(
        (expired.decision, expired.ending),
        (Decision::ShedWaiting, Ending::Unsent)
    );
    assert_eq!((left.ending, left.status), (Ending::Abandoned, 0));
}

#[test]
fn our_own_log_keeps_classes_and_reasons() {
    let log = r#"{"time":"2026-02-06T12:14:14.655Z","client":"::1","method":"GET","host":"a","target":"/a","protocol":"HTTP/1.1","status":200,"bytes":5,"ms":30.5,"waited_ms":10.25,"class":"gold","replica":"http://127.0.0.1:1","user_agent":""}
{"time":"2026-02-06T12:14:14.700Z","target":"/b","status":503,"bytes":5,"ms":0.1,"class":"silver","reason":"predicted"}
"#;
    let (imported, _) = import(log, None);
    let [served, shed] = &imported.requests[..] else {
        panic!("two requests")
    };
    assert_eq!((served.waiting_us, served.service_us), (10_250, 20_250));
    assert_eq!(imported.tables.class(served), "gold");
    assert_eq!(shed.decision, Decision::Shed);
    assert_eq!(imported.tables.reason(shed), "predicted");
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_named() {
    let good = "1.2.3.4 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 0.1";
    let (imported, summary) = import(&format!("{good}\nwhat is this\n\n{good}\n"), None);
    assert_eq!((imported.requests.len(), summary.refused_count), (2, 1));
    assert_eq!(summary.refused[0].0, 2);
}

/// Lines as nginx 1.22 writes them: the timed format, and at last its default one.
const NGINX: &str = r#"127.0.0.1 - - [19/Nov/2026:05:40:03 +0000] "\x16\x03\x01\x02\x00\x01\x00" 400 157 "-" "-" 0.000 -
127.0.0.1 - - [19/Nov/2026:05:40:03 +0000] "GET /q\x22uo[te] HTTP/1.1" 200 100 "-" "a\x22b\x5C" 0.003 0.004
127.0.0.1 - - [19/Nov/2026:05:40:04 +0000] "GET /half HTTP/1.1" 400 0 "-" "-" 1.007 -
127.0.0.1 - - [19/Nov/2026:05:40:05 +0000] "GET /up/b HTTP/1.1" 200 100 "-" "curl/7.88.1" 0.017 0.000, 0.016
127.0.0.1 - - [19/Nov/2026:05:40:06 +0000] "GET /x HTTP/1.1" 503 190 "-" "-" 0.000 -
127.0.0.1 - - [19/Nov/2026:05:40:07 +0000] "GET /x HTTP/1.1" 503 190 "-" "-" 0.010 0.009
127.0.0.1 - - [19/Nov/2026:05:40:08 +0000] "GET /static HTTP/1.1" 200 2 "-" "curl/7.88.1"
"#;

#[test]
fn nginx_lines_as_nginx_writes_them_are_read() {
    let (imported, summary) = import(NGINX, None);
    assert_eq!((summary.requests, summary.refused_count), (7, 0));
    assert_eq!(summary.without_time, 1, "a time of 0.000 is one");
    let by = |decision, ending| {
        let like = |request: &&Request| (request.decision, request.ending) == (decision, ending);
        imported.requests.iter().filter(like).count()
    };
    assert_eq!(by(Decision::Admitted, Ending::Served), 3);
    assert_eq!(by(Decision::Rejected, Ending::Unsent), 2);
    // nginx refused one of the two by itself: no upstream was asked.
    assert_eq!(by(Decision::Shed, Ending::Unsent), 1);
    assert_eq!(by(Decision::Admitted, Ending::Failed), 1);
}

#[test]
fn haproxy_lines_without_a_request_have_a_remedy() {
    for (line, part) in [
        (
            "<134>Nov 19 05:39:26 haproxy[9710]: Connect from 127.0.0.1:58866 to 127.0.0.1:38092 \
             (plain/HTTP)",
            "set `option httplog`",
        ),
        (
            r#"127.0.0.1 - - [19/Nov/2026:05:40:12 +0000] "GET /q HTTP/1.1" 200 220 "" "" 53914 464 "cl" "b" "s1" 0 0 0 13 13 ---- 1 1 0 0 0 0 0 "" "" "#,
            "without `clf`",
        ),
    ] {
        let (_, summary) = import(line, None);
        assert_eq!(summary.requests, 0);
        let cause = &summary.refused[0].1;
        assert!(cause.contains(part), "{cause}");
        let (_, summary) = import(line, Some(Format::Haproxy));
        assert!(summary.refused[0].1.contains(part), "{summary:?}");
    }
}

#[test]
fn haproxy_request_that_was_none_is_rejected() {
    let log = r#"127.0.0.1:46008 [19/Nov/2026:05:40:06.140] f f/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#;
    let (imported, summary) = import(log, None);
    assert_eq!((summary.requests, summary.without_time), (1, 0));
    assert_eq!(imported.requests[0].decision, Decision::Rejected);
}

#[test]
fn json_of_another_server_is_no_log_of_ours() {
    let line = r#"{"time":"2026-11-19T05:39:26+00:00","remote_addr":"127.0.0.1","request":"GET / HTTP/1.1","status":200,"request_time":0.014}"#;
    let (_, summary) = import(line, None);
    assert_eq!((summary.requests, summary.refused_count), (0, 1));
    let cause = &summary.refused[0].1;
    assert!(cause.contains("not Tidegate's"), "{cause}");
}

#[test]
fn bytes_that_are_no_text_cost_only_themselves() {
    let mut log = NGINX.as_bytes().to_vec();
    log.extend(b"192.0.2.1 - - [19/Nov/2026:05:40:09 +0000] \"GET /\xff HTTP/1.1\" 200 1 \"-\" \"\xfe\" 0.1 0.1\n");
    log.extend(b"\xff\xfe\r\n");
    let (_, summary) = read(&log[..], None, fold).unwrap();
    assert_eq!((summary.requests, summary.refused_count), (8, 1));
}

#[test]
fn compressed_log_is_refused_with_the_remedy() {
    let error = read(&[0x1f, 0x8b, 8, 0][..], None, fold).unwrap_err();
    assert!(error.to_string().contains("zcat"), "{error}");
}
