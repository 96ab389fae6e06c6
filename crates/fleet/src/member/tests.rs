use super::*;
use tidegate_sentry::{ClassTotals, PhaseName};

const INTERVAL: Duration = Duration::from_millis(100);

fn member(name: &str) -> Member {
    let config = MemberConfig {
        fleet: "main".to_owned(),
        proxy: name.to_owned(),
        boot: 1,
        interval: INTERVAL,
        hold: Duration::from_secs(2),
        hold_cut_off: Some(Duration::from_secs(60)),
        carrier: "peers".to_owned(),
    };
    Member::new(config, Timestamp::ZERO)
}

fn at(tick: u32) -> Timestamp {
    Timestamp::ZERO + tick * INTERVAL
}

/// After `ticks` ticks with `rate` arrivals per second, of which half are done.
fn sample(tick: u32, rate: f64, window: u32) -> AppSample {
    let arrived = (rate * f64::from(tick) * 0.1) as u64;
    let replica = |index: u16| ReplicaTotals {
        replica: ReplicaId(index),
        in_flight: 4,
        window: Some(8),
        done: arrived as f64 / 4.0,
        inside_seconds: f64::from(tick) * 0.4,
        full_seconds: f64::from(tick) * 0.1,
        full_done: arrived as f64 / 4.0,
        found: Some(LeadWindow {
            window,
            phase: PhaseName::Settled,
            tries_less: false,
        }),
        capacity: None,
    };
    AppSample {
        name: "shop".to_owned(),
        classes: vec!["gold".to_owned()],
        replicas: vec![
            (ReplicaId(0), "10.0.0.1:80".to_owned()),
            (ReplicaId(1), "10.0.0.2:80".to_owned()),
        ],
        report: FleetReport {
            at: at(tick),
            classes: vec![ClassTotals {
                arrived,
                admitted: arrived,
                guaranteed: 0,
            }],
            replicas: vec![replica(0), replica(1)],
            queued: 3,
            overloaded: true,
        },
        quotas: BTreeMap::new(),
        sticky: false,
    }
}

/// Runs the members from one tick to another, each with its rate; all hear each other.
fn run(members: &mut [(Member, f64)], ticks: std::ops::Range<u32>) -> Vec<FleetShare> {
    let mut shares = Vec::new();
    for tick in ticks {
        shares.clear();
        for (member, rate) in members.iter_mut() {
            let window = 10 + member.config().proxy.len() as u32;
            let mut sample = sample(tick, *rate, window);
            let follows = |it: &&Force| !it.found.is_empty();
            if let Some(it) = member.force.get("shop").filter(follows)
                && !member.cut_off
            {
                // A follower sends nothing.
                assert_ne!(it.leader, member.config().proxy);
                sample
                    .report
                    .replicas
                    .iter_mut()
                    .for_each(|it| it.found = None);
            }
            shares.push(member.on_sample(at(tick), &[sample])["shop"].clone());
        }
        let reports: Vec<PeerReport> = members.iter().map(|(it, _)| it.report()).collect();
        for (member, _) in members.iter_mut() {
            for report in &reports {
                let read = PeerReport::decode(&report.encode()).unwrap();
                member.on_report(at(tick), read).unwrap();
            }
        }
    }
    shares
}

#[test]
fn proxy_alone_has_all() {
    let shares = run(&mut [(member("a"), 100.0)], 0..5);
    assert!(!shares[0].is_shared());
}

#[test]
fn two_proxies_divide_windows_and_guarantees_by_traffic() {
    let mut members = [(member("a"), 90.0), (member("b"), 10.0)];
    let shares = run(&mut members, 0..60);
    let (a, b) = (&shares[0], &shares[1]);
    assert!(
        (a.share + b.share - 1.0).abs() < 1e-9,
        "{} {}",
        a.share,
        b.share
    );
    assert!((0.09..0.15).contains(&b.share), "{}", b.share);
    assert!((a.guarantees[0] + b.guarantees[0] - 1.0).abs() < 1e-9);
    for replica in 0..2 {
        let parts = shares.iter().map(|it| it.replicas[replica].portion.of(40));
        assert_eq!(parts.sum::<u32>(), 40);
    }
    // The smallest name leads: the other has its windows, and sees what it does.
    assert_eq!(a.replicas[0].lead, None);
    assert_eq!(b.replicas[0].lead.map(|lead| lead.window), Some(11));
    let done = b.replicas[0].elsewhere.done_per_second;
    assert!((done - 22.5).abs() < 3.0, "{done}");
    assert!((b.replicas[0].elsewhere.in_flight - 4.0).abs() < 1e-6);
    assert_eq!((a.queued_elsewhere, a.overloaded), (3, true));
}

#[test]
fn newcomer_has_a_share_at_once() {
    let mut members = vec![(member("a"), 100.0), (member("b"), 100.0)];
    run(&mut members, 0..30);
    members.push((member("c"), 0.0));
    let shares = run(&mut members, 30..33);
    assert!(
        (shares[2].share - 1.0 / 3.0).abs() < 0.01,
        "{}",
        shares[2].share
    );
    let sum: f64 = shares.iter().map(|share| share.share).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    let joined = FleetEvent::PeerJoined {
        proxy: "c".to_owned(),
    };
    assert!(members[0].0.take_events().contains(&joined));
}

#[test]
fn leader_that_dies_is_replaced_and_its_share_taken_over() {
    let mut members = vec![
        (member("a"), 100.0),
        (member("b"), 100.0),
        (member("c"), 100.0),
    ];
    run(&mut members, 0..30);
    members.remove(0);
    // It is held for a while.
    let shares = run(&mut members, 30..40);
    assert!(shares[0].share < 0.4, "{}", shares[0].share);
    assert!(shares[0].replicas[0].lead.is_some(), "windows stay");
    let shares = run(&mut members, 40..55);
    assert!((shares[0].share - 0.5).abs() < 0.01, "{}", shares[0].share);
    assert_eq!(shares[0].replicas[0].lead, None, "b leads");
    let lost = FleetEvent::PeerLost {
        proxy: "a".to_owned(),
        why: Lost::Silent,
    };
    assert!(members[0].0.take_events().contains(&lost));
}

#[test]
fn proxy_that_is_cut_off_keeps_its_share_and_the_windows() {
    let mut members = vec![(member("a"), 100.0), (member("b"), 100.0)];
    run(&mut members, 0..30);
    members.remove(1);
    let shares = run(&mut members, 30..500);
    assert!((shares[0].share - 0.5).abs() < 0.01, "{}", shares[0].share);
    let lead = shares[0].replicas[0].lead;
    assert_eq!(lead.map(|lead| lead.window), Some(11));
    let status = members[0].0.status(at(500));
    assert!(status.cut_off && status.peers.len() == 1);
    let shares = run(&mut members, 500..650);
    assert!(!shares[0].is_shared(), "in the end it is alone");
}

#[test]
fn proxy_whose_connections_are_refused_is_lost_at_once_and_so_is_one_that_leaves() {
    let mut members = vec![(member("a"), 1.0), (member("b"), 1.0), (member("c"), 1.0)];
    run(&mut members, 0..10);
    members[2].0.leave();
    let report = members[2].0.report();
    members[0].0.on_report(at(10), report).unwrap();
    members.truncate(2);
    assert_eq!(members[0].0.status(at(10)).peers.len(), 1);
    members.remove(1);
    members[0].0.on_gone(at(10), "b");
    let shares = run(&mut members, 10..17);
    assert!(!shares[0].is_shared());
}

#[test]
fn exchange_that_works_shows_that_the_only_peer_is_dead() {
    let mut members = vec![(member("a"), 1.0), (member("b"), 1.0)];
    run(&mut members, 0..10);
    members.remove(1);
    for tick in 10..40 {
        members[0].0.on_exchange(at(tick));
        run(&mut members, tick..tick + 1);
    }
    assert_eq!(members[0].0.status(at(40)).peers, []);
}

#[test]
fn reports_of_others_fleets_names_and_times_are_refused() {
    let mut member = member("a");
    let mut other = super::tests::member("b");
    other.on_sample(at(1), &[sample(1, 1.0, 8)]);
    let report = other.report();
    assert_eq!(member.on_report(at(1), report.clone()), Ok(()));
    let old = member.on_report(at(2), report.clone());
    assert_eq!(old, Err(BadReport::Old("b".to_owned())));
    let stranger = PeerReport {
        fleet: "other".to_owned(),
        ..report.clone()
    };
    assert!(matches!(
        member.on_report(at(2), stranger),
        Err(BadReport::Fleet(_))
    ));
    let twin = PeerReport {
        proxy: "a".to_owned(),
        boot: 2,
        ..report
    };
    // It may be what a store holds of this proxy's last start, until another one comes.
    assert_eq!(member.on_report(at(2), twin.clone()), Ok(()));
    let next = PeerReport {
        sequence: twin.sequence + 1,
        ..twin
    };
    let twin = member.on_report(at(3), next).unwrap_err();
    assert!(twin.to_string().contains("fleet.proxy"), "{twin}");
    assert_eq!(member.status(at(2)).bad_reports, 3);
}

/// A store hands the last report of a dead proxy out again, and others may repeat it.
#[test]
fn report_of_a_lost_proxy_does_not_bring_it_back() {
    let mut members = vec![(member("a"), 1.0), (member("b"), 1.0)];
    run(&mut members, 0..10);
    let last = members[1].0.report();
    let leaving = PeerReport {
        leaving: true,
        sequence: last.sequence - 1,
        ..last.clone()
    };
    let (mut a, mut b) = (members.remove(0).0, members.remove(0).0);
    let old = Err(BadReport::Old("b".to_owned()));
    assert_eq!(a.on_report(at(10), leaving), old, "an old farewell");
    a.on_gone(at(10), "b");
    a.on_sample(at(20), &[]);
    assert_eq!(a.status(at(20)).peers, []);
    assert_eq!(a.on_report(at(20), last), old);
    assert_eq!(a.status(at(20)).peers, []);
    b.on_sample(at(21), &[]);
    assert_eq!(a.on_report(at(21), b.report()), Ok(()), "it lives");
    assert_eq!(a.status(at(21)).peers.len(), 1);
}

/// A server that was away comes back: the first report that it takes says nothing about the others,
/// who need a moment too.
#[test]
fn peers_are_not_lost_when_the_exchange_works_again() {
    let mut members = vec![(member("a"), 1.0), (member("b"), 1.0)];
    run(&mut members, 0..10);
    members.remove(1);
    run(&mut members, 10..100);
    assert!(members[0].0.status(at(100)).cut_off);
    members[0].0.on_exchange(at(100));
    run(&mut members, 100..115);
    let status = members[0].0.status(at(115));
    assert!(!status.cut_off && status.peers.len() == 1, "{status:?}");
    for tick in 115..125 {
        members[0].0.on_exchange(at(tick));
        run(&mut members, tick..tick + 1);
    }
    assert_eq!(members[0].0.status(at(125)).peers, [], "it is silent");
}

#[test]
fn without_a_bound_the_last_known_peers_stay() {
    let endless = Member::new(
        MemberConfig {
            hold_cut_off: None,
            ..member("a").config().clone()
        },
        Timestamp::ZERO,
    );
    let mut members = vec![(endless, 100.0), (member("b"), 100.0)];
    run(&mut members, 0..30);
    members.remove(1);
    let shares = run(&mut members, 30..3000);
    assert!((shares[0].share - 0.5).abs() < 0.01, "{}", shares[0].share);
}

/// A proxy that claims a million arrivals and does 5/s is believed a part of it.
#[test]
fn proxy_that_lies_gets_no_more_than_it_can_show() {
    let mut members = vec![(member("a"), 100.0), (member("b"), 100.0)];
    run(&mut members, 0..30);
    for tick in 30..90 {
        let honest = members[0].0.on_sample(at(tick), &[sample(tick, 100.0, 8)]);
        let mut lie = sample(tick, 10.0, 8);
        lie.report.classes[0].arrived = u64::from(tick) * 100_000;
        members[1].0.on_sample(at(tick), &[lie]);
        let report = members[1].0.report();
        members[0].0.on_report(at(tick), report).unwrap();
        if tick > 60 {
            let share = honest["shop"].share;
            assert!(share > 0.35, "{share}");
        }
    }
}
