//! Builds the papers' experiments and the arena's scenarios into the library, so that an installed
//! binary can run them anywhere.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const ROOT: &str = "../../experiments";
/// Each becomes a list of names and texts, `NAME.rs` in the build's folder.
const FOLDERS: [&str; 2] = ["papers", "arena"];

fn main() -> io::Result<()> {
    FOLDERS.iter().try_for_each(|folder| embed(folder))
}

fn embed(folder: &str) -> io::Result<()> {
    println!("cargo::rerun-if-changed={ROOT}/{folder}");
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let entries = toml_files(&Path::new(&manifest).join(ROOT).join(folder))?
        .iter()
        .map(|path| entry(folder, path))
        .collect::<io::Result<String>>()?;
    let list = format!("pub(super) const FILES: &[(&str, &str)] = &[\n{entries}];\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join(format!("{folder}.rs")), list)
}

fn toml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    Ok(files)
}

/// `("experiments/papers/x.toml", include_str!("/…/x.toml")),`
fn entry(folder: &str, path: &Path) -> io::Result<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let path = fs::canonicalize(path)?;
    let shown = format!("experiments/{folder}/{name}");
    Ok(format!(
        "    ({shown:?}, include_str!({:?})),\n",
        path.to_string_lossy()
    ))
}
