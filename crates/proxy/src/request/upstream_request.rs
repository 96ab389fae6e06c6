//! A request as a replica gets it.

use std::time::Duration;

use http::header::{CONNECTION, COOKIE, EXPECT, HOST, TE, UPGRADE, VIA};
use http::{HeaderName, HeaderValue, Version};

use super::canonical;
use super::deadline::DEADLINE_MS;
use crate::channel;
use crate::client::Client;
use crate::config::Forward;
use crate::gate::Slot;
use crate::hop::{self, Border};
use crate::message::{Fields, Request};
use crate::refuse::REQUEST_ID;

const CLASS: HeaderName = HeaderName::from_static("tidegate-class");
const OPTIONAL: HeaderName = HeaderName::from_static("tidegate-optional");
const SERVICE_TARGET_MS: HeaderName = HeaderName::from_static("tidegate-service-target-ms");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Makes a request canonical: hop-by-hop fields and spoofed ones removed, ours added.
pub(crate) fn prepare(request: &mut super::Request, slot: &Slot) {
    let (exchange, head) = (&request.exchange, &request.head);
    let settings = exchange.application.settings();
    let notes = Notes {
        class: settings.class_name(slot.class()),
        time_left: request.deadline.at.since(slot.admitted()),
        host: head.host.as_ref(),
        add_host: !head.host_named,
        expects: head.expects_continue,
        upgrade: head.upgrade.as_deref(),
        optional: slot.optional(),
        service_target: slot.service_target(),
    };
    let message = &mut request.message;
    write(message, &exchange.client, &settings.config.forward, &notes);
    if settings.config.forward.request_id {
        let headers = &mut message.headers;
        headers.insert(REQUEST_ID, exchange.id.header());
    }
    let tracer = &exchange.worker().tracer;
    if let Some(trace) = exchange.traced() {
        tracer.lead(&mut message.headers, trace);
    } else if tracer.is_on() {
        tracer.pass_on(&mut message.headers, exchange.client.trusted);
    }
    if let Some(edge) = &settings.edge {
        edge.change_request(message);
    }
    if let Some(item) = &request.item {
        channel::attest(item, &mut message.headers);
    }
}

/// What a replica is told beside the request.
struct Notes<'a> {
    class: Option<&'a HeaderValue>,
    time_left: Duration,
    host: Option<&'a HeaderValue>,
    /// Whether the host stood in the target only.
    add_host: bool,
    expects: bool,
    /// The protocol asked for in an upgrade that is passed on.
    upgrade: Option<&'a HeaderValue>,
    /// Whether to include optional content, where we decide that.
    optional: Option<bool>,
    service_target: Option<Duration>,
}

fn write<B>(request: &mut Request<B>, client: &Client, forward: &Forward, notes: &Notes<'_>) {
    canonical::make_target(&mut request.uri);
    let came_by = request.version;
    let headers = &mut request.headers;
    let trusted = client.trusted;
    hop::strip(headers, Border::ToReplica { trusted });
    if notes.expects {
        headers.remove(EXPECT);
    }
    if came_by == Version::HTTP_2 {
        join_cookies(headers);
    }
    if let Some(host) = notes.host.filter(|_| notes.add_host) {
        headers.insert(HOST, host.clone());
    }
    if forward.x_forwarded {
        forward_client(headers, client, notes.host);
    }
    if forward.via {
        let via = match came_by {
            Version::HTTP_2 => "2 tidegate",
            Version::HTTP_10 => "1.0 tidegate",
            _ => "1.1 tidegate",
        };
        headers.append(VIA, HeaderValue::from_static(via));
    }
    // Nobody but us says these: what was there under their names has been removed.
    if let Some(class) = notes.class {
        headers.append(CLASS, class.clone());
    }
    let millis = u64::try_from(notes.time_left.as_millis()).unwrap_or(u64::MAX);
    headers.append(DEADLINE_MS, HeaderValue::from(millis));
    if let Some(optional) = notes.optional {
        speak_of_content(headers, optional, notes.service_target);
    }
    if let Some(protocol) = notes.upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
}

/// Tells the replica what to leave out and what to aim at. Its answer, which may come in trailers,
/// is for us: none are passed on to a client that has not asked for them.
fn speak_of_content(headers: &mut Fields, optional: bool, target: Option<Duration>) {
    let flag = if optional { "1" } else { "0" };
    headers.insert(OPTIONAL, HeaderValue::from_static(flag));
    if let Some(target) = target {
        let millis = format!("{:.3}", target.as_secs_f64() * 1e3);
        if let Ok(millis) = HeaderValue::from_str(&millis) {
            headers.insert(SERVICE_TARGET_MS, millis);
        }
    }
    // `TE` is for the next hop only, and has to say so (RFC 9110 section 10.1.4).
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONNECTION, HeaderValue::from_static("te"));
}

/// HTTP/2 may split cookies into several fields; HTTP/1 has to have them in one (RFC 9113
/// section 8.2.3).
fn join_cookies(headers: &mut Fields) {
    if headers.get_all(COOKIE).nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).map(HeaderValue::as_bytes).collect();
    if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, cookie);
    }
}

fn forward_client(headers: &mut Fields, client: &Client, host: Option<&HeaderValue>) {
    let proto = HeaderValue::from_static(if client.tls { "https" } else { "http" });
    if client.trusted {
        extend_forwarded_for(headers, client);
        headers.insert_if_absent(FORWARDED_PROTO, || proto);
        if let Some(host) = host {
            headers.insert_if_absent(FORWARDED_HOST, || host.clone());
        }
        return;
    }
    // What a stranger said has been removed.
    headers.append(FORWARDED_FOR, client.forwarded_for().clone());
    headers.append(FORWARDED_PROTO, proto);
    if let Some(host) = host {
        headers.append(FORWARDED_HOST, host.clone());
    }
}

/// Puts the client behind those that it speaks for.
fn extend_forwarded_for(headers: &mut Fields, client: &Client) {
    let so_far = headers.get_all(FORWARDED_FOR);
    let mut chain: Vec<_> = so_far.map(HeaderValue::as_bytes).collect();
    chain.push(client.forwarded_for().as_bytes());
    let chain = HeaderValue::from_bytes(&chain.join(&b", "[..]));
    let chain = chain.unwrap_or_else(|_| client.forwarded_for().clone());
    headers.insert(FORWARDED_FOR, chain);
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::client::Link;
    use crate::worker::Worker;

    fn prepared(
        request: http::request::Builder,
        trusted: bool,
        forward: &Forward,
    ) -> super::Request<()> {
        let link = Link {
            peer: ([192, 0, 2, 7], 4711).into(),
            tls: true,
            trusted,
            linger_bytes: 0,
        };
        let client = Client::new(link, Worker::idle().count_open());
        let mut parts = request.body(()).unwrap().into();
        let host = HeaderValue::from_static("shop.example");
        let class = HeaderValue::from_static("default");
        let notes = Notes {
            class: Some(&class),
            time_left: Duration::from_millis(1500),
            host: Some(&host),
            add_host: false,
            expects: false,
            upgrade: None,
            optional: None,
            service_target: None,
        };
        write(&mut parts, &client, forward, &notes);
        parts
    }

    #[test]
    fn a_stranger_cannot_pretend_to_be_somebody_else() {
        let request = Request::get("/")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-proto", "http");
        let headers = prepared(request, false, &Forward::default()).headers;
        assert_eq!(headers[FORWARDED_FOR], "192.0.2.7");
        assert_eq!(headers[FORWARDED_PROTO], "https");
        assert_eq!(headers[FORWARDED_HOST], "shop.example");
        assert_eq!(headers[CLASS], "default");
        assert_eq!(headers[DEADLINE_MS], "1500");
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_extended() {
        let request = Request::get("/")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-for", "10.0.0.2")
            .header("x-forwarded-proto", "http");
        let headers = prepared(request, true, &Forward::default()).headers;
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1, 10.0.0.2, 192.0.2.7");
        assert_eq!(headers[FORWARDED_PROTO], "http");
    }

    #[test]
    fn forwarding_can_be_turned_off_and_via_on() {
        let forward = Forward {
            x_forwarded: false,
            via: true,
            ..Forward::default()
        };
        let headers = prepared(Request::get("/"), false, &forward).headers;
        assert!(!headers.contains(FORWARDED_FOR));
        assert_eq!(headers[VIA], "1.1 tidegate");
    }

    #[test]
    fn cookies_of_http_2_become_one() {
        let request = Request::get("/")
            .version(Version::HTTP_2)
            .header("cookie", "a=1")
            .header("cookie", "b=2");
        let headers = prepared(request, false, &Forward::default()).headers;
        assert_eq!(headers.get_all(COOKIE).collect::<Vec<_>>(), ["a=1; b=2"]);
    }

    #[test]
    fn absolute_targets_become_paths() {
        let parts = prepared(
            Request::get("http://shop.example/a|b"),
            false,
            &Forward::default(),
        );
        assert_eq!(parts.uri, "/a%7Cb");
    }
}
