//! What a configuration will do, in a few lines for people.

use tidegate_sentry::{LqrConfig, ModeName, SentryConfig};

use super::{
    Admin, Application, Canary, Channel, Companion, Config, FleetCarrier, Health, Listener,
    LogTarget, SessionKey, Sticky, Timeouts, TokenConfig,
};

impl Config {
    /// What it will do, a line for each part.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.listen.iter().map(listener).collect();
        if self.application.is_empty() {
            lines.extend(self.own_lines());
        }
        for application in &self.application {
            let alone = self.of_application(&application.name).unwrap_or_default();
            let which = requests_of(application);
            lines.push(format!("application {}: {which}", application.name));
            lines.extend(alone.own_lines().map(|line| format!("  {line}")));
        }
        if !self.application.is_empty() {
            lines.push(match &self.default_application {
                Some(name) => format!("gives all other requests to application {name}"),
                None => "answers all other requests with 404".to_owned(),
            });
        }
        lines.extend(self.channel.as_ref().map(channel));
        lines.extend(self.token.as_ref().map(token));
        lines.extend(self.session.as_ref().map(session));
        lines.push(timeouts(&self.timeouts));
        lines.push(admin(&self.admin));
        lines.extend(self.fleet_line());
        if self.access_log.to != LogTarget::Off {
            lines.push(format!("logs every request to {}", self.access_log.to));
        }
        if let Some(path) = &self.state_file {
            lines.push(format!("keeps what it learns in {}", path.display()));
        }
        lines
    }

    fn fleet_line(&self) -> Option<String> {
        let fleet = self.fleet.as_ref()?;
        let (name, proxy) = (&fleet.name, self.fleet_proxy());
        let with = match fleet.carrier() {
            peers @ FleetCarrier::Peers(_) => format!("with {peers}"),
            server => format!("through {server}"),
        };
        Some(format!(
            "shares windows, guarantees and quotas in fleet {name}, as {proxy}, {with}: a report \
             every {}, and a proxy silent for {} is lost",
            fleet.interval, fleet.hold
        ))
    }

    /// What concerns one application.
    fn own_lines(&self) -> impl Iterator<Item = String> {
        [self.replicas(), self.protection(), health(&self.health)]
            .into_iter()
            .chain(self.sticky.as_ref().map(sticky))
            .chain(self.shadow())
    }

    /// What runs beside it.
    fn shadow(&self) -> Option<String> {
        let differences = self.shadow.differences(&self.protect).join(", ");
        let words = match differences.as_str() {
            "" => "nothing otherwise".to_owned(),
            differences => format!("protect.{}", differences.replace(", ", ", protect.")),
        };
        let set = self.shadow.is_set();
        set.then(|| format!("compares it with a shadow that has {words}"))
    }

    fn replicas(&self) -> String {
        let replicas = &self.upstream.replicas;
        match replicas.as_slice() {
            [] => "forwards to nothing".to_owned(),
            [first, _, _, .., last] => {
                format!("forwards to {} replicas, {first} to {last}", replicas.len())
            }
            few => {
                let few: Vec<_> = few.iter().map(ToString::to_string).collect();
                format!("forwards to {}", few.join(" and "))
            }
        }
    }

    fn protection(&self) -> String {
        let protect = &self.protect;
        let held = held(protect);
        let dry = if protect.dry_run {
            ", as a dry run"
        } else {
            ""
        };
        let classes = match protect.class_count() {
            1 => String::new(),
            count => format!(", {count} classes"),
        };
        format!(
            "protects it in mode {} with {held}{classes}{dry}",
            protect.mode.as_str()
        )
    }
}

/// What the mode holds: its target, or what its controller regulates.
fn held(protect: &SentryConfig) -> String {
    let target = match protect.target {
        Some(target) => format!("a target of {target}"),
        None => "no target".to_owned(),
    };
    match (protect.mode, protect.target) {
        (ModeName::Auto, None) => "a target derived from the service".to_owned(),
        (ModeName::Lqr, _) => {
            let LqrConfig {
                rate,
                response_time,
                ..
            } = &protect.lqr;
            format!("{target} and an operating point of {rate} at {response_time}")
        }
        _ => target,
    }
}

/// Which requests are an application's.
fn requests_of(application: &Application) -> String {
    match application.companion() {
        Some(Companion::Canary(canary)) => return canary_requests(&canary),
        Some(Companion::Mirror(mirror)) => {
            return format!(
                "copies of {} of the requests of {}",
                mirror.share, mirror.of
            );
        }
        None => {}
    }
    let hosts = match application.hosts.as_slice() {
        [] => "every host".to_owned(),
        hosts => hosts.join(", "),
    };
    match application.paths.as_slice() {
        [] => hosts,
        paths => format!("{hosts} with {}", paths.join(", ")),
    }
}

fn listener(listener: &Listener) -> String {
    let tls = match listener.tls.len() {
        0 => String::new(),
        1 => " with TLS".to_owned(),
        count => format!(" with TLS ({count} certificates)"),
    };
    let http = if listener.http2 {
        "HTTP/1.1 and 2"
    } else {
        "HTTP/1.1"
    };
    let proxied = if listener.proxy_protocol {
        ", behind the PROXY protocol"
    } else {
        ""
    };
    format!("listens on {}{tls}, {http}{proxied}", listener.addr)
}

fn canary_requests(canary: &Canary) -> String {
    let header = canary.header.as_ref().map(|it| format!("by header `{it}`"));
    let cookie = canary.cookie.as_ref().map(|it| format!("by cookie `{it}`"));
    let share = (canary.share.0 > 0.0).then(|| format!("{} of the rest", canary.share));
    let all: Vec<_> = [header, cookie, share].into_iter().flatten().collect();
    format!("requests of {}: {}", canary.of, all.join(", "))
}

fn health(health: &Health) -> String {
    let active = match &health.active.path {
        Some(path) => format!("asks replicas for {path} every {}", health.active.interval),
        None => "asks no replica for its health".to_owned(),
    };
    let passive = match health.passive.failures {
        0 => "ejects none for failed requests".to_owned(),
        failures => format!("ejects one after {failures} failed requests in a row"),
    };
    format!("{active}; {passive}")
}

fn channel(channel: &Channel) -> String {
    let wanted = if channel.paths.is_empty() {
        "any request may do without".to_owned()
    } else {
        format!("writing to {} needs a stamp", channel.paths.join(" and "))
    };
    format!("tells clients on {} when to send; {wanted}", channel.listen)
}

fn token(token: &TokenConfig) -> String {
    let place = match (&token.header, &token.cookie) {
        (_, Some(cookie)) => format!("the cookie `{cookie}`"),
        (Some(header), None) => format!("the header `{header}`"),
        (None, None) => "`authorization: Bearer`".to_owned(),
    };
    let key = match &token.public_key {
        Some(path) => format!("the key in {}", path.display()),
        None => "the secret".to_owned(),
    };
    format!("reads tokens from {place} and verifies them with {key}; none is demanded")
}

fn session(session: &SessionKey) -> String {
    let begin = match &session.entry_path {
        Some(path) => format!("at {path}"),
        None => "anywhere".to_owned(),
    };
    format!(
        "prefers requests of sessions, told by {}, which begin {begin}",
        session.key
    )
}

fn timeouts(timeouts: &Timeouts) -> String {
    format!(
        "gives an answer {}, an upload {}, a connection to a replica {}, a shutdown {}",
        timeouts.request, timeouts.upload, timeouts.connect, timeouts.grace
    )
}

fn sticky(sticky: &Sticky) -> String {
    let by = match (&sticky.cookie, &sticky.header) {
        (Some(cookie), _) => format!("cookie `{cookie}`"),
        (_, Some(header)) => format!("header `{header}`"),
        (None, None) => "nothing".to_owned(),
    };
    format!("keeps clients on their replica by {by}")
}

fn admin(admin: &Admin) -> String {
    let token = admin.token.is_some() || admin.token_file.is_some();
    match (admin.enabled, token) {
        (false, _) => "has no admin listener".to_owned(),
        (true, true) => format!("answers operators on {} who have the token", admin.addr),
        (true, false) => format!("answers operators on {}", admin.addr),
    }
}
