//! Builds the papers' experiments and the arena's scenarios into the library, so that an installed
//! binary can run them anywhere.

use std::path::Path;
use std::{env, fs, io};

const ROOT: &str = "../../experiments";
/// Each becomes a list of names and texts, `NAME.rs` in the build's folder.
const FOLDERS: [&str; 2] = ["papers", "arena"];

fn main() -> io::Result<()> {
    FOLDERS.iter().try_for_each(|folder| embed(folder))
}

fn embed(folder: &str) -> io::Result<()> {
    println!("cargo::rerun-if-changed={ROOT}/{folder}");
    let entries: String = toml_names(&Path::new(ROOT).join(folder))?
        .iter()
        .map(|name| entry(folder, name))
        .collect();
    let list = format!("pub(super) const FILES: &[(&str, &str)] = &[\n{entries}];\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join(format!("{folder}.rs")), list)
}

fn toml_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    Ok(names)
}

/// `("experiments/papers/x.toml", include_str!(…)),` with a path that is looked up when the library
/// is compiled: another clone may have written this into a build folder that both use.
fn entry(folder: &str, name: &str) -> String {
    let shown = format!("experiments/{folder}/{name}");
    let path = format!("/{ROOT}/{folder}/{name}");
    format!("    ({shown:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),\n")
}
