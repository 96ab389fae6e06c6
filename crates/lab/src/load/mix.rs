//! What is requested: the kinds of a mix on every target, resolved and ready to be sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use rand::Rng;
use rand_distr::Distribution as _;
use rand_distr::weighted::WeightedAliasIndex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use super::config::{LoadConfig, LoadError, Protocol, RequestSpec};
use super::transport::{Endpoint, Lease, Pool, Route, Trouble};

/// Kinds of requests, how often each one is chosen, and the targets they go to in turns.
#[derive(Debug)]
pub(super) struct Mix {
    /// By target, then by kind.
    kinds: Vec<Vec<Arc<Kind>>>,
    choice: WeightedAliasIndex<f64>,
    turn: usize,
    trouble: Trouble,
}

impl Mix {
    /// Looks up every host once and prepares what does not change from request to request.
    pub(super) async fn resolve(config: &LoadConfig) -> Result<Self, LoadError> {
        let trouble = Trouble::default();
        let mut kinds = Vec::with_capacity(config.targets.len());
        for target in &config.targets {
            let endpoint = endpoint(target, config, &trouble).await?;
            let pool = Pool::new(endpoint, config.protocol, config.connections);
            let on_target = |spec| Kind::prepare(spec, target, config, pool.clone()).map(Arc::new);
            kinds.push(
                config
                    .requests
                    .iter()
                    .map(on_target)
                    .collect::<Result<_, _>>()?,
            );
        }
        let weights = config.requests.iter().map(|spec| spec.weight).collect();
        let choice = WeightedAliasIndex::new(weights).map_err(|_| LoadError::Weights)?;
        Ok(Self {
            kinds,
            choice,
            turn: 0,
            trouble,
        })
    }

    /// Why the first connection that failed did.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.get().cloned()
    }

    /// What the next request is: the index of its kind, and the kind on the target whose turn it
    /// is.
    pub(super) fn draw(&mut self, rng: &mut impl Rng) -> (usize, Arc<Kind>) {
        let index = self.choice.sample(rng);
        (index, self.kind(index))
    }

    /// A kind on the target whose turn it is.
    pub(super) fn kind(&mut self, index: usize) -> Arc<Kind> {
        self.turn = (self.turn + 1) % self.kinds.len();
        Arc::clone(&self.kinds[self.turn][index])
    }
}

/// One kind of request to one target.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) timeout: Duration,
    pub(super) read_pause: Option<Duration>,
    route: Route,
}

impl Kind {
    fn prepare(
        spec: &RequestSpec,
        target: &Uri,
        config: &LoadConfig,
        pool: Pool,
    ) -> Result<Self, LoadError> {
        let url = with_path(target, spec.path.as_ref())?;
        let mut headers = spec.headers.clone();
        let uri = match config.protocol {
            Protocol::Http1 => {
                set_host(&mut headers, &url)?;
                origin_form(&url)
            }
            Protocol::Http2 { .. } => url,
        };
        let mut request = Request::new(spec.body.clone());
        *request.method_mut() = spec.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(Self {
            timeout: spec.timeout.unwrap_or(config.timeout),
            read_pause: spec.read_pause,
            route: pool.route(request),
        })
    }

    /// The right to send one of it; `None` when every connection is busy.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.route.lease()
    }
}

fn with_path(target: &Uri, path: Option<&PathAndQuery>) -> Result<Uri, LoadError> {
    let Some(path) = path else {
        return Ok(target.clone());
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path.clone());
    Uri::from_parts(parts).map_err(|_| LoadError::Url(target.clone()))
}

fn set_host(headers: &mut HeaderMap, url: &Uri) -> Result<(), LoadError> {
    if headers.contains_key(header::HOST) {
        return Ok(());
    }
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).map_err(|_| LoadError::Url(url.clone()))?;
    headers.insert(header::HOST, host);
    Ok(())
}

fn origin_form(url: &Uri) -> Uri {
    url.path_and_query()
        .map_or_else(Uri::default, |path| Uri::from(path.clone()))
}

async fn endpoint(
    url: &Uri,
    config: &LoadConfig,
    trouble: &Trouble,
) -> Result<Endpoint, LoadError> {
    let (tls, host) = match (url.scheme_str(), url.host()) {
        (Some("http"), Some(host)) => (false, host),
        (Some("https"), Some(host)) => (true, host),
        _ => return Err(LoadError::Url(url.clone())),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Ok(Endpoint {
        address: address_of(url, host, port).await?,
        tls: if tls {
            Some(verification(url, host, config)?)
        } else {
            None
        },
        trouble: Arc::clone(trouble),
    })
}

/// By what, and under which name, a target is verified.
fn verification(
    url: &Uri,
    host: &str,
    config: &LoadConfig,
) -> Result<(Arc<ClientConfig>, ServerName<'static>), LoadError> {
    let tls = config.tls.clone();
    let tls = tls.ok_or_else(|| LoadError::NoTls(url.clone()))?;
    let name = ServerName::try_from(host.to_owned());
    Ok((tls, name.map_err(|_| LoadError::Url(url.clone()))?))
}

async fn address_of(url: &Uri, host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let unresolved = |source| LoadError::Resolve {
        url: url.clone(),
        source,
    };
    let mut found = tokio::net::lookup_host((host, port))
        .await
        .map_err(unresolved)?;
    found
        .next()
        .ok_or_else(|| unresolved(std::io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::rng::Streams;
    use tidegate_sim::workload::RateFunction;

    async fn address(url: &'static str) -> Result<SocketAddr, LoadError> {
        let config = LoadConfig::new(Vec::new(), RateFunction::constant(1.0), Duration::ZERO);
        let found = endpoint(&Uri::from_static(url), &config, &Trouble::default()).await;
        found.map(|endpoint| endpoint.address)
    }

    #[tokio::test]
    async fn only_urls_with_a_host_are_taken() {
        assert_eq!(address("http://127.0.0.1:81/x").await.unwrap().port(), 81);
        assert_eq!(address("http://[::1]/x").await.unwrap().port(), 80);
        let unverified = address("https://127.0.0.1/").await;
        assert!(matches!(unverified, Err(LoadError::NoTls(_))));
        assert!(address("ftp://127.0.0.1/").await.is_err());
        assert!(address("/path").await.is_err());
    }

    #[test]
    fn http1_sends_the_path_and_keeps_a_given_host() {
        let url = Uri::from_static("http://127.0.0.1:81/a?b=c");
        assert_eq!(origin_form(&url), "/a?b=c");
        let mut headers = HeaderMap::new();
        set_host(&mut headers, &url).unwrap();
        assert_eq!(headers[header::HOST], "127.0.0.1:81");
        headers.insert(header::HOST, HeaderValue::from_static("shop"));
        set_host(&mut headers, &url).unwrap();
        assert_eq!(headers[header::HOST], "shop");
    }

    #[tokio::test]
    async fn kinds_are_drawn_by_weight_and_targets_in_turns() {
        let target = |port| format!("http://127.0.0.1:{port}/").parse().unwrap();
        let mut config = LoadConfig::new(
            vec![target(1), target(2)],
            RateFunction::constant(1.0),
            Duration::from_secs(1),
        );
        config.requests = [3.0, 1.0]
            .map(|weight| RequestSpec {
                weight,
                ..RequestSpec::default()
            })
            .to_vec();
        let mut mix = Mix::resolve(&config).await.unwrap();
        let mut rng = Streams::new(1).stream("mix");
        let draws: Vec<_> = (0..4000).map(|_| mix.draw(&mut rng)).collect();
        let first_kind = draws.iter().filter(|(kind, _)| *kind == 0).count() as f64;
        // Binomial with mean 3000 and standard deviation sqrt(4000 * 3/4 * 1/4) = 27.4.
        assert!((first_kind - 3000.0).abs() < 5.0 * 27.4, "{first_kind}");
        let turns: Vec<bool> = (draws[..4].iter())
            .map(|(index, kind)| Arc::ptr_eq(kind, &mix.kinds[0][*index]))
            .collect();
        assert_eq!(turns, [false, true, false, true]);
    }
}
