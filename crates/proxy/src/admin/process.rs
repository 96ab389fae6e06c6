//! What the process itself uses, from the system.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use crate::cpu;
use crate::metrics::family::{Page, metrics};

/// Bytes of a page; Linux tells memory in pages.
fn page_bytes() -> f64 {
    rustix::param::page_size() as f64
}

metrics! { PROCESS_USAGE_METRICS:
    PROCESS_CPU_SECONDS = Counter "process_cpu_seconds_total",
        "User and system CPU time.",
        "its rate is the number of cores in use";
    PROCESS_RESIDENT_MEMORY_BYTES = Gauge "process_resident_memory_bytes",
        "Resident memory.",
        "growth without end is worth a report";
    PROCESS_OPEN_FDS = Gauge "process_open_fds",
        "Open file descriptors.",
        "compare it with `process_max_fds`";
    PROCESS_MAX_FDS = Gauge "process_max_fds",
        "File descriptors that may be open.",
        "`LimitNOFILE` of the unit sets it";
    PROCESS_START_TIME_SECONDS = Gauge "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
        "nothing";
}

/// The usual metrics of a process, under their usual names.
pub(super) fn metrics(page: &mut Page, started_at: SystemTime) {
    page.begin(&PROCESS_CPU_SECONDS)
        .sample(&[], cpu::spent().as_secs_f64());
    if let Some(pages) = resident_pages() {
        page.begin(&PROCESS_RESIDENT_MEMORY_BYTES)
            .sample(&[], pages * page_bytes());
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.begin(&PROCESS_OPEN_FDS)
            .sample(&[], open.count() as f64);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        page.begin(&PROCESS_MAX_FDS).sample(&[], most as f64);
    }
    let since = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    page.begin(&PROCESS_START_TIME_SECONDS)
        .sample(&[], since.as_secs_f64());
}

fn resident_pages() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}
