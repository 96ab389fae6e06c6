//! Replicas that are the ready endpoints of a Service of Kubernetes.
//!
//! A watch tells when they change. Endpoints that are not ready, or whose pod is being deleted, get
//! no new requests. While the API server is away, or no endpoint is ready, those that were known
//! stay.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate_kubernetes::{Endpoint, ServiceRef, ServiceWatch, Source, connect};
use tokio::sync::Notify;

use super::Found;
use crate::config::{EndpointSource, KubernetesService, Origin};
use crate::pool::{Member, MemberState};

/// How long the first look waits for an answer.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// A Service that is followed.
pub(super) type Watch = ServiceWatch;

/// The ready endpoints; begins to follow the Service at the first call.
pub(super) async fn find(
    watch: &mut Option<Watch>,
    service: &KubernetesService,
    changed: &Arc<Notify>,
) -> Result<Found, String> {
    if watch.is_none() {
        *watch = Some(follow(service, changed).await?);
    }
    let Some(watch) = watch else {
        return Err("it is not followed".to_owned());
    };
    watch.settled(FIRST_ANSWER).await;
    let state = watch.state();
    if let Some(failure) = state.failure() {
        return Err(failure.to_owned());
    }
    let Some(endpoints) = state.endpoints else {
        return Err("the API server did not answer yet".to_owned());
    };
    let members = members(&endpoints, service.tls);
    if members.is_empty() {
        return Err(format!(
            "none of its {} endpoints is ready",
            endpoints.len()
        ));
    }
    Ok(Found { members, ttl: None })
}

async fn follow(service: &KubernetesService, changed: &Arc<Notify>) -> Result<Watch, String> {
    let client = connect(service.kubeconfig.as_deref()).await;
    let client = client.map_err(|error| error.to_string())?;
    let namespace = service.namespace.clone();
    let followed = ServiceRef {
        namespace: namespace.unwrap_or_else(|| client.default_namespace().to_owned()),
        service: service.service.clone(),
        port: service.port.parse()?,
        source: match service.source {
            EndpointSource::Auto => Source::Auto,
            EndpointSource::EndpointSlices => Source::EndpointSlices,
            EndpointSource::Endpoints => Source::Endpoints,
        },
    };
    let changed = Arc::clone(changed);
    Ok(Watch::new(client, followed, move || changed.notify_one()))
}

fn members(endpoints: &[Endpoint], tls: bool) -> Vec<Member> {
    let ready = endpoints.iter().filter(|it| it.ready);
    let member = |it: &Endpoint| Member {
        url: Origin {
            tls,
            host: it.address.ip().to_string(),
            port: it.address.port(),
        },
        weight: NonZeroU32::MIN,
        state: MemberState::Active,
    };
    ready.map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_endpoints_are_replicas() {
        let endpoint = |address: &str, ready| Endpoint {
            address: address.parse().unwrap(),
            ready,
            terminating: false,
            pod: None,
        };
        let all = [
            endpoint("10.0.0.7:8080", true),
            endpoint("10.0.0.8:8080", false),
            endpoint("[fd00::9]:8080", true),
        ];
        let urls: Vec<_> = members(&all, false)
            .iter()
            .map(|it| it.url.to_string())
            .collect();
        assert_eq!(urls, ["http://10.0.0.7:8080", "http://[fd00::9]:8080"]);
    }
}
