//! What brings this proxy's reports to the others and theirs here, and the loop that all ways have
//! in common.
//!
//! Decision: docs/decisions/0280-carriers-of-a-fleet.md.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;

use super::super::Operator;
use super::{FleetNode, Taken};
use crate::operator_log::Level;

/// Lines about the same trouble of one carrier are this far apart.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// Time for a report and its answer, at least.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// A way by which reports travel: to one peer, or through a server that all proxies know.
pub(super) trait Carrier: Send + 'static {
    /// Gives a report away, and brings what others say as far as it is there. It ends within the
    /// carrier's own time.
    fn exchange(
        &mut self,
        report: Bytes,
    ) -> impl Future<Output = Result<Vec<Bytes>, Unanswered>> + Send;

    /// A report that comes by itself. Nothing is lost when the future is dropped.
    fn incoming(&mut self) -> impl Future<Output = Bytes> + Send {
        pending()
    }

    /// What [`Carrier::exchange`] brought is this proxy's own report.
    fn met_itself(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// A line for the operator: the report of another proxy is not believed.
    fn disbelieved(&self, why: &str) -> String;

    /// A line for the operator: reports are not taken.
    fn declined(&self, why: &str) -> String;

    /// Whether all other proxies are behind it, so that its trouble is this proxy's.
    fn is_server(&self) -> bool;
}

/// Why a report was not answered.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Nobody listens there.
    Refused,
    /// Anything else on the way; the next report may get through.
    Lost,
    /// It is not taken, and why.
    Declined(String),
}

impl From<std::io::Error> for Unanswered {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Lost,
        }
    }
}

impl From<hyper::Error> for Unanswered {
    fn from(_: hyper::Error) -> Self {
        Self::Lost
    }
}

/// Time for a report and its answer.
pub(super) fn patience(node: &FleetNode) -> Duration {
    ANSWER_MIN.max(2 * *node.config.interval)
}

/// A carrier at work.
pub(super) struct Link<C> {
    operator: Arc<Operator>,
    carrier: C,
    latest: watch::Receiver<Bytes>,
    /// The proxy that answered here last.
    proxy: Option<String>,
    complained: Option<(String, Instant)>,
}

impl<C: Carrier> Link<C> {
    pub(super) fn new(operator: Arc<Operator>, node: &FleetNode, carrier: C) -> Self {
        Self {
            operator,
            carrier,
            latest: node.latest.subscribe(),
            proxy: None,
            complained: None,
        }
    }

    /// Carries for as long as it is polled.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                changed = self.latest.changed() => if changed.is_err() {
                    return;
                },
                report = self.carrier.incoming() => {
                    self.take(&report);
                    continue;
                }
            }
            let report = self.latest.borrow_and_update().clone();
            match self.carrier.exchange(report).await {
                Ok(answers) => self.on_answers(&answers).await,
                Err(unanswered) => self.on_silence(unanswered),
            }
        }
    }

    async fn on_answers(&mut self, answers: &[Bytes]) {
        let Some(node) = &self.operator.fleet else {
            return;
        };
        node.on_exchange(&self.operator.state);
        let mut own = false;
        let mut well = true;
        for answer in answers {
            match self.take(answer) {
                Some(Taken::Own) => own = true,
                Some(Taken::Other(_)) => {}
                None => well = false,
            }
        }
        if well && self.complained.take().is_some() {
            self.operator
                .notice("reports of the fleet are exchanged again");
        }
        if own {
            self.carrier.met_itself().await;
        }
    }

    /// Reads the report of another proxy; `None` where it is not believed.
    fn take(&mut self, report: &[u8]) -> Option<Taken> {
        let node = self.operator.fleet.as_ref()?;
        match node.take(&self.operator.state, report) {
            Ok(taken) => {
                if let Taken::Other(proxy) = &taken {
                    self.proxy = Some(proxy.clone());
                }
                Some(taken)
            }
            Err(why) => {
                let line = self.carrier.disbelieved(&why);
                self.complain(line);
                None
            }
        }
    }

    fn on_silence(&mut self, unanswered: Unanswered) {
        let Some(node) = &self.operator.fleet else {
            return;
        };
        match unanswered {
            Unanswered::Lost => {}
            Unanswered::Refused => {
                if let Some(proxy) = &self.proxy {
                    node.on_gone(&self.operator.state, proxy);
                }
            }
            Unanswered::Declined(why) => {
                let line = self.carrier.declined(&why);
                if self.carrier.is_server() {
                    node.on_trouble(line.clone());
                }
                self.complain(line);
            }
        }
    }

    fn complain(&mut self, line: String) {
        let same = |(before, at): &(String, Instant)| *before == line && at.elapsed() < COMPLAINTS;
        if self.complained.as_ref().is_some_and(same) {
            return;
        }
        let fields = json!({ "peer": self.proxy });
        self.operator.log(Level::Warn, &line, &fields);
        self.complained = Some((line, Instant::now()));
    }
}
