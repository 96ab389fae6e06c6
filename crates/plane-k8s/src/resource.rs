//! The custom resource `TidegateApplication`: what an application is to have, and its status.
//!
//! Times, rates and shares are texts, as in the configuration file. The API server checks their
//! type only; a text that cannot be used is reported as a condition of the object, which says what
//! to write, and stops nothing.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share};
use tidegate_plane::{ApplicationConfig, BandConfig, ClassConfig};
use tidegate_planed::{Declared, Drain, KubernetesDriverConfig, Mode, PoolBy};

/// What an application is to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "client",
    derive(kube::CustomResource),
    kube(
        group = "tidegate.dev",
        version = "v1alpha1",
        kind = "TidegateApplication",
        plural = "tidegateapplications",
        shortname = "tgapp",
        namespaced,
        status = "ResourceStatus",
        printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
        printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.target"}"#,
        printcolumn = r#"{"name":"Min","type":"integer","jsonPath":".spec.min"}"#,
        printcolumn = r#"{"name":"Max","type":"integer","jsonPath":".spec.max"}"#,
        printcolumn = r#"{"name":"Servers","type":"integer","jsonPath":".status.servers"}"#,
        printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.ready"}"#,
        printcolumn = r#"{"name":"Needed","type":"integer","jsonPath":".status.needed"}"#,
        printcolumn = r#"{"name":"Rate","type":"string","jsonPath":".status.rate"}"#,
        printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
        printcolumn = r#"{"name":"Working","type":"string","jsonPath":".status.conditions[?(@.type==\"Working\")].status"}"#,
        printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
        printcolumn = r#"{"name":"Reason","type":"string","priority":1,"jsonPath":".status.reason"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    /// The name of the application in the proxies' configuration. Without it, that of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Whether decisions are carried out (`act`) or only reported (`recommend`).
    #[serde(default)]
    pub mode: SpecMode,
    /// What is scaled.
    pub scale_target_ref: ScaleTarget,
    /// The Service whose endpoints are the servers. Without it, of the same name as the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The port: its name in the Service, or its number in the pods. Without it, the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Fewest servers.
    #[serde(default = "one")]
    pub min: u32,
    /// Most servers; without it as many as the pool has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Response time that admitted requests are to have: `"500ms"`.
    #[serde(default = "one_second")]
    pub target: String,
    /// Targets that are allowed at higher rates, lowest rate first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Band>,
    /// Share of requests that may take longer than the target while servers suffice: `"0.1%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_max: Option<String>,
    /// What a request that is answered in time earns, where there are no classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revenue: Option<f64>,
    /// Classes of requests, most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
    /// What one server can do: `"60/s"`. Without it, it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// How long a server takes to start, until that has been measured: `"30s"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// How a pod is made the one that is deleted.
    #[serde(default)]
    pub drain: SpecDrain,
    /// A pod that still holds requests after this time is given back all the same: `"30s"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_time: Option<String>,
    /// What puts the servers into the proxies' pools.
    #[serde(default)]
    pub pool: SpecPool,
}

/// Whether decisions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpecMode {
    /// They are reported.
    #[default]
    Recommend,
    /// They are carried out.
    Act,
}

/// How a pod is made the one that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpecDrain {
    /// By the annotation `controller.kubernetes.io/pod-deletion-cost`, from Kubernetes 1.22 on.
    #[default]
    DeletionCost,
    /// By the readiness gate `tidegate.dev/serving` of the pods.
    Readiness,
    /// Not at all.
    None,
}

/// What puts the servers into the proxies' pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpecPool {
    /// The proxies, which follow the Service.
    #[default]
    Proxy,
    /// The control plane, in mode `act` only.
    Plane,
}

/// What is scaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTarget {
    /// Its API group and version.
    #[serde(default = "apps")]
    pub api_version: String,
    /// Its kind.
    #[serde(default = "deployment")]
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A target that is allowed at higher rates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Band {
    /// Arrival rate from which on it is allowed: `"1000/s"`.
    pub above: String,
    /// The target: `"2s"`.
    pub target: String,
    /// What a request answered within it earns, as a share of its revenue: `"50%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revenue_share: Option<String>,
}

/// A class of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// Its name, as in the proxies' configuration.
    pub name: String,
    /// What a request that is answered in time earns.
    pub revenue: f64,
    /// Rate that it must always be able to have: `"20/s"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
}

/// How things are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceStatus {
    /// The generation of the object that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Servers that are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<u32>,
    /// Servers that serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// Servers that the last plan asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<u32>,
    /// Requests per second, those that were shed included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Requests per second that one server can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// The target in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why the number of servers is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What holds and what does not.
    pub conditions: Vec<Condition>,
}

/// One thing that holds or does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Accepted`, `Observed`, `Working` or `Acting`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, and what to do.
    pub message: String,
    /// When the status changed, RFC 3339.
    pub last_transition_time: String,
    /// The generation of the object that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

const fn one() -> u32 {
    1
}
fn one_second() -> String {
    "1s".to_owned()
}
fn apps() -> String {
    "apps/v1".to_owned()
}
fn deployment() -> String {
    "Deployment".to_owned()
}

/// Reads a text of the object; an error names the field.
fn read<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|error| format!("spec.{field}: {error}"))
}

fn read_or<T: FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: Option<&String>,
    absent: T,
) -> Result<T, String> {
    text.map_or(Ok(absent), |text| read(field, text))
}

impl ApplicationSpec {
    /// What it declares; `name` is that of the object.
    ///
    /// # Errors
    /// The first text that cannot be used, with its field and what to write.
    pub fn declared(&self, name: &str) -> Result<Declared, String> {
        Ok(Declared {
            application: self.application(name)?,
            mode: match self.mode {
                SpecMode::Recommend => Mode::Recommend,
                SpecMode::Act => Mode::Act,
            },
            driver: self.driver()?,
        })
    }

    fn application(&self, name: &str) -> Result<ApplicationConfig, String> {
        let name = self.application.as_deref().unwrap_or(name);
        let mut wanted = ApplicationConfig::named(name);
        wanted.min = self.min;
        wanted.max = self.max;
        wanted.target = read("target", &self.target)?;
        wanted.targets = self.bands()?;
        wanted.late_max = read_or("lateMax", self.late_max.as_ref(), wanted.late_max)?;
        wanted.revenue = self.revenue.unwrap_or(wanted.revenue);
        wanted.classes = self.classes()?;
        let capacity = self.capacity.as_ref();
        wanted.capacity = capacity.map(|it| read("capacity", it)).transpose()?;
        wanted.start_time = read_or("startTime", self.start_time.as_ref(), wanted.start_time)?;
        Ok(wanted)
    }

    fn bands(&self) -> Result<Vec<BandConfig>, String> {
        let band = |(index, band): (usize, &Band)| {
            let field = |key: &str| format!("targets[{index}].{key}");
            Ok(BandConfig {
                above: read(&field("above"), &band.above)?,
                target: read::<Dur>(&field("target"), &band.target)?,
                revenue_share: read_or(
                    &field("revenueShare"),
                    band.revenue_share.as_ref(),
                    Share(1.0),
                )?,
            })
        };
        self.targets.iter().enumerate().map(band).collect()
    }

    fn classes(&self) -> Result<Vec<ClassConfig>, String> {
        let class = |(index, class): (usize, &Class)| {
            let field = format!("classes[{index}].guarantee");
            Ok(ClassConfig {
                name: class.name.clone(),
                revenue: class.revenue,
                guarantee: read_or(&field, class.guarantee.as_ref(), Rate::default())?,
            })
        };
        self.classes.iter().enumerate().map(class).collect()
    }

    fn driver(&self) -> Result<KubernetesDriverConfig, String> {
        let target = &self.scale_target_ref;
        let port = self.port.clone().unwrap_or_default();
        read::<tidegate_kubernetes::PortChoice>("port", &port)?;
        Ok(KubernetesDriverConfig {
            api_version: target.api_version.clone(),
            kind: target.kind.clone(),
            name: target.name.clone(),
            service: self.service.clone(),
            port,
            drain: match self.drain {
                SpecDrain::DeletionCost => Drain::DeletionCost,
                SpecDrain::Readiness => Drain::Readiness,
                SpecDrain::None => Drain::None,
            },
            drain_time: read_or(
                "drainTime",
                self.drain_time.as_ref(),
                Dur(std::time::Duration::from_secs(30)),
            )?,
            pool: match self.pool {
                SpecPool::Plane => PoolBy::Plane,
                SpecPool::Proxy => PoolBy::Proxy,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn declared(spec: Value) -> Result<Declared, String> {
        let spec: ApplicationSpec = serde_json::from_value(spec).map_err(|it| it.to_string())?;
        spec.declared("shop")
    }

    #[test]
    fn spec_says_what_the_file_says() {
        let least = declared(json!({ "scaleTargetRef": { "name": "shop" } })).expect("valid");
        assert_eq!(least.application, ApplicationConfig::named("shop"));
        assert_eq!(
            (least.mode, least.driver.service()),
            (Mode::Recommend, "shop")
        );
        let whole = declared(json!({
            "application": "store", "mode": "act",
            "scaleTargetRef": { "kind": "StatefulSet", "name": "shop" },
            "service": "shop-pods", "port": "http", "min": 2, "max": 9, "target": "250ms",
            "targets": [{ "above": "100/s", "target": "2s", "revenueShare": "50%" }],
            "lateMax": "1%", "classes": [{ "name": "gold", "revenue": 3.0, "guarantee": "5/s" }],
            "capacity": "60/s", "startTime": "5s", "drain": "none", "drainTime": "10s", "pool": "plane",
        }))
        .expect("valid");
        let of_file: ApplicationConfig = tidegate_config::parse(
            "plane.toml",
            "name = 'store'\nmin = 2\nmax = 9\ntarget = '250ms'\nlate_max = '1%'\n\
             targets = [{ above = '100/s', target = '2s', revenue_share = '50%' }]\n\
             capacity = '60/s'\nstart_time = '5s'\n\
             [[class]]\nname = 'gold'\nrevenue = 3\nguarantee = '5/s'",
        )
        .expect("valid");
        assert_eq!(whole.application, of_file);
        assert_eq!(whole.mode, Mode::Act);
        assert_eq!(whole.driver.service(), "shop-pods");
        assert_eq!(
            (whole.driver.drain, whole.driver.pool),
            (Drain::None, PoolBy::Plane)
        );
    }

    #[test]
    fn texts_that_cannot_be_used_are_named_with_what_to_write() {
        let target = json!({ "name": "shop" });
        for (field, spec) in [
            (
                "spec.target",
                json!({ "target": "5 bananas", "scaleTargetRef": target }),
            ),
            (
                "spec.capacity",
                json!({ "capacity": "much", "scaleTargetRef": target }),
            ),
            (
                "spec.targets[0].above",
                json!({ "targets": [{ "above": "x", "target": "1s" }], "scaleTargetRef": target }),
            ),
            (
                "spec.classes[0].guarantee",
                json!({ "classes": [{ "name": "a", "revenue": 1, "guarantee": "x" }], "scaleTargetRef": target }),
            ),
            (
                "spec.port",
                json!({ "port": "70000", "scaleTargetRef": target }),
            ),
        ] {
            let error = declared(spec).expect_err(field);
            assert!(error.starts_with(field), "{error}");
        }
    }
}
