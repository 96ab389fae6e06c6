//! `tidegate ctl`: every call of the admin API as a command.

pub(crate) mod show;

use std::error::Error;
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_config::Dur;
use tidegate_http1::event_stream::Reader;

use crate::admin_client::{Admin, application, escaped};
use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Longest event that is read: the largest carry a few kilobytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// Looks into a running proxy and steers it.
///
/// Changes last until the file is put in force again (`tidegate ctl reload`), and each one is a
/// line of the proxy's log.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Print the proxy's answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Which application, where the proxy has several.
    #[arg(long, global = true, value_name = "NAME")]
    application: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What the proxy is doing, in words and figures.
    Status,
    /// What is wrong, and what would help.
    Warnings,
    /// One class: what arrived, was admitted and shed, and how long it took.
    Class {
        /// Its name; all classes if not given.
        name: Option<String>,
    },
    /// Replicas, with window, requests in flight and service time.
    Replicas,
    /// Adds, removes, drains or weighs a replica, until the file names other replicas.
    #[command(subcommand)]
    Replica(ReplicaCall),
    /// What the configuration of `[shadow]` would do, beside the one in force.
    Shadow,
    /// Other proxies in front of the same replicas, and what this one may use.
    Fleet,
    /// Why a request was refused.
    Why {
        /// What its answer had as x-request-id.
        id: String,
    },
    /// Events: of the past with --since, as they happen with --follow.
    Events {
        /// Types, separated by commas: overload, window, step, mode, health, aside, notice, shed …
        #[arg(long, value_name = "TYPES")]
        types: Option<String>,
        /// From when on: how long ago, as 10m, or a time as 2026-01-02T03:04:05Z.
        #[arg(long, value_name = "TIME", default_value = "1h")]
        since: String,
        /// Go on with events as they happen.
        #[arg(short, long)]
        follow: bool,
    },
    /// Sets the target, as 300ms; `default` goes back to finding it.
    Target {
        /// The response time within which an answer is worth something.
        target: String,
    },
    /// Sets the mode: auto, static, step, pi, pid, lqr, ilac, sentry or off.
    Mode {
        /// The mode from now on.
        mode: String,
    },
    /// Changes parameters of `protect` by a JSON merge patch: '{"limits":{"window_max":64}}'.
    Set {
        /// The patch.
        patch: String,
    },
    /// Decide and count, but shed nothing.
    DryRun {
        /// On or off.
        switch: OnOff,
    },
    /// Admit everything at once.
    KillSwitch {
        /// On or off.
        switch: OnOff,
    },
    /// Answer everything with the maintenance page; of one application with --application.
    Maintenance {
        /// On or off.
        switch: OnOff,
    },
    /// Refuse new requests and finish those inside.
    Drain {
        /// On or off.
        switch: OnOff,
    },
    /// Puts the file in force again; changes made here are dropped.
    Reload,
    /// The configuration in force, secrets redacted.
    Config,
    /// Records what passes, for `tidegate whatif` and `tidegate recording`.
    #[command(subcommand)]
    Record(RecordCall),
    /// The channel to clients: what they were told, and which did not hold back.
    Channel {
        /// A command for it, as JSON; its state if not given.
        command: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum RecordCall {
    /// Begins a recording.
    Start {
        /// Directory on the proxy's machine; `record.dir` of its configuration if not given.
        dir: Option<String>,
    },
    /// Ends the recording, when everything recorded is on the disk.
    Stop,
    /// How the recording goes.
    Status,
}

#[derive(Debug, Subcommand)]
enum ReplicaCall {
    /// Adds a replica.
    Add {
        /// Its URL, as http://10.0.0.7:3000.
        url: String,
        /// What it is meant to carry, relative to the others.
        #[arg(long, default_value = "1")]
        weight: NonZeroU32,
    },
    /// Removes a replica; requests inside finish.
    Remove {
        /// Its URL, as `tidegate ctl replicas` has it.
        url: String,
    },
    /// Gives a replica no new requests.
    Drain {
        /// Its URL, as `tidegate ctl replicas` has it.
        url: String,
    },
    /// Gives a drained replica requests again.
    Undrain {
        /// Its URL, as `tidegate ctl replicas` has it.
        url: String,
    },
    /// Sets what a replica is meant to carry, relative to the others.
    Weight {
        /// Its URL, as `tidegate ctl replicas` has it.
        url: String,
        /// One of weight 2 gets twice the requests of one of weight 1.
        weight: NonZeroU32,
    },
}

impl ReplicaCall {
    /// The change of the pool, and what it is in words.
    fn patch(&self) -> (Value, String) {
        match self {
            Self::Add { url, weight } => (
                json!({ "add": [{ "url": url, "weight": weight }] }),
                format!("{url} added"),
            ),
            Self::Remove { url } => (json!({ "remove": [url] }), format!("{url} removed")),
            Self::Drain { url } => (json!({ "drain": [url] }), format!("{url} drains")),
            Self::Undrain { url } => (
                json!({ "undrain": [url] }),
                format!("{url} gets requests again"),
            ),
            Self::Weight { url, weight } => (
                json!({ "weight": { url: weight } }),
                format!("{url} has weight {weight}"),
            ),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::current_thread()?.block_on(args.call())?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    async fn call(&self) -> Result<(), CliError> {
        match &self.command {
            Command::Status => self.look(show::status).await,
            Command::Warnings => self.look(show::warnings).await,
            Command::Replicas => self.look(show::replicas).await,
            Command::Replica(call) => self.replica(call).await,
            Command::Shadow => self.shadow().await,
            Command::Class { name } => self.class(name.as_deref()).await,
            Command::Events {
                types,
                since,
                follow,
            } => self.events(types.as_deref(), since, *follow).await,
            Command::Fleet => {
                let fleet = self.admin.get("/api/fleet").await?;
                match self.json {
                    true => self.print_json(&fleet),
                    false => print(&show::fleet(&fleet)),
                }
            }
            Command::Why { id } => self.why(id).await,
            Command::Target { target } => self.target(target).await,
            Command::Mode { mode } => {
                self.change("/api/mode", &json!({ "mode": mode }), "mode")
                    .await
            }
            Command::Set { patch } => {
                let patch = parse("the patch", patch)?;
                self.change("/api/parameters", &patch, "parameters").await
            }
            Command::DryRun { switch } => self.switch("/api/dry-run", "dry run", *switch).await,
            Command::KillSwitch { switch } => {
                self.switch("/api/kill-switch", "kill switch", *switch)
                    .await
            }
            Command::Maintenance { switch } => {
                let path = match &self.application {
                    Some(name) => format!("/api/applications/{}/maintenance", escaped(name)),
                    None => "/api/maintenance".to_owned(),
                };
                self.switch(&path, "maintenance", *switch).await
            }
            Command::Drain { switch } => self.switch("/api/drain", "drain", *switch).await,
            Command::Reload => self.change("/api/reload", &json!({}), "reload").await,
            Command::Config => self.print_json(&self.admin.get("/api/config").await?),
            Command::Record(call) => self.record(call).await,
            Command::Channel { command: None } => {
                self.print_json(&self.admin.get("/api/channel").await?)
            }
            Command::Channel {
                command: Some(command),
            } => {
                let command = parse("the command", command)?;
                self.change("/api/channel", &command, "channel").await
            }
        }
    }

    async fn look(&self, show: fn(&Value) -> String) -> Result<(), CliError> {
        let status = self.admin.get("/api/status").await?;
        let chosen = application(&status, self.application.as_deref())?;
        match self.json {
            true => self.print_json(chosen),
            false => print(&show(chosen)),
        }
    }

    async fn replica(&self, call: &ReplicaCall) -> Result<(), CliError> {
        let name = match &self.application {
            Some(name) => name.clone(),
            None => self.only_application().await?,
        };
        let path = format!("/api/applications/{}/replicas", escaped(&name));
        let (patch, words) = call.patch();
        let pool = self.admin.patch(&path, &patch).await?;
        match self.json {
            true => self.print_json(&pool),
            false => print(&format!("{words}\n")),
        }
    }

    async fn only_application(&self) -> Result<String, CliError> {
        let list = self.admin.get("/api/applications").await?;
        let all = list["applications"].as_array().into_iter().flatten();
        let names: Vec<_> = all.map(|it| show::text(&it["name"]).to_owned()).collect();
        match names.as_slice() {
            [name] => Ok(name.clone()),
            names => Err(CliError::Usage(format!(
                "there are several applications; name one by --application: {}",
                names.join(", ")
            ))),
        }
    }

    async fn shadow(&self) -> Result<(), CliError> {
        let status = self.admin.get("/api/status").await?;
        let shadow = &application(&status, self.application.as_deref())?["shadow"];
        if shadow.is_null() {
            return Err(CliError::Usage(
                "the configuration in force has no shadow; write what is to be otherwise as \
                 [shadow.protect] into the proxy's file, and reload it"
                    .to_owned(),
            ));
        }
        match self.json {
            true => self.print_json(shadow),
            false => print(&show::shadow(shadow)),
        }
    }

    async fn class(&self, name: Option<&str>) -> Result<(), CliError> {
        let status = self.admin.get("/api/status").await?;
        let classes = &application(&status, self.application.as_deref())?["classes"];
        let all: Vec<_> = classes.as_object().into_iter().flatten().collect();
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            let there = names.join(", ");
            return Err(CliError::Usage(format!(
                "there is no class `{name}`; there is {there}"
            )));
        }
        let wanted = |of: &&(&String, &Value)| name.is_none_or(|name| of.0 == name);
        for (class, figures) in all.iter().filter(wanted) {
            match self.json {
                true => self.print_json(figures)?,
                false => print(&show::class(class, figures))?,
            }
        }
        Ok(())
    }

    async fn why(&self, id: &str) -> Result<(), CliError> {
        let found = self.admin.refusal(id).await?;
        match self.json {
            true => self.print_json(&found),
            false => print(&format!("{}\n", show::text(&found["words"]))),
        }
    }

    async fn target(&self, target: &str) -> Result<(), CliError> {
        let target = match target {
            "default" => Value::Null,
            text => {
                let wrong = |_| {
                    let words = "is no duration; write a number with a unit, as 300ms, or default";
                    CliError::Usage(format!("`{text}` {words}"))
                };
                text.parse::<Dur>().map(|_| text.into()).map_err(wrong)?
            }
        };
        self.change("/api/parameters", &json!({ "target": target }), "target")
            .await
    }

    async fn switch(&self, path: &str, name: &str, to: OnOff) -> Result<(), CliError> {
        let on = to == OnOff::On;
        let answer = self.admin.post(path, &json!({ "enabled": on })).await?;
        match self.json {
            true => self.print_json(&answer),
            false => print(&format!("{name} {}\n", if on { "on" } else { "off" })),
        }
    }

    async fn record(&self, call: &RecordCall) -> Result<(), CliError> {
        let path = "/api/record";
        let status = match call {
            RecordCall::Start { dir } => {
                let begin = json!({ "enabled": true, "dir": dir });
                self.admin.post(path, &begin).await?
            }
            RecordCall::Stop => self.admin.post(path, &json!({ "enabled": false })).await?,
            RecordCall::Status => self.admin.get(path).await?,
        };
        match self.json {
            true => self.print_json(&status),
            false => print(&show::recording(&status)),
        }
    }

    async fn change(&self, path: &str, body: &Value, name: &str) -> Result<(), CliError> {
        let answer = self.admin.post(path, body).await?;
        match self.json {
            true => self.print_json(&answer),
            false => print(&format!("{name}: in force\n")),
        }
    }

    async fn events(&self, types: Option<&str>, since: &str, follow: bool) -> Result<(), CliError> {
        let mut path = format!("/api/events?follow={follow}&since={}", escaped(since));
        if let Some(types) = types {
            path += &format!("&types={}", escaped(types));
        }
        if !follow {
            let past = self.admin.get(&path).await?;
            let mut past = past.as_array().into_iter().flatten();
            return past.try_for_each(|event| self.event(event));
        }
        let response = self.admin.send(&path, None).await?;
        if !response.status().is_success() {
            return self.admin.get(&path).await.map(drop);
        }
        self.follow(response.into_body()).await
    }

    async fn follow(&self, mut body: hyper::body::Incoming) -> Result<(), CliError> {
        let mut reader = Reader::new(EVENT_BYTES_MAX);
        while let Some(frame) = body.frame().await {
            let broken = |error: &dyn Error| {
                CliError::Usage(format!(
                    "the stream of events broke off: {error}; call again"
                ))
            };
            let data = frame.map_err(|error| broken(&error))?.into_data();
            let data = data.unwrap_or_default();
            let mut data = &data[..];
            while let Some(event) = reader.read(&mut data).map_err(|error| broken(&error))? {
                if let Ok(event) = serde_json::from_str(&event.data) {
                    self.event(&event)?;
                }
            }
        }
        Err(CliError::Usage(
            "the proxy ended the stream; call again".into(),
        ))
    }

    fn event(&self, event: &Value) -> Result<(), CliError> {
        match self.json {
            true => print(&format!("{event}\n")),
            false => print(&show::event(event)),
        }
    }

    /// Indented for people; the same with `--json`, in one line.
    fn print_json(&self, value: &Value) -> Result<(), CliError> {
        let text = match self.json {
            true => value.to_string(),
            false => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let _ = io::stdout().flush();
        print(&format!("{text}\n"))
    }
}

fn parse(what: &str, text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::Usage(format!("{what} is not JSON: {error}; quote it with '…'")))
}
