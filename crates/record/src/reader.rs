//! Everything readable of a recording, and what was not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::columns;
use crate::frame::{Frame, Frames, Kind, MAGIC, Problem, ProblemKind, START, VERSION};
use crate::names::{NameKind, Names, take_names};
use crate::request::{Event, Meta, Request};
use crate::session::{Joined, Numbers};
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

/// A recording in memory, or with [`Recording::outline`] all of it but its requests.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// What its first file says about itself.
    pub meta: Meta,
    /// Requests by arrival; none in an outline, whose requests [`Recording::each`] reads.
    pub requests: Vec<Request>,
    /// Everything else by time; none in an outline that was made without.
    pub events: Vec<Event>,
    /// How many events there are.
    pub event_count: u64,
    /// Names behind hashes.
    pub names: Names,
    /// Losses while recording.
    pub losses: Vec<Loss>,
    /// When another process went on with it, on the recording's clock.
    pub restarts: Vec<u64>,
    /// Inputs of the engine in their order; none in an outline.
    pub inputs: Vec<Input>,
    /// How many inputs of the engine there are.
    pub input_count: u64,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the frames that hold requests.
    pub request_frames_bytes: u64,
    /// Files it was read from.
    pub files: Vec<PathBuf>,
    /// Whether requests and inputs are left in the files.
    outline: Option<Outline>,
    tables: Joined,
    /// Numbers of the process whose frames are being read.
    numbers: Numbers,
    /// Hashes of paths that an earlier process had under another key, by their names.
    paths: HashMap<u64, u64>,
    /// Arrival of the last request that was read.
    last_us: u64,
}

/// What an outline knows of the requests in the files.
#[derive(Debug, Clone, Default)]
struct Outline {
    with_events: bool,
    /// By frame of requests: how many it has, their first and their last arrival.
    frames: Vec<(u64, u64, u64)>,
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
    /// A recording of requests that stand in no file.
    #[must_use]
    pub fn of(meta: Meta, requests: Vec<Request>) -> Self {
        Self {
            meta,
            requests,
            ..Self::default()
        }
    }

    /// Reads a file, or all files of a directory.
    ///
    /// # Errors
    /// Only when there is nothing to read: damage inside is in [`Recording::problems`].
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let mut recording = Self::default();
        recording.read_all(files(path)?)?;
        Ok(recording)
    }

    /// Reads everything but the requests and the inputs of the engine, which may not fit into
    /// memory; events only if wanted.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn outline(path: &Path, with_events: bool) -> Result<Self, RecordError> {
        let mut recording = Self {
            outline: Some(Outline {
                with_events,
                frames: Vec::new(),
            }),
            ..Self::default()
        };
        recording.read_all(files(path)?)?;
        Ok(recording)
    }

    fn read_all(&mut self, files: Vec<PathBuf>) -> Result<(), RecordError> {
        for file in files {
            let shown = file.display().to_string();
            self.read(&shown, &read_file(&file)?)?;
            self.files.push(file);
        }
        self.finish();
        Ok(())
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// When it is no recording or one of a later version.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut recording = Self::default();
        recording.read(file, bytes)?;
        recording.finish();
        Ok(recording)
    }

    /// Calls `visit` with each request, by arrival. Those of an outline are read from the files
    /// once more: of them only those are in memory that arrived before one of a frame to come.
    ///
    /// # Errors
    /// What the system says about the files, and what `visit` says.
    pub fn each<E: From<RecordError>>(
        &self,
        mut visit: impl FnMut(&Request) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(outline) = &self.outline else {
            return self.requests.iter().try_for_each(visit);
        };
        // From each frame on: the first arrival that is still to come.
        let mut to_come: Vec<u64> = outline.frames.iter().map(|frame| frame.1).collect();
        for at in (1..to_come.len()).rev() {
            to_come[at - 1] = to_come[at - 1].min(to_come[at]);
        }
        let mut sorter = Sorter::default();
        let mut again = Self::default();
        let mut frame = 0;
        for file in &self.files {
            let shown = file.display().to_string();
            let bytes = read_file(file)?;
            check_start(&shown, &bytes)?;
            again.numbers = Numbers::default();
            for one in Frames::new(&shown, &bytes).flatten() {
                again.take_frame(&shown, &one);
                if one.kind != Kind::Requests || again.requests.is_empty() {
                    continue;
                }
                frame += 1;
                // A recording that is still being written has grown.
                if frame > to_come.len() {
                    break;
                }
                for request in again.requests.drain(..) {
                    sorter.push(self.same_path(request));
                }
                let until = to_come.get(frame).copied();
                sorter.pop_until(until.unwrap_or(u64::MAX), &mut visit)?;
            }
            again.forget();
        }
        sorter.pop_until(u64::MAX, &mut visit)
    }

    /// What a second reading does not need.
    fn forget(&mut self) {
        self.events.clear();
        self.inputs.clear();
        self.losses.clear();
        self.problems.clear();
        self.names = Names::default();
    }

    /// A path has one hash, whichever process recorded it.
    fn same_path(&self, mut request: Request) -> Request {
        if let Some(&first) = self.paths.get(&request.path) {
            request.path = first;
        }
        request
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.outline {
            Some(outline) => outline.frames.iter().map(|frame| frame.0).sum(),
            None => self.requests.len() as u64,
        }
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First and last arrival, on the recording's clock.
    #[must_use]
    pub fn span_us(&self) -> (u64, u64) {
        match &self.outline {
            Some(outline) => {
                let firsts = outline.frames.iter().map(|frame| frame.1);
                let lasts = outline.frames.iter().map(|frame| frame.2);
                (firsts.min().unwrap_or(0), lasts.max().unwrap_or(0))
            }
            None => {
                let at = |request: Option<&Request>| request.map_or(0, |request| request.at_us);
                (at(self.requests.first()), at(self.requests.last()))
            }
        }
    }

    /// How long it is, from the first arrival to the last, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let (first, last) = self.span_us();
        (last - first) as f64 / 1e6
    }

    /// Requests and events lost while recording.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|loss| loss.count).sum()
    }

    /// Leaves the requests and events of one application.
    ///
    /// # Errors
    /// The names of the applications that there are, where none is called so.
    pub fn retain_application(&mut self, name: &str) -> Result<(), Vec<String>> {
        let known = &self.meta.tables.applications;
        let Some(wanted) = known.iter().position(|known| known == name) else {
            return Err(known.clone());
        };
        self.requests
            .retain(|request| usize::from(request.application) == wanted);
        self.events.retain(|event| event.concerns(name));
        Ok(())
    }

    fn finish(&mut self) {
        self.join_paths();
        self.meta.tables = self.tables.tables();
        let mut requests = std::mem::take(&mut self.requests);
        if !self.paths.is_empty() {
            for request in &mut requests {
                *request = self.same_path(*request);
            }
        }
        requests.sort_by_key(|request| request.at_us);
        self.requests = requests;
        self.events.sort_by_key(|event| event.at_us);
    }

    /// Of several hashes with one name the lowest stands for all.
    fn join_paths(&mut self) {
        let mut by_name: HashMap<&str, Vec<u64>> = HashMap::new();
        for (kind, hash, name) in self.names.iter() {
            if kind == NameKind::Path {
                by_name.entry(name).or_default().push(hash);
            }
        }
        let mut joined = HashMap::new();
        for mut hashes in by_name.into_values().filter(|hashes| hashes.len() > 1) {
            hashes.sort_unstable();
            joined.extend(hashes[1..].iter().map(|&hash| (hash, hashes[0])));
        }
        self.paths = joined;
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
        self.numbers = Numbers::default();
        for frame in Frames::new(file, bytes) {
            match frame {
                Err(problem) => self.problems.push(problem),
                Ok(frame) => self.take_frame(file, &frame),
            }
        }
        Ok(())
    }

    fn take_frame(&mut self, file: &str, frame: &Frame) {
        let content = &frame.content;
        let read = match frame.kind {
            Kind::Meta => self.take_meta(content),
            Kind::Requests => {
                self.request_frames_bytes += frame.bytes;
                self.take_requests(content)
            }
            Kind::Events => self.take_events(content),
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

    /// Clocks of different processes are brought to that of the first file, and their numbers to
    /// one table by the names.
    fn take_meta(&mut self, content: &[u8]) -> Option<()> {
        let meta: Meta = serde_json::from_slice(content).ok()?;
        let mut shift = 0;
        if self.meta == Meta::default() {
            self.meta = meta.clone();
        } else if meta.process != self.meta.process {
            shift = meta.epoch_unix_us.wrapping_sub(self.meta.epoch_unix_us);
            if self.restarts.last() != Some(&shift) {
                self.restarts.push(shift);
            }
        }
        self.numbers = self.tables.join(&meta.tables, shift);
        Some(())
    }

    fn take_requests(&mut self, content: &[u8]) -> Option<()> {
        let mut requests = columns::decode(content)?;
        let (mut first, mut last) = (u64::MAX, 0);
        for request in &mut requests {
            self.numbers.apply(request);
            self.last_us = request.at_us;
            (first, last) = (first.min(request.at_us), last.max(request.at_us));
        }
        match &mut self.outline {
            Some(_) if requests.is_empty() => {}
            Some(outline) => outline.frames.push((requests.len() as u64, first, last)),
            None => self.requests.extend(requests),
        }
        Some(())
    }

    fn take_events(&mut self, mut content: &[u8]) -> Option<()> {
        let kept = self.outline.as_ref().is_none_or(|it| it.with_events);
        while !content.is_empty() {
            let at_us = take(&mut content)?.wrapping_add(self.numbers.shift_us);
            let length = take(&mut content)?;
            let json = take_bytes(&mut content, length)?;
            self.event_count += 1;
            if kept {
                let json = String::from_utf8_lossy(json).into_owned();
                self.events.push(Event { at_us, json });
            }
        }
        Some(())
    }

    fn take_loss(&mut self, mut content: &[u8]) -> Option<()> {
        let near_us = self.last_us;
        let count = take(&mut content)?;
        self.losses.push(Loss { near_us, count });
        Some(())
    }

    fn take_inputs(&mut self, mut content: &[u8]) -> Option<()> {
        while !content.is_empty() {
            let length = take(&mut content)?;
            let input = take_bytes(&mut content, length)?;
            self.input_count += 1;
            if self.outline.is_none() {
                self.inputs.push(input.into());
            }
        }
        Some(())
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>, RecordError> {
    fs::read(file).map_err(|cause| RecordError::Io {
        path: file.display().to_string(),
        cause,
    })
}

/// Brings requests into the order of their arrival.
#[derive(Debug, Default)]
struct Sorter {
    /// Arrival, position in the files, position in `requests`.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    requests: Vec<Request>,
    free: Vec<usize>,
    count: u64,
}

impl Sorter {
    fn push(&mut self, request: Request) {
        let place = match self.free.pop() {
            Some(place) => {
                self.requests[place] = request;
                place
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        self.heap.push(Reverse((request.at_us, self.count, place)));
        self.count += 1;
    }

    /// Gives away everything that arrived before `until`, or at it: later frames stand later.
    fn pop_until<E>(
        &mut self,
        until: u64,
        visit: &mut impl FnMut(&Request) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&Reverse((at, _, place))) = self.heap.peek()
            && at <= until
        {
            self.heap.pop();
            self.free.push(place);
            visit(&self.requests[place])?;
        }
        Ok(())
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
