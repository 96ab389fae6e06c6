//! Puts the web page into the binary where it has been built (`make dashboard`), and a page that
//! says how to build it where not: `cargo build` needs no Node.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
<title>Tidegate</title><body style=\"font:16px system-ui;max-width:40em;margin:3em auto\">\
<h1>Tidegate</h1><p>This binary was built without its web page. Build it with <code>make \
dashboard</code> (needs Node 20 or newer), then build Tidegate again.</p><p>Until then: \
<code>tidegate top</code>, <code>tidegate ctl status</code>, <a href=\"/api/status\">/api/status</a>, \
<a href=\"/metrics\">/metrics</a>.</p></body></html>\n";

fn main() {
    let built = Path::new("../../dashboard/dist/index.html");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", watched(built).display());
    let page = fs::read_to_string(built).unwrap_or_else(|_| MISSING.to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("dashboard.html"), page).expect("the build directory is ours");
    commit();
}

/// The page, or the nearest folder in which it would appear: a file that is missing counts as
/// changed, and would build the proxy again each time.
fn watched(page: &Path) -> &Path {
    let found = page.ancestors().take(3).find(|path| path.exists());
    found.unwrap_or(Path::new("build.rs"))
}

/// The commit, where the source is a repository; packagers set it themselves.
fn commit() {
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    if env::var_os("TIDEGATE_COMMIT").is_some() {
        return;
    }
    let asked = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    if let Ok(answer) = asked.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()) {
        println!("cargo::rustc-env=TIDEGATE_COMMIT={}", answer.trim());
    }
}
