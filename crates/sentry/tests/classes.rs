//! Classes in `auto` with nothing but order and targets, and in `sentry`: guarantees, sessions,
//! tenants, held batches.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, ClassId, Ending, Event, Permit, Report, Resolution, Sentry, SentryConfig, ShedReason,
    Status, Verdict,
};

const GOLD: ClassId = ClassId(0);
const BRONZE: ClassId = ClassId(1);

/// An engine with two classes and everything it has decided; requests are numbered as they come.
struct Site {
    sentry: Sentry<usize>,
    now: Timestamp,
    next: usize,
    admitted: Vec<(usize, Permit)>,
    refused: Vec<(usize, ShedReason)>,
}

impl Site {
    fn new(replicas: usize, text: &str) -> Self {
        let text = format!("target = '500ms'\n{text}");
        let config: SentryConfig = tidegate_config::parse("test.toml", &text).expect("it parses");
        Self {
            sentry: Sentry::new(&config, replicas, Timestamp::ZERO, 1).expect("it is valid"),
            now: Timestamp::ZERO,
            next: 0,
            admitted: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn arrive(&mut self, arrival: Arrival) -> usize {
        let number = self.next;
        self.next += 1;
        match self.sentry.on_arrival(self.now, &arrival, || number) {
            Verdict::Admit(permit) => self.admitted.push((number, permit)),
            Verdict::Wait(_) => {}
            Verdict::Shed(refusal) => self.refused.push((number, refusal.reason)),
        }
        number
    }

    fn of(&mut self, class: ClassId) -> usize {
        self.arrive(Arrival {
            class,
            ..Arrival::default()
        })
    }

    fn many(&mut self, count: usize, class: ClassId) -> Vec<usize> {
        (0..count).map(|_| self.of(class)).collect()
    }

    /// The request that was admitted first ends; returns which one got its slot.
    fn end_first(&mut self) -> Vec<usize> {
        let (_, permit) = self.admitted.remove(0);
        let before = self.admitted.len();
        let ended = self.sentry.on_end(self.now, permit, Ending::Served);
        let resolved = ended.collect();
        self.take(resolved);
        self.admitted[before..]
            .iter()
            .map(|(number, _)| *number)
            .collect()
    }

    fn advance(&mut self, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        while self.sentry.poll_timeout() <= until {
            self.now = self.sentry.poll_timeout();
            let ticked = self.sentry.handle_timeout(self.now, &mut |_: &Event| {});
            let resolved = ticked.collect();
            self.take(resolved);
        }
        self.now = until;
    }

    fn take(&mut self, resolved: Vec<(usize, Resolution)>) {
        for (number, resolution) in resolved {
            match resolution {
                Resolution::Admit(permit) => self.admitted.push((number, permit)),
                Resolution::Shed(refusal) => self.refused.push((number, refusal.reason)),
            }
        }
    }

    fn admitted(&self) -> Vec<usize> {
        self.admitted.iter().map(|(number, _)| *number).collect()
    }

    fn status(&self) -> Status {
        self.sentry.status(self.now)
    }
}

const TWO: &str =
    "classes = [{ name = 'gold', revenue = 10.0 }, { name = 'bronze', revenue = 2.0 }]";

fn one_slot(more: &str) -> Site {
    Site::new(
        1,
        &format!("limits = {{ window_initial = 1, window_max = 1 }}\n{more}"),
    )
}

#[test]
fn most_important_waiter_goes_first() {
    let mut site = one_slot(TWO);
    site.of(BRONZE);
    let bronze = site.of(BRONZE);
    let gold = site.of(GOLD);
    assert_eq!(site.end_first(), [gold]);
    assert_eq!(site.end_first(), [bronze]);
}

#[test]
fn full_queue_loses_its_least_important() {
    let mut site = one_slot(&format!("queue = {{ max_requests = 2 }}\n{TWO}"));
    site.many(3, BRONZE);
    let gold = site.of(GOLD);
    assert_eq!(site.end_first(), [gold]);
    assert_eq!(site.refused, [(2, ShedReason::QueueFull)]);
    let lost = &site.status().classes[1].revenue_lost;
    assert!(lost.contains(&("queue-full", 2.0)), "{lost:?}");
}

#[test]
fn guarantee_is_kept_whatever_is_in_the_way() {
    let mut site = one_slot(
        "classes = [{ name = 'gold' }, { name = 'bronze', guarantee = '1/s' }]\nqueue = { max_requests = 1 }",
    );
    site.many(20, GOLD);
    let guaranteed: Vec<usize> = site.many(30, BRONZE);
    assert_eq!(
        site.admitted()[1..],
        guaranteed[..10],
        "a burst of ten, then it is used up"
    );
    site.advance(3000);
    let later: Vec<usize> = site.many(10, BRONZE);
    assert_eq!(site.admitted()[11..], later[..3]);
    let status = site.status().classes[1].guarantee.expect("there is one");
    assert_eq!(status.admitted, 13);
}

#[test]
fn session_that_was_admitted_goes_before_strangers() {
    let mut site = one_slot(TWO);
    let of_session = |session: u64, entry: bool| Arrival {
        session: Some(session << 32),
        session_entry: entry,
        ..Arrival::default()
    };
    site.arrive(of_session(1, true));
    let stranger = site.arrive(of_session(2, true));
    let known = site.arrive(of_session(1, false));
    assert_eq!(site.end_first(), [known]);
    assert_eq!(site.end_first(), [stranger]);
    site.end_first();
    site.advance(700_000);
    site.arrive(of_session(3, true));
    let stranger = site.arrive(of_session(4, true));
    site.arrive(of_session(1, false));
    assert_eq!(site.end_first(), [stranger], "a lifetime is over some day");
}

#[test]
fn tenants_take_turns() {
    let mut site = one_slot(TWO);
    let of_tenant = |tenant: u64| Arrival {
        tenant: Some(tenant),
        ..Arrival::default()
    };
    let flood: Vec<usize> = (0..5).map(|_| site.arrive(of_tenant(1))).collect();
    let modest = site.arrive(of_tenant(2));
    assert_eq!(site.end_first(), [flood[1]]);
    assert_eq!(site.end_first(), [modest]);
    assert_eq!(site.end_first(), [flood[2]]);
}

/// Two servers of 100 ms a request, a target of 500 ms: five in each are in time.
fn policed(delays: &str) -> Site {
    Site::new(
        2,
        &format!(
            "mode = 'sentry'\nsentry = {{ policing = 'batch', service_time = '100ms', delays = {delays} }}\n{TWO}"
        ),
    )
}

#[test]
fn request_that_would_be_late_is_refused() {
    let mut site = policed("['0ms']");
    site.many(12, GOLD);
    // The tenth finds four in one of the servers, the eleventh five in each.
    assert_eq!(site.admitted.len(), 10);
    assert!(
        site.refused
            .iter()
            .all(|(_, reason)| *reason == ShedReason::Policed)
    );
}

const DAY_S: f64 = 86_400.0;

/// One replica of three reports the longest times and the most company that can be meant. Requests
/// of 10 ms with 500 ms to spare: the honest two have room for them by far.
#[test]
fn replica_that_lies_costs_no_more_than_its_share() {
    let mut site = Site::new(
        3,
        &format!("mode = 'sentry'\nsentry = {{ policing = 'batch', delays = ['0ms'] }}\n{TWO}"),
    );
    let (mut sent, mut liars) = (0, 0);
    for _ in 0..200 {
        site.many(12, GOLD);
        sent += 12;
        site.advance(10);
        for (_, permit) in std::mem::take(&mut site.admitted) {
            let lies = permit.replica().0 == 2;
            liars += usize::from(lies);
            let honest = Report {
                queue_seconds: Some(0.0),
                in_service: Some(4),
                cpu_seconds: Some(0.002),
                io_seconds: Some(0.008),
                ..Report::default()
            };
            let lie = Report {
                queue_seconds: Some(DAY_S),
                in_service: Some(u32::MAX),
                cpu_seconds: Some(DAY_S),
                io_seconds: Some(DAY_S),
                ..Report::default()
            };
            let report = Report {
                class: permit.class(),
                measured_seconds: Some(0.01),
                ..if lies { lie } else { honest }
            };
            let replica = permit.replica();
            site.sentry.on_report(site.now, replica, &report);
            let ended = site.sentry.on_end(site.now, permit, Ending::Served);
            let resolved = ended.collect();
            site.take(resolved);
        }
    }
    assert!(liars > 100, "it had its part of the requests: {liars}");
    let refused = site.refused.len();
    assert!(3 * refused <= sent, "{refused} of {sent} refused");
}

#[test]
fn batch_is_held_and_let_in_as_far_as_it_fits() {
    let mut site = policed("['0ms', '50ms']");
    let bronze: Vec<usize> = site.many(12, BRONZE);
    assert!(site.admitted.is_empty());
    assert_eq!(site.status().queue.requests, 12);
    site.advance(49);
    assert!(site.admitted.is_empty());
    site.advance(2);
    // 450 ms are left: four in each server.
    assert_eq!(site.admitted(), bronze[..8]);
    assert_eq!(site.refused.len(), 4);
    assert_eq!(site.status().queue.requests, 0);
}

#[test]
fn when_gold_fails_what_bronze_holds_is_dropped_without_a_test() {
    let mut site = policed("['0ms', '50ms']");
    let bronze = site.of(BRONZE);
    site.many(12, GOLD);
    assert!(site.refused.iter().any(|(number, _)| *number > bronze));
    site.end_first();
    assert!(
        site.refused.contains(&(bronze, ShedReason::Policed)),
        "{:?}",
        site.refused
    );
}

#[test]
fn who_leaves_while_held_is_gone_and_a_kill_switch_lets_all_go() {
    let mut site = policed("['0ms', '50ms']");
    let arrival = Arrival {
        class: BRONZE,
        ..Arrival::default()
    };
    let Verdict::Wait(ticket) = site.sentry.on_arrival(site.now, &arrival, || 99) else {
        panic!("it is held");
    };
    assert!(site.sentry.on_abandon(site.now, ticket));
    let held: Vec<usize> = site.many(3, BRONZE);
    let resolved = site.sentry.set_kill_switch(site.now, true).collect();
    site.take(resolved);
    assert_eq!(site.admitted(), held);
}

#[test]
fn driver_short_of_cpu_judges_by_the_threshold() {
    let mut site = Site::new(2, &format!("mode = 'sentry'\n{TWO}"));
    let kind = |site: &Site| {
        site.status()
            .policing
            .map(|policing| (policing.kind, policing.reason))
    };
    assert_eq!(kind(&site), Some(("batch", "room")));
    site.sentry.on_load(site.now, 0.95);
    site.advance(1000);
    assert_eq!(kind(&site), Some(("threshold", "cpu")));
    site.sentry.on_load(site.now, 0.1);
    site.advance(40_000);
    assert_eq!(kind(&site), Some(("batch", "room")));
}

#[test]
fn target_follows_the_rate_and_comes_back() {
    let mut site = Site::new(
        1,
        "mode = 'off'\nclasses = [{ name = 'gold', targets = [{ above = '100/s', target = '2s' }] }]",
    );
    let target = |site: &Site| site.status().classes[0].target_seconds;
    assert_eq!(target(&site), Some(0.5));
    for _ in 0..3000 {
        site.of(GOLD);
        site.advance(5);
    }
    assert_eq!(target(&site), Some(2.0));
    assert_eq!(
        site.status().classes[0].band.map(|band| band.above),
        Some(100.0)
    );
    site.advance(60_000);
    assert_eq!(target(&site), Some(0.5));
}
