//! What happens beside the data plane every second or more often: the engines' events are taken in,
//! figures of the last seconds, samples of refusals, keep-alives.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::Operator;
use super::status::ShedSample;

/// Time between two looks at events and samples of refusals.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two pictures for the figures of the last seconds, and between two keep-alives.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(super) async fn run(operator: Arc<Operator>) {
    let mut picture_due = Instant::now();
    let mut keep_alive_due = Instant::now() + KEEP_ALIVE_EVERY;
    loop {
        sleep(LOOK).await;
        operator.observe();
        publish_refusals(&operator);
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

fn publish_refusals(operator: &Operator) {
    for application in operator.state.applications().iter() {
        let config = application.config();
        for refusal in application.metrics().take_shed_samples() {
            let sample = ShedSample::new(application.name(), &refusal, &config.protect);
            operator.publish("shed", SystemTime::now(), &sample);
        }
    }
}
