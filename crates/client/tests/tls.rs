//! The same over TLS: server and channel behind certificates of an authority of our own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../channel/tests/support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use support::{key, listener, publisher, soon, until};
use tidegate_channel::Strategy;
use tidegate_channel::net::Dialer;
use tidegate_client::{Client, Config, Outcome};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Speaks TLS and passes on to a plain address.
async fn encrypt(to: SocketAddr, config: Arc<ServerConfig>) -> SocketAddr {
    let (listener, addr) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await.ok()?;
                let mut inside = TcpStream::connect(to).await.ok()?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside)
                    .await
                    .ok()
            });
        }
    });
    addr
}

/// A service that takes everything.
async fn service() -> SocketAddr {
    let (listener, addr) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"taken"))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    addr
}

fn tls(certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from(certified.cert.der().to_vec())];
    let secret = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, secret.into());
    Arc::new(config.unwrap())
}

#[tokio::test]
async fn server_and_channel_are_reached_by_https_if_their_authority_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let publisher = publisher().await;
    publisher.say(1, Strategy::Open);
    let channel = encrypt(publisher.addr, tls(&certified)).await;
    let server = encrypt(service().await, tls(&certified)).await;
    let channel = format!("https://{channel}");
    let refused = Dialer::default().get(&channel, "/", None).await;
    assert!(refused.unwrap_err().to_string().contains("certificate"));

    let config = Config {
        dialer: Dialer::trusting(&ca).unwrap(),
        parents: tidegate_channel::net::relay::Parents::Fixed(vec![channel.clone()]),
        ..Config::new(&channel, key().public(), folder.path().join("outbox.redb"))
    };
    let client = Client::open(config).unwrap();
    until(|| !client.status().partitioned).await;
    // The clock was compared too.
    until(|| client.status().clock_error_ms < 10_000).await;
    let bid = Request::post(format!("https://{server}/bids")).body(Bytes::from_static(b"1"));
    let ticket = client.submit(bid.unwrap(), None).unwrap();
    let Outcome::Answered(response) = soon(ticket.outcome()).await else {
        panic!("the bid has no answer")
    };
    assert_eq!(&response.body()[..], b"taken");
}

#[test]
fn file_without_certificates_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "nothing").unwrap();
    let error = Dialer::trusting(&file).unwrap_err().to_string();
    assert!(error.contains("ca.pem") && error.contains("PEM"), "{error}");
    assert!(Dialer::trusting(&folder.path().join("missing")).is_err());
}
