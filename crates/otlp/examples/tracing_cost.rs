//! What traces cost the data path: CPU time of the proxy's thread, kernel included, per request.
//!
//! usage: tracing_cost REQUESTS ROUNDS
//!
//! Each round sends this many requests without traces and with 0 %, 1 % and 100 % of them recorded,
//! one after the other through the same proxy and connection, and compares within the round.
//! Instruction counts would be steadier, but callgrind cannot run programs of rustix.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tidegate_otlp::{Environment, Exporter};
use tidegate_proxy::Proxy;
use tidegate_proxy::admin::Operations;
use tidegate_proxy::config::Config;
use tidegate_proxy::reload::Source;

/// Reads to the end of a head; false at the end of the connection.
fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<bool> {
    buffer.clear();
    let mut chunk = [0; 4096];
    while !buffer.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(false),
            count => buffer.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(true)
}

/// Answers every request at once, whatever it is.
fn serve(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        std::thread::spawn(move || {
            let mut head = Vec::new();
            while matches!(read_head(&mut stream, &mut head), Ok(true)) {
                if stream
                    .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                    .is_err()
                {
                    return;
                }
            }
        });
    }
}

/// Takes every message of a collector; its connections carry one each.
fn collect(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut chunk = [0; 65536];
        if stream.read(&mut chunk).is_ok() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    }
}

/// CPU time of the proxy's thread so far, in nanoseconds, as the scheduler counts it.
fn worker_nanos() -> Result<u64, Box<dyn Error>> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == "worker-0" {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            let spent = text.split_whitespace().next().ok_or("no schedstat")?;
            return Ok(spent.parse()?);
        }
    }
    Err("there is no worker".into())
}

/// What is compared; the first is what the others are compared with.
const FORMS: [(&str, &str); 4] = [
    ("no traces", "tracing.context = false"),
    ("0 % recorded", "tracing.sample = '0%'"),
    ("1 % recorded", "tracing.sample = '1%'"),
    ("100 % recorded", "tracing.sample = '100%'"),
];

const REQUEST: &[u8] = b"GET /orders/17?x=1 HTTP/1.1\r\nhost: shop.example\r\n\
    user-agent: bench\r\naccept: */*\r\n\r\n";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || {
        arguments
            .next()
            .ok_or("how many requests, how many rounds?")
    };
    let (requests, rounds): (u32, usize) = (number()?.parse()?, number()?.parse()?);
    let (service, collector) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (upstream, endpoint) = (service.local_addr()?, collector.local_addr()?);
    let configured = |tracing: &str| {
        let text = format!(
            "admin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\nupstream = \
             'http://{upstream}'\ntracing.per_second = 100000\n{tracing}"
        );
        Config::from_text("cost.toml", &text)
    };
    let proxy = Proxy::bind(configured(FORMS[0].1)?)?.start()?;
    std::thread::spawn(move || serve(&service));
    std::thread::spawn(move || collect(&collector));
    let operations = Operations::bind(proxy.state().clone(), Source::default())?;
    let variable = |name: &str| {
        let endpoint = || format!("http://{endpoint}");
        (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(endpoint)
    };
    let environment = Environment::read(&variable).0;
    let exporter = Exporter::start(environment, operations.telemetry())?;
    let mut client = TcpStream::connect(proxy.local_addr())?;
    client.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut ratios = [const { Vec::new() }; FORMS.len()];
    for round in 0..=rounds {
        let mut spent = [0.0; FORMS.len()];
        for (form, (_, tracing)) in FORMS.iter().enumerate() {
            proxy.state().apply(configured(tracing)?)?;
            let before = worker_nanos()?;
            for _ in 0..requests {
                client.write_all(REQUEST)?;
                if !read_head(&mut client, &mut head)? {
                    return Err("the proxy closed the connection".into());
                }
            }
            spent[form] = (worker_nanos()? - before) as f64 / f64::from(requests);
        }
        // The first round warms up.
        if round > 0 {
            for (form, ratios) in ratios.iter_mut().enumerate() {
                ratios.push((spent[form] / spent[0], spent[form]));
            }
        }
    }
    let recorded = proxy.state().traces().recorded();
    drop(exporter);
    for ((name, _), ratios) in FORMS.iter().zip(&mut ratios) {
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
        eprintln!(
            "{name:>15}: {:.3} of the CPU time without (quartiles {:.3} to {:.3}), {:.1} us",
            at(0.5).0,
            at(0.25).0,
            at(0.75).0,
            at(0.5).1 / 1e3
        );
    }
    eprintln!("{recorded} requests were recorded");
    Ok(())
}
