//! Copies of requests for a second service, whose answers are thrown away.
//!
//! A mirror is an application of its own. A copy asks its engine for a slot like any request, so
//! that the mirror is protected too, and waits there beside the request that it is a copy of: that
//! one is never delayed. What is held for copies is bounded by `mirror.concurrency` times
//! `mirror.body_bytes`; a copy beyond that is not made. Nothing of a copy counts for the
//! application whose request it is.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, ClassId, Ending};

use super::companions::{CompanionCounters, Handed, Spread};
use crate::alarm::Alarm;
use crate::config::Mirror;
use crate::gate::{self, Entry, Slot};
use crate::health::Outcome;
use crate::message;
use crate::request::Request;
use crate::request::upload::Upload;
use crate::upstream::download::Download;
use crate::upstream::once::{self, Lost};
use crate::worker::{LocalApplication, Worker};

/// Tells the mirror that nobody reads its answer.
const MIRRORED: HeaderName = HeaderName::from_static("tidegate-mirrored");

/// Bytes of an answer that are read so that its connection can be used again. Chosen: most
/// answers are shorter, and a new connection costs less than reading more.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The mirror of an application, as one worker holds it.
#[derive(Debug)]
pub(crate) struct MirrorOf {
    application: Rc<LocalApplication>,
    rule: Mirror,
    spread: Spread,
}

impl MirrorOf {
    pub(super) fn new(rule: &Mirror, application: Rc<LocalApplication>) -> Self {
        Self {
            application,
            rule: rule.clone(),
            spread: Spread::new(rule.share.0),
        }
    }
}

/// Copies an admitted request to the mirror of its application, if it has one and it is the
/// request's turn. What the replica gets is copied, so changes of the edge are in it.
pub(crate) fn copy(request: &Request) {
    let Some(companions) = request.exchange.application.companions() else {
        return;
    };
    let Some(mirror) = companions.mirror.as_ref() else {
        return;
    };
    if request.head.upgrade.is_some() || !mirror.spread.next() {
        return;
    }
    let counters = mirror.application.shared.companion_counters();
    match Copy::new(mirror, request) {
        Ok(copy) => drop(tokio::task::spawn_local(copy.live())),
        Err(why) => counters.count(why),
    }
}

/// A copy under way. Dropped, its place is free.
struct Copy {
    worker: Rc<Worker>,
    application: Rc<LocalApplication>,
    request: message::Request<Upload>,
    /// While it is admitted.
    slot: Option<Slot>,
    host: Option<HeaderValue>,
    class: ClassId,
    bytes: u32,
    until: Timestamp,
}

impl Copy {
    fn new(mirror: &MirrorOf, request: &Request) -> Result<Self, Handed> {
        let body = request.message.body.copy();
        let fits = |body: &Upload| body.held() as u64 <= *mirror.rule.body_bytes;
        let body = body.filter(fits).ok_or(Handed::Body)?;
        let application = &mirror.application;
        let counters = application.shared.companion_counters();
        if !counters.take_copy(mirror.rule.concurrency) {
            return Err(Handed::Busy);
        }
        let settings = application.settings();
        Ok(Self {
            worker: Rc::clone(request.exchange.worker()),
            request: head(&request.message).map(|()| body),
            slot: None,
            host: request.head.host.clone(),
            class: request.head.class,
            bytes: request.arrival().bytes,
            until: request.exchange.now() + *settings.config.timeouts.request,
            application: Rc::clone(application),
        })
    }

    fn counters(&self) -> &CompanionCounters {
        self.application.shared.companion_counters()
    }

    /// From its arrival in the mirror's engine to the last byte of the answer.
    async fn live(mut self) {
        let worker = Rc::clone(&self.worker);
        let mut alarm = Alarm::set(&*worker, self.until);
        let lived = alarm.before(Box::pin(self.exchange())).await;
        let became = lived.unwrap_or(Err(Handed::Failed));
        if let Some(slot) = self.slot.take() {
            slot.end(became.map_or(Ending::Dropped, |()| Ending::Served));
        }
        self.counters()
            .count(became.map_or_else(|why| why, |()| Handed::Sent));
    }

    async fn exchange(&mut self) -> Result<(), Handed> {
        let slot = self.admission().await?;
        let (id, request) = (slot.replica(), self.take_request());
        self.slot = Some(slot);
        let settings = self.application.settings_with(id);
        let replica = settings.replica(id).ok_or(Handed::Failed)?;
        let wanted = self.host.as_ref();
        let sent = once::send(&self.worker, &settings, replica, request, wanted).await;
        let board = self.application.shared.board();
        let mut answer = sent.map_err(|lost| {
            if let Lost::Failed(failure) = lost {
                board.record(id, Outcome::Failed(failure));
            }
            Handed::Failed
        })?;
        board.record(id, Outcome::Answered(answer.response.status.as_u16()));
        discard(&mut answer.body).await?;
        answer.body.give_back(&self.worker, &settings);
        Ok(())
    }

    /// A slot of the mirror, after its queue if there is one.
    async fn admission(&self) -> Result<Slot, Handed> {
        let arrival = Arrival {
            class: self.class,
            bytes: self.bytes,
            ..Arrival::default()
        };
        match gate::enter(&self.application, self.worker.state.now(), &arrival) {
            Ok(Entry::Admitted(slot)) => Ok(slot),
            Ok(Entry::Waiting(mut wait)) => match wait.answer().await {
                Some(Ok(slot)) => Ok(slot),
                Some(Err(_)) | None => Err(Handed::Shed),
            },
            Err(_) => Err(Handed::Shed),
        }
    }

    fn take_request(&mut self) -> message::Request<Upload> {
        std::mem::replace(
            &mut self.request,
            message::Request::<()>::default().map(|()| Upload::Empty),
        )
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.counters().give_copy_back();
    }
}

/// The head as the replica gets it, and the word that it is a copy.
fn head(original: &message::Request<Upload>) -> message::Request<()> {
    let mut head = message::Request {
        method: original.method.clone(),
        uri: original.uri.clone(),
        version: original.version,
        headers: original.headers.clone(),
        body: (),
    };
    head.headers.insert(MIRRORED, HeaderValue::from_static("1"));
    head
}

/// Reads an answer to its end, if that is near.
async fn discard(body: &mut Download) -> Result<(), Handed> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Handed::Failed)?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > ANSWER_BYTES_MAX {
            // It was answered; only its connection is lost.
            *body = Download::Over;
        }
    }
    Ok(())
}
