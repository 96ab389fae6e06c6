//! What a replica says about itself in headers or trailers.
//!
//! Our own `tidegate-demand`, `tidegate-service-ms` and the others of `docs/nucleus.md`, and those
//! of [ORCA](super::orca). The engine judges the numbers; here they are only read.

use std::str::FromStr;

use http::{HeaderName, HeaderValue};
use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, PathKey, ReplicaId, Report};

use super::orca;
use crate::application::Application;
use crate::gate::Slot;
use crate::hop::{Border, Contraband};
use crate::message::Fields;
use crate::request::Request;

const UTILIZATION: HeaderName = HeaderName::from_static("tidegate-utilization");
const SERVICE_MS: HeaderName = HeaderName::from_static("tidegate-service-ms");
const DEMAND: HeaderName = HeaderName::from_static("tidegate-demand");
const DIMMER: HeaderName = HeaderName::from_static("tidegate-dimmer");
const OPTIONAL: HeaderName = HeaderName::from_static("tidegate-optional");
const CPU_MS: HeaderName = HeaderName::from_static("tidegate-cpu-ms");
const IO_MS: HeaderName = HeaderName::from_static("tidegate-io-ms");
const IN_SERVICE: HeaderName = HeaderName::from_static("tidegate-in-service");
const COST: HeaderName = HeaderName::from_static("tidegate-cost");
const QUEUE_MS: HeaderName = HeaderName::from_static("tidegate-queue-ms");

/// Who reports, and on which request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) replica: ReplicaId,
    class: ClassId,
    path: Option<PathKey>,
    tenant: Option<u64>,
    admitted: Timestamp,
}

impl About {
    pub(crate) fn new(request: &Request, slot: &Slot) -> Self {
        Self {
            replica: slot.replica(),
            class: slot.class(),
            path: request.head.keys.path,
            tenant: request.head.keys.tenant,
            admitted: slot.admitted(),
        }
    }
}

/// Removes from a replica's headers or trailers what is not for clients, and passes a report on.
pub(crate) fn strip(application: &Application, about: About, headers: &mut Fields) {
    let contraband = Contraband::find(headers, Border::ToClient);
    if contraband.may_report()
        && let Some(report) = read(headers)
    {
        let now = application.now();
        let report = Report {
            class: about.class,
            path: about.path,
            tenant: about.tenant,
            measured_seconds: Some((now - about.admitted).as_secs_f64()),
            ..report
        };
        application.sentry().on_report(now, about.replica, &report);
    }
    contraband.remove(headers);
}

/// Passes on what a request has cost, if its answer says so.
pub(crate) fn cost(application: &Application, about: About, cost: Option<f64>) {
    if cost.is_none() {
        return;
    }
    let report = Report {
        cost,
        class: about.class,
        path: about.path,
        tenant: about.tenant,
        ..Report::default()
    };
    let now = application.now();
    application.sentry().on_report(now, about.replica, &report);
}

/// The utilization that a replica tells, in either spelling.
pub(crate) fn utilization(headers: &Fields) -> Option<f64> {
    number(headers.get(UTILIZATION)).or_else(|| orca::read(headers)?.utilization())
}

fn read(headers: &Fields) -> Option<Report> {
    let orca = orca::read(headers);
    let report = Report {
        utilization: number(headers.get(UTILIZATION)).or_else(|| orca?.utilization()),
        cost: number(headers.get(COST)).or_else(|| orca?.request_cost()),
        demand: number(headers.get(DEMAND)),
        dimmer: number(headers.get(DIMMER)),
        optional: number::<u8>(headers.get(OPTIONAL)).map(|flag| flag != 0),
        service_seconds: seconds(headers.get(SERVICE_MS)),
        cpu_seconds: seconds(headers.get(CPU_MS)),
        io_seconds: seconds(headers.get(IO_MS)),
        in_service: number(headers.get(IN_SERVICE)).or_else(|| orca?.in_service()),
        queue_seconds: seconds(headers.get(QUEUE_MS)).or_else(|| orca?.queue_seconds()),
        ..Report::default()
    };
    (report != Report::default()).then_some(report)
}

fn number<N: FromStr>(value: Option<&HeaderValue>) -> Option<N> {
    value?.to_str().ok()?.trim().parse().ok()
}

fn seconds(millis: Option<&HeaderValue>) -> Option<f64> {
    let millis: f64 = number(millis)?;
    Some(millis / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &'static str, value: &str) -> Option<Report> {
        let value = HeaderValue::from_str(value).unwrap();
        read(&Fields::from_iter([(HeaderName::from_static(name), value)]))
    }

    fn utilization(name: &'static str, value: &str) -> Option<f64> {
        report(name, value)?.utilization
    }

    #[test]
    fn reports_are_read_in_every_spelling() {
        assert_eq!(utilization("tidegate-utilization", "0.75"), Some(0.75));
        let service = report("tidegate-service-ms", "12.5")
            .unwrap()
            .service_seconds;
        assert_eq!(service, Some(0.0125));
        assert_eq!(report("tidegate-demand", "-2").unwrap().demand, Some(-2));
        let optional = |flag| report("tidegate-optional", flag).unwrap().optional;
        assert_eq!((optional("0"), optional("1")), (Some(false), Some(true)));
        let cpu = report("tidegate-cpu-ms", "4").unwrap().cpu_seconds;
        let io = report("tidegate-io-ms", "6").unwrap().io_seconds;
        assert_eq!((cpu, io), (Some(0.004), Some(0.006)));
        let cost = |name, value| report(name, value).unwrap().cost;
        assert_eq!(cost("tidegate-cost", "1200"), Some(1200.0));
        let tokens = r#"JSON {"request_cost":{"tokens":900}}"#;
        assert_eq!(cost("endpoint-load-metrics", tokens), Some(900.0));
        let orca = "TEXT cpu_utilization=0.3,mem_utilization=0.8";
        assert_eq!(utilization("endpoint-load-metrics", orca), Some(0.3));
    }

    #[test]
    fn what_is_no_report_is_none() {
        assert_eq!(report("server", "x"), None);
        assert_eq!(report("tidegate-utilization", "much"), None);
        assert_eq!(report("tidegate-demand", "1.5"), None);
        assert_eq!(report("endpoint-load-metrics", "BIN AAAA"), None);
        assert_eq!(report("endpoint-load-metrics", "JSON {"), None);
        assert_eq!(report("endpoint-load-metrics", ""), None);
    }
}
