//! The nucleus beside a service that is not written in Rust: a small reverse proxy on the same
//! machine.
//!
//! It forwards everything unchanged, adds the measurements to the answers, and passes
//! `tidegate-optional` on, so that the application in whatever language needs to look at one header.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;

use crate::core::Nucleus;
use crate::layer::measured;
use crate::wire::Instructions;

type AnyBody = BoxBody<Bytes, hyper::Error>;

/// Headers that concern one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "trailer",
];

/// What the sidecar stands in front of.
#[derive(Debug, Clone)]
pub struct Upstream {
    authority: Authority,
}

/// An upstream that cannot be used, and what to write instead.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a service beside this one: write http://HOST:PORT without a path")]
pub struct BadUpstream(String);

impl std::str::FromStr for Upstream {
    type Err = BadUpstream;

    fn from_str(text: &str) -> Result<Self, BadUpstream> {
        let refused = || BadUpstream(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let plain = uri.scheme() == Some(&Scheme::HTTP) && matches!(uri.path(), "" | "/");
        match uri.authority() {
            Some(authority) if plain && uri.query().is_none() => Ok(Self {
                authority: authority.clone(),
            }),
            _ => Err(refused()),
        }
    }
}

/// Serves until `stop` is done, then lets requests in flight finish.
pub async fn serve(
    listener: TcpListener,
    upstream: Upstream,
    nucleus: Arc<Nucleus>,
    stop: impl Future<Output = ()>,
) {
    let client: Client<HttpConnector, Incoming> =
        Client::builder(TokioExecutor::new()).build_http();
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or the peer left already: the next accept may work.
                Err(_) => { tokio::task::yield_now().await; continue }
            },
            () = &mut stop => break,
        };
        let (client, upstream, nucleus) = (client.clone(), upstream.clone(), Arc::clone(&nucleus));
        let service = service_fn(move |request| {
            forward(
                client.clone(),
                upstream.clone(),
                Arc::clone(&nucleus),
                request,
            )
        });
        let connection = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        tokio::spawn(graceful.watch(connection));
    }
    graceful.shutdown().await;
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    upstream: Upstream,
    nucleus: Arc<Nucleus>,
    mut request: Request<Incoming>,
) -> Result<Response<AnyBody>, Infallible> {
    let flight = nucleus.begin(Instructions::read(request.headers()));
    for name in HOP_BY_HOP {
        request.headers_mut().remove(name);
    }
    *request.version_mut() = http::Version::HTTP_11;
    *request.uri_mut() = upstream.uri(request.uri());
    Ok(match client.request(request).await {
        Ok(mut response) => {
            for name in HOP_BY_HOP {
                response.headers_mut().remove(name);
            }
            measured(response, Some(flight)).map(BodyExt::boxed)
        }
        Err(error) => bad_gateway(&error),
    })
}

impl Upstream {
    fn uri(&self, asked: &Uri) -> Uri {
        let path = asked.path_and_query().map_or("/", |path| path.as_str());
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .unwrap_or_else(|_| asked.clone())
    }
}

fn bad_gateway(error: &hyper_util::client::legacy::Error) -> Response<AnyBody> {
    let text = format!("the service beside this sidecar did not answer: {error}\n");
    let body = Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_a_host_and_a_port() {
        assert!("http://127.0.0.1:3000".parse::<Upstream>().is_ok());
        assert!("http://[::1]:3000/".parse::<Upstream>().is_ok());
        for bad in [
            "127.0.0.1:3000",
            "https://a:1",
            "http://a:1/path",
            "http://a:1/?q",
            "",
        ] {
            let error = bad.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
