//! Several proxies in front of the same replicas.

use std::time::Duration;

use super::super::Config;
use super::{Report, policy};

/// Reports more often than this would be most of what the admin listener does.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

pub(super) fn fleet(config: &Config, report: &mut Report) {
    let Some(fleet) = &config.fleet else {
        return;
    };
    report.error_if(
        !config.admin.enabled,
        "fleet",
        "proxies report to each other's admin listeners, and this one has none; give `admin.addr`",
    );
    report.error_if(
        fleet.peers.is_empty(),
        "fleet.peers",
        "without the others' addresses nothing is exchanged; give their admin listeners, as \
         [\"10.0.0.7:9190\"]",
    );
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
        fleet.hold_cut_off < fleet.hold,
        "fleet.hold_cut_off",
        "a proxy that is cut off would forget the others before it can know; give at least `hold`",
    );
}
