//! The channel: keys that can be read, times that mean something, an address that clients reach.

use std::fs;

use tidegate_channel::{PublicKey, SecretKey};

use super::Report;
use crate::config::Channel;

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
    for (index, member) in channel.members.iter().enumerate() {
        let key = member.parse::<PublicKey>();
        let path = format!("channel.members.{index}");
        report.check(path, key.map_err(|error| error.to_string()));
    }
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
        channel.validity.0 <= channel.keep_alive.0,
        "channel.validity",
        "must be longer than `keep_alive`, or messages expire before the next one comes",
    );
    report.error_if(
        channel
            .url
            .as_ref()
            .is_some_and(|url| !url.starts_with("http://")),
        "channel.url",
        "must be an address of the form http://host:port",
    );
    report.warn_if(
        channel.listen.ip().is_unspecified() && channel.url.is_none(),
        "channel.listen",
        "relays and clients are told to subscribe at this address, which they cannot reach; set `channel.url`",
    );
}
