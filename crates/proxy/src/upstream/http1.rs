//! An HTTP/1.1 connection to a replica, run by the request that uses it.
//!
//! hyper makes two halves of a connection: one that takes requests, and a future that reads and
//! writes. Run by a task of its own, that future costs every exchange four more trips through the
//! scheduler: to the task with the request, back with the head, and both ways for the body. A
//! request has its connection to itself, so it polls the future where it waits for the response,
//! and a connection that nobody uses needs no task at all.
//!
//! The halves tell each other of every step by waking the task that waits. Here that is the task
//! that runs already, and it would be polled once more for nothing. So they are polled *quietly*
//! first, with a waker that does nothing, and with the real one only if there is nothing to do but
//! to wait for the socket.
//!
//! What outlasts the polling of a request has to have its own task ([`Http1::detach`]): a body that
//! is still coming in while the response waits for a slow client, and a connection that switches
//! protocols.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use super::connect::Transport;
use super::send::Exchanged;
use crate::request::upload::Upload;

/// A piece of a response's body, its end, or what went wrong.
pub(crate) type Piece = Option<Result<Frame<Bytes>, hyper::Error>>;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    sender: SendRequest<Upload>,
    /// None if a task runs it, or it has ended.
    driver: Option<Box<Driver>>,
}

#[derive(Debug)]
struct Driver {
    connection: http1::Connection<TokioIo<Transport>, Upload>,
    /// One of the connections that the replica may have.
    permit: OwnedSemaphorePermit,
}

impl Http1 {
    pub(super) fn new(
        sender: SendRequest<Upload>,
        connection: http1::Connection<TokioIo<Transport>, Upload>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            sender,
            driver: Some(Box::new(Driver { connection, permit })),
        }
    }

    /// Gives it a task of its own, for good.
    pub(super) fn detach(&mut self) {
        let Some(driver) = self.driver.take() else {
            return;
        };
        tokio::spawn(async move {
            let Driver { connection, permit } = *driver;
            // Its requests learn of the error; there is nobody else to tell.
            let _ = connection.with_upgrades().await;
            drop(permit);
        });
    }

    fn run(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(&mut driver.connection).poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// Hands the request over. The future is for [`Http1::poll_head`].
    pub(super) fn start(
        &mut self,
        request: Request<Upload>,
    ) -> impl Future<Output = Exchanged> + use<> {
        self.sender.try_send_request(request)
    }

    /// Waits for the head of a response.
    pub(super) fn poll_head(
        &mut self,
        response: Pin<&mut impl Future<Output = Exchanged>>,
        cx: &mut Context<'_>,
    ) -> Poll<Exchanged> {
        self.poll_half(response, cx, |response, cx| response.as_mut().poll(cx))
    }

    /// Waits for the next piece of a response's body.
    pub(super) fn poll_frame(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Piece> {
        self.poll_half(body, cx, |body, cx| Pin::new(&mut **body).poll_frame(cx))
    }

    /// Polls what the connection feeds, and the connection.
    fn poll_half<H, T>(
        &mut self,
        mut half: H,
        cx: &mut Context<'_>,
        poll: impl Fn(&mut H, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.driver.is_none() {
            return poll(&mut half, cx);
        }
        let quiet = &mut Context::from_waker(Waker::noop());
        // First: a body is asked for by polling it.
        let mut polled = poll(&mut half, quiet);
        if polled.is_pending() {
            self.run(quiet);
            polled = poll(&mut half, quiet);
        }
        if polled.is_pending() {
            self.run(cx);
            polled = match self.driver {
                Some(_) => poll(&mut half, quiet),
                None => poll(&mut half, cx),
            };
        }
        polled
    }

    /// Whether a task runs it.
    pub(super) fn is_detached(&self) -> bool {
        self.driver.is_none()
    }

    /// Whether it is good for another request; looks at the socket if no task does.
    pub(super) fn is_ready(&mut self) -> bool {
        self.run(&mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}
