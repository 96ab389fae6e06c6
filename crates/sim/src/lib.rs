//! A discrete-event simulator for servers under admission control.
//!
//! - [`engine`]: the calendar and the loop; [`rng`]: one random stream per source.
//! - [`workload`], [`client`]: who sends what and when; [`service`]: how much work it is.
//! - [`server`]: cores, slots and queues; [`queue`]: one source in front of one server, as
//!   textbooks have it.
//! - [`scenario`]: clients, admission control and replicas together, as a file describes them.
//! - [`rivals`]: what others use for admission control; [`arena`]: everybody against everything;
//!   [`brownout`]: replicas that can leave content out (004); [`deferral`]: clients that hold back
//!   (001).
//! - `ablate` (with the feature `ablation`): what each rule and number of `auto` is worth.
//! - [`auto_services`]: services that mode `auto` is judged by; [`goldens`]: what it decides, as
//!   text.
//! - [`reaction`]: how soon a protection reacts to a step, and leaves a trap.
//! - [`plane`]: scalers of servers compared on days of arrivals.
//! - [`flow`]: the discrete-time flow model of PI-gate (002).
//! - [`stats`]: what is measured, with its uncertainty; [`theory`]: what it should be.
//! - [`experiment`]: files that combine them and compare with the papers ([`papers`]); [`report`],
//!   [`chart`]: what came out.
//! - [`my_service`], [`plan`], [`whatif`]: questions of people about their own service.
//! - [`characterize`]: from an unknown service to its regulator.

#[cfg(feature = "ablation")]
pub mod ablate;
pub mod arena;
pub mod auto_services;
pub mod brownout;
pub mod characterize;
pub mod chart;
pub mod client;
pub mod deferral;
pub mod engine;
pub mod experiment;
pub mod flow;
pub mod goldens;
pub mod my_service;
pub mod papers;
pub mod plan;
pub mod plane;
pub mod queue;
pub mod reaction;
pub mod report;
pub mod rivals;
pub mod rng;
pub mod scenario;
pub mod server;
pub mod service;
mod slab;
pub mod stats;
pub mod theory;
mod time;
pub mod whatif;
pub mod workload;
