//! Builds the papers' experiments into the library, so that an installed binary can run them anywhere.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "../../experiments/papers";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join(FOLDER);
    let entries = experiments(&folder)?
        .iter()
        .map(|path| entry(path))
        .collect::<io::Result<String>>()?;
    let list = format!("pub(super) const FILES: &[(&str, &str)] = &[\n{entries}];\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("papers.rs"), list)
}

fn experiments(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
fn entry(path: &Path) -> io::Result<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let path = fs::canonicalize(path)?;
    let shown = format!("experiments/papers/{name}");
    Ok(format!(
        "    ({shown:?}, include_str!({:?})),\n",
        path.to_string_lossy()
    ))
}
