//! The configuration that runs beside the one in force.

use super::super::Config;
use super::Report;

pub(super) fn shadow(config: &Config, report: &mut Report) {
    if let Err((key, message)) = config.shadow.config(&config.protect) {
        report.error(key, message);
    } else if let Some(caution) = config.shadow.caution(&config.protect) {
        report.warn("shadow", caution);
    }
}
