//! A load as a file describes it.
//!
//! ```toml
//! duration = "60s"
//! rate = [
//!     { at = "0s", value = "100/s" },
//!     { at = "20s", value = "400/s", ramp = true },
//! ]
//!
//! batch = 8 # eight at the same instant; also `spacing`, `fan_out`, `phases`
//!
//! [[request]]
//! name = "gold"
//! weight = 1
//! headers = { x-plan = "gold" }
//!
//! [[request]]
//! name = "search"
//! weight = 9
//! path = "/search"
//! timeout = "300ms"
//! ```

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tidegate_config::{ConfigError, Dur};
use tidegate_sim::workload::{Batch, FanOut, Pattern, Phases, RateFunction, Spacing};

use super::config::RequestSpec;

/// When to send, and optionally what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// When the last request is sent; the command line may say it instead.
    pub duration: Option<Dur>,
    /// Requests per second: one rate, points with steps and ramps, or a shape.
    pub rate: RateFunction,
    /// How regular they are.
    #[serde(default)]
    pub spacing: Spacing,
    /// Requests that come together.
    pub batch: Option<Batch>,
    /// Pages with their parts.
    pub fan_out: Option<FanOut>,
    /// How chance changes the rate, which is their mean.
    #[serde(default)]
    pub phases: Phases,
    /// The mix; plain GET requests where it is empty.
    #[serde(default, rename = "request")]
    pub requests: Vec<RequestSpec>,
}

impl LoadFile {
    /// Reads the text of a file; `name` says where errors are.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        tidegate_config::parse(name, text)
    }

    /// How regular the requests are.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        Pattern {
            spacing: self.spacing.clone(),
            batch: self.batch,
            fan_out: self.fan_out.clone(),
            phases: self.phases.clone(),
        }
    }
}

/// A [`RequestSpec`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestEntry {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default = "get")]
    method: String,
    path: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    timeout: Option<Dur>,
    read_pause: Option<Dur>,
}

fn one() -> f64 {
    1.0
}

fn get() -> String {
    "GET".to_owned()
}

impl<'de> Deserialize<'de> for RequestSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RequestEntry::deserialize(deserializer)?
            .try_into()
            .map_err(serde::de::Error::custom)
    }
}

impl TryFrom<RequestEntry> for RequestSpec {
    type Error = String;

    fn try_from(entry: RequestEntry) -> Result<Self, String> {
        let invalid = |what: &str, given: &str| format!("`{given}` is not a valid {what}");
        let method = entry.method.parse();
        let path = entry.path.as_deref().map(str::parse).transpose();
        let headers = entry
            .headers
            .iter()
            .map(|(name, value)| header(name, value));
        Ok(Self {
            weight: entry.weight,
            method: method.map_err(|_| invalid("method", &entry.method))?,
            path: path.map_err(|_| invalid("path", entry.path.as_deref().unwrap_or_default()))?,
            headers: headers.collect::<Result<HeaderMap, String>>()?,
            body: entry.body.into(),
            timeout: entry.timeout.map(|timeout| timeout.0),
            read_pause: entry.read_pause.map(|pause| pause.0),
            name: entry.name,
        })
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    match (name.parse(), value.parse()) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => Err(format!("`{name}: {value}` is not a valid header")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_and_mixes_are_read() {
        let text = "duration = '60s'\n\
                    rate = [{ at = '0s', value = '100/s' }, { at = '20s', value = '400/s', ramp = true }]\n\
                    [[request]]\nname = 'gold'\nheaders = { x-plan = 'gold' }\n\
                    [[request]]\nname = 'search'\nweight = 9\npath = '/s?q=1'\ntimeout = '300ms'\n";
        let file = LoadFile::parse("load.toml", text).unwrap();
        assert_eq!(file.rate.at(10.0), 250.0);
        let [gold, search] = file.requests.as_slice() else {
            panic!("two kinds")
        };
        assert_eq!(
            (gold.weight, &gold.headers["x-plan"]),
            (1.0, &HeaderValue::from_static("gold"))
        );
        assert_eq!(search.path.as_ref().unwrap().as_str(), "/s?q=1");
        assert_eq!(search.timeout, Some(Duration::from_millis(300)));
    }

    #[test]
    fn refusals_have_a_place() {
        let refused = |text| LoadFile::parse("load.toml", text).unwrap_err().to_string();
        assert_eq!(
            refused("rate = '1/s'\nduraton = '1s'"),
            "load.toml:2:1: unknown key `duraton`; did you mean `duration`?"
        );
        let message = refused("rate = '1/s'\n[[request]]\nname = 'x'\nmethod = 'G T'");
        assert!(message.contains("`G T` is not a valid method"), "{message}");
        assert!(message.starts_with("load.toml:2:1"), "{message}");
    }

    proptest::proptest! {
        /// No file makes the reader panic, and every refusal names its place.
        #[test]
        fn fuzz_load_files(at: proptest::sample::Index, cut in 0..30_usize, piece in "[ -~\n]{0,20}") {
            let text = "duration = '60s'\n\
                        rate = [{ at = '0s', value = '1/s' }, { at = '9s', value = '4/s', ramp = true }]\n\
                        [[request]]\nname = 'gold'\nweight = 9\npath = '/s?q=1'\ntimeout = '300ms'\n";
            let mut bytes = text.as_bytes().to_vec();
            let start = at.index(bytes.len());
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
            let text = String::from_utf8(bytes).expect("it is all ASCII");
            match LoadFile::parse("load.toml", &text) {
                Ok(file) => proptest::prop_assert!(file.rate.at(5.0) >= 0.0),
                Err(error) => proptest::prop_assert!(error.to_string().starts_with("load.toml")),
            }
        }
    }
}
