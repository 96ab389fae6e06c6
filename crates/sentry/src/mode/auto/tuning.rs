//! Every number that mode `auto` was tuned by, in one place.
//!
//! Each has a unit, what it decides, and what it rests on: the decision record that describes its
//! mechanism, or a reason. docs/tuning.md is generated from here (`tidegate reference --tuning`).

use std::fmt::Write;
use std::time::Duration;

use super::significance::Significance;
use super::trial::Test;

/// The numbers that mode `auto` was tuned by.
pub(crate) struct Tuning;

/// One of them, for the documentation.
struct Row {
    name: &'static str,
    value: String,
    unit: &'static str,
    decides: String,
    rests_on: &'static str,
}

/// A value as the documentation shows it.
trait Shown {
    fn shown(&self) -> String;
}

impl Shown for f64 {
    fn shown(&self) -> String {
        let rounded = (self * 1e4).round() / 1e4;
        rounded.to_string()
    }
}

impl Shown for usize {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for Duration {
    fn shown(&self) -> String {
        self.as_secs_f64().shown()
    }
}

impl Shown for Test {
    fn shown(&self) -> String {
        let Self {
            alternative,
            reference,
            reference_seconds,
            seconds,
        } = self;
        format!(
            "×{alternative} after {reference} or more in {reference_seconds} s, for {seconds} s"
        )
    }
}

impl Shown for Significance {
    fn shown(&self) -> String {
        let Self {
            share,
            reference,
            z,
        } = self;
        format!("above ×{share} of {reference} or more, by {z} chance deviations")
    }
}

/// One number. An ordinary build has it as a constant; one with the feature `ablation` looks up
/// whether it was changed (see the module `ablation`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number<T> {
    value: T,
    #[cfg(feature = "ablation")]
    index: usize,
}

#[cfg(not(feature = "ablation"))]
impl<T: Copy> Number<T> {
    /// Its value.
    #[inline(always)]
    pub(crate) const fn get(self) -> T {
        self.value
    }
}

#[cfg(feature = "ablation")]
impl<T: super::ablation::Ablated> Number<T> {
    /// The value in force.
    pub(crate) fn get(self) -> T {
        super::ablation::in_force(self.index, self.value)
    }
}

impl Number<Duration> {
    /// The time in whole ticks, of which it is one at least.
    pub(crate) fn ticks(self) -> usize {
        let ticks = self.get().as_secs_f64() / Tuning::INTERVAL.get().as_secs_f64();
        // `as` saturates.
        (ticks.round() as usize).max(1)
    }
}

impl Number<f64> {
    /// A factor per second as a factor per tick.
    pub(crate) fn per_tick(self) -> f64 {
        self.get().powf(Tuning::INTERVAL.get().as_secs_f64())
    }
}

/// Numbers of [`Tuning`] from a table, and the table for the documentation.
macro_rules! tuning {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr, $unit:literal, $by:literal;)+) => {
        impl Tuning {
            $($(#[doc = $doc])+ pub(crate) const $name: Number<$type> = Number {
                value: $value,
                #[cfg(feature = "ablation")]
                index: Index::$name as usize,
            };)+
        }

        /// Positions in the table.
        #[cfg(feature = "ablation")]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index {
            $($name),+
        }

        /// All names with the names of their parts, in the order of the table.
        #[cfg(feature = "ablation")]
        pub(super) fn names() -> Vec<(&'static str, super::ablation::Parts)> {
            use super::ablation::Ablated as _;
            vec![$((stringify!($name), Tuning::$name.value.parts())),+]
        }

        fn rows() -> Vec<Row> {
            vec![$(Row {
                name: stringify!($name),
                value: Tuning::$name.value.shown(),
                unit: $unit,
                decides: concat!($($doc),+).trim().to_owned(),
                rests_on: $by,
            }),+]
        }
    };
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

tuning! {
    /// How often windows and forecast are brought up to date: a tick. Times are in seconds, and
    /// those of a history are whole ticks.
    INTERVAL: Duration = Duration::from_millis(100), "s", "0220";
    /// Mean service time above this share of the target makes a window smaller.
    SERVICE_TIME_OF_TARGET: f64 = 0.4, "share of the target", "0010";
    /// The same for the slowest of a hundred requests.
    SERVICE_TIME_TAIL_OF_TARGET: f64 = 0.5, "share of the target", "0010";
    /// The slowest requests lower the bound of the mean to no less than this.
    SERVICE_TIME_OF_TARGET_MIN: f64 = 0.1, "share of the target", "0010";
    /// Mean service time beyond which a base that trials have shown is doubted in overload.
    SERVICE_TIME_DOUBTFUL_OF_TARGET: f64 = 0.25, "share of the target", "0018";
    /// The same for the slowest of a hundred, where they take more than six times the mean.
    /// Thrashing services lose half a point over steps with 1.2, and more than one with 1.
    SERVICE_TIME_DOUBTFUL_TAIL_OF_TARGET: f64 = 1.5, "targets", "0126";
    /// A derived target allows for no wider spread of service times, that of exponential ones.
    TARGET_SPREAD_MAX: f64 = 5.0, "p99 over mean", "exponential times";
    /// Time at full window before the capacity is believed for the first time: more than the
    /// moment in which a crowd is accepted and its connections are opened.
    CAPACITY_FIRST_SECONDS: f64 = 0.25, "s", "600 of 25 000 requests/s seen with 512 clients";
    /// How far back rates of arrivals, completions and clients that leave look.
    RATE_PERIOD: Duration = seconds(1), "s", "0220";
    /// A replica in which nothing has happened for this long is left alone until something does.
    IDLE_DURATION: Duration = seconds(4), "s", "longer than any history of a replica";
    /// Share of clients that has to leave for a whole target of waiting to be pointless.
    LEAVING_OF_OFFERED: f64 = 0.05, "share of arrivals", "0014";
    /// Share of clients that has to leave for the work to be done for no client.
    LEAVING_MOST_OF_OFFERED: f64 = 0.5, "share of arrivals", "0058";
    /// If less than this share of admitted requests is answered, clients abandon inside the replica
    /// and not in our queue. While windows grow two are admitted for each that is answered.
    ANSWERED_OF_ADMITTED: f64 = 0.3333333333333333, "share of admissions", "0061";
    /// Factor of the longest wait, while most clients abandon: a half in 0.7 s, 0.9 in a tick.
    PATIENCE_DOWN: f64 = 0.3486784401000001, "per second", "0058";
    /// Factor of the longest wait otherwise: 1.05 in a tick.
    PATIENCE_UP: f64 = 1.628894626777442, "per second", "0058";
    /// The longest wait is no shorter than this.
    PATIENCE_OF_TARGET_MIN: f64 = 0.05, "share of the target", "0058";
    /// Share of the capacity that is left for a class in its forecast, whatever is above it.
    CAPACITY_LEFT_MIN: f64 = 0.02, "share of the capacity", "a class below a full one still starts";
    /// While the capacity is unknown no request waits for longer than this for a configured target.
    WAIT_FIRST_TARGETS: f64 = 4.0, "targets", "0321";
    /// How often what is known of paths is made older.
    PATHS_AGE: Duration = seconds(60), "s", "0012";

    /// Where the window is set, beside one more request: room for the time between two requests and
    /// for an error of the estimate.
    WINDOW_PER_KNEE_ROOMY: f64 = 1.5, "knees", "0010";
    /// The same where requests would take too long otherwise.
    WINDOW_PER_KNEE_TIGHT: f64 = 1.25, "knees", "0010";
    /// A window below this is too small.
    WINDOW_PER_KNEE_NARROW: f64 = 1.05, "knees", "0010";
    /// A smaller window has to be below this share of the present one, unless answers are late.
    WINDOW_WORTH_SHRINKING: f64 = 0.75, "share of the window", "0010";
    /// The next smaller window to try without a knee.
    WINDOW_SHRINK: f64 = 0.4, "share of the window", "0018";
    /// Such a window is no smaller than this: two keep one worker busy.
    WINDOW_SHRINK_MIN: f64 = 2.0, "requests", "one in service, one on its way";
    /// Growth while the capacity is unknown.
    WINDOW_GROWTH_FIRST: f64 = 2.0, "factor", "0010";
    /// Growth later.
    WINDOW_GROWTH: f64 = 1.5, "factor", "0010";
    /// Without a knee and without an overload, service time beyond its bound by this factor calls
    /// for a smaller window.
    WINDOW_OF_BOUND_EXCESS: f64 = 1.25, "factor", "0018";
    /// A wait in a replica that no client notices; no window is smaller than what is done in it.
    WINDOW_MIN_SECONDS: f64 = 0.005, "s", "a twentieth of the default `auto.target_min`";
    /// Base service times are looked for at concurrencies below this share of the window.
    BASE_BELOW_WINDOW: f64 = 0.67, "share of the window", "0010";
    /// Completions of a base while the capacity is unknown.
    BASE_COMPLETIONS_FIRST: f64 = 15.0, "completions", "good for ±26 %";
    /// Completions of a base that is relied on.
    BASE_COMPLETIONS: f64 = 100.0, "completions", "good for ±10 %";
    /// While the capacity is unknown, a queue that takes less than this share of the target is no
    /// reason to look for more.
    QUEUE_PRESSING_OF_TARGET: f64 = 0.1, "share of the target", "0061";
    /// Service time beyond which most answers are late.
    SERVICE_TIME_LATE_OF_TARGET: f64 = 0.8, "share of the target", "0018";
    /// Service time from which on a larger window is not tried.
    SERVICE_TIME_LONG_OF_TARGET: f64 = 0.5, "share of the target", "0019";
    /// The same while nothing is known: a larger window of no use makes more requests late.
    SERVICE_TIME_LONG_FIRST_OF_TARGET: f64 = 0.4, "share of the target", "0064";
    /// Throughput below this share in a smaller window fell because of the window: long requests
    /// that stay behind cost less than that.
    THROUGHPUT_KEPT_CLEAR: f64 = 0.6, "share of the throughput", "0018";
    /// Completions that have to be expected for that.
    THROUGHPUT_KEPT_COMPLETIONS: f64 = 60.0, "completions", "0018";
    /// How far the knee can be beyond a window that was enough: a trial lets a loss of a third
    /// pass.
    KNEE_PER_ENOUGH_MAX: f64 = 1.5, "factor", "0018";
    /// A base that trials have shown is doubted after this time, and after twice the time whenever
    /// it was found again, while requests take too long.
    TRUST: Duration = seconds(5), "s", "0018";
    /// Longest such time.
    TRUST_MAX: Duration = seconds(600), "s", "0018";
    /// Throughput of this many times what was taken for capacity says that it was none.
    CAPACITY_OUTGROWN: f64 = 1.5, "factor", "0058";
    /// Completions of a throughput that others are compared with.
    THROUGHPUT_COMPLETIONS: f64 = 30.0, "completions", "good for ±18 %";
    /// Time that stands in for any number of completions in a slow service.
    THROUGHPUT_SECONDS: f64 = 8.0, "s", "the bars at 20 requests/s";
    /// Completions of a throughput that the speed is measured by.
    SPEED_COMPLETIONS: f64 = 100.0, "completions", "good for ±10 %";
    /// A larger window is not tried before requests have waited for this long: when they begin to,
    /// capacity may just have fallen.
    TRIAL_UP_ONSET: Duration = seconds(1), "s", "0060";
    /// Pause between trials of larger windows.
    TRIAL_UP_PAUSE: Duration = seconds(20), "s", "0010";
    /// The same before the capacity is known, after load that went away.
    TRIAL_PAUSE_FIRST: Duration = seconds(2), "s", "0010";
    /// A trial that has not decided in this time decides nothing.
    TRIAL_DURATION_MAX: Duration = seconds(20), "s", "0010";
    /// Or in the time of this many completions, where that is longer.
    TRIAL_COMPLETIONS_MAX: f64 = 40.0, "completions", "0276";
    /// Load that went away for this long ends a trial, and slow start.
    LOAD_ABSENCE: Duration = seconds(1), "s", "ten times the interval";
    /// Requests of the old window have left a larger one after this many service times.
    LEAVING_UP: f64 = 1.0, "service times", "0018";
    /// The same for a smaller window, where the long ones stay behind.
    LEAVING_DOWN: f64 = 2.0, "service times", "0018";
    /// No trial waits longer than this for them to leave.
    LEAVING_SECONDS_MAX: f64 = 5.0, "s", "services slower than 2.5 s are judged too early";
    /// Where admitted clients abandon, a smaller window is looked at for this long.
    ABANDONED_SECONDS: f64 = 1.0, "s", "0058";
    /// A trial of a smaller window that takes longer than this is not made where answers come soon
    /// enough: of a service of 128 workers of 3.5 s trials cost a seventh of the throughput.
    TRIAL_DEAR_SECONDS: f64 = 5.0, "s", "0276";
    /// How long a smaller window that cost throughput is not tried again.
    REFUTED: Duration = seconds(30), "s", "0018";
    /// For as long as throughput is above this share of what it was.
    REFUTED_THROUGHPUT: f64 = 0.8, "share of the throughput", "0018";

    /// Trial of a larger window while nothing is known: a gain of 44 % counts. With less time, 200
    /// workers looked full with 16 requests in one start of fifteen.
    TRIAL_UP_FIRST: Test = Test { alternative: 2.0, reference: 20.0, reference_seconds: 0.7, seconds: 0.5 }, "throughput", "0014, over 120 seeds";
    /// Trial of a smaller window while nothing is known: a loss of 34 % counts.
    TRIAL_DOWN_FIRST: Test = Test { alternative: 0.4, reference: 20.0, reference_seconds: 0.7, seconds: 0.5 }, "throughput", "0019";
    /// Trial of a larger window later: a gain of 23 % counts.
    TRIAL_UP: Test = Test { alternative: 1.5, reference: 100.0, reference_seconds: 0.0, seconds: 0.0 }, "throughput", "0010";
    /// Back down after a gain, which may be capacity that has returned: a loss of 18 % counts.
    TRIAL_CHECK: Test = Test { alternative: 1.0 / 1.5, reference: 0.0, reference_seconds: 0.0, seconds: 0.0 }, "throughput", "0018";
    /// Trial of a smaller window without a knee: a loss of 16 % counts.
    TRIAL_DOWN: Test = Test { alternative: 0.7, reference: 100.0, reference_seconds: 1.0, seconds: 1.0 }, "throughput", "0018";
    /// Trial of a smaller window with a knee, or where answers are late: a loss of 34 % counts.
    /// Where requests share a processor the long ones stay behind, and for a while few are done.
    TRIAL_DOWN_TO_KNEE: Test = Test { alternative: 0.4, reference: 40.0, reference_seconds: 0.0, seconds: 0.0 }, "throughput", "0018";
    /// The same down to the knee where answers are late: a loss of a half counts. Less says that
    /// the service itself is too slow for the target.
    TRIAL_DOWN_FROM_LATE: Test = Test { alternative: 0.2, reference: 20.0, reference_seconds: 0.0, seconds: 0.0 }, "throughput", "0018";
    /// Throughput above this many times that before is more, where no request waits any longer.
    TRIAL_BRINGS_MORE: f64 = 1.1, "factor", "0058";
    /// Log odds at which a trial decides: wrong about once in 150 times.
    TRIAL_LOG_ODDS: f64 = 5.0, "log odds", "Wald 1945";

    /// Completions that a service time rests on in slow start.
    SLOW_START_COMPLETIONS: f64 = 20.0, "completions", "0061";
    /// Chance deviations that are added to the completions seen, for the least time that requests
    /// take while few are done.
    EARLY_LOOK_Z: f64 = 2.0, "chance deviations", "one of forty";
    /// Completions that are added beside them: none may be done yet.
    EARLY_LOOK_COMPLETIONS: f64 = 2.0, "completions", "0276";
    /// Completions from which on a first window that takes too long is cut to what is in time.
    FIRST_WINDOW_COMPLETIONS: f64 = 3.0, "completions", "0321";
    /// A window beyond this many first ones is set with room: less was seen of it.
    SLOW_START_WIDE: f64 = 2.0, "first windows", "0061";
    /// Mean service time within this factor of the median is alike. The mean of fifteen exponential
    /// times is off by that in one of two hundred.
    COHORT_ALIKE: f64 = 2.0, "factor", "0062";
    /// Throughput below this many times that of the cohort is no more than theirs.
    COHORT_NO_MORE: f64 = 1.5, "factor", "0062";

    /// Completions that a concurrency remembers.
    PROFILE_COMPLETIONS_MAX: f64 = 500.0, "completions", "0010";
    /// Requests do not hold each other up where less than this share of the capacity is done.
    PROFILE_CALM: f64 = 0.9, "share of the capacity", "0010";
    /// How far the logarithm of the typical service time follows its first sample: half over the
    /// density of the logarithm of an exponential time at its median.
    TYPICAL_STEP: f64 = 1.5, "", "0275";
    /// A request that takes this many times as long as a typical one is an exception, unless such
    /// requests are the most.
    TYPICAL_LONG: f64 = 10.0, "typical service times", "0275";
    /// Completions of both that it takes to compare typical service times.
    TYPICAL_COMPLETIONS: f64 = 5.0, "completions", "0275";
    /// While the capacity is unknown, service time below this many bases calls for a larger window.
    CROWD_BASES_NARROW: f64 = 1.35, "base service times", "0010";
    /// Above this many, throughput is capacity.
    CROWD_BASES: f64 = 1.6, "base service times", "0010";
    /// If it is beyond the former by this many chance deviations. With forty completions instead,
    /// 200 workers looked full with 64 inside in one start of a hundred.
    CROWD_Z: f64 = 3.0, "chance deviations", "0056";
    /// While a service fills up, this many times the least service time are a crowd. Of bimodal
    /// work it rises by 1.85 by itself, because the short ones leave first.
    CROWD_BASES_FILLING: f64 = 2.2, "base service times", "0061";
    /// How long a throughput has to last to be a bound of the speed.
    SPEED_PERIOD: Duration = seconds(3), "s", "0220";
    /// Chance deviations taken off it.
    SPEED_Z: f64 = 2.0, "chance deviations", "one of forty";

    /// Throughput that is above that of the history before, or below it, is a change. The place to
    /// cut is the worst of a hundred at each tick: needless cuts are as rare as refusals with room.
    CAPACITY_CHANGE: Significance = Significance { share: 1.0, reference: 0.0, z: 5.5 }, "throughput", "0013";
    /// Longest history of the throughput.
    CAPACITY_SECONDS_MAX: f64 = 10.0, "s", "0013";
    /// Completions that it has at least: what 200 say is off by 7 %.
    CAPACITY_COMPLETIONS_MIN: f64 = 400.0, "completions", "0053";
    /// Less time at full window makes no sample of its own: a pause of the scheduler is no change.
    CAPACITY_SAMPLE_SECONDS_MIN: f64 = 0.08, "s", "0060";
    /// Samples of the history: of a service that takes longer for its completions each is longer.
    CAPACITY_SAMPLES_MAX: usize = 256, "samples", "0250";
    /// Completions without which there is no throughput.
    CAPACITY_COMPLETIONS_FIRST: f64 = 10.0, "completions", "good for ±30 %";
    /// Samples from which on the dispersion of completions is estimated. What an estimate needs is
    /// their number, however long each of them is.
    DISPERSION_SAMPLES_MIN: usize = 20, "samples", "0013";
    /// What it is taken for before.
    DISPERSION_UNKNOWN: f64 = 1.5, "variance over mean", "0013";
    /// Samples that are too new to tell dispersion from a change.
    DISPERSION_SAMPLES_NEW: usize = 10, "samples", "0013";
    /// Samples in a group: long requests make neighbouring samples alike.
    DISPERSION_GROUP_SAMPLES: usize = 5, "samples", "0013";
    /// Least dispersion of completions.
    DISPERSION_MIN: f64 = 1.0, "variance over mean", "Poisson";
    /// Greatest dispersion of completions.
    DISPERSION_MAX: f64 = 8.0, "variance over mean", "0013";
    /// Squared coefficient of variation below which service times say nothing about the work.
    /// Exponential work that shares a processor has 2.3 at 80 % load.
    DISPERSION_SHARING: f64 = 2.5, "variance over squared mean", "0018";

    /// Arrivals beyond the capacity are an overload.
    OVERLOAD_EXCESS: Significance = Significance { share: 1.0, reference: 0.0, z: 4.0 }, "capacity", "0053";
    /// How far back an excess of arrivals is looked for.
    OVERLOAD_PERIOD: Duration = seconds(3), "s", "0053";
    /// How far back the load is looked at that leaves room for bursts, or none.
    LOAD_PERIOD: Duration = seconds(20), "s", "0053";
    /// Arrivals of that time that leave no room for bursts.
    LOAD_WITHOUT_ROOM: Significance = Significance { share: 0.95, reference: 10.0, z: 3.0 }, "capacity", "0053";
    /// Quiet for this long ends an overload.
    QUIET_SECONDS: f64 = 1.0, "s", "0011";
    /// A wait above this share of the target is long.
    QUEUE_LONG_OF_TARGET: f64 = 0.5, "share of the target", "0053";
    /// A wait below this share of the target is quiet.
    QUEUE_QUIET_OF_TARGET: f64 = 0.25, "share of the target", "0011";
    /// Load for whose bursts there is room: 80 % may look like this in a window that is too small
    /// by a tenth.
    BURST_LOAD: f64 = 0.9, "share of the capacity", "0053";
    /// Chance may exceed the longest burst once in this time: in one of a thousand runs of ten
    /// minutes.
    BURST_ONCE_IN_SECONDS: f64 = 600_000.0, "s", "0053";

    /// Share of requests that are to be answered within the target.
    ANSWERED_MOST: f64 = 0.95, "quantile", "the 95th percentile of the target";
    /// Share of requests that are to be answered not much later.
    ANSWERED_NEARLY_ALL: f64 = 0.99, "quantile", "the 99th percentile of the bars";
    /// How much later those may be.
    ANSWERED_LATER_OF_TARGET: f64 = 1.15, "targets", "the bar of 1.2";
    /// Share of the time in which replicas may be idle for lack of queued requests.
    QUEUE_IDLE: f64 = 0.01, "share of the time", "0011";
    /// Least queue that keeps replicas busy.
    QUEUE_BUSY_MIN: f64 = 2.0, "requests", "0011";
    /// Longest queue that keeps replicas busy.
    QUEUE_BUSY_MAX: f64 = 20.0, "requests", "0011";
    /// A burst is waited for at least this long.
    BURST_TARGETS: f64 = 2.0, "targets", "0053";
    /// No request lets others pass before this share of the target.
    YIELD_OF_TARGET_MIN: f64 = 0.5, "share of the target", "0014";
    /// The same while the capacity is unknown and requests pile up inside.
    YIELD_OF_TARGET_MIN_FIRST: f64 = 0.25, "share of the target", "0062, over 160 seeds";
    /// Base service times in a derived target.
    TARGET_SERVICE_TIMES: f64 = 8.0, "base service times", "0010";
    /// Slowest of a hundred service times in a derived target.
    TARGET_TAILS: f64 = 2.0, "p99 service times", "0010";
    /// Requests that a derived target has time to serve: queues by chance at four fifths.
    TARGET_REQUESTS: f64 = 60.0, "requests", "0010";
    /// A derived target before anything is known.
    TARGET_FIRST_SECONDS: f64 = 0.5, "s", "what people accept of a page";
    /// Time constant by which a derived target follows what the service needs.
    TARGET_FOLLOWING_SECONDS: f64 = 2.0, "s", "0010";

    /// A gap between arrivals below this share of the mean is short.
    CLUMP_GAP_SHORT: f64 = 0.16666666666666666, "mean gaps", "0110";
    /// Gaps that are looked at together: four batches of eight.
    CLUMP_BLOCK: f64 = 32.0, "gaps", "0110";
    /// Share of short gaps that shows batches: Poisson arrivals have 15 %.
    CLUMP_SHORT_SHARE: f64 = 0.4, "share of gaps", "0110";
    /// Squared coefficient of variation of gaps that shows batches: Poisson arrivals have 1.
    CLUMP_VARIATION: f64 = 2.5, "variance over squared mean", "0110";
    /// What is left of the past after a block of gaps.
    CLUMP_FADE: f64 = 0.75, "per block", "0110";
    /// Share of the last blocks that has to show batches: three in a row.
    CLUMP_BLOCKS: f64 = 0.55, "share of blocks", "0110";
    /// Share of the last blocks below which requests come one at a time again.
    CLUMP_BLOCKS_SINGLE: f64 = 0.25, "share of blocks", "0110";
    /// Greatest dispersion of arrivals.
    CLUMP_DISPERSION_MAX: f64 = 64.0, "variance over mean", "0110";
    /// Length of a group, for the dispersion of arrivals beside that of single ticks.
    ARRIVALS_GROUP_DURATION: Duration = Duration::from_millis(500), "s", "0110";
    /// Groups that it takes.
    ARRIVALS_GROUPS_MIN: usize = 20, "groups", "0110";
    /// Chance deviations that are taken off it.
    ARRIVALS_Z: f64 = 3.0, "chance deviations", "0110";
    /// Mean of the squares of a normal deviate without the greatest tenth of them.
    ARRIVALS_TRIMMED: f64 = 0.623, "variance", "the normal distribution";

    /// What is left of service times: a time constant of three seconds, 0.967 in a tick.
    SERVICE_TIME_FADE: f64 = 0.7149320074478499, "per second", "0010";
    /// What is left of their moments, which a few long ones decide: a time constant of twenty
    /// seconds, 0.995 in a tick.
    SERVICE_TIME_MOMENTS_FADE: f64 = 0.9511101304657719, "per second", "0018";
    /// Completions from which on service times have a shape.
    SERVICE_TIME_COMPLETIONS: f64 = 50.0, "completions", "a quantile of 0.95 has two above it";
    /// Bound of a high quantile over the mean.
    SERVICE_TIME_SPREAD_MAX: f64 = 10.0, "quantile over mean", "0018";
    /// A replica that warms up gets at least this share of its window.
    WARM_UP_MIN: f64 = 0.1, "share of the window", "0006";
    /// Requests in flight for three to four of these are overdue, in typical service times: with 16
    /// slots, 16 that take far longer than others leave room for those again.
    OVERDUE_SERVICE_TIMES: f64 = 10.0, "typical service times", "0275";
    /// Least such time.
    OVERDUE_SECONDS_MIN: f64 = 0.2, "s", "0275";
    /// The same while it is not known what is typical.
    OVERDUE_SECONDS_UNKNOWN: f64 = 1.0, "s", "0058";
    /// Longest such time.
    OVERDUE_SECONDS_MAX: f64 = 30.0, "s", "0058";
}

/// The page docs/tuning.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = "# The numbers of mode `auto`\n\nGenerated by `tidegate reference --tuning` from \
                    `mode/auto/tuning.rs`. None of them is a key of\nthe configuration. Four digits \
                    name the [decision](decisions/README.md)\nthat describes the mechanism; it need \
                    not give the number itself.\n\n| name | value | unit | decides | \
                    rests on |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows() {
        let Row {
            name,
            value,
            unit,
            decides,
            rests_on,
        } = row;
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{name}` | {value} | {unit} | {decides} | {rests_on} |"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_ticks_and_factors_per_second_are_taken_apart() {
        assert_eq!(Tuning::RATE_PERIOD.ticks(), 10);
        assert_eq!(Tuning::LOAD_PERIOD.ticks(), 200);
        assert_eq!(Tuning::ARRIVALS_GROUP_DURATION.ticks(), 5);
        assert!((Tuning::PATIENCE_DOWN.per_tick() - 0.9).abs() < 1e-15);
        assert!((Tuning::PATIENCE_UP.per_tick() - 1.05).abs() < 1e-15);
        assert!((Tuning::SERVICE_TIME_FADE.per_tick() - 0.967).abs() < 1e-15);
        assert!((Tuning::SERVICE_TIME_MOMENTS_FADE.per_tick() - 0.995).abs() < 1e-15);
    }

    #[test]
    fn documentation_has_every_number() {
        let (page, now) = (include_str!("../../../../../docs/tuning.md"), markdown());
        let first = page.lines().zip(now.lines()).find(|(old, new)| old != new);
        assert!(
            page == now,
            "docs/tuning.md is not what the code has: {first:?}\n\
             rewrite it: cargo run -- reference --tuning > docs/tuning.md"
        );
    }
}
