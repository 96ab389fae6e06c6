//! Open connections to replicas, one pool per worker.
//!
//! HTTP/1.1 connections are taken by one request at a time and come back when its response has been
//! read; the one used last is taken first, so that those not needed grow old and are closed. One
//! HTTP/2 connection carries all requests of a worker to a replica.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper::client::conn::http2;
use tidegate_control::Timestamp;

use super::{Replica, http1};
use crate::request::upload::Upload;

/// A connection that can carry a request.
#[derive(Debug)]
pub(crate) enum Sender {
    Http1(Box<http1::Connection>),
    Http2(http2::SendRequest<Upload>),
}

/// The connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    lanes: RefCell<Vec<Lane>>,
}

/// The connections to one replica. There are few replicas, so a lane is found by looking at all.
#[derive(Debug)]
struct Lane {
    uid: u64,
    /// For how long connections are kept that nothing uses.
    idle_max: Duration,
    idle: Vec<Idle>,
    shared: Option<http2::SendRequest<Upload>>,
    /// When a connection was last asked for.
    used: Timestamp,
    /// Held while an HTTP/2 connection is being opened: who waits for it takes that one.
    opening: Rc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Idle {
    connection: Box<http1::Connection>,
    since: Timestamp,
}

impl Lane {
    fn new(uid: u64) -> Self {
        Self {
            uid,
            idle_max: Duration::ZERO,
            idle: Vec::new(),
            shared: None,
            used: Timestamp::ZERO,
            opening: Rc::default(),
        }
    }

    /// The connection used last that has not been closed.
    fn take_idle(&mut self) -> Option<Box<http1::Connection>> {
        loop {
            let mut connection = self.idle.pop()?.connection;
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }
}

fn lane(lanes: &mut Vec<Lane>, uid: u64) -> &mut Lane {
    let at = lanes.iter().position(|lane| lane.uid == uid);
    let at = at.unwrap_or_else(|| {
        lanes.push(Lane::new(uid));
        lanes.len() - 1
    });
    &mut lanes[at]
}

impl Pool {
    /// An open connection, if there is one.
    pub(crate) fn take(&self, replica: &Replica, now: Timestamp) -> Option<Sender> {
        let mut lanes = self.lanes.borrow_mut();
        let lane = lane(&mut lanes, replica.uid());
        lane.used = now;
        lane.idle_max = replica.idle_max();
        lane.shared.take_if(|shared| shared.is_closed());
        match &lane.shared {
            Some(shared) => Some(Sender::Http2(shared.clone())),
            None => lane.take_idle().map(Sender::Http1),
        }
    }

    /// Gives a connection back, or shares one that was opened. `idle_max` bounds what is kept.
    pub(crate) fn put(&self, uid: u64, sender: Sender, now: Timestamp, idle_max: usize) {
        let mut lanes = self.lanes.borrow_mut();
        let lane = lane(&mut lanes, uid);
        match sender {
            Sender::Http2(sender) if sender.is_closed() => {}
            Sender::Http2(sender) => lane.shared = Some(sender),
            Sender::Http1(connection) if lane.idle.len() < idle_max => {
                lane.idle.push(Idle {
                    connection,
                    since: now,
                });
            }
            Sender::Http1(_) => {}
        }
    }

    /// The turn to open an HTTP/2 connection.
    pub(crate) fn opening(&self, replica: &Replica) -> Rc<tokio::sync::Mutex<()>> {
        Rc::clone(&lane(&mut self.lanes.borrow_mut(), replica.uid()).opening)
    }

    /// Closes what has been idle for too long, and forgets replicas without connections.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut lanes = self.lanes.borrow_mut();
        for lane in &mut *lanes {
            let idle_max = lane.idle_max;
            lane.idle
                .retain_mut(|idle| now.since(idle.since) < idle_max && idle.connection.is_idle());
            let unused = now.since(lane.used) >= idle_max;
            lane.shared.take_if(|shared| unused || shared.is_closed());
        }
        lanes.retain(|lane| {
            let opening = Rc::strong_count(&lane.opening) > 1;
            opening || !lane.idle.is_empty() || lane.shared.is_some()
        });
    }

    /// Closes all idle connections, at shutdown.
    pub(crate) fn clear(&self) {
        self.lanes.borrow_mut().clear();
    }
}
