//! What works and is probably not meant: targets that a timeout cuts off, guarantees beyond what is
//! admitted, worth against importance.

use super::super::Config;
use super::Report;

pub(super) fn protect(config: &Config, report: &mut Report) {
    targets(config, report);
    path_timeouts(config, report);
    guarantees(config, report);
    revenues(config, report);
}

/// An answer after `timeouts.request` is a 504, so a longer target is never used up.
fn targets(config: &Config, report: &mut Report) {
    let request = config.timeouts.request;
    let classes = config.protect.classes.iter().enumerate();
    let classes = classes.map(|(at, class)| (format!("protect.classes.{at}.target"), class.target));
    let all = std::iter::once(("protect.target".to_owned(), config.protect.target)).chain(classes);
    for (path, target) in all {
        let Some(target) = target.filter(|target| *target > request) else {
            continue;
        };
        let message = format!(
            "a request is answered with 504 after `timeouts.request` ({request}), before this target \
             ({target}) is over; shorten the target or raise `timeouts.request`"
        );
        report.warn(path, message);
    }
}

/// The same for paths with a timeout of their own: shorter than every target, it cuts all of them
/// off.
fn path_timeouts(config: &Config, report: &mut Report) {
    let of_classes = config.protect.classes.iter().map(|class| class.target);
    let targets = of_classes.chain([config.protect.target]).flatten();
    let Some(target) = targets.min() else {
        return;
    };
    for (at, rule) in config.edge.paths.iter().enumerate() {
        let Some(timeout) = rule.timeout.filter(|&timeout| timeout < target) else {
            continue;
        };
        let message = format!(
            "a request for {} is answered with 504 after {timeout}, before its target ({target}) is \
             over; raise this timeout, or shorten the target",
            rule.path
        );
        report.warn(format_args!("edge.paths.{at}.timeout"), message);
    }
}

/// Guarantees are admitted first. Where the capacity is configured they can be held against it.
fn guarantees(config: &Config, report: &mut Report) {
    let promised = config
        .protect
        .classes
        .iter()
        .filter_map(|class| class.guarantee);
    let promised: f64 = promised.map(|rate| *rate).sum();
    let Some(capacity) = capacity(config).filter(|&capacity| promised > capacity) else {
        return;
    };
    let message = format!(
        "the guarantees add up to {promised}/s, and [protect.static] admits {capacity}/s: they cannot \
         all be kept; lower them, or raise what is admitted"
    );
    report.warn("protect.classes", message);
}

/// Requests per second that utilization over service time admits; a rate is checked by the engine.
fn capacity(config: &Config) -> Option<f64> {
    let fixed = &config.protect.fixed;
    let is_static = config.protect.mode.as_str() == "static";
    let rate = || Some(*fixed.setpoint? / fixed.service_time?.as_secs_f64());
    is_static.then(rate).flatten()
}

/// Classes are listed from the most important on, and the least important are shed first.
fn revenues(config: &Config, report: &mut Report) {
    let classes = &config.protect.classes;
    for (index, pair) in classes.windows(2).enumerate() {
        let [more, less] = pair else { continue };
        if less.revenue <= more.revenue {
            continue;
        }
        let message = format!(
            "class `{}` is worth more ({}) than the more important class `{}` ({}) and is shed before \
             it; list it first, or change `revenue`",
            less.name, less.revenue, more.name, more.revenue
        );
        report.warn(
            format_args!("protect.classes.{}.revenue", index + 1),
            message,
        );
    }
}
