//! What another process passes on: listening sockets, of the predecessor of this one or of systemd,
//! and what a predecessor has learnt.
//!
//! A socket that is passed on keeps its queue of connections. A client that connects while one
//! process takes over from another is answered by the one or by the other, and never refused.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::saved_state::SavedState;

/// What another process passes on: listening sockets, of the predecessor of this one or of systemd,
/// and what a predecessor has learnt.
#[derive(Debug, Default)]
pub struct Inherited {
    /// By the name of what listens on them: `listen-0` is the first listener of the configuration,
    /// then there are `admin` and `channel`.
    pub sockets: Vec<(String, TcpListener)>,
    /// What was found out about the replicas.
    pub saved_state: Option<SavedState>,
}

impl Inherited {
    /// Those of this name, if they listen where they should; port 0 is anywhere.
    pub(crate) fn take(&mut self, name: &str, wanted: SocketAddr) -> Vec<TcpListener> {
        let suits = |socket: &TcpListener| {
            let at = socket.local_addr();
            at.is_ok_and(|at| at == wanted || wanted.port() == 0 && at.ip() == wanted.ip())
        };
        let named = self.sockets.extract_if(.., |(found, _)| *found == name);
        named
            .map(|(_, socket)| socket)
            .filter(suits)
            .filter(|socket| socket.set_nonblocking(true).is_ok())
            .collect()
    }

    /// The one of this name.
    pub(crate) fn take_one(&mut self, name: &str, wanted: SocketAddr) -> Option<TcpListener> {
        self.take(name, wanted).pop()
    }
}

/// The name of a listener's sockets.
pub(crate) fn name(listener: usize) -> String {
    format!("listen-{listener}")
}

/// At least one socket per worker: those that are missing share the queue of another.
pub(crate) fn spread(
    mut sockets: Vec<TcpListener>,
    workers: usize,
) -> io::Result<Vec<TcpListener>> {
    let own = sockets.len();
    for extra in own..workers {
        sockets.push(sockets[extra % own].try_clone()?);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").expect("a port is free")
    }

    #[test]
    fn sockets_are_taken_by_name_and_address() {
        let (first, second) = (socket(), socket());
        let at = first.local_addr().unwrap();
        let named = |name: &str, socket| (name.to_owned(), socket);
        let sockets = vec![
            named("listen-0", first),
            named("listen-0", second),
            named("admin", socket()),
        ];
        let mut inherited = Inherited {
            sockets,
            saved_state: None,
        };
        let taken = inherited.take("listen-0", at);
        assert_eq!(taken.len(), 1, "the other one listens elsewhere");
        assert_eq!(taken[0].local_addr().unwrap(), at);
        assert!(inherited.take("listen-0", at).is_empty());
        let anywhere = "127.0.0.1:0".parse().unwrap();
        assert!(inherited.take_one("admin", anywhere).is_some());
        assert!(inherited.take_one("channel", anywhere).is_none());
    }

    #[test]
    fn every_worker_has_a_socket() {
        let sockets = spread(vec![socket(), socket()], 5).unwrap();
        let ports: Vec<_> = sockets
            .iter()
            .map(|socket| socket.local_addr().unwrap().port())
            .collect();
        assert_eq!(ports.len(), 5);
        assert_eq!(ports[0], ports[2]);
        assert_eq!(ports[1], ports[3]);
        assert_eq!(spread(vec![socket(), socket()], 1).unwrap().len(), 2);
    }
}
