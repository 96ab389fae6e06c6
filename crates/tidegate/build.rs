//! Tells the binary which commit it was built from; every report names it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    // A build outside a checkout, such as in a container, names its commit by the environment.
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let named = env::var("TIDEGATE_COMMIT").ok();
    let named = named.filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}");
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
