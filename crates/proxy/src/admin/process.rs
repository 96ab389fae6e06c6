//! What the process itself uses, from the system.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use crate::cpu;
use crate::metrics::text::Text;

/// Bytes of a page; Linux tells memory in pages.
fn page_bytes() -> f64 {
    rustix::param::page_size() as f64
}

/// The usual metrics of a process, under their usual names.
pub(super) fn metrics(text: &mut Text, started_at: SystemTime) {
    text.counter("process_cpu_seconds_total", "User and system CPU time.")
        .sample(&[], cpu::spent().as_secs_f64());
    if let Some(pages) = resident_pages() {
        text.gauge("process_resident_memory_bytes", "Resident memory.")
            .sample(&[], pages * page_bytes());
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open file descriptors.")
            .sample(&[], open.count() as f64);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        text.gauge("process_max_fds", "File descriptors that may be open.")
            .sample(&[], most as f64);
    }
    let since = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    text.gauge(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
    )
    .sample(&[], since.as_secs_f64());
}

fn resident_pages() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}
