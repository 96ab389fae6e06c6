//! What `tidegate ctl` prints for people.

use std::fmt::Write as _;

use serde_json::Value;

/// `slow` where a replica is up and takes far longer than the others.
pub(crate) fn replica_state(replica: &Value) -> &str {
    match text(&replica["state"]) {
        "up" if replica["slow"] == true => "slow",
        state => state,
    }
}

/// The phase of the search for a replica's window, with the knee once it is found.
pub(crate) fn replica_search(replica: &Value) -> String {
    let phase = text(&replica["phase"]).replace('_', " ");
    match replica["knee"].as_f64() {
        None => phase,
        Some(_) => format!("{phase}, knee {}", number(&replica["knee"])),
    }
}

/// `12`, `3.4`, or a dash where there is nothing.
pub(crate) fn number(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value < 9.95 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// A whole number, or a dash where there is nothing.
pub(crate) fn count(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Seconds as milliseconds.
pub(crate) fn millis(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.00995 => format!("{:.1}", seconds * 1e3),
        Some(seconds) => format!("{:.0}", seconds * 1e3),
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The time of day of an RFC 3339 time.
pub(crate) fn clock(value: &Value) -> &str {
    text(value).get(11..19).unwrap_or("-")
}

/// Classes by importance.
pub(crate) fn classes(application: &Value) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = application["classes"]
        .as_object()
        .into_iter()
        .flatten()
        .collect();
    all.sort_by_key(|(_, class)| class["rank"].as_u64());
    all
}

/// Columns of a comparison: their names, and where they are in the status.
pub(crate) const ENGINES: [(&str, &str); 3] = [
    ("in force", "in_force"),
    ("by models", "modelled"),
    ("shadow", "shadow"),
];

/// The configuration in force beside another, figure by figure.
pub(super) fn shadow(shadow: &Value) -> String {
    let mut out = format!("{}\n\n", text(&shadow["headline"]));
    for difference in shadow["differences"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  protect.{}", text(difference));
    }
    let _ = writeln!(
        out,
        "\n{:<32}{:>12}{:>12}{:>12}",
        "", ENGINES[0].0, ENGINES[1].0, ENGINES[2].0
    );
    for (name, values) in shadow_rows(shadow) {
        let [first, second, third] = values;
        let _ = writeln!(out, "{name:<32.31}{first:>12}{second:>12}{third:>12}");
    }
    let left_out = shadow["left_out"].as_u64().unwrap_or(0);
    if left_out > 0 {
        let _ = writeln!(out, "\n{left_out} requests were too many for the models");
    }
    out
}

/// Figures of a comparison by name: in force, by models, shadow.
pub(crate) fn shadow_rows(shadow: &Value) -> Vec<(String, [String; 3])> {
    let of = |show: &dyn Fn(&Value) -> String| ENGINES.map(|(_, key)| show(&shadow[key]));
    let rate = |class: &Value, key: &str| number(&class[key]);
    let mut rows = vec![
        ("mode".to_owned(), of(&|it| text(&it["mode"]).to_owned())),
        (
            "overloaded".to_owned(),
            of(&|it| match it["overloaded"].as_bool() {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => "-".to_owned(),
            }),
        ),
        (
            "capacity/s".to_owned(),
            of(&|it| number(&it["capacity_per_second"])),
        ),
        ("waiting".to_owned(), of(&|it| number(&it["queued"]))),
        ("windows".to_owned(), of(&windows)),
        (
            "p95 ms".to_owned(),
            of(&|it| millis(&it["response_p95_seconds"])),
        ),
    ];
    for key in ["admitted", "in_target", "shed"] {
        let name = format!("{}/s", key.replace('_', " "));
        let key = format!("{key}_per_second");
        rows.push((name, of(&|it| rate(&it["total"], &key))));
    }
    for name in shadow_classes(shadow) {
        let class_of = |it: &Value| -> Value {
            let all = it["classes"].as_array().into_iter().flatten();
            let mut all = all.filter(|it| text(&it["name"]) == name);
            all.next().cloned().unwrap_or_default()
        };
        let target = of(&|it| millis(&class_of(it)["target_seconds"]));
        rows.push((format!("{name}: target ms"), target));
        let shed = of(&|it| rate(&class_of(it), "shed_per_second"));
        rows.push((format!("{name}: shed/s"), shed));
        for reason in shadow_reasons(shadow, &name) {
            let key = "shed_per_second_by_reason";
            let by_reason = of(&|it| number(&class_of(it)[key][&reason]));
            rows.push((format!("{name}: {reason}/s"), by_reason));
        }
    }
    rows
}

fn windows(engine: &Value) -> String {
    let all = engine["windows"].as_array().into_iter().flatten();
    let all: Vec<_> = all.map(number).collect();
    all.join(" ")
}

/// Names of the classes of both configurations.
fn shadow_classes(shadow: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (_, key) in ENGINES {
        for class in shadow[key]["classes"].as_array().into_iter().flatten() {
            let name = text(&class["name"]).to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Reasons for which any of the engines refused requests of the class lately.
fn shadow_reasons(shadow: &Value, class: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for (_, key) in ENGINES {
        let all = shadow[key]["classes"].as_array().into_iter().flatten();
        for found in all.filter(|it| text(&it["name"]) == class) {
            let by_reason = found["shed_per_second_by_reason"].as_object();
            reasons.extend(by_reason.into_iter().flat_map(|it| it.keys().cloned()));
        }
    }
    reasons.sort_unstable();
    reasons.dedup();
    reasons
}

pub(super) fn status(status: &Value, application: &Value) -> String {
    let mut out = format!("{}\n\n", text(&application["headline"]));
    let _ = writeln!(
        out,
        "mode {}   capacity {}/s   queue {}",
        text(&application["mode"]["name"]),
        number(&application["capacity_per_second"]),
        application["queue"]["requests"]
    );
    let _ = writeln!(
        out,
        "\n{:<16}{:>9}{:>10}{:>10}{:>8}{:>8}{:>8}{:>8}",
        "class", "offered/s", "admitted", "in target", "shed", "p50 ms", "p99 ms", "target"
    );
    for (name, class) in classes(application) {
        let recent = &class["recent"];
        let _ = writeln!(
            out,
            "{name:<16}{:>9}{:>10}{:>10}{:>8}{:>8}{:>8}{:>8}",
            number(&recent["offered_per_second"]),
            number(&recent["admitted_per_second"]),
            number(&recent["in_target_per_second"]),
            number(&recent["shed_per_second"]),
            millis(&recent["response_p50_seconds"]),
            millis(&recent["response_p99_seconds"]),
            millis(&class["target_seconds"]),
        );
    }
    out.push('\n');
    out += &replicas(application);
    let warned = warnings(status, application);
    if !warned.starts_with("no warnings") {
        let _ = write!(out, "\n{warned}");
    }
    if let Some(headline) = application["forecast"]["headline"].as_str() {
        let _ = writeln!(out, "\nforecast from the last minute:\n{headline}");
    }
    out
}

pub(super) fn replicas(application: &Value) -> String {
    let mut out = format!(
        "{:<32}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}  {:<9} search\n",
        "replica", "state", "window", "inside", "served/s", "p50 ms", "p99 ms", "since"
    );
    for replica in application["replicas"].as_array().into_iter().flatten() {
        let recent = &replica["recent"];
        let _ = writeln!(
            out,
            "{:<32}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}  {:<9} {}",
            text(&replica["url"]),
            replica_state(replica),
            count(&replica["window"]),
            count(&replica["in_flight"]),
            number(&recent["served_per_second"]),
            millis(&recent["service_p50_seconds"]),
            millis(&recent["service_p99_seconds"]),
            clock(&replica["since"]),
            replica_search(replica),
        );
    }
    out
}

/// Where the replicas come from, and what was changed about them.
pub(super) fn pool(pool: &Value) -> String {
    let whose = |source: &Value| match text(source) {
        "api" => "by the admin API",
        "discovery" => "by discovery",
        _ => "by the file",
    };
    let mut out = format!("\nnamed {}", whose(&pool["source"]));
    if pool["changed"] == true {
        out += ", with live changes; `tidegate ctl replica reset` drops them";
    }
    out.push('\n');
    for replica in pool["replicas"].as_array().into_iter().flatten() {
        let mut about = Vec::new();
        if replica["source"] != pool["source"] {
            about.push(format!("named {}", whose(&replica["source"])));
        }
        if replica["weight"] != 1 {
            about.push(format!("weight {}", replica["weight"]));
        }
        if replica["state"] == "draining" {
            about.push("drained".to_owned());
        }
        if !about.is_empty() {
            let _ = writeln!(out, "  {}: {}", text(&replica["url"]), about.join(", "));
        }
    }
    out
}

/// The fleet as a proxy sees it.
pub(super) fn fleet(fleet: &Value) -> String {
    if fleet.is_null() {
        return "the proxy is in no fleet; `[fleet]` in its file puts it into one\n".to_owned();
    }
    let mut out = format!(
        "proxy {} of fleet {}\n",
        text(&fleet["proxy"]),
        text(&fleet["fleet"])
    );
    let _ = writeln!(out, "reports go through {}", text(&fleet["carrier"]));
    if let Some(trouble) = fleet["trouble"].as_str() {
        let _ = writeln!(out, "  {trouble}");
    }
    if fleet["cut_off"] == true {
        out += "no other proxy is heard of: the last known shares stay in force\n";
    }
    for peer in fleet["peers"].as_array().into_iter().flatten() {
        let age = millis(&peer["age_seconds"]);
        let _ = writeln!(
            out,
            "  peer {:<32} heard of {age} ms ago",
            text(&peer["proxy"])
        );
    }
    for (name, application) in fleet["applications"].as_object().into_iter().flatten() {
        let percent = |share: &Value| 100.0 * share.as_f64().unwrap_or(0.0);
        let _ = writeln!(
            out,
            "application {name}: {:.0} % of the windows, divided by {}",
            percent(&application["share"]),
            text(&application["leader"])
        );
        for (class, share) in application["guarantees"].as_object().into_iter().flatten() {
            let _ = writeln!(
                out,
                "  class {class}: {:.0} % of its guarantee",
                percent(share)
            );
        }
    }
    out
}

/// What is wrong with the process and the application, and what would help.
pub(super) fn warnings(status: &Value, application: &Value) -> String {
    let process = status["warnings"].as_array().into_iter().flatten();
    let its = application["warnings"].as_array().into_iter().flatten();
    let lines = process.chain(its).map(|warning| {
        format!(
            "since {}: {}\n",
            clock(&warning["since"]),
            text(&warning["text"])
        )
    });
    let mut out: String = lines.collect();
    if out.is_empty() {
        out += "no warnings\n";
    }
    for (index, advice) in application["advice"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if index == 0 {
            out += "\nwhat would help:\n";
        }
        let _ = writeln!(out, "- {}", text(advice));
    }
    out += &suggestion(application);
    out
}

/// The lines of a configuration that would help, where there are any.
fn suggestion(application: &Value) -> String {
    let config = application["top"]["suggestion"]["config"].as_str();
    let lines = config.into_iter().flat_map(str::lines);
    lines.map(|line| format!("    {line}\n")).collect()
}

/// Paths and tenants that cost most and are shed most.
pub(super) fn paths(application: &Value) -> String {
    let mut out = String::new();
    for (name, key) in [("path", "paths"), ("tenant", "tenants")] {
        let all = application["top"][key].as_array();
        let all = all.map_or(&[][..], Vec::as_slice);
        if all.is_empty() {
            continue;
        }
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(
            out,
            "{gap}{name:<40}{:>10}{:>10}{:>8}{:>9}{:>9}",
            "offered/s", "served/s", "shed/s", "of work", "mean ms"
        );
        for it in all {
            let _ = writeln!(
                out,
                "{:<40}{:>10}{:>10}{:>8}{:>7.0} %{:>9}",
                text(&it["name"]),
                number(&it["offered_per_second"]),
                number(&it["served_per_second"]),
                number(&it["shed_per_second"]),
                100.0 * it["cost_share"].as_f64().unwrap_or(0.0),
                millis(&it["service_seconds"]),
            );
        }
    }
    if out.is_empty() {
        out += "no requests in the last two minutes\n";
    }
    let words = application["top"]["suggestion"]["words"].as_str();
    if let Some(words) = words {
        let _ = writeln!(out, "\n{words}\n{}", suggestion(application).trim_end());
    }
    out
}

/// What the control plane wants for an application; of one alone, whatever its name there.
pub(crate) fn plane_words(plane: &Value, name: &str, alone: bool) -> Option<String> {
    let all = plane["applications"].as_object()?;
    let only = all.values().next().filter(|_| alone && all.len() == 1);
    let mine = all.get(name).or(only)?;
    let forecast = &mine["forecast"];
    let band = if forecast.is_null() {
        "no forecast yet".to_owned()
    } else {
        format!(
            "{}/s are forecast, from {} to {}",
            number(&forecast["rate_per_second"]),
            number(&forecast["low_per_second"]),
            number(&forecast["high_per_second"])
        )
    };
    let wanted = mine["wanted"].as_u64();
    let wanted = wanted.map_or_else(
        || "has no plan yet".to_owned(),
        |n| format!("wants {n} replicas"),
    );
    Some(format!(
        "the control plane {wanted} ({} set, {} ready); {band}. {}",
        mine["servers"],
        mine["ready"],
        text(&mine["reason"])
    ))
}

pub(super) fn class(name: &str, class: &Value) -> String {
    let recent = &class["recent"];
    let mut out = format!("{name} (rank {})\n", class["rank"]);
    for (label, value) in [
        ("offered/s", number(&recent["offered_per_second"])),
        ("admitted/s", number(&recent["admitted_per_second"])),
        ("in target/s", number(&recent["in_target_per_second"])),
        ("shed/s", number(&recent["shed_per_second"])),
        ("failed/s", number(&recent["failed_per_second"])),
        ("abandoned/s", number(&recent["abandoned_per_second"])),
        ("browned out/s", number(&recent["browned_out_per_second"])),
        ("waiting p99 ms", millis(&recent["waiting_p99_seconds"])),
        ("response p99 ms", millis(&recent["response_p99_seconds"])),
        ("target ms", millis(&class["target_seconds"])),
    ] {
        let _ = writeln!(out, "  {label:<16}{value:>10}");
    }
    for (reason, rate) in recent["shed_per_second_by_reason"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let _ = writeln!(out, "  shed {reason:<11}{:>10}", number(rate));
    }
    out
}

/// Time, type, then what it says, or else the other fields.
pub(super) fn event(event: &Value) -> String {
    let mut out = format!("{} {:<9}", text(&event["time"]), text(&event["type"]));
    if let Some(words) = event["words"].as_str() {
        let class = event["class"].as_str().filter(|_| event["type"] == "shed");
        let class = class.map_or_else(String::new, |class| format!("{class}: "));
        return format!("{out} {class}{words}\n");
    }
    for (name, value) in event.as_object().into_iter().flatten() {
        if ["id", "time", "type"].contains(&name.as_str()) {
            continue;
        }
        match (name.as_str(), value) {
            ("line", Value::String(line)) => {
                let _ = write!(out, " {line}");
            }
            (_, Value::String(value)) => {
                let _ = write!(out, " {name}={value}");
            }
            (_, value) => {
                let _ = write!(out, " {name}={value}");
            }
        }
    }
    out + "\n"
}

/// How a recording goes.
pub(super) fn recording(status: &Value) -> String {
    let file = text(&status["file"]);
    let (requests, lost) = (&status["requests"], &status["lost"]);
    let figures = format!(
        "{requests} requests, {lost} lost, {} bytes",
        status["bytes"]
    );
    match (status["enabled"].as_bool(), file) {
        (Some(true), _) if status["full"] == true => {
            format!("the size cap is reached, nothing more is recorded: {file}: {figures}\n")
        }
        (Some(true), _) => format!("recording into {file}: {figures}\n"),
        (_, "") => "nothing is recorded\n".to_owned(),
        (_, file) => format!("nothing is recorded; the last file was {file}: {figures}\n"),
    }
}
