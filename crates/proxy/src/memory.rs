//! Memory that a crowd of connections has left behind.
//!
//! What a connection held is free when it ends, but the allocator keeps it: pages are given back
//! only from the end of its heap, and a few that are in use stand in the way. So after a crowd has
//! gone the allocator is told to look through all of it.

/// Connections that make a crowd. Chosen: some ten megabytes.
const CROWD_MIN: usize = 500;

/// Notices that a crowd has gone.
#[derive(Debug, Default)]
pub(crate) struct CrowdWatch {
    /// Most connections since memory was last given back.
    most: usize,
}

impl CrowdWatch {
    /// With this many connections now: whether more than half of a crowd has gone.
    pub(crate) fn has_gone(&mut self, connections: usize) -> bool {
        self.most = self.most.max(connections);
        let gone = self.most >= CROWD_MIN && connections <= self.most / 2;
        if gone {
            self.most = connections;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_is_noticed_once_when_it_has_gone() {
        let mut watch = CrowdWatch::default();
        let noticed = [10, 2000, 1500, 1000, 1000, 600, 400, 0].map(|now| watch.has_gone(now));
        let expected = [false, false, false, true, false, false, true, false];
        assert_eq!(noticed, expected);
        assert!(
            [400, 0, 400, 0].iter().all(|&now| !watch.has_gone(now)),
            "no crowd"
        );
    }
}
