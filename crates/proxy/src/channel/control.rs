//! The loop: measure, decide, sign, say.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tidegate_channel::message::first_seq;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Relay, serve, unix_now};
use tidegate_channel::regulate::Scale;
use tidegate_channel::stamp::Stamper;
use tidegate_channel::{ControlMessage, Strategy, Terms};
use tidegate_control::Timestamp;

use super::Channel;
use crate::application::Application;
use crate::metrics::Totals;

/// Clients count as active if they sent something within this time.
const ACTIVE: Duration = Duration::from_secs(60);
/// The least work seen fades upwards by this part per period, so that a service that became slower
/// is noticed within minutes.
const FLOOR_FADES: f64 = 1.01;
/// Share of the old value in the smoothed number of requests served in a period.
const SERVED_MEMORY: f64 = 0.8;

/// Serves listeners and runs the loop for ever; does nothing without a channel.
pub(crate) async fn run(state: Arc<Application>, listener: Option<TcpListener>) {
    let listener = listener.and_then(|socket| tokio::net::TcpListener::from_std(socket).ok());
    let (Some(channel), Some(listener)) = (state.channel(), listener) else {
        return std::future::pending().await;
    };
    let own = channel.reached_at(listener.local_addr().ok());
    tokio::join!(
        serve::serve(listener, Arc::clone(&channel.desk), std::future::pending()),
        control(channel, &state),
        follow(channel, own),
    );
}

/// Passes another proxy's messages on, and takes them as what clients were told; ends at once when
/// none is followed.
async fn follow(channel: &Channel, own: String) {
    let (Some(key), Some(tracker)) = (channel.followed, channel.config.follow.clone()) else {
        return;
    };
    let parents = Parents::Tracked {
        tracker,
        own: Some(own),
    };
    let relay = Relay::new(&[key], parents, unix_now().as_nanos())
        .with_hub(channel.desk.hub.clone())
        .with_member(Arc::clone(&channel.key) as Arc<dyn Stamper>);
    relay.run(|message| channel.heard(message)).await;
}

async fn control(channel: &Channel, state: &Application) {
    let mut publisher = channel.followed.is_none().then(|| Publisher::new(channel));
    let mut meter = Meter::new(*channel.config.period);
    let mut ticks = tokio::time::interval(*channel.config.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let delay_s = meter.delay(state);
        let now = unix_now();
        channel.rescale(now, meter.work_s);
        channel.measured.lock().delay_s = delay_s;
        let Some(publisher) = &mut publisher else {
            continue;
        };
        let measured_s = match channel.config.queue {
            Some(wanted) => inside(state) / wanted * channel.config.setpoint.as_secs_f64(),
            None => delay_s + meter.turned_away * channel.config.period.as_secs_f64(),
        };
        let strategy = channel.regulator.lock().step(measured_s);
        publisher.say(now, strategy);
    }
}

impl Channel {
    /// Tells the tracker where the listener really is, unless the configuration says.
    fn reached_at(&self, addr: Option<SocketAddr>) -> String {
        let addr = addr.unwrap_or(*self.config.listen);
        let own = self.config.url.clone();
        let own = own.unwrap_or_else(|| format!("http://{addr}"));
        if let Some(tracker) = self.desk.tracker() {
            tracker.lock().set_root(&own);
        }
        own
    }

    /// Clients were told this, by us or by the proxy that is followed.
    fn heard(&self, message: ControlMessage) {
        if self.followed.is_some() {
            let mut policy = self.policy.lock();
            policy.prolonged = message.terms.prolonged;
            policy.deadline = message.terms.deadline.or(policy.deadline);
        }
        self.auditor.lock().on_issued(unix_now(), &message.strategy);
        self.measured.lock().message = Some(message);
    }

    /// How long messages take to reach clients: as the configuration says, or members do. What
    /// strangers say moves nothing.
    pub(super) fn dead_time(&self) -> Duration {
        let configured = self.config.dead_time.map(|time| *time);
        let said = self.measured.lock().lags.median();
        configured.or(said).unwrap_or_default()
    }

    /// Estimates how many clients there are and what their requests cost.
    fn rescale(&self, now: Timestamp, work_s: f64) {
        let clients = self.auditor.lock().active(now, ACTIVE);
        let clients = match self.members.len() {
            0 => clients,
            members => clients.min(members),
        };
        let clients = clients.max(1) as f64;
        let service_s = if work_s > 0.0 { work_s } else { 0.1 };
        let scale = Scale { clients, service_s };
        let dead_time = self.dead_time();
        let mut regulator = self.regulator.lock();
        regulator.rescale(scale);
        regulator.set_dead_time(dead_time);
        drop(regulator);
        self.measured.lock().scale = scale;
    }
}

/// Signs and hands out messages: when something changed, and now and then when not.
struct Publisher<'a> {
    channel: &'a Channel,
    next_seq: u64,
    last: Option<(Timestamp, Strategy, Terms)>,
}

impl<'a> Publisher<'a> {
    fn new(channel: &'a Channel) -> Self {
        Self {
            channel,
            next_seq: first_seq(unix_now()),
            last: None,
        }
    }

    fn say(&mut self, now: Timestamp, strategy: Strategy) {
        let config = &self.channel.config;
        let terms = self.channel.terms();
        let due = self.last.as_ref().is_none_or(|(at, said, said_terms)| {
            *said != strategy || *said_terms != terms || now.since(*at) >= *config.keep_alive
        });
        if !due {
            return;
        }
        let message = ControlMessage {
            seq: self.next_seq,
            issued: Timestamp::from_nanos(now.as_nanos() / 1_000_000 * 1_000_000),
            validity: *config.validity,
            setpoint: *config.setpoint,
            strategy: strategy.clone(),
            successor: self.channel.successor,
            terms,
        };
        self.next_seq += 1;
        self.channel
            .desk
            .hub
            .publish(&message.sign(&self.channel.key));
        self.channel.heard(message);
        self.last = Some((now, strategy, terms));
    }
}

/// Requests that wait or are in service.
fn inside(state: &Application) -> f64 {
    let status = state.sentry().status(state.now());
    let in_service: u32 = status
        .replicas
        .iter()
        .map(|replica| replica.in_flight)
        .sum();
    f64::from(status.queue.requests) + f64::from(in_service)
}

/// Requests that the engine has refused since the start.
fn refused(state: &Application) -> u64 {
    let classes = state.sentry().status(state.now()).classes;
    let reasons = classes.iter().flat_map(|class| &class.shed);
    reasons.map(|(_, count)| count).sum()
}

/// Reads the mean delay of a period off the proxy's counters.
///
/// Behind the channel stands the engine, which refuses what it cannot serve in time, so that the
/// delay of the rest hardly grows in overload. The controller must see what was refused as well:
/// `r` refused while `n` were served would have kept the service busy for `r/n` more periods.
///
/// What a request costs is the least seen lately of two: its mean service time, which grows with
/// what waits inside the service, and the time per request served, which is shorter than that where
/// a service has several workers, and longer while it has little to do.
struct Meter {
    period_s: f64,
    /// Requests refused in the last period, per request served.
    turned_away: f64,
    before: Sums,
    /// Requests served in a period, smoothed.
    served: f64,
    /// What a request costs.
    work_s: f64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    refused: u64,
    waiting_s: f64,
    service_s: f64,
}

impl Sums {
    fn of(totals: &Totals, refused: u64) -> Self {
        let start = Self {
            refused,
            ..Self::default()
        };
        let classes = totals.classes.iter();
        classes.fold(start, |sums, class| Self {
            refused,
            count: sums.count + class.service.count(),
            waiting_s: sums.waiting_s + class.waiting.sum_seconds(),
            service_s: sums.service_s + class.service.sum_seconds(),
        })
    }
}

impl Meter {
    fn new(period: Duration) -> Self {
        Self {
            period_s: period.as_secs_f64(),
            turned_away: 0.0,
            before: Sums::default(),
            served: 0.0,
            work_s: 0.0,
        }
    }

    /// Waiting plus service of what was completed since the last call. Zero when nothing was and
    /// nothing is inside, not a number when something is.
    fn delay(&mut self, state: &Application) -> f64 {
        let sums = Sums::of(&state.metrics().totals(), refused(state));
        self.on_sums(sums, inside(state) > 0.0)
    }

    fn on_sums(&mut self, sums: Sums, busy: bool) -> f64 {
        let before = std::mem::replace(&mut self.before, sums);
        let count = sums.count.saturating_sub(before.count);
        let refused = sums.refused.saturating_sub(before.refused);
        self.turned_away = refused as f64 / count.max(1) as f64;
        self.served = SERVED_MEMORY * self.served + (1.0 - SERVED_MEMORY) * count as f64;
        if count == 0 {
            return if busy { f64::NAN } else { 0.0 };
        }
        let service_s = (sums.service_s - before.service_s) / count as f64;
        self.work_s = least(self.work_s, service_s.min(self.period_s / self.served));
        service_s + (sums.waiting_s - before.waiting_s).max(0.0) / count as f64
    }
}

/// The least so far, which fades, or what was seen now.
fn least(so_far: f64, seen: f64) -> f64 {
    if so_far > 0.0 {
        (so_far * FLOOR_FADES).min(seen)
    } else {
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `periods` of a second in which `count` requests were served in `service_s` each.
    fn served(meter: &mut Meter, periods: u32, count: u64, service_s: f64) -> f64 {
        let mut delay_s = f64::NAN;
        for _ in 0..periods {
            let mut sums = meter.before;
            sums.count += count;
            sums.service_s += count as f64 * service_s;
            delay_s = meter.on_sums(sums, true);
        }
        delay_s
    }

    #[test]
    fn the_work_of_a_request_is_what_it_takes_alone_or_with_all_workers_busy() {
        let mut meter = Meter::new(Duration::from_secs(1));
        assert!((served(&mut meter, 5, 1, 0.1) - 0.1).abs() < 1e-9);
        assert!((meter.work_s - 0.1).abs() < 1e-9);
        // One worker, and a queue inside the service.
        served(&mut meter, 30, 10, 0.5);
        assert!((0.09..=0.14).contains(&meter.work_s), "{}", meter.work_s);
        // Four workers: forty are served in a second.
        served(&mut meter, 30, 40, 0.2);
        assert!((0.024..0.03).contains(&meter.work_s), "{}", meter.work_s);
        // A service that became slower is noticed within minutes.
        served(&mut meter, 120, 4, 0.3);
        assert!(meter.work_s > 0.06, "{}", meter.work_s);
    }

    #[test]
    fn what_was_refused_counts_by_what_was_served() {
        let mut meter = Meter::new(Duration::from_secs(1));
        let mut sums = Sums::default();
        (sums.count, sums.refused, sums.service_s) = (10, 30, 1.0);
        meter.on_sums(sums, true);
        assert!((meter.turned_away - 3.0).abs() < 1e-9);
        assert!(meter.on_sums(sums, true).is_nan());
        assert_eq!(meter.on_sums(sums, false), 0.0);
    }
}
