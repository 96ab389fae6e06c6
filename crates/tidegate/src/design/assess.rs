//! What is said of every loop: poles, margins, settling, and whether it is stable at all.

use serde::Serialize;
use tidegate_control::system::{
    Complex, Damping, Margins, StepInfo, SystemError, TransferFunction, settling_samples,
    spectral_radius,
};

use super::format::{Root, Table, root, short, upper};

/// A closed loop in numbers; margins and settling are missing when it is unstable.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Assessment {
    pub(super) poles: Vec<Root>,
    pub(super) max_abs: f64,
    pub(super) stable: bool,
    damping: f64,
    settling_samples: Option<f64>,
    settling_time_s: Option<f64>,
    overshoot: Option<f64>,
    gain_margin: Option<f64>,
    gain_reduction_margin: Option<f64>,
    phase_margin_deg: Option<f64>,
    delay_margin_samples: Option<f64>,
    delay_margin_s: Option<f64>,
    max_sensitivity: Option<f64>,
    pub(super) warning: Option<String>,
}

impl Assessment {
    /// From its poles alone; the settling time is that of the slowest.
    pub(super) fn of_poles(poles: &[Complex<f64>], interval_s: Option<f64>) -> Self {
        let max_abs = spectral_radius(poles);
        let stable = max_abs < 1.0;
        let least_damped = poles.iter().map(|&pole| Damping::of(pole).ratio);
        let settling = Some(settling_samples(max_abs)).filter(|samples| samples.is_finite());
        Self {
            poles: Root::all(poles),
            max_abs,
            stable,
            damping: least_damped.fold(1.0, f64::min),
            settling_samples: settling,
            settling_time_s: settling.zip(interval_s).map(|(samples, h)| samples * h),
            overshoot: None,
            gain_margin: None,
            gain_reduction_margin: None,
            phase_margin_deg: None,
            delay_margin_samples: None,
            delay_margin_s: None,
            max_sensitivity: None,
            warning: (!stable).then(|| unstable(max_abs)),
        }
    }

    /// The same with the margins of its open loop, when it is stable.
    pub(super) fn with_margins(
        mut self,
        open: &TransferFunction,
        interval_s: Option<f64>,
    ) -> Result<Self, SystemError> {
        if !self.stable {
            return Ok(self);
        }
        let margins = Margins::of(open)?;
        self.gain_margin = margins.gain_up.map(|crossing| crossing.factor);
        self.gain_reduction_margin = margins.gain_down.map(|crossing| crossing.factor);
        self.phase_margin_deg = margins.phase_degrees();
        self.delay_margin_samples = margins.delay_samples;
        self.delay_margin_s = margins.delay_samples.zip(interval_s).map(|(d, h)| d * h);
        self.max_sensitivity = Some(margins.max_sensitivity);
        Ok(self)
    }

    /// The same with what its step response really does.
    pub(super) fn with_step(mut self, step: Option<StepInfo>, interval_s: f64) -> Self {
        if let Some(step) = step {
            let samples = step.settling_samples as f64;
            self.settling_samples = Some(samples);
            self.settling_time_s = Some(samples * interval_s);
            self.overshoot = Some(step.overshoot);
        }
        self
    }

    /// Everything of a single loop that is closed with feedback of one.
    pub(super) fn of_loop(open: &TransferFunction, interval_s: f64) -> Result<Self, SystemError> {
        let closed = open.feedback()?;
        Ok(Self::of_poles(&closed.poles()?, Some(interval_s))
            .with_margins(open, Some(interval_s))?
            .with_step(closed.step_info()?, interval_s))
    }

    /// One line for a table of several loops.
    pub(super) fn brief(&self) -> String {
        if !self.stable {
            return format!("unstable, |z| {}", short(self.max_abs));
        }
        let settling = self
            .settling_time_s
            .map_or(String::new(), |s| format!(", settles in {} s", short(s)));
        let overshoot = self
            .overshoot
            .map_or(String::new(), |o| format!(", overshoot {:.0} %", o * 100.0));
        format!("|z| {}{settling}{overshoot}", short(self.max_abs))
    }

    pub(super) fn rows(&self, mut table: Table) -> Table {
        for (i, pole) in upper(&self.poles).enumerate() {
            let name = if i == 0 { "poles" } else { "" };
            let size = pole.re.hypot(pole.im);
            table = table.row(name, format!("{}   |z| {}", root(pole), short(size)));
        }
        table
            .row("damping", short(self.damping))
            .row_if("settles (2 %)", self.settling())
            .row_if(
                "overshoot",
                self.overshoot
                    .map(|share| format!("{:.0} %", share * 100.0)),
            )
            .row_if("gain margin", self.gain_range())
            .row_if(
                "phase margin",
                self.phase_margin_deg
                    .map(|degrees| format!("{degrees:.1}°")),
            )
            .row_if("delay margin", self.delay())
            .row_if("max sensitivity", self.max_sensitivity.map(short))
            .warning(self.warning.as_deref())
    }

    fn settling(&self) -> Option<String> {
        time(self.settling_samples, self.settling_time_s)
    }

    fn delay(&self) -> Option<String> {
        time(self.delay_margin_samples, self.delay_margin_s)
    }

    fn gain_range(&self) -> Option<String> {
        match (self.gain_reduction_margin, self.gain_margin) {
            (None, None) => None,
            (None, Some(up)) => Some(format!("up to {} times", short(up))),
            (Some(down), None) => Some(format!("from {} times up", short(down))),
            (Some(down), Some(up)) => Some(format!("{} to {} times", short(down), short(up))),
        }
    }
}

fn time(samples: Option<f64>, seconds: Option<f64>) -> Option<String> {
    let samples = samples.map(|samples| format!("{samples:.1} intervals"));
    seconds
        .map(|seconds| format!("{} s", short(seconds)))
        .or(samples)
}

fn unstable(max_abs: f64) -> String {
    let motion = if max_abs == 1.0 {
        "deviations of the linear loop never die out".to_owned()
    } else {
        format!(
            "deviations of the linear loop grow {}-fold every interval",
            short(max_abs)
        )
    };
    format!(
        "this loop is unstable: its slowest pole is not inside the unit circle, so {motion}. \
         A real loop has limits (a queue is never negative, a gate saturates) \
         and may still behave: simulate it before you use or dismiss these gains."
    )
}
