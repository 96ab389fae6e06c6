//! Attacks and hardships beyond malformed bytes: each is sent through the whole proxy, and after
//! each nothing of it is left, the counters balance and an honest client is served. The table of
//! all of them is `docs/attacks.md`.

mod http1;
mod http2;
mod leaving;
mod proxy_protocol;
mod replica;
mod stage;
mod traces;
