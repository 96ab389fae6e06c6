//! A capacity that the shop does not have: for experiments on machines that others use too.
//!
//! Pages take turns on one server that exists only on paper. A page that needs `cost` of it is done
//! `cost` after those before it, by the clock; a thread that oversleeps loses nothing, because the
//! next one's turn does not depend on it. So a replica answers `1 / cost` pages per second,
//! whatever else the machine does, as long as it has time for the real work.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What pages cost on the server that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualCost {
    /// A product without recommendations.
    pub product: Duration,
    /// What recommendations add.
    pub recommendations: Duration,
}

/// The server that does not exist.
#[derive(Debug)]
pub(crate) struct VirtualServer {
    cost: VirtualCost,
    free_at: Mutex<Instant>,
}

impl VirtualServer {
    pub(crate) fn new(cost: VirtualCost) -> Self {
        Self {
            cost,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for the turn of a page and for as long as it takes.
    pub(crate) async fn serve(&self, recommendations: bool) {
        let optional = if recommendations {
            self.cost.recommendations
        } else {
            Duration::ZERO
        };
        sleep_until(self.book(self.cost.product + optional)).await;
    }

    /// When a page that comes now is done.
    fn book(&self, cost: Duration) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now()) + cost;
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_take_turns() {
        let (product, recommendations) = (Duration::from_secs(100), Duration::from_secs(900));
        let server = VirtualServer::new(VirtualCost {
            product,
            recommendations,
        });
        let first = server.book(product + recommendations);
        let second = server.book(product);
        assert_eq!(second - first, product);
    }
}
