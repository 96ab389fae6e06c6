//! Clients that hold back: the experiments of paper 001.
//!
//! - [`crowd`]: a million clients with fixed parameters, each on its own (figures 2 and 3);
//! - [`auction`]: clients, server, controller and channel in a closed loop (figures 7 to 11);
//! - [`broadcast`]: what reaches whom over trees of relays when some of them die (figure 6);
//! - [`refusing`]: what refusing takes of a server (section 6.1).
//!
//! Strategies, pacing and the controller are those of [`tidegate_channel`], unchanged.

pub mod auction;
pub mod broadcast;
pub mod crowd;
pub mod refusing;
