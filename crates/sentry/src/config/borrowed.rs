//! Numbers of another service: which keys of a mode still have the values of a paper's test bed.
//!
//! The defaults of `lqr` were measured on the service of paper 000 (13 requests/s, 400 ms), the
//! gains of `pi` and `pid` designed for that of paper 002 (about 40 requests/s). In front of
//! another service `lqr` sheds what does not fit the test bed: 83 % of 130/s. So drivers warn while
//! any of these keys has its built-in value.

use super::{GateKind, LqrConfig, Measure, ModeName, PiConfig, PidConfig, SentryConfig};

/// Keys of the mode in force that have the values of another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Borrowed {
    /// The mode, which is the name of the table too.
    pub mode: ModeName,
    /// The keys of that table.
    pub keys: &'static [&'static str],
    /// Whose numbers these are.
    service: &'static str,
    /// The command that finds those of this service.
    remedy: &'static str,
}

impl Borrowed {
    /// Cause and remedy in one sentence.
    #[must_use]
    pub fn message(&self) -> String {
        let mode = self.mode.as_str();
        let keys: Vec<String> = self.keys.iter().map(|key| format!("`{key}`")).collect();
        format!(
            "mode {mode} runs on numbers of another service: [protect.{mode}] leaves {} at the \
             values of {}; {}",
            keys.join(", "),
            self.service,
            self.remedy
        )
    }
}

impl SentryConfig {
    /// What the mode takes from another service, if anything.
    #[must_use]
    pub fn borrowed(&self) -> Option<Borrowed> {
        match self.mode {
            ModeName::Lqr => lqr(&self.lqr),
            ModeName::Pi => pi(&self.pi),
            ModeName::Pid => pid(&self.pid),
            _ => None,
        }
    }
}

fn lqr(lqr: &LqrConfig) -> Option<Borrowed> {
    let paper = LqrConfig::default();
    let point =
        (lqr.goodput, lqr.rate, lqr.rate_max) == (paper.goodput, paper.rate, paper.rate_max);
    let keys: &[&str] = match (point, lqr.gain == paper.gain) {
        (true, true) => &["response_time", "goodput", "rate", "rate_max", "gain"],
        (true, false) => &["goodput", "rate", "rate_max"],
        (false, true) => &["gain"],
        (false, false) => return None,
    };
    Some(Borrowed {
        mode: ModeName::Lqr,
        keys,
        service: "the paper's test bed (13 requests/s, 400 ms)",
        remedy: "`tidegate characterize` finds those of a service, mode `auto` needs none",
    })
}

fn pi(pi: &PiConfig) -> Option<Borrowed> {
    let paper = PiConfig::default();
    let same = (pi.gain, pi.integral_time) == (paper.gain, paper.integral_time);
    (same && drives_a_rate(pi.measure, pi.gate)).then_some(gains(ModeName::Pi))
}

fn pid(pid: &PidConfig) -> Option<Borrowed> {
    let paper = PidConfig::default();
    let same = (pid.gain, pid.integral_time) == (paper.gain, paper.integral_time);
    (same && drives_a_rate(pid.measure, pid.gate)).then_some(gains(ModeName::Pid))
}

/// What the paper's gains were designed for; with anything else they are the operator's choice.
fn drives_a_rate(measure: Measure, gate: GateKind) -> bool {
    measure == Measure::Utilization && gate == GateKind::Rate
}

fn gains(mode: ModeName) -> Borrowed {
    Borrowed {
        mode,
        keys: &["gain", "integral_time"],
        service: "the paper's server (about 40 requests/s)",
        remedy: "`tidegate design pi` computes those of a service, mode `auto` needs none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Rate;

    fn config(mode: ModeName) -> SentryConfig {
        SentryConfig {
            mode,
            ..SentryConfig::default()
        }
    }

    #[test]
    fn lqr_as_shipped_runs_on_the_papers_numbers() {
        let mut config = config(ModeName::Lqr);
        let message = config.borrowed().unwrap().message();
        assert!(message.contains("`rate_max`, `gain`"), "{message}");
        config.lqr.gain = [-2.0, 30.0];
        assert_eq!(
            config.borrowed().unwrap().keys,
            ["goodput", "rate", "rate_max"]
        );
        config.lqr.rate_max = Rate(130.0);
        assert_eq!(config.borrowed(), None);
    }

    #[test]
    fn gains_of_another_server_are_borrowed_only_where_they_were_designed_for() {
        for mode in [ModeName::Pi, ModeName::Pid] {
            let mut config = config(mode);
            assert_eq!(config.borrowed().map(|borrowed| borrowed.mode), Some(mode));
            config.pi.gain = 40.0;
            config.pid.gate = GateKind::Window;
            assert_eq!(config.borrowed(), None);
        }
    }

    #[test]
    fn modes_that_find_their_own_numbers_borrow_none() {
        use ModeName::{Auto, Ilac, Off, Sentry, Static, Step};
        for mode in [Auto, Ilac, Off, Sentry, Static, Step] {
            assert_eq!(config(mode).borrowed(), None);
        }
    }
}
