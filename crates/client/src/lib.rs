//! A client that holds back as its server asks (paper 001).
//!
//! An item is a request that may wait: a bid, an entry, a form. It is written to the [`outbox`]
//! before anything else, goes out when the [`engine`] permits, and is deleted when the server has
//! answered. A crash at any point loses nothing; what was under way is sent again with the same
//! item number, by which the server can tell.
//!
//! ```no_run
//! use http::Request;
//! use tidegate_client::{Client, Config, Outcome};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c".parse()?;
//! let client = Client::open(Config::new("http://auction.example:8090", key, "bids.redb"))?;
//! let bid = Request::post("http://auction.example/bids").body("amount=120".into())?;
//! let ticket = client.submit(bid, Some("lot 7"))?;
//! if let Outcome::Answered(response) = ticket.outcome().await {
//!     println!("the server says {}", response.status());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking`] is the same without `async`; [`forward`] a local proxy for programs in any
//! language. In `web/tidegate-client.js` is a module for browsers.

pub mod blocking;
mod client;
mod config;
pub mod engine;
pub mod forward;
mod items;
pub mod outbox;
mod send;

pub use client::{Client, Status};
pub use config::{Config, OpenError, Relaying};
pub use items::{Hold, Outcome, SubmitError, Ticket};
