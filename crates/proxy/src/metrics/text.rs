//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use super::family::{Family, Number, Sample, Value, write_labels};
use super::histogram::Snapshot;

/// A page in this format.
pub(super) fn write(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let metric = family.metric;
        let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {} {help}", metric.name);
        let _ = writeln!(out, "# TYPE {} {}", metric.name, metric.kind.as_str());
        for sample in &family.samples {
            write_sample(&mut out, metric.name, sample);
        }
    }
    out
}

fn write_sample(out: &mut String, name: &str, sample: &Sample) {
    match &sample.value {
        Value::Number(value, _) => line(out, name, "", sample, None, *value),
        Value::Times(times, _) => write_times(out, name, sample, times),
    }
}

fn write_times(out: &mut String, name: &str, sample: &Sample, times: &Snapshot) {
    for (edge, below) in times.cumulative() {
        let edge = edge.to_string();
        line(out, name, "_bucket", sample, Some(&edge), below as f64);
    }
    let count = times.count() as f64;
    line(out, name, "_bucket", sample, Some("+Inf"), count);
    line(out, name, "_sum", sample, None, times.sum_seconds());
    line(out, name, "_count", sample, None, count);
}

fn line(out: &mut String, name: &str, suffix: &str, sample: &Sample, le: Option<&str>, value: f64) {
    out.push_str(name);
    out.push_str(suffix);
    write_labels(out, &sample.labels, le.map(|le| ("le", le)));
    let _ = writeln!(out, " {}", Number(value));
}

#[cfg(test)]
mod tests {
    use crate::metrics::family::{Page, metrics};

    use super::*;

    metrics! { ALL:
        LIMIT = Gauge "limit", "Slots\nof a \\ replica.", "";
    }

    #[test]
    fn a_family_is_written_as_the_format_asks() {
        assert_eq!(ALL, [&LIMIT]);
        let mut page = Page::default();
        page.begin(&LIMIT)
            .sample(&[("replica", "a\"b")], 2.5)
            .sample(&[], f64::INFINITY);
        assert_eq!(
            write(&page.finish()),
            "# HELP limit Slots\\nof a \\\\ replica.\n# TYPE limit gauge\n\
             limit{replica=\"a\\\"b\"} 2.5\nlimit +Inf\n"
        );
    }
}
