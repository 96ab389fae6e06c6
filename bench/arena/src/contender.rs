//! Who is in the arena: real proxies, each with the configuration file of `peers/`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_sim::arena::{Clairvoyant, Entry};

use crate::failure::Failure;
use crate::process::{Server, free_addr};
use crate::template::Values;

/// A way to protect a service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) tool: Tool,
    file: &'static str,
    template: &'static str,
    /// In the short run too.
    pub(crate) essential: bool,
}

/// The program that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Nginx,
    Haproxy,
    Envoy,
    Tidegate,
}

macro_rules! contender {
    ($name:literal, $tool:ident, $file:literal, $essential:literal) => {
        Contender {
            name: $name,
            tool: Tool::$tool,
            file: $file,
            template: include_str!(concat!("../peers/", $file)),
            essential: $essential,
        }
    };
}

/// All contenders, in the order of the table.
pub(crate) const CONTENDERS: [Contender; 12] = [
    contender!("none", Nginx, "none.conf", true),
    contender!("nginx-limit-req", Nginx, "nginx-limit-req.conf", false),
    contender!("nginx-limit-conn", Nginx, "nginx-limit-conn.conf", true),
    contender!("haproxy", Haproxy, "haproxy.cfg", true),
    contender!("envoy-adaptive", Envoy, "envoy-adaptive.yaml", true),
    contender!("envoy-admission", Envoy, "envoy-admission.yaml", false),
    contender!("auto", Tidegate, "tidegate-auto.toml", true),
    contender!("auto+target", Tidegate, "tidegate-auto-target.toml", true),
    contender!("lqr", Tidegate, "tidegate-lqr.toml", false),
    contender!("pi", Tidegate, "tidegate-pi.toml", false),
    contender!("sentry", Tidegate, "tidegate-sentry.toml", false),
    contender!("ilac", Tidegate, "tidegate-ilac.toml", false),
];

impl Contender {
    /// How it was tuned: the comment at the head of its file.
    pub(crate) fn tuning(&self) -> String {
        let comment = self
            .template
            .lines()
            .map_while(|line| line.strip_prefix('#'));
        let comment = comment.map(str::trim).collect::<Vec<_>>().join(" ");
        comment.replace('`', "")
    }

    /// Its configuration for a scenario.
    pub(crate) fn config(&self, entry: &Entry, values: Values) -> Result<String, Failure> {
        let text = values_of(entry, values).fill(self.template)?;
        Ok(match self.tool {
            Tool::Tidegate => text + &classes(entry),
            _ => text,
        })
    }

    /// Starts it in front of `replicas`.
    pub(crate) fn start(
        &self,
        entry: &Entry,
        replicas: &[SocketAddr],
        tools: &Tools,
    ) -> Result<Running, Failure> {
        let dir = TempDir::new().map_err(Failure::system("no temporary directory"))?;
        let addr = free_addr()?;
        let values = Values::default()
            .word("port", addr.port().to_string())
            .word("dir", dir.path().display().to_string())
            .word("servers", self.tool.servers(replicas));
        let file = dir.path().join(self.file);
        fs::write(&file, self.config(entry, values)?).map_err(Failure::system(self.file))?;
        let server = Server::start(self.name, addr, &mut tools.command(self.tool, &file)?)?;
        Ok(Running {
            addr,
            server,
            _dir: dir,
        })
    }
}

/// A contender at work.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) server: Server,
    _dir: TempDir,
}

/// The numbers that a careful operator would know of the service.
fn values_of(entry: &Entry, values: Values) -> Values {
    let scenario = &entry.scenario;
    let work_s = Clairvoyant::of(scenario).work_s;
    let capacity = scenario.nominal_capacity() / work_s;
    let target_s = scenario.target.map_or(1.0, |target| target.as_secs_f64());
    let cores = scenario
        .replica
        .first()
        .map_or(1, |replica| replica.cores.get());
    values
        .number("capacity", capacity)
        .number("work_ms", 1e3 * work_s)
        .number("target_s", target_s)
        .number("target_ms", 1e3 * target_s)
        .number("in_target", capacity * target_s)
        .number("capacity_over_target_ms", capacity / (1e3 * target_s))
        .number("cores", f64::from(cores))
}

/// A scenario's classes in Tidegate's configuration: their order and the header that tells them
/// apart, which is believed here as it is by the other contenders.
fn classes(entry: &Entry) -> String {
    let names = entry.scenario.class.iter().map(|class| &class.name);
    let class = |name: &String| format!("\n[[protect.classes]]\nname = \"{name}\"\n");
    let rule = |name: &String| {
        format!(
            "\n[[classify]]\nclass = \"{name}\"\nheaders = {{ x-class = \"{name}\" }}\nbelieve = \"anybody\"\n"
        )
    };
    names.clone().map(class).chain(names.map(rule)).collect()
}

impl Tool {
    /// The replicas as its configuration file lists them.
    fn servers(self, replicas: &[SocketAddr]) -> String {
        let lines = replicas.iter().enumerate().map(|(index, addr)| match self {
            Self::Nginx => format!("server {addr} max_fails=3 fail_timeout=1s;"),
            Self::Haproxy => format!("server r{index} {addr}"),
            Self::Envoy => format!(
                "- endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}",
                addr.ip(),
                addr.port()
            ),
            Self::Tidegate => format!("\"http://{addr}\","),
        });
        let indent = match self {
            Self::Nginx => "\n    ",
            Self::Haproxy => "\n  ",
            Self::Envoy => "\n        ",
            Self::Tidegate => " ",
        };
        lines.collect::<Vec<_>>().join(indent)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Tidegate => "tidegate",
        }
    }
}

/// Where the programs are.
#[derive(Debug)]
pub(crate) struct Tools {
    nginx: Option<PathBuf>,
    haproxy: Option<PathBuf>,
    envoy: Option<PathBuf>,
    tidegate: PathBuf,
}

impl Tools {
    /// Debian puts servers where a user's path does not look.
    pub(crate) fn find(envoy: Option<PathBuf>) -> Result<Self, Failure> {
        let me = std::env::current_exe().map_err(Failure::system("cannot find myself"))?;
        let tidegate = me.with_file_name("tidegate");
        if !tidegate.exists() {
            return Err(Failure::said(format!(
                "{} is missing: build it with the same profile, or start bench/arena/run, which does",
                tidegate.display()
            )));
        }
        Ok(Self {
            nginx: in_path("nginx"),
            haproxy: in_path("haproxy"),
            envoy: envoy.or_else(|| in_path("envoy")),
            tidegate,
        })
    }

    fn path(&self, tool: Tool) -> Option<&Path> {
        match tool {
            Tool::Nginx => self.nginx.as_deref(),
            Tool::Haproxy => self.haproxy.as_deref(),
            Tool::Envoy => self.envoy.as_deref(),
            Tool::Tidegate => Some(&self.tidegate),
        }
    }

    pub(crate) fn has(&self, tool: Tool) -> bool {
        self.path(tool).is_some()
    }

    fn command(&self, tool: Tool, file: &Path) -> Result<Command, Failure> {
        let missing = || Failure::said(format!("{} is not installed", tool.name()));
        let mut command = Command::new(self.path(tool).ok_or_else(missing)?);
        match tool {
            Tool::Nginx => command.arg("-c").arg(file),
            Tool::Haproxy => command.arg("-db").arg("-f").arg(file),
            Tool::Envoy => command
                .args([
                    "--disable-hot-restart",
                    "--concurrency",
                    "1",
                    "-l",
                    "error",
                    "-c",
                ])
                .arg(file),
            Tool::Tidegate => command.args(["run", "-c"]).arg(file),
        };
        Ok(command)
    }

    /// What each program says of its version.
    pub(crate) fn versions(&self, tools: &[Tool]) -> Vec<String> {
        tools
            .iter()
            .filter_map(|&tool| version(self.path(tool)?, tool))
            .collect()
    }
}

fn version(path: &Path, tool: Tool) -> Option<String> {
    let flag = match tool {
        Tool::Nginx | Tool::Haproxy => "-v",
        Tool::Envoy | Tool::Tidegate => "--version",
    };
    let output = Command::new(path).arg(flag).output().ok()?;
    // nginx says it on standard error.
    let text = [output.stdout, output.stderr].concat();
    let number = version_number(&String::from_utf8_lossy(&text))?;
    Some(format!("{} {number}", tool.name()))
}

/// The first number with dots, behind the word `version` where there is one: before it may be a
/// path.
fn version_number(text: &str) -> Option<String> {
    let text = text.split_once("version").map_or(text, |(_, after)| after);
    let mut parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let number =
        parts.find(|part| part.contains('.') && part.starts_with(|c: char| c.is_ascii_digit()));
    number.map(|number| number.trim_end_matches('.').to_owned())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, number) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/",
                "2.6.12",
            ),
            (
                "\n/lib/python3.11/envoy  version: 9e55/1.40.0/Clean/RELEASE",
                "1.40.0",
            ),
            ("tidegate 0.1.0", "0.1.0"),
        ] {
            assert_eq!(version_number(said).as_deref(), Some(number), "{said}");
        }
    }

    #[test]
    fn every_contender_has_a_file_for_every_scenario_and_says_how_it_was_tuned() {
        let replicas = [
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        ];
        for contender in CONTENDERS {
            assert!(!contender.tuning().is_empty(), "{}", contender.name);
            for name in crate::program::SCENARIOS {
                let entry = crate::plant::entry(name).unwrap();
                let values = Values::default()
                    .word("port", "80")
                    .word("dir", "d")
                    .word("servers", contender.tool.servers(&replicas));
                let text = contender.config(&entry, values).unwrap();
                assert!(text.contains("127.0.0.1"), "{text}");
            }
        }
    }
}
