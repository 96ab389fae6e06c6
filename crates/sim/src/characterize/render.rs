//! What was found, for people: a page with plots, and the configuration to paste.

use tidegate_config::{Dur, Rate};
use tidegate_sentry::{LqrConfig, ModeName, SentryConfig};

use super::{Characterization, LoadPoint, OperatingPoint, Survey, Sweep};
use crate::chart::{Chart, ChartError, Point, svg};
use crate::report::{Origin, Page, Section, number};

/// The protection that follows from what was found. The operating point moves with the capacity,
/// which is better whenever the capacity changes (see
/// `experiments/papers/000-4-capacity-cut.toml`).
#[must_use]
pub fn protect(found: &Characterization) -> SentryConfig {
    let settings = &found.settings;
    let point = &found.operating_point;
    let (low, _) = settings.excitation_range;
    let peak = found.sweep.peak_goodput_per_s;
    SentryConfig {
        mode: ModeName::Lqr,
        lqr: LqrConfig {
            measurement_interval: Dur(settings.measurement_interval),
            tuning_interval: Dur(settings.tuning_interval),
            response_filter: settings.response_filter,
            goodput_filter: settings.goodput_filter,
            response_time: Dur(milliseconds(point.response_s)),
            goodput: Rate(rounded(point.goodput_per_s)),
            rate: Rate(rounded(point.rate_per_s)),
            rate_min: Rate(rounded(low * peak)),
            rate_max: Rate(rounded(peak)),
            gain: found.regulator.gain.map(rounded),
            tokens_per_request: settings.tokens_per_request,
            adapt_operating_point: true,
            ..LqrConfig::default()
        },
        ..SentryConfig::default()
    }
}

impl Survey {
    /// The lines of a configuration file for mode `auto`.
    #[must_use]
    pub fn snippet(&self) -> String {
        // In steps of 10 ms: a measurement of this kind is worth no more.
        let target = (self.sweep.recommended_target_s() * 100.0).ceil() / 100.0;
        let target = Dur(milliseconds(target));
        format!("[protect]\nmode = \"auto\"\ntarget = \"{target}\"\n")
    }

    /// What was found, line by line: a name, a value with its unit.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = sweep_facts(&self.sweep, &self.operating_point);
        let target = number(self.sweep.recommended_target_s());
        facts.push(("target for mode auto", format!("{target} s")));
        facts
    }
}

fn sweep_facts(sweep: &Sweep, point: &OperatingPoint) -> Vec<(&'static str, String)> {
    vec![
        (
            "peak goodput",
            format!("{} requests/s", number(sweep.peak_goodput_per_s)),
        ),
        (
            "response time at light load",
            format!("{} s", number(sweep.lightest_response_s)),
        ),
        (
            "load of maximum power",
            format!("{} requests/s", number(sweep.max_power_load_per_s)),
        ),
        (
            "operating point: admit",
            format!("{} requests/s", number(point.rate_per_s)),
        ),
        (
            "operating point: goodput",
            format!("{} requests/s", number(point.goodput_per_s)),
        ),
        (
            "operating point: response time",
            format!("{} s", number(point.response_s)),
        ),
    ]
}

impl Characterization {
    /// What was found without the excitation.
    #[must_use]
    pub fn survey(&self) -> Survey {
        Survey {
            sweep: self.sweep.clone(),
            operating_point: self.operating_point,
        }
    }

    /// The lines of a configuration file that put it in force.
    #[must_use]
    pub fn snippet(&self) -> String {
        let lqr = protect(self).lqr;
        format!(
            "[protect]\n\
             mode = \"lqr\"\n\
             \n\
             [protect.lqr]\n\
             measurement_interval = \"{}\"\n\
             tuning_interval = \"{}\"\n\
             response_filter = {}\n\
             goodput_filter = {}\n\
             response_time = \"{}\"\n\
             goodput = \"{}\"\n\
             rate = \"{}\"\n\
             rate_min = \"{}\"\n\
             rate_max = \"{}\"\n\
             gain = [{}, {}]\n\
             tokens_per_request = {:?}\n\
             adapt_operating_point = {}\n",
            lqr.measurement_interval,
            lqr.tuning_interval,
            lqr.response_filter,
            lqr.goodput_filter,
            lqr.response_time,
            lqr.goodput,
            lqr.rate,
            lqr.rate_min,
            lqr.rate_max,
            lqr.gain[0],
            lqr.gain[1],
            lqr.tokens_per_request,
            lqr.adapt_operating_point,
        )
    }

    /// What was found, line by line: a name, a value with its unit.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let regulator = &self.regulator;
        let fit = &regulator.fit;
        let quality = |state: usize| number(fit.states[state].r_squared);
        let pole = |index: usize| number(regulator.lqr.poles[index].norm());
        let mut facts = self.survey().facts();
        facts.extend([
            (
                "A (diagonal)",
                format!("{}, {}", number(fit.a[(0, 0)]), number(fit.a[(1, 1)])),
            ),
            (
                "B",
                format!("{}, {}", number(fit.b[(0, 0)]), number(fit.b[(1, 0)])),
            ),
            (
                "fit: share of variance explained",
                format!("{}, {}", quality(0), quality(1)),
            ),
            (
                "weights q1, q2, r1",
                regulator.weights.map(number).join(", "),
            ),
            ("gain K", regulator.gain.map(number).join(", ")),
            (
                "closed-loop poles: modulus",
                format!("{}, {}", pole(0), pole(1)),
            ),
        ]);
        facts
    }
}

/// A report as one self-contained page.
///
/// # Errors
/// When a figure cannot be drawn.
pub fn page(found: &Characterization, subject: &str, origin: Origin) -> Result<Page, ChartError> {
    let rows = found.facts().into_iter();
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    let head = vec!["quantity".to_owned(), "value".to_owned()];
    let summary = Section {
        title: "What was found".to_owned(),
        table: std::iter::once(head).chain(rows).collect(),
        ..Section::default()
    };
    let configuration = Section {
        title: "Configuration".to_owned(),
        paragraphs: vec!["Paste this into the configuration file.".to_owned()],
        code: Some(found.snippet()),
        ..Section::default()
    };
    Ok(Page {
        title: format!("Characterization of {subject}"),
        origin,
        lead: "Load sweep, operating point, excitation, model and gain.".to_owned(),
        sections: vec![
            summary,
            configuration,
            sweep_section(found)?,
            model_section(found)?,
        ],
    })
}

fn sweep_section(found: &Characterization) -> Result<Section, ChartError> {
    let sweep = &found.sweep;
    let curve = |of: &dyn Fn(&LoadPoint) -> f64| -> Vec<Point> {
        sweep
            .points
            .iter()
            .map(|point| (point.offered_per_s, of(point)))
            .collect()
    };
    let marked = |title: &str, y: &str, points: Vec<Point>| {
        Chart::new(title)
            .x("offered load (requests/s)")
            .y(y)
            .line("measured", points)
            .rule_x("maximum power", sweep.max_power_load_per_s)
            .rule_x("operating point", found.operating_point.rate_per_s)
    };
    let charts = [
        marked(
            "Goodput",
            "goodput (requests/s)",
            curve(&|point| point.goodput_per_s),
        ),
        marked(
            "Response time",
            "mean response time (s)",
            curve(&|point| point.response_s),
        )
        .y_log(),
        marked("Power", "power", curve(&|point| sweep.power(point))),
    ];
    Ok(Section {
        title: "Load sweep".to_owned(),
        paragraphs: vec![
            "Power is goodput over peak goodput, divided by response time over the response time \
             at light load. The operating point lies between its maximum and the peak of goodput."
                .to_owned(),
        ],
        figures: charts.iter().map(svg).collect::<Result<_, _>>()?,
        ..Section::default()
    })
}

fn model_section(found: &Characterization) -> Result<Section, ChartError> {
    let record = &found.excitation;
    let tokens = found.settings.tokens_per_request;
    let over_time = |values: &[f64]| -> Vec<Point> {
        record
            .at_s
            .iter()
            .copied()
            .zip(values.iter().copied())
            .collect()
    };
    let predicted = predictions(found);
    let admitted: Vec<f64> = record
        .withheld_tokens_per_s
        .iter()
        .map(|withheld| record.peak_per_s - withheld / tokens)
        .collect();
    let chart = |title: &str, y: &str| Chart::new(title).x("time (s)").y(y);
    let charts = [
        chart("Excitation", "admission rate (requests/s)")
            .steps("admission rate", over_time(&admitted)),
        chart("Response time", "filtered response time (ms)")
            .line("measured", over_time(&record.response_ms))
            .line("model, one step ahead", over_time(&predicted[0])),
        chart("Missing goodput", "peak less goodput (requests/s)")
            .line("measured", over_time(&record.missing_per_s))
            .line("model, one step ahead", over_time(&predicted[1])),
    ];
    Ok(Section {
        title: "Excitation and model".to_owned(),
        figures: charts.iter().map(svg).collect::<Result<_, _>>()?,
        ..Section::default()
    })
}

/// `A x(k) + B u(k) + c` for both states; of the first sample nothing can be said.
fn predictions(found: &Characterization) -> [Vec<f64>; 2] {
    let (record, fit) = (&found.excitation, &found.regulator.fit);
    let states = [&record.response_ms, &record.missing_per_s];
    let predict = |state: usize| {
        let next = states[state]
            .iter()
            .zip(&record.withheld_tokens_per_s)
            .map(|(x, u)| fit.a[(state, state)] * x + fit.b[(state, 0)] * u + fit.offset[state]);
        let length = record.at_s.len();
        std::iter::once(f64::NAN).chain(next).take(length).collect()
    };
    [predict(0), predict(1)]
}

fn milliseconds(seconds: f64) -> std::time::Duration {
    std::time::Duration::from_millis((seconds * 1e3).round().max(1.0) as u64)
}

/// Four significant digits: what a measurement of this kind is worth.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
