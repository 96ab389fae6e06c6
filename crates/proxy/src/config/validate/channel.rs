//! The channel: keys that can be read, times that mean something, an address that clients reach.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidegate_channel::{PublicKey, SecretKey};
use tidegate_config::Dur;

use super::Report;
use crate::config::Channel;

/// Deferral is the first line and refusal the last: the queue that the channel allows has to be one
/// that the engine admits.
pub(super) fn beside(channel: &Channel, target: Option<Dur>, report: &mut Report) {
    let late = target.is_some_and(|target| 2 * channel.setpoint.0 > target.0);
    report.warn_if(
        late && channel.queue.is_none(),
        "channel.setpoint",
        "is more than half of `protect.target`: requests are refused before clients hold back; make it shorter",
    );
}

/// What strangers could do with it.
fn strangers(channel: &Channel, report: &mut Report) {
    for file in [Some(&channel.key_file), channel.next_key_file.as_ref()] {
        let Some(file) = file else { continue };
        let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
        report.warn_if(
            mode & 0o077 != 0,
            "channel.key_file",
            &format!(
                "others can read {}, and whoever has the key commands all clients; chmod 600 it",
                file.display()
            ),
        );
    }
    report.warn_if(
        channel.deadline.is_some() && channel.paths.is_empty(),
        "channel.deadline",
        "without `paths` every request that changes something needs a stamp; name the paths it is about",
    );
    report.warn_if(
        channel.predict && channel.members.is_empty() && channel.dead_time.is_none(),
        "channel.predict",
        "what strangers say about the dead time counts nothing: set `dead_time`, or `members`",
    );
    report.error_if(
        channel.listeners_max < channel.arity,
        "channel.listeners_max",
        "must not be less than `arity`",
    );
}

pub(super) fn channel(channel: &Channel, report: &mut Report) {
    let key = fs::read_to_string(&channel.key_file)
        .map_err(|error| error.to_string())
        .and_then(|text| text.parse::<SecretKey>().map_err(|error| error.to_string()));
    report.check(
        "channel.key_file",
        key.map_err(|error| {
            let file = channel.key_file.display();
            format!("{file}: {error}; `tidegate channel keygen {file}` writes a key")
        }),
    );
    for (index, certificate) in channel.tls.iter().enumerate() {
        report.check(format!("channel.tls.{index}"), certificate.load());
    }
    let encrypted = |url: &String| url.starts_with("https://");
    report.error_if(
        !channel.tls.is_empty() && !channel.url.as_ref().is_some_and(encrypted),
        "channel.tls",
        "clients check the name in the certificate: write it into `channel.url`, as https://NAME:PORT",
    );
    for (name, keys) in [("members", &channel.members), ("relays", &channel.relays)] {
        for (index, key) in keys.iter().enumerate() {
            let key = key.parse::<PublicKey>();
            let path = format!("channel.{name}.{index}");
            report.check(path, key.map_err(|error| error.to_string()));
        }
    }
    strangers(channel, report);
    let key = channel.follow_key.as_deref().map(str::parse::<PublicKey>);
    report.check(
        "channel.follow_key",
        key.transpose().map_err(|error| error.to_string()),
    );
    report.error_if(
        channel.follow.is_some() != channel.follow_key.is_some(),
        "channel.follow",
        "`follow` and `follow_key` go together: whom to listen to, and whom to believe",
    );
    report.warn_if(
        channel.follow.is_some() && channel.next_key_file.is_some(),
        "channel.next_key_file",
        "is not announced by a proxy that follows another; set it there",
    );
    for (name, time) in [
        ("period", channel.period),
        ("slot", channel.slot),
        ("setpoint", channel.setpoint),
        ("integral_time", channel.integral_time),
        ("validity", channel.validity),
    ] {
        let path = format!("channel.{name}");
        report.error_if(time.is_zero(), path, "must be above zero");
    }
    report.error_if(
        channel
            .queue
            .is_some_and(|queue| !(queue.is_finite() && queue > 0.0)),
        "channel.queue",
        "must be above zero",
    );
    report.error_if(
        channel.validity.0 <= channel.keep_alive.0,
        "channel.validity",
        "must be longer than `keep_alive`, or messages expire before the next one comes",
    );
    for (name, url) in [("url", &channel.url), ("follow", &channel.follow)] {
        let is_web = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        report.error_if(
            url.as_ref().is_some_and(|url| !is_web(url)),
            format!("channel.{name}"),
            "must be an address of the form http://host:port or https://host:port",
        );
    }
    report.warn_if(
        channel.listen.ip().is_unspecified() && channel.url.is_none(),
        "channel.listen",
        "relays and clients are told to subscribe at this address, which they cannot reach; set `channel.url`",
    );
}
