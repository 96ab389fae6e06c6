//! Classes: what arrives, what becomes of it, what it is worth, and how long it takes.

use tidegate_sentry::{ClassStatus, Status};

use super::Reading;
use crate::metrics::family::{Page, metrics};
use crate::metrics::{Outcome, Totals};

metrics! { PER_CLASS_METRICS:
    REQUESTS_ARRIVED = Counter "tidegate_requests_arrived_total",
        "Requests that arrived.",
        "the offered load";
    REQUESTS_ADMITTED = Counter "tidegate_requests_admitted_total",
        "Requests that got a slot of a replica.",
        "compare it with what arrived";
    REQUESTS_WAITED = Counter "tidegate_requests_waited_total",
        "Requests that had to wait for a slot.",
        "a large share means that the service is at its capacity";
    REQUESTS_IN_TARGET = Counter "tidegate_requests_in_target_total",
        "Requests served within their target.",
        "the goodput; its share of what arrived is the figure to alert on";
}

const PER_CLASS: [Reading<ClassStatus, u64>; 4] = [
    (&REQUESTS_ARRIVED, |class| class.arrived),
    (&REQUESTS_ADMITTED, |class| class.admitted),
    (&REQUESTS_WAITED, |class| class.waited),
    (&REQUESTS_IN_TARGET, |class| class.in_target),
];

metrics! { BY_REASON_METRICS:
    REQUESTS_SHED = Counter "tidegate_requests_shed_total",
        "Requests refused, by the mechanism that refused them.",
        "the table of shed reasons says what helps";
    REQUESTS_WOULD_SHED = Counter "tidegate_requests_would_shed_total",
        "Requests that a dry run would have refused.",
        "what enforcing would shed; see dry-run.md";
}

const BY_REASON: [Reading<ClassStatus, Vec<(&'static str, u64)>>; 2] = [
    (&REQUESTS_SHED, |class| class.shed.clone()),
    (&REQUESTS_WOULD_SHED, |class| class.would_shed.clone()),
];

metrics! { DECISIONS_METRICS:
    REQUESTS_ENDED = Counter "tidegate_requests_ended_total",
        "Admitted requests by how they ended: served, browned_out (served without optional content), failed (the replica failed), abandoned (the client left), ignored (no sample), unreported (the slot was dropped without an ending).",
        "the table of endings says what each one means";
}

pub(super) fn decisions(page: &mut Page, classes: &[ClassStatus], totals: &Totals) {
    for (metric, count) in PER_CLASS {
        let mut family = page.begin(metric);
        for class in classes {
            family.sample(&[("class", &class.name)], count(class) as f64);
        }
    }
    let mut ended = page.begin(&REQUESTS_ENDED);
    for class in classes {
        let endings = [
            ("served", class.served - class.degraded.min(class.served)),
            ("browned_out", class.degraded),
            ("failed", class.dropped),
            ("abandoned", class.abandoned),
            ("ignored", class.ignored),
            ("unreported", class.unreported),
        ];
        for (ending, count) in endings {
            ended.sample(&[("class", &class.name), ("ending", ending)], count as f64);
        }
    }
    for (metric, reasons) in BY_REASON {
        let mut family = page.begin(metric);
        for (number, class) in classes.iter().enumerate() {
            let times = totals.classes.get(number);
            for (reason, count) in reasons(class) {
                // What a dry run only counts was served: it is no example of a refusal.
                let shed = times.filter(|_| *metric == REQUESTS_SHED);
                let exemplar = shed.and_then(|times| times.exemplars.of_reason(reason));
                let labels = [("class", &*class.name), ("reason", reason)];
                family.exemplified(&labels, count as f64, exemplar);
            }
        }
    }
}

metrics! { CONTRACTS_METRICS:
    REVENUE_EARNED = Counter "tidegate_revenue_earned_total",
        "What requests answered within their target were worth.",
        "compare its rate with that of lost revenue";
    REVENUE_LOST = Counter "tidegate_revenue_lost_total",
        "What was not earned, by reason: late, failed, abandoned, or why it was refused.",
        "the largest reason is the one to look after";
    TARGET_BAND = Gauge "tidegate_target_band",
        "Arrival rate from which on the target in force applies, where a class has a table of them.",
        "nothing";
    EXAMINATION_DELAY_SECONDS = Gauge "tidegate_examination_delay_seconds",
        "How long requests of a class are held before they are examined, in mode sentry.",
        "nothing; it is a part of the response time";
    ROOM_SHARE = Gauge "tidegate_room_share",
        "Share of what a class's target allows that replicas are filled to, in mode sentry.",
        "nothing; it falls while targets are missed";
    GUARANTEE_RATE = Gauge "tidegate_guarantee_rate",
        "Requests per second that a class is guaranteed.",
        "nothing; it is configured";
    GUARANTEE_ADMITTED = Counter "tidegate_guarantee_admitted_total",
        "Requests admitted by their class's guarantee.",
        "a rate near the guarantee means that the class needs it";
}

/// What classes earn, what they are promised, and what of it was made use of.
pub(super) fn contracts(page: &mut Page, classes: &[ClassStatus]) {
    let mut earned = page.begin(&REVENUE_EARNED);
    for class in classes {
        earned.sample(&[("class", &class.name)], class.revenue_earned);
    }
    let mut lost = page.begin(&REVENUE_LOST);
    for class in classes {
        for (reason, amount) in &class.revenue_lost {
            lost.sample(&[("class", &class.name), ("reason", reason)], *amount);
        }
    }
    let mut bands = page.begin(&TARGET_BAND);
    for class in classes {
        if let Some(band) = &class.band {
            bands.sample(&[("class", &class.name)], band.above);
        }
    }
    let mut delays = page.begin(&EXAMINATION_DELAY_SECONDS);
    for class in classes {
        delays.sample(&[("class", &class.name)], class.delay_seconds);
    }
    let mut rooms = page.begin(&ROOM_SHARE);
    for class in classes {
        rooms.sample(&[("class", &class.name)], class.room_share);
    }
    let promised = |class: &'_ ClassStatus| class.guarantee.map(|g| (class.name.clone(), g));
    let promised: Vec<_> = classes.iter().filter_map(promised).collect();
    let mut rates = page.begin(&GUARANTEE_RATE);
    for (class, guarantee) in &promised {
        rates.sample(&[("class", class)], guarantee.rate);
    }
    let mut admitted = page.begin(&GUARANTEE_ADMITTED);
    for (class, guarantee) in &promised {
        admitted.sample(&[("class", class)], guarantee.admitted as f64);
    }
}

metrics! { TIMES_METRICS:
    CLIENT_SECONDS = Histogram "tidegate_client_seconds",
        "Time from a request's arrival until its answer was handed over to the client's connection, refusals and failures included: what a client waits for, without the network.",
        "beyond `tidegate_response_seconds` clients read slowly; `outcome` tells answers apart";
    WAITING_SECONDS = Histogram "tidegate_waiting_seconds",
        "Time that admitted requests waited for their slot.",
        "waiting that lasts means too little capacity";
    SERVICE_SECONDS = Histogram "tidegate_service_seconds",
        "Time from admission to the end of the replica's response.",
        "the time at the replicas; look there if it grows";
    RESPONSE_SECONDS = Histogram "tidegate_response_seconds",
        "Time from a request's arrival to the end of the replica's response: waiting and service.",
        "compare it with the target";
    TICK_SECONDS = Histogram "tidegate_tick_seconds",
        "Time that the engine's adaptation took.",
        "more than a tenth of a second delays decisions: more cores";
}

pub(super) fn times(page: &mut Page, status: &Status, totals: &Totals) {
    let named = || status.classes.iter().zip(&totals.classes);
    let mut waiting = page.begin(&WAITING_SECONDS);
    for (class, times) in named() {
        waiting.times(&[("class", &class.name)], &times.waiting);
    }
    let mut service = page.begin(&SERVICE_SECONDS);
    for (class, times) in named() {
        service.times(&[("class", &class.name)], &times.service);
    }
    let mut response = page.begin(&RESPONSE_SECONDS);
    for (class, times) in named() {
        response.responses(&[("class", &class.name)], &times.response, &times.exemplars);
    }
    let mut client = page.begin(&CLIENT_SECONDS);
    for (class, times) in named() {
        for (outcome, times) in Outcome::ALL.iter().zip(&times.client) {
            if let Some(times) = times {
                let labels = [("class", &*class.name), ("outcome", outcome.as_str())];
                client.times(&labels, times);
            }
        }
    }
    page.begin(&TICK_SECONDS).times(&[], &totals.ticks);
}
