//! Reports through the control plane: what this proxy says goes there, and what the others have
//! said since the last time comes back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;
use tidegate_fleet::MESSAGE_BYTES_MAX;
use tokio::time::timeout;

use super::FleetNode;
use super::carrier::{Carrier, Unanswered, patience};
use super::post::Post;

/// Reports of other proxies that are read at once.
const ANSWER_BYTES_MAX: usize = 16 * MESSAGE_BYTES_MAX;

/// The control plane's board of reports.
pub(super) struct Board {
    post: Post,
    fleet: String,
    proxy: String,
    hold: Duration,
    /// What the board had when it was last read.
    since: u64,
    patience: Duration,
}

/// The first line of an answer; every other line is a report.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

impl Board {
    pub(super) fn new(url: &str, node: &FleetNode) -> Self {
        let authority = url.trim_start_matches("http://").trim_end_matches('/');
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { "" } else { ":80" };
        let post = Post {
            authority: format!("{authority}{port}"),
            path: "/api/fleet/exchange",
            content_type: "text/plain; charset=utf-8",
            token: node.token.clone(),
            answer_bytes_max: ANSWER_BYTES_MAX,
            sender: None,
        };
        Self {
            post,
            fleet: node.config.name.clone(),
            proxy: node.proxy.clone(),
            hold: *node.config.hold,
            since: 0,
            patience: patience(node),
        }
    }

    fn question(&self, report: &[u8]) -> Bytes {
        let head = json!({
            "fleet": self.fleet,
            "proxy": self.proxy,
            "since": self.since,
            "hold_seconds": self.hold.as_secs_f64(),
        });
        let mut body = BytesMut::from(head.to_string().as_bytes());
        body.extend_from_slice(b"\n");
        body.extend_from_slice(report);
        body.freeze()
    }

    fn read(&mut self, answer: &Bytes) -> Result<Vec<Bytes>, Unanswered> {
        let not_one =
            || Unanswered::Declined("its answer is not one of a control plane".to_owned());
        let mut lines = answer.split(|&byte| byte == b'\n');
        let head = lines.next().ok_or_else(not_one)?;
        let head: Head = serde_json::from_slice(head).map_err(|_| not_one())?;
        self.since = head.version;
        let reports = lines.filter(|line| !line.is_empty());
        Ok(reports.map(|line| answer.slice_ref(line)).collect())
    }

    fn trouble(&self, why: &str) -> String {
        format!(
            "the control plane at {} does not exchange reports: {why}; start it, or correct \
             `fleet.plane` and `fleet.token`",
            self.post.authority
        )
    }
}

impl Carrier for Board {
    async fn exchange(&mut self, report: Bytes) -> Result<Vec<Bytes>, Unanswered> {
        let question = self.question(&report);
        let answered = timeout(self.patience, self.post.send(question)).await;
        match answered {
            Ok(Ok(answer)) => self.read(&answer),
            Ok(Err(Unanswered::Refused)) => Err(declined("nothing listens there")),
            Ok(Err(Unanswered::Lost)) => Err(declined("the connection broke")),
            Ok(Err(other)) => Err(other),
            Err(_) => Err(declined("it does not answer")),
        }
    }

    fn disbelieved(&self, why: &str) -> String {
        format!("a report that came through the control plane is not believed: {why}")
    }

    fn declined(&self, why: &str) -> String {
        self.trouble(why)
    }

    fn is_server(&self) -> bool {
        true
    }
}

fn declined(why: &str) -> Unanswered {
    Unanswered::Declined(why.to_owned())
}
