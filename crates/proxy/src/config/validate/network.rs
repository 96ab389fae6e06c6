//! Listeners and replicas.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustls_pki_types::DnsName;
use tidegate_kubernetes::PortChoice;
use tidegate_sentry::CostBy;

use super::super::{
    ClientCertificate, Config, Discover, KubernetesService, Listener, UpstreamTls, pem,
};
use super::Report;
use super::policy::positive;

pub(super) fn listeners(config: &Config, report: &mut Report) {
    report.error_if(
        config.threads == Some(0),
        "threads",
        "no thread would do the work; remove the key for one per core",
    );
    report.error_if(
        config.listen.is_empty(),
        "listen",
        "there is nowhere to listen; add `listen = \":8080\"`",
    );
    let mut taken = HashSet::new();
    for (index, listener) in config.listen.iter().enumerate() {
        report.error_if(
            listener.addr.port() != 0 && !taken.insert(listener.addr),
            format_args!("listen.{index}.addr"),
            "this address is listed twice; remove one",
        );
        certificates(index, listener, report);
        client_certificates(index, listener, report);
    }
}

fn client_certificates(index: usize, listener: &Listener, report: &mut Report) {
    let path = format!("listen.{index}.client_ca");
    report.error_if(
        listener.client_ca.is_some() && listener.tls.is_empty(),
        &path,
        "certificates are presented under TLS only; give `tls` as well",
    );
    report.error_if(
        listener.client_ca.is_none() && listener.client_certificate == ClientCertificate::Required,
        format_args!("listen.{index}.client_certificate"),
        "nobody could have one: it is not said who issues them; give `client_ca`",
    );
    if let Some(ca) = &listener.client_ca {
        report.check(path, pem::read_roots(ca));
    }
}

fn certificates(index: usize, listener: &Listener, report: &mut Report) {
    let mut names = HashSet::new();
    let mut fallbacks = 0;
    for (number, certificate) in listener.tls.iter().enumerate() {
        let path = format!("listen.{index}.tls.{number}");
        report.check(format_args!("{path}.cert"), certificate.load());
        fallbacks += usize::from(certificate.sni.is_empty());
        report.error_if(
            certificate.sni.is_empty() && fallbacks > 1,
            &path,
            "a second certificate without `sni` would never be presented; give it names",
        );
        for name in &certificate.sni {
            report.check(format_args!("{path}.sni"), server_name(name));
            report.error_if(
                !names.insert(name.to_ascii_lowercase()),
                format_args!("{path}.sni"),
                "a name is in two certificates of this listener; remove it from one",
            );
        }
    }
}

fn server_name(name: &str) -> Result<(), String> {
    let plain = name.strip_prefix("*.").unwrap_or(name);
    DnsName::try_from(plain).map(|_| ()).map_err(|_| {
        format!("`{name}` is not a server name; write \"shop.example\" or \"*.shop.example\"")
    })
}

pub(super) fn upstream(config: &Config, report: &mut Report) {
    let upstream = &config.upstream;
    report.error_if(
        upstream.replicas.is_empty() && upstream.discover.is_empty(),
        "upstream",
        "there is no service to protect; add `upstream = \"http://127.0.0.1:3000\"`",
    );
    report.error_if(
        upstream.replicas.len() > usize::from(u16::MAX),
        "upstream.replicas",
        "there are more than 65535 replicas; spread them over several proxies",
    );
    let mut seen = HashSet::new();
    for (index, replica) in upstream.replicas.iter().enumerate() {
        let path = format!("upstream.replicas.{index}.url");
        report.error_if(
            !seen.insert(&replica.url),
            &path,
            "this replica is listed twice; remove one",
        );
        let own = |l: &Listener| leads_to(&replica.url.host, replica.url.port, *l.addr);
        report.error_if(
            config.listen.iter().any(own),
            &path,
            "this is the proxy's own address, so requests would go round in a circle; give the \
             service's address",
        );
    }
    report.error_if(
        upstream.connections_max == 0,
        "upstream.connections_max",
        "no request could be sent; remove the key or give at least 1",
    );
    report.error_if(
        upstream
            .load_reports
            .is_some_and(|interval| interval.is_zero()),
        "upstream.load_reports",
        "there has to be time between two reports; write \"1s\", or remove the key",
    );
    if let Some(path) = &upstream.cost_json {
        report.error_if(
            path.split('.').any(str::is_empty),
            "upstream.cost_json",
            "a name of the path is missing; write one like \"usage.total_tokens\"",
        );
        report.warn_if(
            config.protect.auto.cost_by != CostBy::Report,
            "upstream.cost_json",
            "the cost in answers is not used; set `protect.auto.cost_by = \"report\"`, or remove \
             `cost_json`",
        );
    }
    for (index, source) in upstream.discover.iter().enumerate() {
        discover(
            &format!("upstream.discover.{index}"),
            source,
            &upstream.tls,
            report,
        );
    }
    let found = upstream
        .discover
        .iter()
        .flat_map(|it| it.dns.iter().chain(&it.srv));
    let named = upstream.replicas.iter().map(|replica| &replica.url);
    let services = upstream.discover.iter().flat_map(|it| &it.kubernetes);
    let https = named.chain(found).any(|origin| origin.tls)
        || services.into_iter().any(|service| service.tls);
    upstream_tls(&upstream.tls, https, report);
}

fn discover(path: &str, source: &Discover, tls: &UpstreamTls, report: &mut Report) {
    let given = [
        source.dns.is_some(),
        source.srv.is_some(),
        source.file.is_some(),
        source.kubernetes.is_some(),
    ];
    report.error_if(
        given.iter().filter(|it| **it).count() != 1,
        path,
        "it is not clear where to look; give one of `dns`, `srv`, `file` and `kubernetes`",
    );
    if let Some(service) = &source.kubernetes {
        kubernetes(&format!("{path}.kubernetes"), service, tls, report);
    }
    let origin = source.dns.as_ref().or(source.srv.as_ref());
    report.error_if(
        origin.is_some_and(|origin| origin.tls) && tls.server_name.is_none(),
        path,
        "replicas are known by their addresses, which certificates seldom name; give \
         `upstream.tls.server_name`",
    );
    report.error_if(
        origin.is_some_and(|origin| origin.unix_path().is_some()),
        path,
        "a Unix socket has no name to look up; list it under `replicas`",
    );
    report.error_if(
        source.nameserver.is_some() && (source.file.is_some() || source.kubernetes.is_some()),
        format_args!("{path}.nameserver"),
        "only names of the DNS need one; remove it",
    );
    positive(format_args!("{path}.ttl_min"), source.ttl_min, report);
    report.error_if(
        source.ttl_min > source.ttl_max,
        format_args!("{path}.ttl_min"),
        "it is longer than `ttl_max`; shorten it or raise that",
    );
}

fn kubernetes(path: &str, service: &KubernetesService, tls: &UpstreamTls, report: &mut Report) {
    report.error_if(
        cfg!(not(feature = "kubernetes")),
        path,
        "this build leaves Kubernetes out; build with `--features kubernetes`, or use `dns` with a \
         headless Service",
    );
    report.error_if(
        service.service.is_empty(),
        format_args!("{path}.service"),
        "a Service has a name; write it",
    );
    let port = service.port.parse::<PortChoice>().map(|_| ());
    report.check(format_args!("{path}.port"), port);
    report.error_if(
        service.tls && tls.server_name.is_none(),
        path,
        "replicas are known by their addresses, which certificates seldom name; give \
         `upstream.tls.server_name`",
    );
}

/// Whether connecting to `host:port` reaches a socket bound to `bound`.
fn leads_to(host: &str, port: u16, bound: SocketAddr) -> bool {
    let ip = match host {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse().ok(),
    };
    let same = |ip: IpAddr| ip == bound.ip() || (bound.ip().is_unspecified() && ip.is_loopback());
    port == bound.port() && ip.is_some_and(same)
}

fn upstream_tls(tls: &UpstreamTls, https: bool, report: &mut Report) {
    report.warn_if(
        *tls != UpstreamTls::default() && !https,
        "upstream.tls",
        "no replica's URL is https, so this has no effect",
    );
    report.warn_if(
        tls.insecure && https,
        "upstream.tls.insecure",
        "replicas' certificates are not verified; give `ca` instead",
    );
    if let Some(ca) = &tls.ca {
        report.check("upstream.tls.ca", pem::read_roots(ca));
    }
    match (&tls.client_cert, &tls.client_key) {
        (Some(cert), Some(key)) => {
            report.check("upstream.tls.client_cert", pem::load_pair(cert, key));
        }
        (Some(_), None) => report.error(
            "upstream.tls.client_cert",
            "its key is missing; add `client_key`",
        ),
        (None, Some(_)) => report.error(
            "upstream.tls.client_key",
            "its certificate is missing; add `client_cert`",
        ),
        (None, None) => {}
    }
    if let Some(name) = &tls.server_name {
        report.check("upstream.tls.server_name", server_name(name));
    }
}
