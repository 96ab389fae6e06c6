//! Canaries and mirrors: whose requests they get, and which.

use std::collections::HashMap;

use super::super::{Application, Canary, Companion, Config, Mirror};
use super::Report;
use super::policy::header_name;

pub(super) fn companions(config: &Config, report: &mut Report) {
    let mut taken = HashMap::new();
    for (index, application) in config.application.iter().enumerate() {
        let Some(companion) = application.companion() else {
            continue;
        };
        let path = format!("application.{index}");
        report.error_if(
            application.canary.is_some() && application.mirror.is_some(),
            format_args!("{path}.mirror"),
            "it is a canary already; make the mirror an application of its own",
        );
        for (key, given) in [("hosts", &application.hosts), ("paths", &application.paths)] {
            report.error_if(
                !given.is_empty(),
                format_args!("{path}.{key}"),
                "it gets requests of another application, not by host and path; remove this",
            );
        }
        report.error_if(
            config.default_application.as_deref() == Some(&application.name),
            "default_application",
            "this application gets requests of another one; name one that has hosts or paths",
        );
        let key = match &companion {
            Companion::Canary(canary) => self::canary(&path, canary, report),
            Companion::Mirror(mirror) => self::mirror(&path, mirror, config, report),
        };
        main(&path, key, application, config, report);
        let of = (companion.of().to_owned(), key);
        if let Some(also) = taken.insert(of, format!("{path}.{key}.of")) {
            let message = format!("there is another {key} of this application; remove one");
            report.conflict(format_args!("{path}.{key}.of"), also, message);
        }
    }
}

/// The application whose requests it gets.
fn main(path: &str, key: &str, application: &Application, config: &Config, report: &mut Report) {
    let path_of = format!("{path}.{key}.of");
    let companion = application.companion();
    let of = companion.as_ref().map_or("", Companion::of);
    let Some(main) = config.application.iter().find(|it| it.name == of) else {
        report.error(
            path_of,
            format!("there is no application `{of}`; name one that the file has"),
        );
        return;
    };
    report.error_if(
        main.companion().is_some(),
        &path_of,
        "that application gets requests of another one itself; name one that has hosts or paths",
    );
    report.error_if(
        application.canary.is_some() && main.channel.is_some(),
        &path_of,
        "clients of a channel are told by one engine when to send, so that application cannot have \
         a canary; remove one of both",
    );
    let classes = |name: &str| -> Vec<String> {
        let protect = config.of_application(name).unwrap_or_default().protect;
        protect
            .classes
            .into_iter()
            .map(|class| class.name)
            .collect()
    };
    report.error_if(
        application.protect.is_some() && classes(&application.name) != classes(of),
        format_args!("{path}.protect"),
        "its classes are not those of the application whose requests it gets; list the same names \
         in the same order",
    );
}

fn canary(path: &str, canary: &Canary, report: &mut Report) -> &'static str {
    let nothing = canary.header.is_none() && canary.cookie.is_none() && canary.share.0 <= 0.0;
    report.error_if(
        nothing,
        format_args!("{path}.canary"),
        "it gets no requests; give `header`, `cookie` or `share`",
    );
    report.error_if(
        canary.header_value.is_some() && canary.header.is_none(),
        format_args!("{path}.canary.header_value"),
        "it is not said of which header; give `header`",
    );
    if let Some(name) = &canary.header {
        report.check(format_args!("{path}.canary.header"), header_name(name));
    }
    "canary"
}

fn mirror(path: &str, mirror: &Mirror, config: &Config, report: &mut Report) -> &'static str {
    report.error_if(
        mirror.share.0 <= 0.0,
        format_args!("{path}.mirror.share"),
        "zero copies nothing; give a share such as \"10%\", or remove the application",
    );
    report.error_if(
        mirror.concurrency == 0,
        format_args!("{path}.mirror.concurrency"),
        "give at least 1",
    );
    let main = config.of_application(&mirror.of).unwrap_or_default();
    let ahead = main.limits.upload_buffer;
    if mirror.body_bytes > ahead {
        let message = format!(
            "bodies are read ahead up to `limits.upload_buffer` ({ahead}), and larger ones are not \
             copied; raise that, or lower this"
        );
        report.warn(format_args!("{path}.mirror.body_bytes"), message);
    }
    "mirror"
}
