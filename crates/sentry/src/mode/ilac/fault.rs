//! Replicas that behave strangely (the future work of 004, section VI).
//!
//! The service-time controllers estimate for each replica how long a request takes per request in
//! service, `K`. Replicas of one application do the same work, so their `K` are alike up to the
//! speed of their machines; one that is several times slower than the median of the others is
//! faulty. It is given one request at a time: enough to see it recover.
//!
//! A period of a replica that holds three requests has a handful of responses, and the mean of a
//! handful scatters. So a fault needs evidence besides: the log likelihood ratio of exponential
//! service times `R` times as long as the others' against `√R` times (another machine), summed
//! over the responses and never below 0 (Page 1954, CUSUM). For `n` responses of mean `x`, in
//! service times of the others,
//!
//! ```text
//! L = max(0, L + n (x (1/√R - 1/R) - ln √R))
//! ```
//!
//! A replica that holds requests and answers none has no `K` at all. It gets nothing more until it
//! answers, or until it holds nothing any more.
//!
//! Either way back is gradual: what it is trusted with doubles with every period in which it
//! answered.
//!
//! What breaks it: half of the replicas faulty at once. Then the median is faulty too, and it is
//! the load that is too high for what is left.

use crate::status::Standing;

/// Periods in a row outside, or inside again, before anything is done. Chosen: a second at four
/// periods a second; one slow collection of garbage is shorter.
const PERIODS: u32 = 4;

/// Evidence from which on a slow replica is faulty: chance gets there once in `e^12` responses of a
/// replica that is `√R` times as slow as the others. With `R` of 5 it takes about 28 responses at 5
/// times the others' service time, and three at 20 times.
const EVIDENCE: f64 = 12.0;

/// A suspect is inside again below this share of the ratio that made it one.
const INSIDE: f64 = 0.5;

/// A period of a replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) seconds: f64,
    /// Its `K`, once measured.
    pub(super) gain_s: Option<f64>,
    /// The `K` of this period alone, and how many responses it is from.
    pub(super) sample: Option<(f64, f64)>,
    /// The median of the others.
    pub(super) pack_s: Option<f64>,
    /// Whether it answered anything.
    pub(super) answered: bool,
    pub(super) in_flight: u32,
    /// What it would be given if it were trusted.
    pub(super) wanted: u32,
}

/// How far one replica is trusted.
#[derive(Debug)]
pub(super) struct Watch {
    ratio: f64,
    silence_s: f64,
    standing: Standing,
    trust: u32,
    periods: u32,
    evidence: f64,
    silent_s: f64,
}

impl Watch {
    pub(super) fn new(ratio: f64, silence_s: f64) -> Self {
        Self {
            ratio,
            silence_s,
            standing: Standing::Good,
            trust: u32::MAX,
            periods: 0,
            evidence: 0.0,
            silent_s: 0.0,
        }
    }

    pub(super) fn set_bounds(&mut self, ratio: f64, silence_s: f64) {
        (self.ratio, self.silence_s) = (ratio, silence_s);
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// The most requests it may hold.
    pub(super) fn trust(&self) -> u32 {
        self.trust
    }

    /// It was down and is back.
    pub(super) fn come_back(&mut self) {
        self.become_one(Standing::Returning);
    }

    /// Ends a period; returns how it stands, if that changed.
    pub(super) fn on_tick(&mut self, look: &Look) -> Option<Standing> {
        let before = self.standing;
        let silent = look.in_flight > 0 && !look.answered;
        self.silent_s = if silent {
            self.silent_s + look.seconds
        } else {
            0.0
        };
        match self.standing {
            Standing::Silent if !silent => self.become_one(Standing::Returning),
            Standing::Silent => {}
            _ if self.silent_s >= self.silence_s => self.become_one(Standing::Silent),
            Standing::Good | Standing::Returning => self.look_for_fault(look),
            Standing::Suspect => self.look_for_recovery(look),
        }
        if self.standing == Standing::Returning && look.answered {
            self.trust_more(look.wanted);
        }
        (self.standing != before).then_some(self.standing)
    }

    fn look_for_fault(&mut self, look: &Look) {
        let outside = slower_than_pack(look).is_some_and(|times| times > self.ratio);
        self.weigh(look);
        if self.lasted(outside && look.answered) && self.evidence >= EVIDENCE {
            self.become_one(Standing::Suspect);
        }
    }

    /// Adds what the responses of this period say for a fault and against another machine.
    fn weigh(&mut self, look: &Look) {
        let Some(((gain_s, responses), pack_s)) = look.sample.zip(look.pack_s) else {
            return;
        };
        let (fault, machine) = (self.ratio, self.ratio.sqrt());
        let each = gain_s / pack_s * (1.0 / machine - 1.0 / fault) - (fault / machine).ln();
        let sum = self.evidence + responses * each;
        self.evidence = if sum > 0.0 {
            sum.min(2.0 * EVIDENCE)
        } else {
            0.0
        };
    }

    fn look_for_recovery(&mut self, look: &Look) {
        let inside = slower_than_pack(look).is_none_or(|times| times < INSIDE * self.ratio);
        if self.lasted(inside) {
            self.become_one(Standing::Returning);
        }
    }

    /// Whether something has held for long enough, with this period.
    fn lasted(&mut self, holds: bool) -> bool {
        self.periods = if holds { self.periods + 1 } else { 0 };
        self.periods >= PERIODS
    }

    fn become_one(&mut self, standing: Standing) {
        self.standing = standing;
        self.periods = 0;
        self.evidence = 0.0;
        self.trust = match standing {
            Standing::Good => u32::MAX,
            Standing::Suspect | Standing::Returning => 1,
            Standing::Silent => 0,
        };
    }

    fn trust_more(&mut self, wanted: u32) {
        self.trust = self.trust.saturating_mul(2);
        if self.trust > wanted {
            self.become_one(Standing::Good);
        }
    }
}

/// How many times as long as the others it takes, where both are known.
fn slower_than_pack(look: &Look) -> Option<f64> {
    let (gain_s, pack_s) = look.gain_s.zip(look.pack_s)?;
    (pack_s > 0.0).then(|| gain_s / pack_s)
}

/// The median gain of all but one, the lower one of two.
pub(super) fn pack_without(gains_s: &[Option<f64>], index: usize) -> Option<f64> {
    let others = gains_s.iter().enumerate().filter(|(at, _)| *at != index);
    let mut others: Vec<f64> = others.filter_map(|(_, gain_s)| *gain_s).collect();
    others.sort_by(f64::total_cmp);
    others.get(others.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(gain_s: f64, answered: bool, in_flight: u32) -> Look {
        Look {
            seconds: 0.25,
            gain_s: Some(gain_s),
            sample: Some((gain_s, 10.0)),
            pack_s: Some(0.01),
            answered,
            in_flight,
            wanted: 8,
        }
    }

    fn watch() -> Watch {
        Watch::new(5.0, 2.0)
    }

    #[test]
    fn one_that_leaves_the_pack_gets_one_request_at_a_time_and_returns_bit_by_bit() {
        let mut watch = watch();
        let seen: Vec<_> = (0..4)
            .map(|_| watch.on_tick(&look(0.06, true, 3)))
            .collect();
        assert_eq!(seen, [None, None, None, Some(Standing::Suspect)]);
        assert_eq!(watch.trust(), 1);
        (0..20).for_each(|_| assert_eq!(watch.on_tick(&look(0.04, true, 1)), None));
        let trusted: Vec<_> = (0..7)
            .map(|_| {
                watch.on_tick(&look(0.01, true, 1));
                watch.trust()
            })
            .collect();
        assert_eq!(trusted, [1, 1, 1, 2, 4, 8, u32::MAX]);
        assert_eq!(watch.standing(), Standing::Good);
    }

    #[test]
    fn twice_as_slow_is_another_machine_and_no_fault() {
        let mut watch = watch();
        (0..100).for_each(|_| assert_eq!(watch.on_tick(&look(0.02, true, 3)), None));
    }

    #[test]
    fn few_slow_responses_are_chance_and_many_are_a_fault() {
        let periods = |responses: f64| {
            let mut watch = watch();
            let mut look = look(0.055, true, 3);
            look.sample = Some((0.055, responses));
            (1..100).find(|_| watch.on_tick(&look).is_some())
        };
        assert_eq!(periods(100.0), Some(PERIODS as usize));
        assert_eq!(periods(1.0), Some(22));
        assert_eq!(periods(0.0), None);
    }

    #[test]
    fn one_that_stopped_answering_gets_nothing_until_it_answers() {
        let mut watch = watch();
        let silent = (1..20).find(|_| watch.on_tick(&look(0.01, false, 3)).is_some());
        assert_eq!(silent, Some(8));
        assert_eq!((watch.standing(), watch.trust()), (Standing::Silent, 0));
        watch.on_tick(&look(0.01, true, 2));
        assert_eq!(watch.standing(), Standing::Returning);
        assert_eq!(watch.trust(), 2);
    }

    #[test]
    fn one_that_holds_nothing_is_not_silent() {
        let mut watch = watch();
        (0..100).for_each(|_| assert_eq!(watch.on_tick(&look(0.01, false, 0)), None));
    }

    #[test]
    fn pack_is_the_median_of_the_others() {
        let gains = [Some(9.0), Some(1.0), None, Some(2.0), Some(3.0)];
        assert_eq!(pack_without(&gains, 0), Some(2.0));
        assert_eq!(pack_without(&gains[..2], 1), Some(9.0));
        assert_eq!(pack_without(&gains[..1], 0), None);
    }
}
