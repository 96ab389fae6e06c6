//! Files on the disk: frames, rotation, the size cap.
//!
//! Nothing is written that no reader finds. Before each write the file has to be there by its name:
//! one that was removed or moved is followed by another, in a directory that is made again if need
//! be. A write that the disk refuses is taken back, and the next one repeats what rows cannot be
//! understood without.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::columns;
use crate::frame::{Kind, put_frame, put_start};
use crate::names::{NameKind, Names, put_name};
use crate::request::{Event, Meta, Request, Tables};
use crate::varint::put;

/// How names of files end.
pub const EXTENSION: &str = "tgrec";
const PREFIX: &str = "tidegate-";
/// Rows of a frame. Chosen: more rows compress no better by a percent.
const ROWS: usize = 4096;
/// Names kept for the files to come. Chosen: a service with more paths than this has no paths.
const NAMES_MAX: usize = 10_000;
/// Content of events or inputs after which they become a frame.
const CONTENT_BYTES: usize = 256 << 10;
/// Events become a frame when they have this size, or at every fifth write: in small frames
/// their keys cost more than their figures.
const EVENTS_BYTES: usize = 8 << 10;
const EVENTS_WRITES: u32 = 5;

/// When another file is begun, and how much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// A file of this size is followed by another.
    pub file_bytes: u64,
    /// The oldest files are removed when all together are larger than this.
    pub total_bytes: u64,
    /// At the cap nothing more is written, instead of removing the oldest.
    pub keep_first: bool,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            total_bytes: 1 << 30,
            keep_first: false,
        }
    }
}

/// Writes a recording into a directory, frame by frame.
#[derive(Debug)]
pub struct FileWriter {
    /// None where the recording is one file.
    dir: Option<PathBuf>,
    meta: Meta,
    rotation: Rotation,
    file: File,
    path: PathBuf,
    file_bytes: u64,
    /// The present file has its beginning.
    begun: bool,
    /// Files of this recording with their sizes, the oldest first, without the present one.
    before: VecDeque<(PathBuf, u64)>,
    rows: Vec<Request>,
    events: Vec<u8>,
    inputs: Vec<u8>,
    names: Names,
    new_names: Vec<u8>,
    /// Losses that do not stand in the file yet.
    lost: u64,
    /// All losses.
    lost_total: u64,
    /// Requests and events that were added since the last write.
    unwritten: u64,
    /// Events that are not in a frame yet.
    held_events: u64,
    /// Writes since events became a frame.
    writes_without_events: u32,
    full: bool,
    frames: Vec<u8>,
    content: Vec<u8>,
}

impl FileWriter {
    /// Begins a recording in `dir`, which is made if need be.
    ///
    /// # Errors
    /// What the system says about the directory or the file.
    pub fn create(dir: &Path, meta: Meta, rotation: Rotation) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = file_name(dir, &meta);
        let mut writer = Self::open(Some(dir.to_owned()), path, meta, rotation)?;
        writer.before = writer.found(dir)?;
        writer.begin_file()?;
        Ok(writer)
    }

    /// Begins a recording that is this one file, which must not exist.
    ///
    /// # Errors
    /// What the system says about the file.
    pub fn create_file(path: &Path, meta: Meta) -> io::Result<Self> {
        let rotation = Rotation {
            file_bytes: u64::MAX,
            total_bytes: u64::MAX,
            keep_first: true,
        };
        let mut writer = Self::open(None, path.to_owned(), meta, rotation)?;
        writer.begin_file()?;
        Ok(writer)
    }

    fn open(
        dir: Option<PathBuf>,
        path: PathBuf,
        meta: Meta,
        rotation: Rotation,
    ) -> io::Result<Self> {
        Ok(Self {
            dir,
            file: File::create_new(&path)?,
            path,
            meta,
            rotation,
            file_bytes: 0,
            begun: false,
            before: VecDeque::new(),
            rows: Vec::with_capacity(ROWS),
            events: Vec::new(),
            inputs: Vec::new(),
            names: Names::default(),
            new_names: Vec::new(),
            lost: 0,
            lost_total: 0,
            unwritten: 0,
            held_events: 0,
            writes_without_events: 0,
            full: false,
            frames: Vec::new(),
            content: Vec::new(),
        })
    }

    /// Recordings that are in the directory already count for the cap.
    fn found(&self, dir: &Path) -> io::Result<VecDeque<(PathBuf, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            if path != self.path && is_recording(&path) {
                found.push((path, entry.metadata()?.len()));
            }
        }
        found.sort();
        Ok(found.into())
    }

    /// The file that is written now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all files together, what is not written yet left out.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.file_bytes + self.before.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Whether the cap was reached and nothing more is written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds a request.
    pub fn request(&mut self, request: Request) {
        if self.rows.len() == ROWS {
            self.close_rows();
        }
        self.rows.push(request);
        self.unwritten += 1;
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event) {
        self.held_events += 1;
        put(&mut self.events, event.at_us);
        put(&mut self.events, event.json.len() as u64);
        self.events.extend_from_slice(event.json.as_bytes());
        if self.events.len() >= CONTENT_BYTES {
            self.close_events();
        }
    }

    /// Adds an input of the engine, or what it decided, as bytes that the engine's crate reads.
    pub fn input(&mut self, bytes: &[u8]) {
        self.unwritten += 1;
        put(&mut self.inputs, bytes.len() as u64);
        self.inputs.extend_from_slice(bytes);
        if self.inputs.len() >= CONTENT_BYTES {
            self.close_inputs();
        }
    }

    /// Adds a name, once per file.
    pub fn name(&mut self, kind: NameKind, hash: u64, name: &str) {
        if self.names.len() < NAMES_MAX && self.names.insert(kind, hash, name) {
            put_name(&mut self.new_names, kind, hash, name);
        }
    }

    /// Requests and events that did not get here.
    pub fn lost(&mut self, count: u64) {
        self.lost += count;
        self.lost_total += count;
    }

    /// Requests and events that are in no file: those that did not get here, those that the disk
    /// refused, and those that came after the cap.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// The names of classes and replicas changed, with the configuration.
    pub fn reconfigure(&mut self, tables: Tables, config: Option<serde_json::Value>) {
        self.meta.tables = tables;
        self.meta.config = config;
        self.close_rows();
        self.put_meta();
    }

    fn put_meta(&mut self) {
        let content = serde_json::to_vec(&self.meta).unwrap_or_default();
        put_frame(&mut self.frames, Kind::Meta, &content);
    }

    fn close_rows(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        self.content.clear();
        columns::encode(&self.rows, &mut self.content);
        put_frame(&mut self.frames, Kind::Requests, &self.content);
        self.rows.clear();
    }

    fn close_events_if_due(&mut self) {
        self.writes_without_events += 1;
        if self.events.len() >= EVENTS_BYTES || self.writes_without_events >= EVENTS_WRITES {
            self.close_events();
        }
    }

    /// Those added until now are in the next write.
    pub(crate) fn close_events(&mut self) {
        self.unwritten += std::mem::take(&mut self.held_events);
        self.writes_without_events = 0;
        close(&mut self.frames, Kind::Events, &mut self.events);
    }

    fn close_inputs(&mut self) {
        close(&mut self.frames, Kind::Inputs, &mut self.inputs);
    }

    /// Writes everything that was added; events only every so often, and at the end.
    ///
    /// # Errors
    /// What the system says; what was added since the last time is lost then, and counted.
    pub fn flush(&mut self) -> io::Result<()> {
        self.close_rows();
        self.close_events_if_due();
        self.close_inputs();
        close(&mut self.frames, Kind::Names, &mut self.new_names);
        let unwritten = std::mem::take(&mut self.unwritten);
        if self.lost > 0 {
            let mut content = Vec::new();
            put(&mut content, self.lost);
            put_frame(&mut self.frames, Kind::Loss, &content);
        }
        let mut frames = std::mem::take(&mut self.frames);
        let written = self.write_frames(&frames);
        frames.clear();
        self.frames = frames;
        match written {
            Ok(true) => self.lost = 0,
            Ok(false) => self.lost(unwritten),
            Err(error) => {
                self.lost(unwritten);
                self.put_tables();
                return Err(error);
            }
        }
        Ok(())
    }

    /// False when the cap was reached.
    fn write_frames(&mut self, frames: &[u8]) -> io::Result<bool> {
        if !self.full {
            self.follow_if_due()?;
        }
        self.append(frames)
    }

    /// Begins another file where the present one is large enough or no longer there.
    fn follow_if_due(&mut self) -> io::Result<()> {
        let is_there = self.path.exists();
        let is_due = !is_there || self.file_bytes >= self.rotation.file_bytes;
        if let Some(dir) = self.dir.clone().filter(|_| is_due) {
            self.follow(&dir, is_there)?;
        }
        if self.begun {
            Ok(())
        } else {
            self.begin_file()
        }
    }

    fn follow(&mut self, dir: &Path, is_there: bool) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        self.meta.sequence += 1;
        let path = file_name(dir, &self.meta);
        self.file = File::create_new(&path)?;
        let ended = std::mem::replace(&mut self.path, path);
        self.begun = false;
        let ended_bytes = std::mem::take(&mut self.file_bytes);
        if is_there {
            self.before.push_back((ended, ended_bytes));
        } else {
            self.before = self.found(dir)?;
        }
        self.remove_oldest();
        Ok(())
    }

    fn begin_file(&mut self) -> io::Result<()> {
        let frames = std::mem::take(&mut self.frames);
        put_start(&mut self.frames);
        self.put_tables();
        let beginning = std::mem::replace(&mut self.frames, frames);
        self.append(&beginning)?;
        self.begun = true;
        Ok(())
    }

    /// What rows cannot be understood without: the configuration and all names.
    fn put_tables(&mut self) {
        self.put_meta();
        let mut names = Vec::new();
        for (kind, hash, name) in self.names.iter() {
            put_name(&mut names, kind, hash, name);
        }
        close(&mut self.frames, Kind::Names, &mut names);
    }

    /// All of the bytes or none. False when the cap was reached.
    fn append(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let over = self.rotation.keep_first
            && self.total_bytes() + bytes.len() as u64 > self.rotation.total_bytes;
        self.full |= over;
        if self.full {
            return Ok(false);
        }
        if let Err(error) = self.file.write_all(bytes) {
            // Where this fails too, a reader finds a torn frame and goes on behind it.
            let _ = self.file.set_len(self.file_bytes);
            let _ = self.file.seek(SeekFrom::Start(self.file_bytes));
            return Err(error);
        }
        self.file_bytes += bytes.len() as u64;
        Ok(true)
    }

    fn remove_oldest(&mut self) {
        if self.rotation.keep_first {
            return;
        }
        // Room for the present file too, before it is full.
        let allowed = self
            .rotation
            .total_bytes
            .saturating_sub(self.rotation.file_bytes);
        while self.total_bytes() > allowed
            && let Some((oldest, _)) = self.before.pop_front()
        {
            // A file that is gone already is what was wanted.
            let _ = fs::remove_file(oldest);
        }
    }

    /// Writes what is left and gives the last file's name.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(mut self) -> io::Result<PathBuf> {
        self.close_events();
        self.flush()?;
        Ok(self.path)
    }
}

fn close(frames: &mut Vec<u8>, kind: Kind, content: &mut Vec<u8>) {
    if !content.is_empty() {
        put_frame(frames, kind, content);
        content.clear();
    }
}

/// Sorts by time, then by sequence.
fn file_name(dir: &Path, meta: &Meta) -> PathBuf {
    let (begun, process, sequence) = (meta.epoch_unix_us / 1000, meta.process, meta.sequence);
    let process = process & 0xffff;
    dir.join(format!(
        "{PREFIX}{begun:013}-{process:04x}-{sequence:010}.{EXTENSION}"
    ))
}

fn is_recording(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name.starts_with(PREFIX)
        && path
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::reader::Recording;

    fn request(at_us: u64) -> Request {
        Request {
            at_us,
            path: 1,
            ..Request::default()
        }
    }

    /// What a full disk answers.
    fn full_disk() -> File {
        File::options().write(true).open("/dev/full").unwrap()
    }

    #[test]
    fn file_begun_on_a_full_disk_is_read_once_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer =
            FileWriter::create(dir.path(), Meta::default(), Rotation::default()).unwrap();
        let file = std::mem::replace(&mut writer.file, full_disk());
        // As after a rotation: nothing of the file is written yet.
        file.set_len(0).unwrap();
        (writer.begun, writer.file_bytes) = (false, 0);
        writer.name(NameKind::Path, 1, "/a");
        writer.request(request(1));
        writer.flush().unwrap_err();
        assert_eq!(writer.lost_total(), 1);
        writer.file = File::options().write(true).open(&writer.path).unwrap();
        writer.request(request(2));
        let path = writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.problems, []);
        assert_eq!((recording.requests.len(), recording.lost()), (1, 1));
        assert_eq!(recording.names.path(1), "/a");
    }

    #[test]
    fn name_that_a_full_disk_refused_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer =
            FileWriter::create(dir.path(), Meta::default(), Rotation::default()).unwrap();
        let file = std::mem::replace(&mut writer.file, full_disk());
        writer.name(NameKind::Path, 1, "/a");
        writer.request(request(1));
        writer.flush().unwrap_err();
        writer.file = file;
        writer.request(request(2));
        let path = writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.names.path(1), "/a");
        assert_eq!((recording.requests.len(), recording.lost()), (1, 1));
    }
}
