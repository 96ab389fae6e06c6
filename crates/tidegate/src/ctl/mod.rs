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
use tidegate_proxy::config::Replica;

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
    /// Which application, where the proxy has several. Without it `kill-switch`, `drain`,
    /// `maintenance` and `reload` concern all of them.
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
    /// The paths and tenants that cost most and are shed most, and the lines that would help.
    Paths,
    /// Adds, removes, drains or weighs replicas, until the file names others or `reset`.
    #[command(subcommand)]
    Replica(ReplicaCall),
    /// What the configuration of `[shadow]` would do, beside the one in force.
    Shadow,
    /// Other proxies in front of the same replicas, and what this one may use.
    Fleet,
    /// What became of a request that was not served, and why.
    Why {
        /// What its answer had as x-request-id.
        id: String,
    },
    /// Events: of the past with --since, as they happen with --follow.
    Events {
        /// Types, separated by commas: overload, window, step, mode, health, ejected, notice,
        /// shed …
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
    /// Answer everything with the maintenance page.
    Maintenance {
        /// On or off.
        switch: OnOff,
    },
    /// Refuse new requests and finish those inside.
    Drain {
        /// On or off.
        switch: OnOff,
    },
    /// Puts the file in force again; changes made here are dropped, or with --application those of
    /// one application alone.
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

impl Command {
    /// What it is about, if that is no single application.
    fn concerns_the_proxy(&self) -> Option<&'static str> {
        match self {
            Self::Fleet => Some("the fleet shares all applications of a proxy"),
            Self::Why { .. } => Some("an id is looked for in all applications"),
            Self::Events { .. } => Some("the events are those of all applications"),
            Self::Config => Some("the configuration is that of the proxy"),
            Self::Record(_) => Some("a recording is one of the whole proxy"),
            Self::Channel { .. } => Some("the channel is that of the proxy"),
            _ => None,
        }
    }
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
    /// Adds replicas.
    Add {
        /// Their URLs, as http://10.0.0.7:3000.
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
        /// What each of them is meant to carry, relative to the others.
        #[arg(long, default_value = "1")]
        weight: NonZeroU32,
    },
    /// Removes replicas; requests inside finish.
    Remove {
        /// Their URLs, as `tidegate ctl replicas` has them.
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Gives replicas no new requests.
    Drain {
        /// Their URLs, as `tidegate ctl replicas` has them.
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Gives drained replicas requests again.
    Undrain {
        /// Their URLs, as `tidegate ctl replicas` has them.
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Sets what a replica is meant to carry, relative to the others.
    Weight {
        /// Its URL, as `tidegate ctl replicas` has it.
        url: String,
        /// One of weight 2 gets twice the requests of one of weight 1.
        weight: NonZeroU32,
    },
    /// Several changes at once, whole or not at all, as JSON.
    Change {
        /// As '{"add":[{"url":"http://b:1"}],"drain":["http://a:1"]}'; also `remove`, `undrain`
        /// and `weight`.
        patch: String,
    },
    /// Sets all replicas: these and no others, whatever the file names or discovers.
    Set {
        /// Each as http://10.0.0.7:3000 or 'http://10.0.0.7:3000 weight=2'.
        #[arg(required = true, value_name = "URL")]
        replicas: Vec<Replica>,
    },
    /// Drops all these changes: the replicas are those that the file names or discovers.
    Reset,
}

/// A call of a pool.
enum PoolCall {
    Patch(Value),
    Put(Value),
    Delete,
}

impl ReplicaCall {
    /// The change of the pool, and what it is in words.
    fn call(&self) -> Result<(PoolCall, String), CliError> {
        let all = |urls: &[String]| urls.join(", ");
        let (patch, words) = match self {
            Self::Add { urls, weight } => {
                let added = urls
                    .iter()
                    .map(|url| json!({ "url": url, "weight": weight }));
                let patch = json!({ "add": added.collect::<Value>() });
                (patch, format!("{} added", all(urls)))
            }
            Self::Remove { urls } => (json!({ "remove": urls }), format!("{} removed", all(urls))),
            Self::Drain { urls } => (json!({ "drain": urls }), format!("{}: draining", all(urls))),
            Self::Undrain { urls } => (
                json!({ "undrain": urls }),
                format!("{}: requests again", all(urls)),
            ),
            Self::Weight { url, weight } => (
                json!({ "weight": { url: weight } }),
                format!("{url} has weight {weight}"),
            ),
            Self::Change { patch } => (parse("the change", patch)?, "replicas: changed".to_owned()),
            Self::Set { replicas } => {
                let all = replicas.iter();
                let all = all.map(|it| json!({ "url": it.url.to_string(), "weight": it.weight }));
                let put = json!({ "replicas": all.collect::<Value>() });
                return Ok((
                    PoolCall::Put(put),
                    "replicas: these and no others".to_owned(),
                ));
            }
            Self::Reset => {
                let words = "replicas: those that the file names or discovers";
                return Ok((PoolCall::Delete, words.to_owned()));
            }
        };
        Ok((PoolCall::Patch(patch), words))
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
        if let (Some(name), Some(concern)) = (&self.application, self.command.concerns_the_proxy())
        {
            return Err(CliError::Usage(format!(
                "{concern}, not application `{name}` alone; leave --application out"
            )));
        }
        match &self.command {
            Command::Status => self.look_at_all(show::status).await,
            Command::Warnings => self.look_at_all(show::warnings).await,
            Command::Replicas => self.replicas().await,
            Command::Paths => self.look(show::paths).await,
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
                if self.json {
                    self.print_json(&fleet)
                } else {
                    print(&show::fleet(&fleet))
                }
            }
            Command::Why { id } => self.why(id).await,
            Command::Target { target } => self.target(target).await,
            Command::Mode { mode } => {
                self.change(&self.of("mode"), &json!({ "mode": mode }), "mode")
                    .await
            }
            Command::Set { patch } => {
                let patch = parse("the patch", patch)?;
                self.change(&self.of("parameters"), &patch, "parameters")
                    .await
            }
            Command::DryRun { switch } => self.switch("dry-run", "dry run", *switch).await,
            Command::KillSwitch { switch } => {
                self.switch("kill-switch", "kill switch", *switch).await
            }
            Command::Maintenance { switch } => {
                self.switch("maintenance", "maintenance", *switch).await
            }
            Command::Drain { switch } => self.switch("drain", "drain", *switch).await,
            Command::Reload => self.change(&self.of("reload"), &json!({}), "reload").await,
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

    /// The path of a call: of the application that was named, else of the proxy.
    fn of(&self, call: &str) -> String {
        match &self.application {
            Some(name) => format!("/api/applications/{}/{call}", escaped(name)),
            None => format!("/api/{call}"),
        }
    }

    /// The application that was named, at the beginning of what is printed.
    fn prefix(&self) -> String {
        let name = self.application.as_ref();
        name.map_or_else(String::new, |name| format!("application {name}: "))
    }

    async fn look(&self, show: fn(&Value) -> String) -> Result<(), CliError> {
        let status = self.admin.get("/api/status").await?;
        let chosen = application(&status, self.application.as_deref())?;
        if self.json {
            self.print_json(chosen)
        } else {
            print(&show(chosen))
        }
    }

    /// Shows an application with what concerns the whole process.
    async fn look_at_all(&self, show: fn(&Value, &Value) -> String) -> Result<(), CliError> {
        let status = self.admin.get("/api/status").await?;
        let chosen = application(&status, self.application.as_deref())?;
        if self.json {
            self.print_json(chosen)
        } else {
            print(&show(&status, chosen))
        }
    }

    async fn replicas(&self) -> Result<(), CliError> {
        if self.json {
            return self.look(show::replicas).await;
        }
        self.look(show::replicas).await?;
        print(&show::pool(&self.admin.get(&self.pool().await?).await?))
    }

    /// The path of the pool.
    async fn pool(&self) -> Result<String, CliError> {
        let name = match &self.application {
            Some(name) => name.clone(),
            None => self.only_application().await?,
        };
        Ok(format!("/api/applications/{}/replicas", escaped(&name)))
    }

    async fn replica(&self, call: &ReplicaCall) -> Result<(), CliError> {
        let (call, words) = call.call()?;
        let path = self.pool().await?;
        let pool = match call {
            PoolCall::Patch(patch) => self.admin.patch(&path, &patch).await?,
            PoolCall::Put(pool) => self.admin.put(&path, &pool).await?,
            PoolCall::Delete => self.admin.delete(&path).await?,
        };
        if self.json {
            self.print_json(&pool)
        } else {
            print(&format!("{}{words}\n", self.prefix()))
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
        if self.json {
            self.print_json(shadow)
        } else {
            print(&show::shadow(shadow))
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
            if self.json {
                self.print_json(figures)?;
            } else {
                print(&show::class(class, figures))?;
            }
        }
        Ok(())
    }

    async fn why(&self, id: &str) -> Result<(), CliError> {
        let found = self.admin.request(id).await?;
        if self.json {
            self.print_json(&found)
        } else {
            print(&format!("{}\n", show::text(&found["words"])))
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
        let patch = json!({ "target": target });
        self.change(&self.of("parameters"), &patch, "target").await
    }

    async fn switch(&self, call: &str, name: &str, to: OnOff) -> Result<(), CliError> {
        let on = to == OnOff::On;
        let body = json!({ "enabled": on });
        let answer = self.admin.post(&self.of(call), &body).await?;
        let position = if on { "on" } else { "off" };
        if self.json {
            self.print_json(&answer)
        } else {
            print(&format!("{}{name} {position}\n", self.prefix()))
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
        if self.json {
            self.print_json(&status)
        } else {
            print(&show::recording(&status))
        }
    }

    async fn change(&self, path: &str, body: &Value, name: &str) -> Result<(), CliError> {
        let answer = self.admin.post(path, body).await?;
        if self.json {
            self.print_json(&answer)
        } else {
            print(&format!("{}{name}: in force\n", self.prefix()))
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
        if self.json {
            print(&format!("{event}\n"))
        } else {
            print(&show::event(event))
        }
    }

    /// Indented for people; the same with `--json`, in one line.
    fn print_json(&self, value: &Value) -> Result<(), CliError> {
        let text = if self.json {
            value.to_string()
        } else {
            serde_json::to_string_pretty(value).unwrap_or_default()
        };
        let _ = io::stdout().flush();
        print(&format!("{text}\n"))
    }
}

fn parse(what: &str, text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::Usage(format!("{what} is not JSON: {error}; quote it with '…'")))
}
