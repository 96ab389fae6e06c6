//! Memory that a crowd has left behind: of connections, or of requests on a few of them.
//!
//! What a connection or a request held is free when it ends, but the allocator keeps it: pages are
//! given back only from the end of its heap, and a few that are in use stand in the way. So after a
//! crowd has gone the allocator is told to look through all of it.
//!
//! What breaks it: a crowd that comes and goes between two looks, a second apart.

/// Connections, or requests waiting or in flight, that make a crowd. Chosen: some ten megabytes.
const CROWD_MIN: usize = 500;

/// Notices that a crowd has gone.
#[derive(Debug, Default)]
pub(crate) struct CrowdWatch {
    connections: Most,
    requests: Most,
}

impl CrowdWatch {
    /// With this many connections and requests now: whether more than half of a crowd has gone.
    pub(crate) fn has_gone(&mut self, connections: usize, requests: usize) -> bool {
        // Both are to be looked at.
        self.connections.has_halved(connections) | self.requests.has_halved(requests)
    }
}

/// The most since memory was last given back.
#[derive(Debug, Default)]
struct Most(usize);

impl Most {
    fn has_halved(&mut self, now: usize) -> bool {
        self.0 = self.0.max(now);
        let halved = self.0 >= CROWD_MIN && now <= self.0 / 2;
        if halved {
            self.0 = now;
        }
        halved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_is_noticed_once_when_it_has_gone() {
        let mut watch = CrowdWatch::default();
        let noticed = [10, 2000, 1500, 1000, 1000, 600, 400, 0].map(|now| watch.has_gone(now, 0));
        let expected = [false, false, false, true, false, false, true, false];
        assert_eq!(noticed, expected);
        assert!(
            [400, 0, 400, 0].iter().all(|&now| !watch.has_gone(now, 0)),
            "no crowd"
        );
    }

    #[test]
    fn requests_of_few_connections_are_a_crowd() {
        let mut watch = CrowdWatch::default();
        let noticed = [0, 3000, 2000, 100, 0].map(|requests| watch.has_gone(4, requests));
        assert_eq!(noticed, [false, false, false, true, false]);
    }
}
