//! Header names and values between proxy and replica.

use http::{HeaderMap, HeaderName, HeaderValue};

/// To the replica: `1` to serve in full, `0` to leave optional content out. From the replica, the
/// same of an answer that has no place for measurements: a proxy learns by it that it may ask.
pub const OPTIONAL: HeaderName = HeaderName::from_static("tidegate-optional");
/// To the replica: the mean service time it should aim at, in milliseconds.
pub const SERVICE_TARGET_MS: HeaderName = HeaderName::from_static("tidegate-service-target-ms");
/// From the replica: how many more requests it wants, as an integer that may be negative.
pub const DEMAND: HeaderName = HeaderName::from_static("tidegate-demand");
/// From the replica: how long this request took, in milliseconds.
pub const SERVICE_MS: HeaderName = HeaderName::from_static("tidegate-service-ms");
/// From the replica: CPU time charged to this request, in milliseconds: its part, by length, of
/// what the service used of late.
pub const CPU_MS: HeaderName = HeaderName::from_static("tidegate-cpu-ms");
/// From the replica: the rest of this request's time, in milliseconds: waiting for disks, networks
/// and locks, and on a busy machine for the CPU.
pub const IO_MS: HeaderName = HeaderName::from_static("tidegate-io-ms");
/// From the replica: requests in it at this moment, those of other proxies included (`eta` of paper
/// 003).
pub const IN_SERVICE: HeaderName = HeaderName::from_static("tidegate-in-service");
/// From the replica: how long this request waited in it before it was started, in milliseconds (`Q`
/// of paper 003), where the application says when that was.
pub const QUEUE_MS: HeaderName = HeaderName::from_static("tidegate-queue-ms");
/// From the replica: the share of its answers that are full, where it decides that itself.
pub const DIMMER: HeaderName = HeaderName::from_static("tidegate-dimmer");
/// From the replica: its CPU utilization of late, from 0 to 1.
pub const UTILIZATION: HeaderName = HeaderName::from_static("tidegate-utilization");

/// All names that a replica may answer, as `trailer` announces them.
pub(crate) const TRAILERS: &str = "tidegate-demand, tidegate-service-ms, tidegate-cpu-ms, \
                                   tidegate-io-ms, tidegate-utilization, tidegate-dimmer, \
                                   tidegate-in-service, tidegate-queue-ms";

/// What the proxy said about a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instructions {
    /// Whether to include optional content, if it said so.
    pub optional: Option<bool>,
    /// The service time to aim at.
    pub service_target_s: Option<f64>,
}

impl Instructions {
    /// Reads them from a request; what is malformed counts as not said.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let target_ms = text(SERVICE_TARGET_MS).and_then(|value| value.trim().parse::<f64>().ok());
        Self {
            optional: text(OPTIONAL).map(|value| value.trim() != "0"),
            service_target_s: target_ms
                .map(|ms| ms / 1e3)
                .filter(|s| s.is_finite() && *s >= 0.0),
        }
    }
}

/// What the replica answers with a response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurements {
    /// See [`DEMAND`].
    pub demand: i64,
    /// See [`SERVICE_MS`].
    pub service_s: f64,
    /// See [`CPU_MS`]; unknown where the system does not account for it.
    pub cpu_s: Option<f64>,
    /// See [`UTILIZATION`].
    pub utilization: Option<f64>,
    /// See [`DIMMER`].
    pub dimmer: Option<f64>,
    /// See [`IN_SERVICE`].
    pub in_service: u32,
    /// See [`QUEUE_MS`].
    pub queue_s: Option<f64>,
}

impl Measurements {
    /// Adds them to a response's headers or trailers.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(DEMAND, HeaderValue::from(self.demand));
        insert(headers, SERVICE_MS, self.service_s * 1e3);
        if let Some(cpu_s) = self.cpu_s {
            insert(headers, CPU_MS, cpu_s * 1e3);
            insert(headers, IO_MS, (self.service_s - cpu_s).max(0.0) * 1e3);
        }
        if let Some(utilization) = self.utilization {
            insert(headers, UTILIZATION, utilization);
        }
        if let Some(share) = self.dimmer {
            insert(headers, DIMMER, share);
        }
        headers.insert(IN_SERVICE, HeaderValue::from(self.in_service));
        if let Some(queue_s) = self.queue_s {
            insert(headers, QUEUE_MS, queue_s * 1e3);
        }
    }
}

/// Says in an answer's head whether it is full.
pub(crate) fn write_optional(headers: &mut HeaderMap, full: bool) {
    let flag = if full { "1" } else { "0" };
    headers.insert(OPTIONAL, HeaderValue::from_static(flag));
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: f64) {
    headers.insert(name, decimal(value));
}

/// A number from 0 with four decimals. By hand, because `format!` took longer than everything else
/// that the layer does (measured with `examples/overhead.rs`).
fn decimal(value: f64) -> HeaderValue {
    const DECIMALS: usize = 4;
    // As many digits as a u64 has, and the point. `as` saturates and maps NaN to zero.
    let mut text = [0; 21];
    let mut rest = (value * 1e4).round() as u64;
    let mut start = text.len();
    for place in 0.. {
        if place > DECIMALS && rest == 0 {
            break;
        }
        if place == DECIMALS {
            start -= 1;
            text[start] = b'.';
        }
        start -= 1;
        text[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    HeaderValue::from_bytes(&text[start..]).expect("digits and a point make a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions(pairs: &[(&'static str, &'static str)]) -> Instructions {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        Instructions::read(&headers)
    }

    #[test]
    fn request_may_come_without_instructions() {
        assert_eq!(
            instructions(&[]),
            Instructions {
                optional: None,
                service_target_s: None
            }
        );
    }

    #[test]
    fn instructions_are_read_and_nonsense_is_not() {
        let told = instructions(&[
            ("tidegate-optional", "0"),
            ("tidegate-service-target-ms", "250"),
        ]);
        assert_eq!(
            told,
            Instructions {
                optional: Some(false),
                service_target_s: Some(0.25)
            }
        );
        for bad in ["NaN", "-1", "inf", "soon"] {
            assert_eq!(
                instructions(&[("tidegate-service-target-ms", bad)]).service_target_s,
                None
            );
        }
    }

    #[test]
    fn decimals_are_what_formatting_gives() {
        for value in [
            0.0,
            0.00004,
            0.00006,
            0.5,
            1.0,
            9.99996,
            12.5,
            123_456.789,
            1e12,
        ] {
            assert_eq!(decimal(value), format!("{value:.4}"));
        }
        assert_eq!(decimal(f64::NAN), "0.0000");
        assert_eq!(decimal(f64::INFINITY), "1844674407370955.1615");
    }

    #[test]
    fn measurements_are_written_as_plain_numbers() {
        let mut headers = HeaderMap::new();
        let cpu_s = Some(0.010);
        Measurements {
            demand: -2,
            service_s: 0.0125,
            cpu_s,
            utilization: Some(0.5),
            dimmer: Some(0.25),
            in_service: 7,
            queue_s: Some(0.003),
        }
        .write(&mut headers);
        assert_eq!(headers[DEMAND], "-2");
        assert_eq!(headers[SERVICE_MS], "12.5000");
        assert_eq!(headers[IO_MS], "2.5000");
        assert_eq!(headers[UTILIZATION], "0.5000");
        assert_eq!(headers[DIMMER], "0.2500");
        assert_eq!(headers[IN_SERVICE], "7");
        assert_eq!(headers[QUEUE_MS], "3.0000");
    }
}
