//! Tells the binary which commit it was built from and what is built in; every report names the
//! commit, `--version` both.

use std::env;
use std::path::Path;
use std::process::Command;

/// What may be left out of a build. `default` and `full` are names for several of them.
const FEATURES: [&str; 7] = [
    "ablation",
    "envoy",
    "gossip",
    "kubernetes",
    "nats",
    "otlp",
    "parquet",
];

fn main() {
    // A build outside a checkout, such as in a container, names its commit by the environment.
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let named = env::var("TIDEGATE_COMMIT").ok();
    let named = named.filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}");
    let built_in = |name: &&str| {
        let variable = format!("CARGO_FEATURE_{}", name.to_ascii_uppercase());
        env::var_os(variable).is_some()
    };
    let features: Vec<_> = FEATURES.into_iter().filter(built_in).collect();
    let features = if features.is_empty() {
        "no features".to_owned()
    } else {
        features.join(", ")
    };
    println!("cargo::rustc-env=TIDEGATE_FEATURES={features}");
    // HEAD changes with the branch, its log with every commit. Neither is there in a source
    // archive.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
