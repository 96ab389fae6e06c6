//! Which uploads may be on their way into replicas.
//!
//! A body that does not fit into what is read ahead reaches its replica at the pace of its client.
//! It holds no slot meanwhile, but it may hold a worker of the replica. So such uploads are
//! bounded by a share of the slots, and one tenant (one address where there are no tenants) may
//! have half of them. The others wait where they are: with a part of their body read and nothing
//! asked of the replica.
//!
//! What breaks it: more addresses than places, each of which sends just fast enough. Then large
//! uploads wait; everything else is served as usual.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::application::Application;

/// Places at most, where windows have no bound. Chosen: a quarter of the connections that a
/// replica may have by default.
const PLACES_MAX: u32 = 1024;

/// Uploads of one tenant that may wait for a place; further ones are refused. Chosen: more than a
/// browser sends at a time, and together no more memory than a connection may take.
const WAITING_PER_TENANT_MAX: u32 = 64;

/// The uploads of one application; of the whole proxy the bytes.
#[derive(Debug, Default)]
pub(crate) struct UploadPlaces {
    tenants: Mutex<Tenants>,
    /// Bytes read ahead that are held.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Tenants {
    held: u32,
    counts: HashMap<u64, Counts>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    held: u32,
    waiting: u32,
}

impl Tenants {
    fn change(&mut self, tenant: u64, change: impl FnOnce(&mut Counts)) {
        let counts = self.counts.entry(tenant).or_default();
        change(counts);
        if *counts == Counts::default() {
            self.counts.remove(&tenant);
        }
    }

    fn of(&self, tenant: u64) -> Counts {
        self.counts.get(&tenant).copied().unwrap_or_default()
    }
}

impl UploadPlaces {
    /// Bytes of bodies read ahead, over all requests.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whether one more body may be read ahead, of the process and of its application. Half of the
/// memory is for the first that come, the other half is divided: an application that fills the
/// first half leaves every other one its share.
pub(crate) fn has_memory(
    (process, own): (&UploadPlaces, &UploadPlaces),
    applications: u64,
    memory: u64,
) -> bool {
    if applications <= 1 {
        return process.bytes() < memory;
    }
    let common = memory / 2;
    process.bytes() < common || own.bytes() < common / applications
}

/// Asks for a place. Nothing if the tenant has too many uploads that wait already.
pub(crate) fn ask(application: &Arc<Application>, tenant: u64) -> Option<PlaceWait> {
    let mut tenants = application.uploads.tenants.lock();
    if tenants.of(tenant).waiting >= WAITING_PER_TENANT_MAX {
        return None;
    }
    tenants.change(tenant, |counts| counts.waiting += 1);
    Some(PlaceWait {
        application: Arc::clone(application),
        tenant,
    })
}

/// An upload that waits for a place, until it is dropped.
#[derive(Debug)]
pub(crate) struct PlaceWait {
    application: Arc<Application>,
    tenant: u64,
}

impl PlaceWait {
    /// A place, if there is one now.
    pub(crate) fn try_take(&self, share: f64) -> Option<Place> {
        let places = self
            .application
            .sentry()
            .upload_places(share)
            .min(PLACES_MAX);
        let mut tenants = self.application.uploads.tenants.lock();
        let of_one = (places / 2).max(1);
        if tenants.held >= places || tenants.of(self.tenant).held >= of_one {
            return None;
        }
        tenants.held += 1;
        tenants.change(self.tenant, |counts| counts.held += 1);
        Some(Place {
            application: Arc::clone(&self.application),
            tenant: self.tenant,
        })
    }
}

impl Drop for PlaceWait {
    fn drop(&mut self) {
        let mut tenants = self.application.uploads.tenants.lock();
        tenants.change(self.tenant, |counts| counts.waiting -= 1);
    }
}

/// The right to pass an unfinished upload on, given back by drop.
#[derive(Debug)]
pub(crate) struct Place {
    application: Arc<Application>,
    tenant: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut tenants = self.application.uploads.tenants.lock();
        tenants.held -= 1;
        tenants.change(self.tenant, |counts| counts.held -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::state::State;

    fn application(slots: u32) -> Arc<Application> {
        let text = format!(
            "upstream = 'http://127.0.0.1:1'\nprotect.mode = 'static'\n\
             protect.static.window = 1000\nprotect.limits.slots = {slots}"
        );
        let state = State::new(Config::from_text("test.toml", &text).unwrap()).unwrap();
        Arc::clone(state.applications().single().unwrap())
    }

    #[test]
    fn one_tenant_has_half_of_the_places() {
        let state = application(16);
        let (one, other) = (ask(&state, 1).unwrap(), ask(&state, 2).unwrap());
        let mut places: Vec<_> = (0..9).map_while(|_| one.try_take(0.5)).collect();
        assert_eq!(places.len(), 4);
        places.extend((0..9).map_while(|_| other.try_take(0.5)));
        assert_eq!(places.len(), 8);
        assert!(ask(&state, 3).unwrap().try_take(0.5).is_none());
        places.clear();
        drop((one, other));
        assert!(state.uploads.tenants.lock().counts.is_empty());
    }

    #[test]
    fn memory_has_a_share_for_each_application() {
        let [process, busy, calm] = [(); 3].map(|()| UploadPlaces::default());
        let add = |own: &UploadPlaces, bytes| {
            process.add_bytes(bytes);
            own.add_bytes(bytes);
        };
        add(&busy, 500);
        assert!(has_memory((&process, &busy), 1, 1000), "it is alone");
        assert!(
            !has_memory((&process, &busy), 4, 1000),
            "it has used its share"
        );
        assert!(has_memory((&process, &calm), 4, 1000));
        add(&calm, 125);
        assert!(!has_memory((&process, &calm), 4, 1000));
    }

    #[test]
    fn there_is_always_a_place() {
        assert!(ask(&application(1), 1).unwrap().try_take(0.0).is_some());
    }

    #[test]
    fn waiting_uploads_of_one_tenant_are_bounded() {
        let state = application(1);
        let waits: Vec<_> = (0..100).map_while(|_| ask(&state, 1)).collect();
        assert_eq!(waits.len(), WAITING_PER_TENANT_MAX as usize);
        assert!(ask(&state, 2).is_some());
    }
}
