//! All metrics at a time, for Prometheus and for collectors. What a metric is called and means
//! stands above the function that reads it, in a file for each subject.

mod classes;
mod edge;
mod engine;
mod proxy;
mod replicas;

use super::{Operator, process as usage, shadow};
use crate::application::Application;
use crate::metrics::family::Page;
use crate::metrics::{Family, Metric};

/// Every metric there is, for the reference.
pub(super) fn catalogue() -> Vec<&'static Metric> {
    let lists = [
        edge::COMPANION_METRICS,
        shadow::SHADOW_METRICS,
        edge::EDGE_METRICS,
        proxy::FLEET_METRICS,
        proxy::PROCESS_METRICS,
        edge::DEFERRAL_METRICS,
        classes::PER_CLASS_METRICS,
        classes::BY_REASON_METRICS,
        classes::DECISIONS_METRICS,
        classes::CONTRACTS_METRICS,
        engine::POLICING_METRICS,
        classes::TIMES_METRICS,
        engine::ENGINE_METRICS,
        engine::CONTROLLER_METRICS,
        engine::BROWNOUT_METRICS,
        engine::PER_BROWNOUT_REPLICA_METRICS,
        replicas::PER_REPLICA_METRICS,
        replicas::REPLICAS_METRICS,
        edge::TOKENS_METRICS,
        proxy::CONNECTIONS_METRICS,
        edge::REQUESTS_METRICS,
        proxy::ACCESS_LOG_METRICS,
        proxy::RELOADS_METRICS,
        proxy::TRACES_METRICS,
        usage::PROCESS_USAGE_METRICS,
    ];
    lists.into_iter().flatten().copied().collect()
}

/// The metrics of the proxy as they are now.
pub(super) fn families(operator: &Operator) -> Vec<Family> {
    let state = &operator.state;
    let totals = state.metrics().totals();
    let mut page = Page::default();
    proxy::process(&mut page, operator);
    let applications = state.applications();
    for application in applications.iter() {
        page.set_application(Some(application.name()));
        self::application(&mut page, application);
        let recent = operator.watch(application.name(), |watch| watch.pictures.recent());
        engine::power(&mut page, recent.total.power);
    }
    page.set_application(None);
    if applications.single().is_none() {
        edge::requests(&mut page, &totals);
    }
    proxy::connections(&mut page, &totals);
    proxy::access_log(&mut page, operator, &totals);
    proxy::reloads(&mut page, &operator.reloader.status());
    proxy::traces(&mut page, state.traces());
    if let Some(status) = operator.fleet_status() {
        proxy::fleet(&mut page, &status);
    }
    page.finish()
}

fn application(page: &mut Page, application: &Application) {
    let status = application.sentry().status(application.now());
    let totals = application.metrics().totals();
    classes::decisions(page, &status.classes, &totals);
    classes::contracts(page, &status.classes);
    classes::times(page, &status, &totals);
    engine::engine(page, &status);
    engine::policing(page, &status);
    engine::controller(page, &status);
    engine::brownout(page, application, status.brownout.as_ref());
    replicas::replicas(page, application, &status.replicas, &totals.replicas);
    edge::requests(page, &totals);
    if let Some(channel) = application.channel() {
        edge::deferral(page, &channel.status());
    }
    edge::tokens(page, application);
    edge::edge(page, application);
    edge::companion(page, application);
    shadow::metrics(page, application);
}

/// A metric, and where its values come from.
type Reading<Of, Value> = (&'static Metric, fn(&Of) -> Value);
