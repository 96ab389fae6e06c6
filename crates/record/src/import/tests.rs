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
    let line =
        "1.2.3.4 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 0.000\n";
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
