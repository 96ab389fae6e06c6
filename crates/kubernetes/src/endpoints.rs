//! The endpoints of a Service, from EndpointSlices or from the older Endpoints.
//!
//! Only the parts that are needed are read, so that `discovery.k8s.io/v1` and `v1beta1` are the
//! same. An endpoint that several slices name is one. So is a pod of a dual-stack Service, which
//! has slices for IPv4 and for IPv6. What is not known (`ready` is absent) counts as true, as
//! Kubernetes has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

/// One address of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Whether it may get requests.
    pub ready: bool,
    /// Whether its pod is being deleted.
    pub terminating: bool,
    /// The pod behind it.
    pub pod: Option<String>,
}

/// Which port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PortChoice {
    /// The only one.
    #[default]
    Only,
    /// By its name in the Service.
    Name(String),
    /// By its number in the pods.
    Number(u16),
}

impl FromStr for PortChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Only);
        }
        if !text.bytes().all(|it| it.is_ascii_digit()) {
            return Ok(Self::Name(text.to_owned()));
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(format!("`{text}` is no port; write a name, or 1 to 65535")),
            Ok(number) => Ok(Self::Number(number)),
        }
    }
}

impl fmt::Display for PortChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("its only port"),
            Self::Name(name) => write!(f, "port `{name}`"),
            Self::Number(number) => write!(f, "port {number}"),
        }
    }
}

/// Why the endpoints of a Service cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointsError {
    /// An object of another form.
    #[error("the API server sent endpoints that cannot be read: {0}")]
    Form(String),
    /// The Service has ports, but not the chosen one, or several.
    #[error("the Service has no single {wanted}, but: {}; name one of them", known.join(", "))]
    Port {
        /// What was asked for.
        wanted: PortChoice,
        /// What there is, `name (number)`.
        known: Vec<String>,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Slice {
    address_type: String,
    endpoints: Option<Vec<SliceEndpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SliceEndpoint {
    addresses: Vec<String>,
    conditions: Option<Conditions>,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TargetRef {
    kind: String,
    name: String,
}

impl TargetRef {
    fn pod(self) -> Option<String> {
        (self.kind == "Pod").then_some(self.name)
    }
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
}

impl Port {
    fn is_tcp(&self) -> bool {
        self.protocol.as_deref().is_none_or(|it| it == "TCP")
    }

    fn shown(&self) -> String {
        let number = self.port.unwrap_or(0);
        match self.name.as_deref() {
            None | Some("") => number.to_string(),
            Some(name) => format!("{name} ({number})"),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoints {
    subsets: Option<Vec<Subset>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subset {
    addresses: Option<Vec<Address>>,
    not_ready_addresses: Option<Vec<Address>>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Address {
    ip: String,
    target_ref: Option<TargetRef>,
}

/// Endpoints by their address, and what was looked for and not found.
#[derive(Default)]
struct Found {
    endpoints: BTreeMap<SocketAddr, Endpoint>,
    /// Ports of parts that do not have the chosen one.
    others: BTreeSet<String>,
}

impl Found {
    /// The port of a part; remembers the others where there is no such port.
    fn port(&mut self, ports: Option<Vec<Port>>, wanted: &PortChoice) -> Option<u16> {
        let ports: Vec<Port> = ports.into_iter().flatten().filter(Port::is_tcp).collect();
        let chosen = match wanted {
            PortChoice::Only if ports.len() == 1 => ports.first(),
            PortChoice::Only => None,
            PortChoice::Name(name) => ports
                .iter()
                .find(|it| it.name.as_deref() == Some(name.as_str())),
            PortChoice::Number(number) => ports.iter().find(|it| it.port == Some(*number)),
        };
        let port = chosen.and_then(|it| it.port);
        if port.is_none() {
            self.others.extend(ports.iter().map(Port::shown));
        }
        port
    }

    /// An address that is ready in one place is ready.
    fn add(&mut self, ip: &str, port: u16, ready: bool, terminating: bool, pod: Option<String>) {
        // A name (`addressType: FQDN`) is no endpoint of a pod.
        let Ok(ip) = ip.parse::<IpAddr>() else {
            return;
        };
        let address = SocketAddr::new(ip, port);
        let new = Endpoint {
            address,
            ready,
            terminating,
            pod,
        };
        let known = self.endpoints.entry(address).or_insert_with(|| new.clone());
        if ready && !known.ready {
            *known = new;
        }
    }

    fn finish(self, wanted: &PortChoice) -> Result<Vec<Endpoint>, EndpointsError> {
        if self.endpoints.is_empty() && !self.others.is_empty() {
            return Err(EndpointsError::Port {
                wanted: wanted.clone(),
                known: self.others.into_iter().collect(),
            });
        }
        let mut endpoints: Vec<_> = self.endpoints.into_values().collect();
        // A pod that is reached by both families is one replica, with one window.
        let by_v4: BTreeSet<_> = endpoints
            .iter()
            .filter(|it| it.address.is_ipv4())
            .filter_map(|it| it.pod.clone())
            .collect();
        let is_second = |it: &Endpoint| {
            let pod = it.pod.as_ref();
            it.address.is_ipv6() && pod.is_some_and(|pod| by_v4.contains(pod))
        };
        endpoints.retain(|it| !is_second(it));
        Ok(endpoints)
    }
}

fn read<T: for<'a> Deserialize<'a>>(object: &Value) -> Result<T, EndpointsError> {
    T::deserialize(object).map_err(|error| EndpointsError::Form(error.to_string()))
}

/// The endpoints in the EndpointSlices of a Service.
///
/// # Errors
/// Objects of another form, or a Service without the port.
pub fn of_slices<'a>(
    slices: impl IntoIterator<Item = &'a Value>,
    port: &PortChoice,
) -> Result<Vec<Endpoint>, EndpointsError> {
    let mut found = Found::default();
    for slice in slices {
        let slice: Slice = read(slice)?;
        if slice.address_type == "FQDN" {
            continue;
        }
        let endpoints = slice.endpoints.unwrap_or_default();
        if endpoints.is_empty() {
            continue;
        }
        let Some(port) = found.port(slice.ports, port) else {
            continue;
        };
        for endpoint in endpoints {
            let pod = endpoint.target_ref.and_then(TargetRef::pod);
            let conditions = endpoint.conditions.unwrap_or_default();
            // Of a Service with `publishNotReadyAddresses` a pod is ready to its end.
            let terminating = conditions.terminating.unwrap_or(false);
            let ready = conditions.ready.unwrap_or(true) && !terminating;
            // All addresses of an endpoint are the same one, and consumers use the first.
            if let Some(ip) = endpoint.addresses.first() {
                found.add(ip, port, ready, terminating, pod);
            }
        }
    }
    found.finish(port)
}

/// The endpoints in the Endpoints object of a Service.
///
/// # Errors
/// An object of another form, or a Service without the port.
pub fn of_endpoints(object: &Value, port: &PortChoice) -> Result<Vec<Endpoint>, EndpointsError> {
    let mut found = Found::default();
    let endpoints: Endpoints = read(object)?;
    for subset in endpoints.subsets.into_iter().flatten() {
        let Some(port) = found.port(subset.ports, port) else {
            continue;
        };
        let kinds = [
            (subset.addresses, true),
            (subset.not_ready_addresses, false),
        ];
        for (addresses, ready) in kinds {
            for address in addresses.into_iter().flatten() {
                let pod = address.target_ref.and_then(TargetRef::pod);
                found.add(&address.ip, port, ready, false, pod);
            }
        }
    }
    found.finish(port)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice() -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice",
            "metadata": { "name": "shop-1" }, "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" },
                      { "name": "metrics", "port": 9100 }],
            "endpoints": [
                { "addresses": ["10.0.0.7"], "conditions": { "ready": true },
                  "targetRef": { "kind": "Pod", "name": "shop-a" } },
                { "addresses": ["10.0.0.8"], "conditions": { "ready": false, "serving": true, "terminating": true },
                  "targetRef": { "kind": "Pod", "name": "shop-b" } },
                { "addresses": ["10.0.0.9"] },
            ],
        })
    }

    fn shown(endpoints: &[Endpoint]) -> Vec<String> {
        let shown = |it: &Endpoint| {
            let pod = it.pod.as_deref().unwrap_or("-");
            format!("{} {} {pod}", it.address, it.ready)
        };
        endpoints.iter().map(shown).collect()
    }

    #[test]
    fn slices_give_addresses_with_readiness_and_pods() {
        let by_name = of_slices([&slice()], &PortChoice::Name("http".into())).expect("readable");
        let expected = [
            "10.0.0.7:8080 true shop-a",
            "10.0.0.8:8080 false shop-b",
            "10.0.0.9:8080 true -",
        ];
        assert_eq!(shown(&by_name), expected);
        assert!(by_name[1].terminating);
        let by_number = of_slices([&slice()], &PortChoice::Number(8080)).expect("readable");
        assert_eq!(by_name, by_number);
    }

    #[test]
    fn endpoint_in_two_slices_is_one_and_ready_if_one_says_so() {
        let mut other = slice();
        other["endpoints"] =
            json!([{ "addresses": ["10.0.0.8"], "conditions": { "ready": true } }]);
        let port = PortChoice::Name("http".into());
        let both = of_slices([&slice(), &other], &port).expect("readable");
        assert_eq!(both.len(), 3);
        assert!(both[1].ready);
        let names =
            json!({ "addressType": "FQDN", "ports": [], "endpoints": [{ "addresses": ["a.b"] }] });
        assert_eq!(of_slices([&names], &port), Ok(Vec::new()));
    }

    /// As an API server of 1.33 sends it, with everything that is not asked for.
    fn slice_of_v1(family: &str, endpoints: &Value) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("shop-{family}"), "generateName": "shop-", "namespace": "default",
                "generation": 7, "resourceVersion": "81204",
                "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z" },
                "labels": { "kubernetes.io/service-name": "shop",
                            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "shop", "uid": "1",
                                      "controller": true, "blockOwnerDeletion": true }],
                "managedFields": [{ "manager": "kube-controller-manager", "operation": "Update" }],
            },
            "addressType": family,
            "ports": [{ "name": "", "port": 8080, "protocol": "TCP", "appProtocol": "http" }],
            "endpoints": endpoints,
        })
    }

    fn endpoint_of_v1(ip: &str, pod: &str, conditions: &Value) -> Value {
        json!({
            "addresses": [ip], "conditions": conditions, "nodeName": "node-1", "zone": "a",
            "hints": { "forZones": [{ "name": "a" }] },
            "targetRef": { "kind": "Pod", "namespace": "default", "name": pod, "uid": pod },
        })
    }

    #[test]
    fn conditions_of_v1_say_who_may_get_requests() {
        let conditions = [
            (
                "ready",
                json!({ "ready": true, "serving": true, "terminating": false }),
            ),
            (
                "starting",
                json!({ "ready": false, "serving": false, "terminating": false }),
            ),
            (
                "leaving",
                json!({ "ready": false, "serving": true, "terminating": true }),
            ),
            (
                "gone",
                json!({ "ready": false, "serving": false, "terminating": true }),
            ),
            (
                "published",
                json!({ "ready": true, "serving": true, "terminating": true }),
            ),
            ("unknown", json!({ "ready": null })),
            ("empty", json!({})),
            ("none", Value::Null),
        ];
        let endpoints = conditions
            .iter()
            .enumerate()
            .map(|(at, (pod, conditions))| {
                endpoint_of_v1(&format!("10.0.0.{at}"), pod, conditions)
            });
        let slice = slice_of_v1("IPv4", &endpoints.collect());
        let found = of_slices([&slice], &PortChoice::Only).expect("readable");
        let pods = |wanted: fn(&&Endpoint) -> bool| -> Vec<_> {
            let those = found.iter().filter(wanted);
            those.filter_map(|it| it.pod.as_deref()).collect()
        };
        assert_eq!(pods(|it| it.ready), ["ready", "unknown", "empty", "none"]);
        assert_eq!(pods(|it| it.terminating), ["leaving", "gone", "published"]);
    }

    #[test]
    fn pod_of_a_dual_stack_service_is_one_endpoint() {
        let ready = json!({ "ready": true });
        let four = json!([endpoint_of_v1("10.0.0.7", "a", &ready)]);
        let six = [
            endpoint_of_v1("fd00::7", "a", &ready),
            endpoint_of_v1("fd00::8", "b", &ready),
        ];
        let slices = [slice_of_v1("IPv6", &json!(six)), slice_of_v1("IPv4", &four)];
        let found = of_slices(&slices, &PortChoice::Only).expect("readable");
        assert_eq!(
            shown(&found),
            ["10.0.0.7:8080 true a", "[fd00::8]:8080 true b"]
        );
    }

    #[test]
    fn service_without_pods_has_a_slice_of_nulls() {
        let mut slice = slice_of_v1("IPv4", &Value::Null);
        slice["ports"] = Value::Null;
        assert_eq!(of_slices([&slice], &PortChoice::Only), Ok(Vec::new()));
    }

    #[test]
    fn endpoints_of_older_clusters_say_the_same() {
        let object = json!({ "subsets": [{
            "addresses": [{ "ip": "10.0.0.7", "targetRef": { "kind": "Pod", "name": "shop-a" } }],
            "notReadyAddresses": [{ "ip": "fd00::8" }],
            "ports": [{ "port": 8080 }],
        }] });
        let found = of_endpoints(&object, &PortChoice::Only).expect("readable");
        assert_eq!(
            shown(&found),
            ["10.0.0.7:8080 true shop-a", "[fd00::8]:8080 false -"]
        );
        let none = of_endpoints(&json!({ "metadata": {} }), &PortChoice::Only);
        assert_eq!(none, Ok(Vec::new()));
    }

    #[test]
    fn missing_port_names_those_there_are() {
        let error = of_slices([&slice()], &PortChoice::Only).expect_err("two ports");
        let message = error.to_string();
        assert!(message.contains("http (8080), metrics (9100)"), "{message}");
        let error = of_slices([&slice()], &"web".parse().expect("a name")).expect_err("unknown");
        assert!(error.to_string().contains("port `web`"), "{error}");
        assert!("0".parse::<PortChoice>().is_err() && "70000".parse::<PortChoice>().is_err());
        assert!(of_slices([&json!({ "endpoints": 3 })], &PortChoice::Only).is_err());
    }
}
