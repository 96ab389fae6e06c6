//! Tells systemd what the proxy does (sd_notify(3)), for units with `Type=notify`.
//!
//! Without `NOTIFY_SOCKET` in the environment, that is outside systemd, every call does nothing.
//! After an upgrade the successor names itself as the main process before its predecessor ends, so
//! the unit needs `NotifyAccess=all`.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tidegate_proxy::notice;
use tidegate_proxy::state::State;

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

/// Keeps the unit's watchdog (`WatchdogSec=`) quiet for as long as this future is polled and every
/// thread of the data plane runs. Pending for ever where the unit has none.
pub(crate) async fn keep_watchdog_quiet(state: Arc<State>) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    // Half of the limit, as sd_watchdog_enabled(3) recommends; a timer of zero length panics.
    let period = (limit / 2).max(Duration::from_millis(1));
    let mut pulse = tokio::time::interval(period);
    let mut silent = None;
    loop {
        pulse.tick().await;
        let stalled = state.stalled(period);
        match &stalled {
            None => send(&[NotifyState::Watchdog]),
            Some(thread) if stalled != silent => notice(format_args!(
                "thread {thread} has done nothing for {period:?}: the watchdog is not fed, so that \
                 systemd restarts the service"
            )),
            Some(_) => {}
        }
        silent = stalled;
    }
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        notice(format_args!(
            "systemd cannot be notified: {error}; check `NotifyAccess=all` and NOTIFY_SOCKET"
        ));
    }
}
