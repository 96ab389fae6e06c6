//! Metrics of a shadow: what another configuration would have done, beside the models' view of the
//! one in force.

use tidegate_sentry::ShadowClass;

use super::Operator;
use crate::application::Application;
use crate::metrics::Metric;
use crate::metrics::family::{Page, metrics};

metrics! { SHADOW_METRICS:
    SHADOW_REQUESTS = Counter "tidegate_shadow_requests_total",
        "Requests that a configuration got before models of the replicas: `modelled` is the one in force, `shadow` the other.",
        "the share of the next one in it is what the configuration admits";
    SHADOW_ADMITTED = Counter "tidegate_shadow_admitted_total",
        "Of them those that it would have admitted.",
        "compare the two engines";
    SHADOW_IN_TARGET = Counter "tidegate_shadow_in_target_total",
        "Of them those that would have been answered within their target.",
        "the engine with more of them is the better configuration";
    SHADOW_SHED = Counter "tidegate_shadow_shed_total",
        "Of them those that it would have refused, by reason.",
        "reasons as in `tidegate_requests_shed_total`";
    SHADOW_WINDOW = Gauge "tidegate_shadow_window",
        "Windows that it would have, by replica; no sample where there is no bound.",
        "compare the two engines";
    SHADOW_TARGET_SECONDS = Gauge "tidegate_shadow_target_seconds",
        "Targets that it has or derives, by class.",
        "compare the two engines";
    SHADOW_LEFT_OUT = Counter "tidegate_shadow_left_out_total",
        "Requests that the models did not get, because more arrived at once than are kept.",
        "many of them make the comparison worthless";
    SHADOW_CPU_SECONDS = Counter "tidegate_shadow_cpu_seconds_total",
        "CPU time that was spent on configurations beside those in force.",
        "remove `[shadow]` where it costs too much";
}

/// What a metric reads of a class.
type Count = fn(&ShadowClass) -> u64;

/// Counters of one class, by metric.
static COUNTERS: [(&Metric, Count); 3] = [
    (&SHADOW_REQUESTS, |class| class.arrived),
    (&SHADOW_ADMITTED, |class| class.admitted),
    (&SHADOW_IN_TARGET, |class| class.in_target),
];

/// What all shadows cost.
pub(super) fn cost(page: &mut Page, operator: &Operator) {
    page.begin(&SHADOW_CPU_SECONDS)
        .sample(&[], operator.state.shadow_cpu().as_secs_f64());
}

/// The shadow of an application, where it has one.
pub(super) fn metrics(page: &mut Page, application: &Application) {
    let Some(status) = application.shadow() else {
        return;
    };
    let engines = [("modelled", &status.modelled), ("shadow", &status.shadow)];
    let classes: Vec<([(&str, &str); 2], &ShadowClass)> = (engines.iter())
        .flat_map(|(engine, view)| view.classes.iter().map(move |class| (*engine, class)))
        .map(|(engine, class)| ([("class", class.name.as_str()), ("engine", engine)], class))
        .collect();
    for (metric, count) in COUNTERS {
        let mut family = page.begin(metric);
        for (labels, class) in &classes {
            family.sample(labels, count(class) as f64);
        }
    }
    let mut shed = page.begin(&SHADOW_SHED);
    for ([class, engine], counts) in &classes {
        for (reason, count) in &counts.shed {
            shed.sample(&[*class, *engine, ("reason", *reason)], *count as f64);
        }
    }
    let mut windows = page.begin(&SHADOW_WINDOW);
    for (engine, view) in engines {
        for (index, window) in view.windows.iter().enumerate() {
            if let Some(window) = window {
                let replica = index.to_string();
                let labels = [("engine", engine), ("replica", replica.as_str())];
                windows.sample(&labels, f64::from(*window));
            }
        }
    }
    let mut targets = page.begin(&SHADOW_TARGET_SECONDS);
    for (labels, class) in &classes {
        if let Some(target) = class.target_seconds {
            targets.sample(labels, target);
        }
    }
    page.begin(&SHADOW_LEFT_OUT)
        .sample(&[], status.left_out as f64);
}
