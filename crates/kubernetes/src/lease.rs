//! One leader among several daemons, by a `coordination.k8s.io/v1` Lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connect::{describe, is_missing};
use crate::election::{Election, LeaseRecord, Step};

/// For one call: half of the time that a renewal has.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes part in an election until it is dropped.
#[derive(Debug)]
pub struct Leadership {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    api: Api<Lease>,
    name: String,
    election: Mutex<Election>,
    failure: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leadership {
    /// Becomes a candidate for the Lease `name`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        let shared = Arc::new(Shared {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            election: Mutex::new(Election::new(identity)),
            failure: Mutex::new(None),
        });
        let task = tokio::spawn(run(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Whether this daemon leads now.
    #[must_use]
    pub fn leads(&self) -> bool {
        lock(&self.shared.election).leads(Instant::now())
    }

    /// Who leads, as far as it is known here.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        let election = lock(&self.shared.election);
        election.leader(Instant::now()).map(str::to_owned)
    }

    /// Why the Lease could not be read or written last time.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }

    /// Gives the Lease back, so that another candidate need not wait until it expires.
    pub async fn release(&self) {
        self.task.abort();
        if !self.leads() {
            return;
        }
        lock(&self.shared.election).on_released();
        let _ = timeout(CALL_TIMEOUT, self.shared.give_back()).await;
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Election::INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let turn = timeout(CALL_TIMEOUT, shared.turn()).await;
        let failure = match turn {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(describe(&error)),
            Err(_) => Some("the API server does not answer".to_owned()),
        };
        *lock(&shared.failure) = failure.map(|it| format!("lease `{}`: {it}", shared.name));
    }
}

impl Shared {
    /// Reads the Lease, and writes it if the election says so.
    async fn turn(&self) -> Result<(), kube::Error> {
        let found = match self.api.get(&self.name).await {
            Ok(lease) => Some(lease),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(error),
        };
        let begun = Instant::now();
        let record = found.as_ref().map(record);
        let step = lock(&self.election).step(begun, record.as_ref());
        let written = match (step, found) {
            (Step::Follow, _) => return Ok(()),
            (_, None) => {
                let lease = self.written(Lease::default(), step);
                self.api.create(&PostParams::default(), &lease).await
            }
            (_, Some(lease)) => {
                let lease = self.written(lease, step);
                let params = PostParams::default();
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match written {
            Ok(_) => {
                lock(&self.election).on_written(begun);
                Ok(())
            }
            // Another candidate was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The Lease in our name; its `resourceVersion` stays, which makes the write conditional.
    fn written(&self, lease: Lease, step: Step) -> Lease {
        let now = MicroTime(jiff::Timestamp::now());
        let before = lease.spec.unwrap_or_default();
        let taken = step != Step::Renew;
        let spec = LeaseSpec {
            holder_identity: Some(lock(&self.election).identity().to_owned()),
            lease_duration_seconds: i32::try_from(Election::DURATION.as_secs()).ok(),
            renew_time: Some(now.clone()),
            acquire_time: if taken {
                Some(now)
            } else {
                before.acquire_time
            },
            lease_transitions: Some(
                before.lease_transitions.unwrap_or(0) + i32::from(step == Step::Take),
            ),
            ..before
        };
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            ..lease.metadata
        };
        Lease {
            metadata,
            spec: Some(spec),
        }
    }

    async fn give_back(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(&self.name).await?;
        let ours = record(&lease).holder == lock(&self.election).identity();
        if let Some(spec) = lease.spec.as_mut().filter(|_| ours) {
            spec.holder_identity = Some(String::new());
            let params = PostParams::default();
            self.api.replace(&self.name, &params, &lease).await?;
        }
        Ok(())
    }
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        renewed: spec
            .renew_time
            .map(|it| it.0.to_string())
            .unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}
