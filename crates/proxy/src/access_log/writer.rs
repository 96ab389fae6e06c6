//! Lines on their way to the disk, on a thread of their own.
//!
//! What a disk refuses waits in a buffer and is tried again with every line that follows, so that a
//! short stretch without room costs nothing. Lines that find the buffer full are lost, whole, and
//! counted.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use crate::operator_log::notice;

/// Larger than any line of a head within `limits.head_bytes` by default: what is longer than the
/// buffer goes past it, and may be torn when the disk is full.
const BUFFER_BYTES: usize = 64 << 10;

/// What disks have refused since the start of the process, over all logs it had.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    lines: AtomicU64,
    now: AtomicBool,
}

impl Refused {
    /// Lines that are lost for good.
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Whether the last attempt to write failed.
    pub(crate) fn now(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }

    fn lose(&self, lines: u64) {
        self.lines.fetch_add(lines, Ordering::Relaxed);
    }
}

/// Lines on their way to the disk, on a thread of their own.
pub(super) struct Writer<W: Write> {
    name: String,
    output: BufWriter<W>,
    refused: Arc<Refused>,
    /// Said once: a disk that is full stays so for long, and the count tells the rest.
    warned: bool,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(name: String, output: W, refused: Arc<Refused>) -> Self {
        Self {
            name,
            output: BufWriter::with_capacity(BUFFER_BYTES, output),
            refused,
            warned: false,
        }
    }

    /// Writes what comes, and flushes when nothing does. Ends with the last sender.
    pub(super) fn run(mut self, lines: &Receiver<String>) {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match lines.recv() {
                        Ok(line) => line,
                        Err(_) => break,
                    }
                }
            };
            self.write(&line);
        }
        self.finish();
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = self.output.write_all(line.as_bytes()) {
            self.refused.lose(1);
            self.failed(&error);
        }
    }

    fn flush(&mut self) {
        match self.output.flush() {
            Ok(()) => self.refused.now.store(false, Ordering::Relaxed),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.refused.now.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut self.warned, true) {
            let name = &self.name;
            notice(format_args!(
                "the access log {name} cannot be written: {error}; requests are served, lines are lost \
                 and counted; make room there, or choose another place with `access_log.to`"
            ));
        }
    }

    /// The last attempt; what is left then is lost.
    fn finish(mut self) {
        self.flush();
        let (_, left) = self.output.into_parts();
        let left = left.unwrap_or_default();
        let lines = left.iter().filter(|&&byte| byte == b'\n').count();
        self.refused.lose(lines as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use parking_lot::Mutex;

    use super::*;

    /// A disk with this many bytes left.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Disk {
        fn with_room(bytes: usize) -> Self {
            Self(Arc::new(Mutex::new((Vec::new(), bytes))))
        }

        fn make_room(&self, bytes: usize) {
            self.0.lock().1 += bytes;
        }

        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().0.clone()).expect("lines are text");
            text.lines().map(str::to_owned).collect()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock();
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= taken;
            written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(number: usize) -> String {
        format!("{number:>99}\n")
    }

    fn writer(disk: &Disk) -> (Writer<Disk>, Arc<Refused>) {
        let refused = Arc::<Refused>::default();
        let writer = Writer::new("test".into(), disk.clone(), Arc::clone(&refused));
        (writer, refused)
    }

    #[test]
    fn lines_that_a_full_disk_refuses_are_counted_one_by_one() {
        const LINES: usize = 2000;
        let disk = Disk::with_room(250);
        let (writer, refused) = writer(&disk);
        let (sender, lines) = sync_channel(LINES);
        (0..LINES).for_each(|number| sender.send(line(number)).unwrap());
        drop(sender);
        writer.run(&lines);
        let whole = disk.0.lock().0.len() / line(0).len();
        assert_eq!(whole, 2, "and half of another");
        assert_eq!(refused.lines(), (LINES - whole) as u64);
        assert!(refused.now());
    }

    #[test]
    fn what_waited_is_written_when_there_is_room_again() {
        let disk = Disk::with_room(50);
        let (mut writer, refused) = writer(&disk);
        for number in 0..1000 {
            writer.write(&line(number));
            writer.flush();
        }
        let lost = refused.lines();
        assert!(refused.now() && lost > 0 && lost < 1000);
        disk.make_room(1 << 20);
        writer.flush();
        assert!(!refused.now());
        writer.write(&line(1000));
        writer.finish();
        let lines = disk.lines();
        assert_eq!(lines.len() as u64 + lost, 1001);
        assert!(lines.iter().all(|line| line.len() == 99), "none is torn");
        assert_eq!(refused.lines(), lost);
    }

    #[test]
    fn one_warning_is_enough() {
        let (mut writer, refused) = writer(&Disk::with_room(0));
        assert!(!writer.warned);
        writer.write(&line(0));
        assert!(!refused.now(), "it is only in the buffer");
        writer.flush();
        assert!(writer.warned && refused.now());
        assert_eq!(refused.lines(), 0, "it may still be written");
    }
}
