//! Several proxies in front of the same replicas.

use std::time::Duration;

use http::Uri;

use super::super::{Config, Nats};
use super::{Report, operate, policy};

/// Reports more often than this would be most of what the admin listener does.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

pub(super) fn fleet(config: &Config, report: &mut Report) {
    let Some(fleet) = &config.fleet else {
        return;
    };
    let server = fleet.carrier().is_server();
    report.error_if(
        !config.admin.enabled && !server,
        "fleet",
        "proxies report to each other's admin listeners, and this one has none; give `admin.addr`",
    );
    let carriers = [
        !fleet.peers.is_empty(),
        fleet.nats.is_some(),
        fleet.plane.is_some(),
    ];
    report.error_if(
        carriers == [false; 3],
        "fleet.peers",
        "without the others' addresses nothing is exchanged; give their admin listeners, as \
         [\"10.0.0.7:9190\"], or `nats` or `plane`",
    );
    report.error_if(
        carriers.iter().filter(|&&given| given).count() > 1,
        "fleet",
        "reports go one way: give one of `peers`, `nats` and `plane`",
    );
    if let Some(nats) = &fleet.nats {
        nats_server(nats, config, report);
    }
    if let Some(url) = &fleet.plane {
        plane(url, config, report);
    }
    for (index, peer) in fleet.peers.iter().enumerate() {
        let port = peer.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse::<u16>().ok().filter(|&port| port != 0)?;
            (!host.is_empty() && !host.contains('/')).then_some(port)
        });
        report.error_if(
            port.is_none(),
            format_args!("fleet.peers[{index}]"),
            "it is not a host and a port; write \"10.0.0.7:9190\", without http://",
        );
    }
    for (key, name) in [("name", Some(&fleet.name)), ("proxy", fleet.proxy.as_ref())] {
        let proper = |name: &String| (1..=256).contains(&name.len());
        report.error_if(
            name.is_some_and(|name| !proper(name) || name.chars().any(char::is_control)),
            format_args!("fleet.{key}"),
            "a name is 1 to 256 printable characters; give one, or leave the key out",
        );
    }
    report.error_if(
        fleet.token.is_some() && fleet.token_file.is_some(),
        "fleet.token_file",
        "`token` is given as well; keep one of them",
    );
    if fleet.token_file.is_some() {
        report.check(
            "fleet.token_file",
            fleet.read_token(&config.admin).map(drop),
        );
    }
    times(config, report);
    let elsewhere = |peer: &String| !peer.starts_with("127.") && !peer.starts_with("localhost");
    report.warn_if(
        config.admin.addr.ip().is_loopback() && fleet.peers.iter().any(elsewhere),
        "admin.addr",
        "the other proxies cannot reach a listener on loopback; listen on an address of the machine \
         and give `admin.token`",
    );
}

fn nats_server(nats: &Nats, config: &Config, report: &mut Report) {
    report.error_if(
        cfg!(not(feature = "nats")),
        "fleet.nats",
        "this build leaves NATS out; build with `--features nats`, or use `peers` or `plane`",
    );
    report.error_if(
        nats.urls.is_empty(),
        "fleet.nats.urls",
        "no server is named; write [\"nats://host:4222\"]",
    );
    for (index, url) in nats.urls.iter().enumerate() {
        let checked = tidegate_nats::check_url(url);
        report.check(format_args!("fleet.nats.urls[{index}]"), checked);
    }
    report.check("fleet.nats.password_file", nats.read_user().map(drop));
    report.error_if(
        nats.user.is_some() && nats.credentials_file.is_some(),
        "fleet.nats.credentials_file",
        "`user` is given as well; keep one of them",
    );
    report.error_if(
        nats.user.is_none() && nats.password_file.is_some(),
        "fleet.nats.password_file",
        "it is the password of nobody; give `user`",
    );
    report.error_if(
        nats.client_cert.is_some() != nats.client_key.is_some(),
        "fleet.nats.client_cert",
        "a certificate and its key go together; give both `client_cert` and `client_key`",
    );
    for (key, file) in [
        ("credentials_file", &nats.credentials_file),
        ("ca", &nats.ca),
        ("client_cert", &nats.client_cert),
        ("client_key", &nats.client_key),
    ] {
        let Some(Err(error)) = file.as_ref().map(std::fs::File::open) else {
            continue;
        };
        let message = format!("it cannot be read: {error}; check the name and who may read it");
        report.error(format_args!("fleet.nats.{key}"), message);
    }
    report.error_if(
        !(1..=5).contains(&nats.replicas),
        "fleet.nats.replicas",
        "a bucket is kept by 1 to 5 servers; give such a number",
    );
    report.error_if(
        !has_token(config),
        "fleet.token",
        "whoever writes into the bucket could take the others' shares, so that reports are sealed; \
         give `fleet.token` or `fleet.token_file`, the same for all proxies",
    );
}

fn plane(url: &str, config: &Config, report: &mut Report) {
    let uri: Option<Uri> = url.parse().ok();
    let proper = operate::is_plane(url);
    report.error_if(
        !proper,
        "fleet.plane",
        "it is not where a control plane listens; write its `daemon.listen` as \
         \"http://127.0.0.1:9191\"",
    );
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default();
    let here = host.starts_with("127.") || host == "localhost" || host == "[::1]";
    report.error_if(
        proper && !here && !has_token(config),
        "fleet.token",
        "over a network whoever reaches the control plane could take the others' shares, so that \
         reports are sealed; give `fleet.token` or `fleet.token_file`, the same for all proxies",
    );
}

fn has_token(config: &Config) -> bool {
    let fleet = config.fleet.as_ref();
    let token = fleet.and_then(|fleet| fleet.read_token(&config.admin).ok());
    // One that cannot be read is reported where it is named.
    token.is_none_or(|token| token.is_some())
}

fn times(config: &Config, report: &mut Report) {
    let Some(fleet) = &config.fleet else {
        return;
    };
    policy::positive("fleet.interval", fleet.interval, report);
    report.error_if(
        !fleet.interval.is_zero() && *fleet.interval < INTERVAL_MIN,
        "fleet.interval",
        "that often reports would be most of what the proxies do; give at least 20ms",
    );
    report.error_if(
        *fleet.hold < 3 * *fleet.interval,
        "fleet.hold",
        "two reports that are late would cost a proxy its share; give at least three intervals",
    );
    report.error_if(
        fleet.hold_cut_off.is_some_and(|hold| hold < fleet.hold),
        "fleet.hold_cut_off",
        "a proxy that is cut off would forget the others before it can know; give at least `hold`",
    );
}
