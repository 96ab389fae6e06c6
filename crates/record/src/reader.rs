//! Everything readable of a recording, and what was not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::columns;
use crate::frame::{Frame, Frames, Kind, MAGIC, Problem, ProblemKind, START, VERSION};
use crate::names::{Names, take_names};
use crate::request::{Event, Meta, Request};
use crate::varint::{take, take_bytes};
use crate::writer::EXTENSION;

/// Why a recording cannot be opened at all.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refuses.
    #[error("{path}: {cause}; check the name and who may read it")]
    Io {
        /// The file or directory.
        path: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The file is something else.
    #[error(
        "{path}: byte 0: this is no recording, which begins with `TGREC`; an access log is turned \
         into one by `tidegate recording import`"
    )]
    NoRecording {
        /// The file.
        path: String,
    },
    /// The file was written by a later version.
    #[error(
        "{path}: byte 6: format version {found}; this program reads up to {VERSION}: update it"
    )]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: u16,
    },
    /// There is no file in the directory.
    #[error("{path}: no file in this directory ends in .{EXTENSION}")]
    Empty {
        /// The directory.
        path: String,
    },
}

/// Requests and events that were lost while recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Arrival of the last request before the loss was noted, on the recording's clock.
    pub near_us: u64,
    /// How many.
    pub count: u64,
}

/// An input of the engine as it stands in the file.
pub type Input = Box<[u8]>;

/// A recording in memory.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// What its first file says about itself.
    pub meta: Meta,
    /// Requests by arrival.
    pub requests: Vec<Request>,
    /// Everything else by time.
    pub events: Vec<Event>,
    /// Names behind hashes.
    pub names: Names,
    /// Losses while recording.
    pub losses: Vec<Loss>,
    /// Inputs of the engine in their order.
    pub inputs: Vec<Input>,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the frames that hold requests.
    pub request_frames_bytes: u64,
    /// Files it was read from.
    pub files: Vec<PathBuf>,
}

/// The files of a recording: the file itself, or those of a directory in their order.
///
/// # Errors
/// A directory that cannot be read or holds no recording.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let io = |cause| RecordError::Io {
        path: path.display().to_string(),
        cause,
    };
    if !fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        Err(RecordError::Empty {
            path: path.display().to_string(),
        })
    } else {
        Ok(files)
    }
}

impl Recording {
    /// Reads a file, or all files of a directory.
    ///
    /// # Errors
    /// Only when there is nothing to read: damage inside is in [`Recording::problems`].
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let mut recording = Self::default();
        for file in files(path)? {
            let shown = file.display().to_string();
            let bytes = fs::read(&file).map_err(|cause| RecordError::Io {
                path: shown.clone(),
                cause,
            })?;
            recording.read(&shown, &bytes)?;
            recording.files.push(file);
        }
        recording.sort();
        Ok(recording)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// When it is no recording or one of a later version.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut recording = Self::default();
        recording.read(file, bytes)?;
        recording.sort();
        Ok(recording)
    }

    /// How long it is, from the first arrival to the last, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let first = self.requests.first().map_or(0, |request| request.at_us);
        let last = self.requests.last().map_or(0, |request| request.at_us);
        (last - first) as f64 / 1e6
    }

    /// Requests and events lost while recording.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|loss| loss.count).sum()
    }

    fn sort(&mut self) {
        self.requests.sort_by_key(|request| request.at_us);
        self.events.sort_by_key(|event| event.at_us);
    }

    fn read(&mut self, file: &str, bytes: &[u8]) -> Result<(), RecordError> {
        check_start(file, bytes)?;
        self.bytes += bytes.len() as u64;
        if bytes.len() < START {
            self.problems.push(Problem {
                file: file.to_owned(),
                offset: 0,
                skipped: bytes.len() as u64,
                kind: ProblemKind::TornTail,
            });
            return Ok(());
        }
        let mut shift = 0;
        for frame in Frames::new(file, bytes) {
            match frame {
                Err(problem) => self.problems.push(problem),
                Ok(frame) => self.take_frame(file, &frame, &mut shift),
            }
        }
        Ok(())
    }

    fn take_frame(&mut self, file: &str, frame: &Frame, shift: &mut u64) {
        let content = &frame.content;
        let read = match frame.kind {
            Kind::Meta => self.take_meta(content, shift),
            Kind::Requests => {
                self.request_frames_bytes += frame.bytes;
                self.take_requests(content, *shift)
            }
            Kind::Events => self.take_events(content, *shift),
            Kind::Names => take_names(content, &mut self.names),
            Kind::Loss => self.take_loss(content),
            Kind::Inputs => self.take_inputs(content),
        };
        if read.is_none() {
            self.problems.push(Problem {
                file: file.to_owned(),
                offset: frame.offset,
                skipped: frame.bytes,
                kind: ProblemKind::Content,
            });
        }
    }

    /// Clocks of different processes are brought to that of the first file.
    fn take_meta(&mut self, content: &[u8], shift: &mut u64) -> Option<()> {
        let meta: Meta = serde_json::from_slice(content).ok()?;
        if self.meta == Meta::default() {
            self.meta = meta;
            return Some(());
        }
        if meta.process != self.meta.process {
            *shift = meta.epoch_unix_us.wrapping_sub(self.meta.epoch_unix_us);
        }
        // A reload adds replicas and classes; what requests refer to is the larger table.
        let (known, new) = (&mut self.meta.tables, meta.tables);
        if new.classes.len() > known.classes.len() {
            known.classes = new.classes;
        }
        if new.replicas.len() > known.replicas.len() {
            known.replicas = new.replicas;
        }
        if new.applications.len() > known.applications.len() {
            known.applications = new.applications;
        }
        Some(())
    }

    fn take_requests(&mut self, content: &[u8], shift: u64) -> Option<()> {
        let mut requests = columns::decode(content)?;
        for request in &mut requests {
            request.at_us = request.at_us.wrapping_add(shift);
        }
        self.requests.extend(requests);
        Some(())
    }

    fn take_events(&mut self, mut content: &[u8], shift: u64) -> Option<()> {
        while !content.is_empty() {
            let at_us = take(&mut content)?.wrapping_add(shift);
            let length = take(&mut content)?;
            let json = take_bytes(&mut content, length)?;
            let json = String::from_utf8_lossy(json).into_owned();
            self.events.push(Event { at_us, json });
        }
        Some(())
    }

    fn take_loss(&mut self, mut content: &[u8]) -> Option<()> {
        let near_us = self.requests.last().map_or(0, |request| request.at_us);
        let count = take(&mut content)?;
        self.losses.push(Loss { near_us, count });
        Some(())
    }

    fn take_inputs(&mut self, mut content: &[u8]) -> Option<()> {
        while !content.is_empty() {
            let length = take(&mut content)?;
            self.inputs.push(take_bytes(&mut content, length)?.into());
        }
        Some(())
    }
}

fn check_start(file: &str, bytes: &[u8]) -> Result<(), RecordError> {
    let path = || file.to_owned();
    let begins = bytes.len().min(MAGIC.len());
    if bytes[..begins] != MAGIC[..begins] {
        return Err(RecordError::NoRecording { path: path() });
    }
    match bytes.get(MAGIC.len()..START) {
        Some(&[low, high]) if u16::from_le_bytes([low, high]) > VERSION => {
            let found = u16::from_le_bytes([low, high]);
            Err(RecordError::Version {
                path: path(),
                found,
            })
        }
        _ => Ok(()),
    }
}
