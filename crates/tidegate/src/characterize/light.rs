//! The weight of I/O in a request's cost, from single requests at light load (003 §III).
//!
//! ```text
//! inherent time = cpu + alpha io,    alpha = sum io (time - cpu) / sum io²
//! ```
//!
//! A nucleus beside the replica reports `cpu` and `io` with every answer. One request at a time
//! meets no queue, so the time it takes is its inherent time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full};
use tidegate_channel::net::Dialer;

use crate::error::CliError;
use crate::runtime;

/// Requests from which the weight is determined.
const REQUESTS: usize = 200;
/// Answers with reports without which nothing is said.
const REPORTS_MIN: usize = 20;

/// What single requests showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Inherent {
    /// The weight of I/O.
    pub(super) io_weight: f64,
    /// Mean time of a request that meets no queue.
    pub(super) service_s: f64,
    /// Share of the variance of the time beside the CPU that it explains.
    pub(super) r_squared: f64,
    /// Answers that had reports.
    pub(super) reports: usize,
}

/// One answer: seconds it took, of CPU, of I/O.
#[derive(Debug, Clone, Copy)]
struct Report {
    took_s: f64,
    cpu_s: f64,
    io_s: f64,
}

pub(super) fn measure(
    target: &Uri,
    headers: &HeaderMap,
    timeout: Duration,
) -> Result<Inherent, CliError> {
    let reports = runtime::current_thread()?.block_on(async {
        let dialer = Dialer::default();
        let mut reports = Vec::new();
        for _ in 0..REQUESTS {
            reports.extend(ask(&dialer, target, headers, timeout).await?);
        }
        Ok::<_, CliError>(reports)
    })?;
    fit(&reports).map_err(CliError::Usage)
}

/// Sends one request; what its answer reports, if anything.
async fn ask(
    dialer: &Dialer,
    target: &Uri,
    headers: &HeaderMap,
    timeout: Duration,
) -> Result<Option<Report>, CliError> {
    let failed = |cause: &dyn std::fmt::Display| CliError::Usage(format!("{target}: {cause}"));
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = target.clone();
    request.headers_mut().extend(headers.clone());
    let began = Instant::now();
    let answer = async {
        let answer = dialer.send(request).await.map_err(|error| failed(&error))?;
        let mut all = answer.headers().clone();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| failed(&error))?;
        all.extend(body.trailers().cloned().unwrap_or_default());
        Ok::<_, CliError>(all)
    };
    let all = tokio::time::timeout(timeout, answer)
        .await
        .map_err(|_| failed(&"no answer within --timeout"))??;
    let took_s = began.elapsed().as_secs_f64();
    let seconds = |name: &str| -> Option<f64> {
        let value: f64 = all.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value / 1e3)
    };
    let times = seconds("tidegate-cpu-ms").zip(seconds("tidegate-io-ms"));
    Ok(times.map(|(cpu_s, io_s)| Report {
        took_s: seconds("tidegate-service-ms").unwrap_or(took_s),
        cpu_s,
        io_s,
    }))
}

fn fit(reports: &[Report]) -> Result<Inherent, String> {
    let count = reports.len();
    if count < REPORTS_MIN {
        return Err(format!(
            "--sentry: {count} of {REQUESTS} answers reported CPU and I/O times; run a nucleus \
             beside the replica (docs/nucleus.md), or leave --sentry out"
        ));
    }
    let rest = |report: &Report| (report.took_s - report.cpu_s).max(0.0);
    let xy: f64 = reports.iter().map(|it| it.io_s * rest(it)).sum();
    let xx: f64 = reports.iter().map(|it| it.io_s * it.io_s).sum();
    // Without any I/O its weight does not matter.
    let io_weight = if xx > 0.0 { xy / xx } else { 0.0 };
    let yy: f64 = reports.iter().map(|it| rest(it).powi(2)).sum();
    let error: f64 = reports
        .iter()
        .map(|it| (rest(it) - io_weight * it.io_s).powi(2))
        .sum();
    let service: f64 = reports.iter().map(|it| it.took_s).sum();
    Ok(Inherent {
        io_weight,
        service_s: service / count as f64,
        r_squared: if yy > 0.0 { 1.0 - error / yy } else { 1.0 },
        reports: count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(weight: f64, count: usize) -> Vec<Report> {
        let report = |index: usize| {
            let (cpu_s, io_s) = (0.004, 0.001 * (index % 7) as f64);
            Report {
                took_s: cpu_s + weight * io_s,
                cpu_s,
                io_s,
            }
        };
        (0..count).map(report).collect()
    }

    #[test]
    fn weight_of_io_is_recovered() {
        for weight in [0.0, 0.4, 1.0, 1.7] {
            let found = fit(&reports(weight, 200)).unwrap();
            assert!((found.io_weight - weight).abs() < 1e-9, "{found:?}");
            assert!(found.r_squared > 0.999);
        }
    }

    #[test]
    fn too_few_reports_are_refused_with_the_remedy() {
        let error = fit(&reports(1.0, 5)).unwrap_err();
        assert!(error.contains("run a nucleus"), "{error}");
    }
}
