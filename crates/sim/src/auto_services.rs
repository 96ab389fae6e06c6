//! Services that mode `auto` is judged by: eleven that differ in what is inside them, and ten that
//! hold a hundred requests and more.

use tidegate_config::ConfigError;

use crate::scenario::Scenario;

/// A service under mode `auto`.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// For people.
    pub name: &'static str,
    /// Work of a request, as a scenario file has it.
    pub work: &'static str,
    /// Mean of the work, in seconds on one core.
    pub mean_s: f64,
    /// Keys of the scenario's `[replica]`.
    pub replica: &'static str,
    /// Cores of all replicas together.
    pub cores: f64,
    /// Response-time target, in seconds.
    pub target_s: f64,
    /// Squared coefficient of variation of the work.
    pub cv2: f64,
}

/// A service with work that varies as exponential work does.
#[must_use]
pub const fn service(
    name: &'static str,
    work: &'static str,
    mean_s: f64,
    replica: &'static str,
    cores: f64,
    target_s: f64,
) -> Service {
    Service {
        name,
        work,
        mean_s,
        replica,
        cores,
        target_s,
        cv2: 1.0,
    }
}

impl Service {
    /// The service with another squared coefficient of variation of its work.
    #[must_use]
    pub const fn varying(self, cv2: f64) -> Self {
        Self { cv2, ..self }
    }
}

impl Service {
    /// Requests per second at speed 1.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.cores / self.mean_s
    }

    /// A scenario with these keys of `[load]`, `[replica]` and `[protect]`, the last for `auto`.
    ///
    /// # Errors
    /// What is wrong with the keys.
    pub fn scenario(
        &self,
        seconds: u32,
        warm_up: u32,
        load: &str,
        speed: &str,
        protect: &str,
    ) -> Result<Scenario, ConfigError> {
        let target_ms = self.target_s * 1e3;
        let (work, replica) = (self.work, self.replica);
        let text = format!(
            "duration = '{seconds}s'\nwarm_up = '{warm_up}s'\ninterval = '500ms'\n\
             target = '{target_ms}ms'\nservice = {work}\n[load]\n{load}\n\
             [replica]\n{replica}\n{speed}\n[protect]\nmode = 'auto'\n{protect}\n"
        );
        tidegate_config::parse("auto.toml", &text)
    }

    /// The key of `[protect]` that tells `auto` the target.
    #[must_use]
    pub fn target_key(&self) -> String {
        format!("target = '{}ms'", self.target_s * 1e3)
    }
}

/// Key of `[replica]`: a third, a half and three quarters of the capacity go and come back.
pub const STEPS: &str = "speed = [{ at = '0s', value = 1 }, { at = '20s', value = 0.67 }, \
    { at = '40s', value = 1 }, { at = '60s', value = 0.5 }, { at = '80s', value = 1 }, \
    { at = '100s', value = 0.25 }, { at = '120s', value = 1 }]";

/// Services that differ in what is inside them.
pub const SERVICES: [Service; 11] = [
    service(
        "one core, shared",
        "{ law = 'exponential', mean = '10ms' }",
        0.01,
        "slots = 'unlimited'",
        1.0,
        0.5,
    ),
    service(
        "3 of 4 workers",
        "{ law = 'exponential', mean = '20ms' }",
        0.02,
        "count = 3\ncores = 4",
        12.0,
        0.5,
    ),
    service(
        "2 of 16 workers",
        "{ law = 'log-normal', mean = '100ms', cv2 = 2 }",
        0.1,
        "count = 2\ncores = 16",
        32.0,
        1.0,
    )
    .varying(2.0),
    service(
        "8 workers, bimodal",
        "{ law = 'bimodal', fast = '10ms', slow = '200ms', slow_share = '5%' }",
        0.0195,
        "cores = 8",
        8.0,
        0.5,
    )
    .varying(4.5),
    service(
        "thrashing",
        "{ law = 'exponential', mean = '40ms' }",
        0.04,
        "cores = 4\nslots = 'unlimited'\npenalty = { knee = 8, slope = 0.03 }",
        4.0,
        0.5,
    ),
    service(
        "200 workers",
        "{ law = 'exponential', mean = '200ms' }",
        0.2,
        "cores = 200",
        200.0,
        1.0,
    ),
    service("one worker, regular", "'10ms'", 0.01, "cores = 1", 1.0, 0.5),
    service(
        "3 of 4 cores, shared",
        "{ law = 'exponential', mean = '40ms' }",
        0.04,
        "count = 3\ncores = 4\nslots = 64",
        12.0,
        0.5,
    ),
    service(
        "fast",
        "{ law = 'log-normal', mean = '2ms', cv2 = 1 }",
        0.002,
        "count = 2\ncores = 2\nslots = 256",
        4.0,
        0.1,
    ),
    HEAVY,
    SLOW,
];

/// Long requests stay behind in a shared core and hold up all others: the hardest of them.
pub const HEAVY: Service = service(
    "3 of one core, shared, heavy tail",
    "{ law = 'log-normal', mean = '15ms', cv2 = 4 }",
    0.015,
    "count = 3\ncores = 1\nslots = 100",
    3.0,
    0.5,
)
.varying(4.0);

/// Twenty requests per second: everything takes longer to learn.
pub const SLOW: Service = service(
    "2 workers, slow",
    "{ law = 'exponential', mean = '100ms' }",
    0.1,
    "cores = 2",
    2.0,
    1.0,
);

/// Services that hold a hundred requests and more at once, because they wait for others.
pub const WIDE: [Service; 10] = [
    service(
        "200 workers, 200 ms",
        "{ law = 'exponential', mean = '200ms' }",
        0.2,
        "cores = 200",
        200.0,
        1.0,
    ),
    service(
        "100 workers, 1 s",
        "{ law = 'exponential', mean = '1s' }",
        1.0,
        "cores = 100",
        100.0,
        5.0,
    ),
    service(
        "40 workers, 500 ms",
        "{ law = 'exponential', mean = '500ms' }",
        0.5,
        "cores = 40",
        40.0,
        2.5,
    ),
    service(
        "200 workers, 2 s",
        "{ law = 'exponential', mean = '2s' }",
        2.0,
        "cores = 200",
        200.0,
        10.0,
    ),
    service(
        "3 of 100 workers, 200 ms",
        "{ law = 'exponential', mean = '200ms' }",
        0.2,
        "count = 3\ncores = 100",
        300.0,
        1.0,
    ),
    service(
        "200 workers, 50 ms",
        "{ law = 'exponential', mean = '50ms' }",
        0.05,
        "cores = 200",
        200.0,
        0.5,
    ),
    service(
        "200 workers, regular",
        "'200ms'",
        0.2,
        "cores = 200",
        200.0,
        1.0,
    ),
    service(
        "200 workers, log-normal",
        "{ law = 'log-normal', mean = '100ms', cv2 = 2 }",
        0.1,
        "cores = 200",
        200.0,
        1.0,
    ),
    service(
        "100 workers, bimodal",
        "{ law = 'bimodal', fast = '50ms', slow = '1s', slow_share = '5%' }",
        0.0975,
        "cores = 100",
        100.0,
        2.0,
    ),
    service(
        "64 cores, shared",
        "{ law = 'exponential', mean = '20ms' }",
        0.02,
        "cores = 64\nslots = 'unlimited'",
        64.0,
        0.3,
    ),
];
