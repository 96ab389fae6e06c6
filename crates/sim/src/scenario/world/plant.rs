//! What happens to replicas: death, return, a change of speed.

use tidegate_control::Timestamp;

use super::{Event, PoolStep, Stage, World, replica_id};
use crate::engine::Calendar;
use crate::scenario::protector::{PoolChange, RequestId};
use crate::scenario::replica::{Place, Replica};

impl World<'_> {
    pub(super) fn die(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        let mut lost = self.replicas[replica].station.fail(calendar.now());
        // What is only streamed uses nothing of the station, but its connection breaks all the
        // same.
        lost.extend(self.requests.iter().filter_map(|(key, request)| {
            let streamed = matches!(
                request.stage,
                Stage::Tail { replica: at, job: None } if at == replica
            );
            streamed.then_some(RequestId(key))
        }));
        for id in lost {
            if self.requests.contains(id.0) {
                self.drop_request(id, calendar);
            }
        }
        self.capacity_changed(replica, calendar);
        calendar.after(self.scenario.health_delay.0, Event::Health { replica });
    }

    pub(super) fn come_back(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        self.replicas[replica].restart(calendar.now());
        self.capacity_changed(replica, calendar);
        calendar.after(self.scenario.health_delay.0, Event::Health { replica });
    }

    pub(super) fn set_speed(&mut self, replica: usize, speed: f64, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        self.replicas[replica].speed = speed;
        self.replicas[replica].station.set_speed(now, speed);
        self.capacity_changed(replica, calendar);
    }

    fn capacity_changed(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        self.expect_completion(replica, calendar);
        self.update_capacity(calendar.now());
    }

    pub(super) fn update_capacity(&mut self, now: Timestamp) {
        let capacity = self.replicas.iter().map(Replica::capacity).sum();
        self.recorder.capacity.set(now, capacity);
        let serving = self.replicas.iter().filter(|replica| replica.serves());
        self.recorder.replicas.set(now, serving.count() as f64);
    }

    /// A drained replica is not checked, and one outside the pool is not known.
    pub(super) fn check_health(&mut self, replica: usize, now: Timestamp) {
        if self.replicas[replica].place == Place::Serving {
            let up = self.replicas[replica].station.is_up();
            self.protector
                .set_health(now, replica_id(replica), up, &mut self.wakes);
        }
    }

    pub(super) fn change_pool(&mut self, replica: usize, step: PoolStep, now: Timestamp) {
        let (id, up) = (replica_id(replica), self.replicas[replica].station.is_up());
        let (protector, wakes) = (&mut self.protector, &mut self.wakes);
        match step {
            PoolStep::Enter(weight) => {
                protector.change_pool(now, PoolChange::Add(id, weight), wakes);
                self.replicas[replica].place = Place::Serving;
                if !up {
                    protector.set_health(now, id, false, wakes);
                }
            }
            PoolStep::Weigh(weight) => {
                protector.change_pool(now, PoolChange::Weigh(id, weight), wakes);
            }
            PoolStep::Drain => {
                self.replicas[replica].place = Place::Drained;
                protector.set_health(now, id, false, wakes);
            }
            PoolStep::Undrain => {
                self.replicas[replica].place = Place::Serving;
                protector.set_health(now, id, up, wakes);
            }
            PoolStep::Leave => {
                self.replicas[replica].place = Place::Outside;
                protector.change_pool(now, PoolChange::Remove(id), wakes);
            }
        }
        self.update_capacity(now);
    }

    /// Keeps a replica's one completion event where its station wants it.
    pub(super) fn expect_completion(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        let state = &mut self.replicas[replica];
        let wanted = state.station.next_completion();
        if state.completion.map(|(time, _)| time) == wanted {
            return;
        }
        if let Some((_, event)) = state.completion.take() {
            calendar.cancel(event);
        }
        let event = Event::Complete { replica };
        state.completion = wanted.map(|time| (time, calendar.at(time, event)));
    }
}
