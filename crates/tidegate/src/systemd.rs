//! Tells systemd what the proxy does (sd_notify(3)), for units with `Type=notify`.
//!
//! Without `NOTIFY_SOCKET` in the environment, that is outside systemd, every call does nothing.
//! After an upgrade the successor names itself as the main process before its predecessor ends, so
//! the unit needs `NotifyAccess=all`.

use std::process;
use std::time::Duration;

use sd_notify::NotifyState;
use tidegate_proxy::notice;

/// Environment variable that binds the watchdog to one process id. A successor has another one.
pub(crate) const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// The proxy serves, in this process.
pub(crate) fn ready() {
    send(&[NotifyState::MainPid(process::id()), NotifyState::Ready]);
}

/// The proxy finishes requests in flight and then ends.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Keeps the unit's watchdog (`WatchdogSec=`) quiet for as long as this future is polled. Pending
/// for ever where the unit has none.
pub(crate) async fn keep_watchdog_quiet() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    // Half of the limit, as sd_watchdog_enabled(3) recommends; a timer of zero length panics.
    let mut pulse = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        pulse.tick().await;
        send(&[NotifyState::Watchdog]);
    }
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        notice(format_args!(
            "systemd cannot be notified: {error}; check `NotifyAccess=all` and NOTIFY_SOCKET"
        ));
    }
}
