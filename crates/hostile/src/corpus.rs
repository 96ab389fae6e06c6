//! Vectors from files of others: JSON lines, each with raw bytes or with one header line to put
//! into a request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::vector::Vector;

/// Why a corpus cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The directory or a file of it.
    #[error("cannot read {}: {cause}; name a directory with .jsonl files", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A line that is no vector.
    #[error("{}:{line}: {cause}; a line has `id` and either `raw_b64` or `header_b64`", path.display())]
    Line {
        /// In which file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// There is nothing to read.
    #[error("{} holds no .jsonl file", .0.display())]
    Empty(PathBuf),
}

/// One line. Other keys are notes of its collector.
#[derive(Deserialize)]
struct Line {
    id: String,
    kind: Option<String>,
    raw_b64: Option<String>,
    header_b64: Option<String>,
}

/// Reads every `.jsonl` file of a directory, in the order of their names.
///
/// # Errors
/// What cannot be read, and where.
pub fn load(dir: &Path) -> Result<Vec<Vector>, CorpusError> {
    let unreadable = |path: &Path, cause| CorpusError::Read {
        path: path.to_owned(),
        cause,
    };
    let entries = fs::read_dir(dir).map_err(|cause| unreadable(dir, cause))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    paths.sort();
    let mut vectors = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).map_err(|cause| unreadable(path, cause))?;
        vectors.extend(parse(path, &text)?);
    }
    if vectors.is_empty() {
        Err(CorpusError::Empty(dir.to_owned()))
    } else {
        Ok(vectors)
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Vector>, CorpusError> {
    let class: Arc<str> = path
        .file_stem()
        .map_or_else(|| "corpus".into(), |stem| stem.to_string_lossy().into());
    let mut vectors = Vec::new();
    for (number, text) in text
        .lines()
        .enumerate()
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let refuse = |cause: String| CorpusError::Line {
            path: path.to_owned(),
            line: number + 1,
            cause,
        };
        let line: Line = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if line.kind.as_deref().is_some_and(|kind| kind != "request") {
            continue;
        }
        let bytes = bytes(&line).map_err(refuse)?;
        vectors.push(Vector {
            class: Arc::clone(&class),
            name: line.id,
            bytes,
            sound: false,
            http2: false,
        });
    }
    Ok(vectors)
}

fn bytes(line: &Line) -> Result<Vec<u8>, String> {
    let decode = |text: &String| STANDARD.decode(text).map_err(|error| error.to_string());
    match (&line.raw_b64, &line.header_b64) {
        (Some(raw), None) => decode(raw),
        (None, Some(header)) => decode(header).map(|header| with_header(&header)),
        _ => Err("not exactly one of raw_b64 and header_b64".to_owned()),
    }
}

/// A header in a request whose two possible readings end in different places.
fn with_header(header: &[u8]) -> Vec<u8> {
    let head = b"POST /gadget HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n";
    [&head[..], header, b"\r\n\r\n0\r\n\r\nX"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Vector>, CorpusError> {
        super::parse(Path::new("some.jsonl"), text)
    }

    #[test]
    fn raw_bytes_and_headers_are_taken_and_responses_left_out() {
        let vectors = parse(
            "{\"id\": \"a\", \"raw_b64\": \"R0VU\", \"note\": 1}\n\n\
             {\"id\": \"b\", \"kind\": \"response\", \"raw_b64\": \"R0VU\"}\n\
             {\"id\": \"c\", \"header_b64\": \"WDogMQ==\"}\n",
        )
        .unwrap();
        assert_eq!(vectors.len(), 2);
        assert_eq!(vectors[0].bytes, b"GET");
        assert!(
            vectors[1]
                .bytes
                .windows(6)
                .any(|window| window == b"\r\nX: 1")
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse("{\"id\": \"a\", \"raw_b64\": \"R0VU\"}\n{\"id\": \"b\"}").unwrap_err();
        assert!(error.to_string().starts_with("some.jsonl:2: "), "{error}");
        assert!(parse("nonsense").is_err());
    }
}
