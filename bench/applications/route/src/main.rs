//! What it costs to choose the application of a request: nanoseconds per request with one
//! application, with 1 000 hosts, and with 1 000 wildcards.

#[path = "../../../../crates/proxy/src/router.rs"]
#[allow(dead_code)]
mod router;

mod config {
    /// The part of an application that the router reads.
    #[derive(Default)]
    pub(crate) struct Application {
        pub(crate) name: String,
        pub(crate) hosts: Vec<String>,
        pub(crate) paths: Vec<String>,
    }

    impl Application {
        /// None of these gets the requests of another one.
        pub(crate) fn companion(&self) -> Option<()> {
            None
        }
    }
}

use std::hint::black_box;

use config::Application;
use router::Router;

const HOSTS: usize = 1000;
const LOOKUPS: usize = 1_000_000;
const ROUNDS: usize = 9;

fn applications(pattern: &str, paths: &[&str]) -> Vec<Application> {
    let of = |number: usize| Application {
        name: format!("app-{number}"),
        hosts: vec![pattern.replace("{}", &number.to_string())],
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    (0..HOSTS).map(of).collect()
}

/// Nanoseconds that this thread has had a processor: what others do on the machine does not count.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.expect("schedstat begins with a number")
}

/// The median of several rounds, in nanoseconds of processor time per request.
fn measured(router: &Router, asked: &[(String, &str)]) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = processor_nanos();
            for number in 0..LOOKUPS {
                let (host, path) = &asked[number % asked.len()];
                black_box(router.route(black_box(host.as_bytes()), black_box(path.as_bytes())));
            }
            (processor_nanos() - begun) as f64 / LOOKUPS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn asked(pattern: &str, path: &'static str) -> Vec<(String, &'static str)> {
    let host = |number: usize| (pattern.replace("{}", &number.to_string()), path);
    (0..HOSTS).map(|number| host(number * 7919 % HOSTS)).collect()
}

fn main() {
    let exact = Router::new(&applications("shop-{}.example.com", &[]), None);
    let paths = Router::new(&applications("shop-{}.example.com", &["/api", "/v2"]), None);
    let wildcards = Router::new(&applications("*.shop-{}.example.com", &[]), None);
    let host = "shop-{}.example.com:8080";
    let rows = [
        ("one application", measured(&Router::single(), &asked(host, "/a"))),
        ("1000 hosts", measured(&exact, &asked(host, "/a"))),
        ("1000 hosts, two paths each", measured(&paths, &asked(host, "/v2/users"))),
        ("1000 wildcards", measured(&wildcards, &asked("eu.shop-{}.example.com", "/a"))),
        ("1000 hosts, none fits", measured(&exact, &asked("other-{}.example.org", "/a"))),
    ];
    for (name, nanos) in rows {
        println!("{name:30} {nanos:7.1} ns");
    }
}
