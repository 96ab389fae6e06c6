//! Recordings of traffic and decisions: the file format, its writer and its reader.
//!
//! A recording is a sequence of frames, each with a checksum, that can be read one by one: a frame
//! that is damaged or torn costs its own content and nothing else. `docs/recording.md` describes
//! every byte. It holds no bodies and no header values; paths and tenants are keyed hashes, and
//! their names stand in a table that can be left out.
//!
//! - [`Request`], [`Meta`], [`Event`]: what is recorded.
//! - [`Recorder`]: the writer's end for a data path; it never blocks, and what does not fit is
//!   counted in the file. [`FileWriter`]: the same without a thread.
//! - [`Recording`]: everything readable of a file or a directory, and what was not.
//! - [`import`]: access logs as recordings; [`export`]: recordings as tables.
//!
//! ```
//! use tidegate_record::{FileWriter, Meta, Recording, Request, Rotation};
//!
//! let dir = tempfile::tempdir().unwrap();
//! let mut writer = FileWriter::create(dir.path(), Meta::default(), Rotation::default()).unwrap();
//! writer.request(Request { at_us: 5, status: 200, ..Request::default() });
//! writer.finish().unwrap();
//! let recording = Recording::open(dir.path()).unwrap();
//! assert_eq!(recording.requests[0].status, 200);
//! assert!(recording.problems.is_empty());
//! ```
//!
//! Decision: docs/decisions/0105-recording-format.md.

mod columns;
pub mod export;
mod frame;
pub mod import;
mod names;
mod reader;
mod recorder;
mod request;
mod session;
mod varint;
mod writer;

pub use frame::{Problem, ProblemKind, VERSION};
pub use names::{NameKind, Names};
pub use reader::{Input, Loss, RecordError, Recording, files};
pub use recorder::{Message, Recorder, Status};
pub use request::{Decision, Ending, Event, Meta, Request, Tables};
pub use writer::{EXTENSION, FileWriter, Rotation};
