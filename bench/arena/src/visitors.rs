//! A scenario's clients as requests of the load generator.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tidegate_lab::load::{LoadConfig, RequestSpec, Retry};
use tidegate_sim::arena::Entry;
use tidegate_sim::client::ClientSpec;

use crate::failure::Failure;

/// What a client that has no patience of its own waits for at most.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// The header that says the class of a request, to every contender alike.
pub(crate) const CLASS_HEADER: HeaderName = HeaderName::from_static("x-class");

/// The path of requests that are `factor` times the usual work.
pub(crate) fn slow_path(factor: f64) -> String {
    format!("/slow-{factor}")
}

/// The load of a scenario, sent to `proxy`.
///
/// # Errors
/// A scenario that needs more than the generator can do.
pub(crate) fn visitors(entry: &Entry, proxy: SocketAddr, seed: u64) -> Result<LoadConfig, Failure> {
    let scenario = &entry.scenario;
    let refuse = |why: &str| Failure::said(format!("{} cannot run live: {why}", entry.name));
    let [load] = &*scenario.load else {
        return Err(refuse("it has several loads"));
    };
    let rate = load
        .rate
        .clone()
        .ok_or_else(|| refuse("its load is not open-loop"))?;
    let target = scenario.target.ok_or_else(|| refuse("it has no target"))?;
    let first = load
        .client
        .first()
        .ok_or_else(|| refuse("nobody sends anything"))?;
    let uri: Uri = format!("http://{proxy}/")
        .parse()
        .map_err(|_| refuse("its address"))?;
    let requests = load.client.iter().enumerate();
    let requests = requests.map(|(index, client)| {
        request(index, client).ok_or_else(|| refuse("a client has its own law of work"))
    });
    Ok(LoadConfig {
        requests: requests.collect::<Result<_, _>>()?,
        pattern: load.pattern(),
        warm_up: scenario.warm_up.0,
        connections: 20_000,
        timeout: PATIENCE_MAX,
        retry: retry(first),
        target_time: target.0,
        seed,
        ..LoadConfig::new(vec![uri], rate, scenario.duration.0)
    })
}

/// The name of a kind of client in the load's report.
pub(crate) fn kind_name(index: usize, client: &ClientSpec) -> String {
    let name = client.class.as_deref().unwrap_or("clients");
    format!("{index}-{name}")
}

fn request(index: usize, client: &ClientSpec) -> Option<RequestSpec> {
    if client.service.is_some() {
        return None;
    }
    let path = match &client.stream {
        Some(length) => format!("/stream?events={:.0}&every=1s", length.mean().max(1.0)),
        None if client.work != 1.0 => slow_path(client.work),
        None => "/".to_owned(),
    };
    let class = client
        .class
        .as_deref()
        .and_then(|class| HeaderValue::from_str(class).ok());
    Some(RequestSpec {
        name: kind_name(index, client),
        weight: client.share,
        path: path.parse().ok(),
        headers: class
            .map(|class| (CLASS_HEADER, class))
            .into_iter()
            .collect::<HeaderMap>(),
        timeout: client
            .timeout
            .as_ref()
            .map(|law| Duration::from_secs_f64(law.mean())),
        read_pause: client
            .read
            .as_ref()
            .map(|law| Duration::from_secs_f64(law.mean())),
        ..RequestSpec::default()
    })
}

/// The retries of the whole load, which are those of its first client.
fn retry(client: &ClientSpec) -> Retry {
    client
        .retry
        .as_ref()
        .map_or_else(Retry::default, |retry| Retry {
            retries_max: retry.attempts.get(),
            backoff: retry.backoff.0,
            backoff_max: retry.max_backoff.0,
            obey_retry_after: retry.obey,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_live_scenario_has_a_load() {
        let proxy = "127.0.0.1:1".parse().unwrap();
        for name in crate::program::SCENARIOS {
            let entry = crate::plant::entry(name).unwrap();
            let load = visitors(&entry, proxy, 1).unwrap();
            assert!(load.validate().is_ok(), "{name}");
        }
    }
}
