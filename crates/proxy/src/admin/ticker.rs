//! What happens beside the data plane every second or more often: the engines' events are taken in,
//! figures of the last seconds, samples of refusals, keep-alives.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::Operator;
use super::status::ShedSample;

/// Time between two looks at events and samples of refusals.
const EVENTS_INTERVAL: Duration = Duration::from_millis(100);
/// Looks of which one is enough for an application at rest.
const AT_REST_EVERY: usize = 20;
/// Time between two pictures for the figures of the last seconds, and between two keep-alives.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(super) async fn run(operator: Arc<Operator>) {
    let mut picture_due = Instant::now();
    let mut keep_alive_due = Instant::now() + KEEP_ALIVE_EVERY;
    for look in 0_usize.. {
        sleep(EVENTS_INTERVAL).await;
        operator.observe();
        publish_refusals(&operator, look);
        let now = Instant::now();
        if now >= picture_due {
            picture_due = now + PICTURE_EVERY;
            operator.take_pictures();
        }
        if now >= keep_alive_due {
            keep_alive_due = now + KEEP_ALIVE_EVERY;
            operator.events.keep_alive();
        }
    }
}

/// An application in which nothing happens is looked at from time to time, in turn.
fn publish_refusals(operator: &Operator, look: usize) {
    for (number, application) in operator.state.applications().iter().enumerate() {
        if application.is_at_rest() && !(look + number).is_multiple_of(AT_REST_EVERY) {
            continue;
        }
        for refusal in application.metrics().take_shed_samples() {
            let config = application.config();
            let sample = ShedSample::new(application.name(), &refusal, &config.protect);
            operator.publish("shed", SystemTime::now(), &sample);
        }
    }
}
