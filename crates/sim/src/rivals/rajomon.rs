//! Rajomon (Xing et al., NSDI 2025): a request carries tokens, and the service has a price.
//!
//! A request whose tokens are below the price is refused, at best by its own client. Every 10 ms
//! the price follows the longest queueing delay `d` of the interval against a threshold `d_t`,
//!
//! ```text
//! price <- max(price + step (d - d_t), 0)
//! ```
//!
//! and from the third rise in a row on a rise is smaller by 0.8 to the power of their number (the
//! authors' code, strategy `expdecay`). Prices of services downstream are added or their maximum is
//! taken, which needs several services and is left out.
//!
//! Tokens are the clients' business. Here a request carries 0 to 100 of them by chance, and 100
//! more for each class below its own. The threshold is a tenth of the target, and a delay of twice
//! the threshold raises the price by one: both are ours, theirs are for an application.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::server_queue::{AtGate, ServerRule};

/// A price against tokens.
#[derive(Debug)]
pub struct Rajomon {
    slots: usize,
    threshold_s: f64,
    classes: u16,
    price: f64,
    rises: i32,
    longest_s: f64,
    next: Timestamp,
}

impl Rajomon {
    const INTERVAL: Duration = Duration::from_millis(10);
    const DECAY: f64 = 0.8;
    const RISES_FREE: i32 = 2;
    const THRESHOLD_OF_TARGET: f64 = 0.1;
    /// Tokens per threshold of excess delay.
    const STEP: f64 = 1.0;
    const TOKENS: f64 = 100.0;

    /// For a target of the response time, and this many slots.
    #[must_use]
    pub fn new(target: Duration, slots: usize) -> Self {
        Self {
            slots,
            threshold_s: target.as_secs_f64() * Self::THRESHOLD_OF_TARGET,
            classes: 1,
            price: 0.0,
            rises: 0,
            longest_s: 0.0,
            next: Timestamp::ZERO,
        }
    }

    fn update(&mut self) {
        let excess = (self.longest_s - self.threshold_s) / self.threshold_s;
        let mut step = Self::STEP * excess;
        if step > 0.0 {
            if self.rises >= Self::RISES_FREE {
                step *= Self::DECAY.powi(self.rises);
            }
            self.rises += 1;
        } else {
            self.rises = 0;
        }
        let most = Self::TOKENS * f64::from(self.classes);
        self.price = (self.price + step).clamp(0.0, most);
        self.longest_s = 0.0;
    }

    /// The more important, the more tokens.
    fn tokens(&mut self, request: &AtGate) -> f64 {
        self.classes = self.classes.max(request.class + 1);
        let below = self.classes - 1 - request.class;
        Self::TOKENS * (f64::from(below) + request.draw)
    }
}

impl ServerRule for Rajomon {
    fn admits(&mut self, request: &AtGate) -> bool {
        if request.now >= self.next {
            self.update();
            self.next = request.now + Self::INTERVAL;
        }
        self.tokens(request) >= self.price
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn on_start(&mut self, _: Timestamp, waited: Duration) {
        self.longest_s = self.longest_s.max(waited.as_secs_f64());
    }

    fn level(&self) -> f64 {
        self.price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_gate(ms: u64, class: u16, draw: f64) -> AtGate {
        AtGate {
            now: Timestamp::from_nanos(ms * 1_000_000),
            class,
            draw,
            pending: 0,
        }
    }

    #[test]
    fn price_rises_with_the_delay_by_less_and_less_and_falls_without() {
        let mut rajomon = Rajomon::new(Duration::from_secs(1), 4);
        let mut prices = Vec::new();
        for interval in 1..=6 {
            rajomon.on_start(Timestamp::ZERO, Duration::from_millis(600));
            rajomon.admits(&at_gate(10 * interval, 0, 1.0));
            prices.push(rajomon.level());
        }
        let rises: Vec<f64> = prices.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(rises[0], 5.0, "{rises:?}");
        assert!(rises.windows(2).all(|pair| pair[1] <= pair[0]), "{rises:?}");
        let highest = rajomon.level();
        rajomon.admits(&at_gate(100, 0, 1.0));
        assert_eq!(rajomon.level(), highest - 1.0);
    }

    #[test]
    fn those_with_fewer_tokens_than_the_price_are_refused_the_least_important_first() {
        let mut rajomon = Rajomon::new(Duration::from_secs(1), 4);
        rajomon.admits(&at_gate(0, 1, 0.5));
        rajomon.price = 30.0;
        rajomon.next = Timestamp::MAX;
        assert!(!rajomon.admits(&at_gate(1, 1, 0.2)));
        assert!(rajomon.admits(&at_gate(1, 1, 0.4)));
        assert!(rajomon.admits(&at_gate(1, 0, 0.0)), "it has a hundred more");
    }
}
