//! Several applications: names, hosts and paths that are taken, and each application's own
//! sections.

use std::collections::{HashMap, HashSet};

use super::super::{Application, Channel, Config};
use super::classes::is_host;
use super::{Report, companions, own};

/// Everything wrong with a file that has `[[application]]`, beyond what all files share.
pub(super) fn applications(config: &Config, report: &mut Report) {
    top(config, report);
    let mut names = HashMap::new();
    for (index, application) in config.application.iter().enumerate() {
        let path = format!("application.{index}");
        name(&path, &application.name, &mut names, report);
        hosts(&path, application, report);
        sections(&path, application, config, report);
    }
    taken(config, report);
    channels(config, report);
    companions::companions(config, report);
    if let Some(name) = &config.default_application {
        report.error_if(
            !names.contains_key(name.as_str()),
            "default_application",
            "there is no application of this name; name one that the file has",
        );
    }
}

/// Sections that belong into an application.
fn top(config: &Config, report: &mut Report) {
    report.error_if(
        !config.upstream.replicas.is_empty(),
        "upstream",
        "the file has [[application]], so this service is no application's; move it into one, and \
         name that as `default_application` if it is to get all other requests",
    );
    report.error_if(
        config.channel.is_some(),
        "channel",
        "the file has [[application]], so this channel is no application's; write it as \
         [application.channel] below the one that it is for",
    );
}

fn name<'a>(path: &str, name: &'a str, names: &mut HashMap<&'a str, String>, report: &mut Report) {
    let key = format!("{path}.name");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    report.error_if(
        name.is_empty(),
        &key,
        "an application needs a name; add `name = \"shop\"`",
    );
    report.error_if(
        !name.chars().all(plain) || name.len() > 63,
        &key,
        "it stands in URLs and metrics: use at most 63 letters, digits, `-`, `_` and `.`",
    );
    let taken = names.insert(name, key.clone());
    if let Some(also) = taken.filter(|_| !name.is_empty()) {
        let message = "two applications have this name; give each its own".to_owned();
        report.conflict(&key, also, message);
    }
}

fn hosts(path: &str, application: &Application, report: &mut Report) {
    for (number, host) in application.hosts.iter().enumerate() {
        report.error_if(
            !is_host(host),
            format_args!("{path}.hosts.{number}"),
            "this is no host; write \"shop.example\" or \"*.shop.example\", without a port",
        );
    }
    for (number, prefix) in application.paths.iter().enumerate() {
        let key = format!("{path}.paths.{number}");
        report.error_if(
            !prefix.starts_with('/'),
            &key,
            "a path begins with `/`; add it",
        );
        report.error_if(
            prefix.contains(['?', '#', '*']),
            &key,
            "a prefix is a plain path; leave query and `*` out",
        );
    }
}

/// The application's own sections, each problem where it stands in the file: in the application or,
/// where it has no such section, at the top.
fn sections(path: &str, application: &Application, config: &Config, report: &mut Report) {
    let Some(alone) = config.of_application(&application.name) else {
        return;
    };
    let mut its = Report::default();
    own(&alone, &mut its);
    for mut problem in its.0 {
        if application.owns(&problem.path) {
            problem.path = format!("{path}.{}", problem.path);
        } else if application.companion().is_some() {
            // It is the other application's, and reported there.
            continue;
        }
        if !report.0.contains(&problem) {
            report.0.push(problem);
        }
    }
}

/// The same host and path in two places.
fn taken(config: &Config, report: &mut Report) {
    let mut taken: HashMap<(String, &str), (&str, String)> = HashMap::new();
    for (index, application) in config.application.iter().enumerate() {
        for (host, path, key) in places(index, application) {
            let place = (application.name.as_str(), key.clone());
            let Some((other, also)) = taken.insert((host.clone(), path), place) else {
                continue;
            };
            let host = if host.is_empty() { "every host" } else { &host };
            let path = if path.is_empty() { "every path" } else { path };
            let message = format!(
                "{host} with {path} is also application `{other}`, and a request can have one \
                 application only; remove it from one, or tell them apart by `paths`"
            );
            report.conflict(key, also, message);
        }
    }
}

/// Every host and path of an application, with the key that says so.
fn places(index: usize, application: &Application) -> Vec<(String, &str, String)> {
    let mut places = Vec::new();
    if application.companion().is_some() {
        return places;
    }
    let hosts = application.hosts.iter().enumerate();
    let mut hosts: Vec<_> = hosts
        .map(|(at, host)| {
            (
                host.to_ascii_lowercase(),
                format!("application.{index}.hosts.{at}"),
            )
        })
        .collect();
    if hosts.is_empty() {
        hosts.push((String::new(), format!("application.{index}.name")));
    }
    for (host, key) in hosts {
        if application.paths.is_empty() {
            places.push((host.clone(), "", key.clone()));
        }
        let prefixes = application
            .paths
            .iter()
            .map(|path| path.trim_end_matches('/'));
        places.extend(prefixes.map(|path| (host.clone(), path, key.clone())));
    }
    places
}

fn channels(config: &Config, report: &mut Report) {
    let mut taken = HashSet::new();
    for (index, application) in config.application.iter().enumerate() {
        let listens = |channel: &Channel| !taken.insert(channel.listen);
        report.error_if(
            application.channel.as_ref().is_some_and(listens),
            format_args!("application.{index}.channel.listen"),
            "another application's channel listens there; choose another port",
        );
    }
}
