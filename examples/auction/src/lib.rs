//! A first-price sealed-bid auction (001 §2.1): bids stay secret until the deadline, may be changed
//! until then, and the highest one wins.
//!
//! The service itself knows nothing of holding back. It recognises a bid that comes twice by its
//! `idempotency-key`, takes a fixed time of its one worker for each bid, and decides about lateness
//! only by what reaches it: behind a proxy with `channel.deadline` that is what was *made* in time.

pub mod auction;
pub mod pages;
