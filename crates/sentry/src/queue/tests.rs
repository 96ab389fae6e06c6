use super::*;

fn waiter(value: u32, tenant: Option<u64>) -> Waiter<u32> {
    Waiter {
        value,
        class: ClassId(0),
        bytes: 1,
        arrived: Timestamp::ZERO,
        deadline: None,
        sticky: None,
        path: None,
        cost: None,
        tenant,
        opens: None,
        preferred: false,
        bucket: None,
        late: false,
        passed: Passed { counted: false },
        returned: None,
    }
}

fn drained(queue: &mut Queue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop_placed(|_| Some(())))
        .map(|(waiter, ())| waiter.value)
        .collect()
}

#[test]
fn without_tenants_it_is_first_come_first_served() {
    let mut queue = Queue::new(1, 64);
    for value in 0..5 {
        queue.push(Waiter {
            sticky: (value % 2 == 0).then_some(ReplicaId(3)),
            ..waiter(value, None)
        });
    }
    assert_eq!(drained(&mut queue), [0, 1, 2, 3, 4]);
}

#[test]
fn tenants_take_turns_and_the_flooder_loses_its_last() {
    let mut queue = Queue::new(1, 64);
    for value in 0..4 {
        queue.push(waiter(value, Some(1)));
    }
    queue.push(waiter(10, Some(2)));
    queue.push(waiter(11, Some(2)));
    assert!(
        queue.jumps(ClassId(0), Some(3), false),
        "a third tenant goes before the fourth of the first"
    );
    assert!(!queue.jumps(ClassId(0), Some(1), false));
    let (_, last) = queue.pop_last(0).unwrap();
    assert_eq!(last.value, 3);
    assert_eq!(drained(&mut queue), [0, 10, 1, 11, 2]);
}

#[test]
fn who_was_away_gets_no_credit_for_it() {
    let mut queue = Queue::new(1, 64);
    for value in 0..3 {
        queue.push(waiter(value, Some(1)));
    }
    assert_eq!(drained(&mut queue), [0, 1, 2]);
    queue.push(waiter(3, Some(1)));
    for value in 10..13 {
        queue.push(waiter(value, Some(2)));
    }
    assert_eq!(drained(&mut queue), [3, 10, 11, 12]);
}

#[test]
fn preferred_go_first_and_are_put_out_last() {
    let mut queue = Queue::new(1, 64);
    queue.push(waiter(0, None));
    queue.push(Waiter {
        preferred: true,
        ..waiter(1, None)
    });
    assert!(queue.jumps(ClassId(0), None, true));
    assert_eq!(queue.peek_last(0).unwrap().value, 0);
    assert_eq!(drained(&mut queue), [1, 0]);
}

#[test]
fn batch_is_let_out_in_turn_among_tenants() {
    let mut queue = Queue::new(1, 64);
    let held = |value, tenant| Waiter {
        bucket: Some(2),
        ..waiter(value, Some(tenant))
    };
    for value in 0..4 {
        queue.push(held(value, 1));
    }
    let leaver = queue.push(held(10, 2));
    queue.push(held(11, 2));
    assert_eq!(drained(&mut queue), [0; 0], "who is held gets no slot");
    assert_eq!(queue.remove(leaver).unwrap().value, 10);
    queue.release(0, 2, 3);
    assert_eq!((queue.held_of(0), queue.held_in(0, 2)), (2, 2));
    assert_eq!(drained(&mut queue), [0, 11, 1]);
    assert_eq!(queue.pop_held(0, 2).unwrap().1.value, 2);
    assert_eq!(queue.len(), 1);
}

/// Lets those of the first class stand aside that have one of these values.
fn set_aside(queue: &mut Queue<u32>, late: std::ops::Range<u32>) -> u32 {
    queue.set_aside(0, |waiter| late.contains(&waiter.value))
}

#[test]
fn who_is_late_lets_the_others_of_its_class_pass() {
    let mut queue = Queue::new(2, 64);
    for value in 0..5 {
        queue.push(waiter(value, None));
    }
    queue.push(Waiter {
        class: ClassId(1),
        ..waiter(10, None)
    });
    assert_eq!(set_aside(&mut queue, 0..3), 3);
    assert_eq!(set_aside(&mut queue, 0..3), 0, "once is enough");
    assert_eq!((queue.len(), queue.len_of(0), queue.late_of(0)), (6, 5, 3));
    assert!(queue.jumps(ClassId(0), None, false));
    assert_eq!(queue.peek_last(0).unwrap().value, 2);
    assert_eq!(drained(&mut queue), [3, 4, 0, 1, 2, 10]);
    assert_eq!((queue.len(), queue.bytes(), queue.late_of(0)), (0, 0, 0));
}

#[test]
fn who_is_late_waits_for_no_certain_replica_and_gives_no_tenant_credit() {
    let mut queue = Queue::new(1, 64);
    queue.push(Waiter {
        sticky: Some(ReplicaId(3)),
        ..waiter(0, None)
    });
    queue.push(waiter(1, Some(1)));
    assert_eq!(set_aside(&mut queue, 0..2), 1, "a sticky one stays");
    assert_eq!(drained(&mut queue), [0, 1]);
    for value in 2..4 {
        queue.push(waiter(value, Some(1)));
    }
    queue.push(waiter(4, Some(2)));
    assert_eq!(drained(&mut queue), [2, 4, 3], "turns go on as before");
}

#[test]
fn who_is_late_may_leave_or_expire() {
    let mut queue = Queue::new(1, 64);
    let tickets: Vec<Ticket> = (0..4)
        .map(|value| queue.push(waiter(value, None)))
        .collect();
    assert_eq!(set_aside(&mut queue, 0..3), 3);
    let leaver = queue.remove(tickets[1]).unwrap();
    assert!(leaver.late && leaver.value == 1);
    assert!(queue.remove(tickets[1]).is_none(), "it has left");
    // No slot is free, but there is an end to waiting: the engine takes them from where they stand.
    let expire = |waiter: &Waiter<u32>| waiter.late.then_some(());
    let expired: Vec<u32> = std::iter::from_fn(|| queue.pop_placed(expire))
        .map(|(waiter, ())| waiter.value)
        .collect();
    assert_eq!(expired, [0, 2]);
    assert_eq!((queue.len(), queue.late_of(0)), (1, 0));
    assert_eq!(drained(&mut queue), [3]);
}

#[test]
fn who_is_late_stays_so_with_a_new_list_of_classes() {
    let mut queue = Queue::new(2, 64);
    for value in 0..3 {
        queue.push(waiter(value, None));
    }
    set_aside(&mut queue, 0..1);
    queue.reclassify(1, 64, |_| ClassId(0));
    assert_eq!(queue.late_of(0), 1);
    assert_eq!(drained(&mut queue), [1, 2, 0]);
}

#[test]
fn new_list_of_classes_keeps_order_and_tickets() {
    let mut queue = Queue::new(2, 64);
    let tickets: Vec<Ticket> = (0..3)
        .map(|value| queue.push(waiter(value, None)))
        .collect();
    queue.reclassify(1, 64, |_| ClassId(0));
    assert_eq!(queue.remove(tickets[1]).unwrap().value, 1);
    assert_eq!(drained(&mut queue), [0, 2]);
}
