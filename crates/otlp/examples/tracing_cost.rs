//! Requests through a proxy of one thread, for counting its instructions: `bench/tracing/run`.
//!
//! usage: tracing_cost REQUESTS [SHARE]     without a share nothing is exported

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

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let requests: u32 = arguments.next().ok_or("how many requests?")?.parse()?;
    let share = arguments.next();
    let (service, collector) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (upstream, endpoint) = (service.local_addr()?, collector.local_addr()?);
    let text = format!(
        "admin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\nupstream = 'http://{upstream}'\n\
         tracing.per_second = 100000\n"
    );
    // The worker is the third thread: it starts before the others.
    let proxy = Proxy::bind(Config::from_text("cost.toml", &text)?)?.start()?;
    std::thread::spawn(move || serve(&service));
    std::thread::spawn(move || collect(&collector));
    let operations = Operations::bind(proxy.state().clone(), Source::default())?;
    let environment = |share: String| {
        let variable = move |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(format!("http://{endpoint}")),
            "OTEL_TRACES_SAMPLER" => Some("traceidratio".to_owned()),
            "OTEL_TRACES_SAMPLER_ARG" => Some(share.clone()),
            _ => None,
        };
        Environment::read(&variable).0
    };
    let exporter = share.map(|share| Exporter::start(environment(share), operations.telemetry()));
    let exporter = exporter.transpose()?;
    let mut client = TcpStream::connect(proxy.local_addr())?;
    client.set_nodelay(true)?;
    let mut head = Vec::new();
    for _ in 0..requests {
        client.write_all(b"GET /orders/17?x=1 HTTP/1.1\r\nhost: shop.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")?;
        if !read_head(&mut client, &mut head)? {
            return Err("the proxy closed the connection".into());
        }
    }
    let recorded = proxy.state().traces().recorded();
    drop(exporter);
    eprintln!("{requests} requests, {recorded} recorded");
    Ok(())
}
