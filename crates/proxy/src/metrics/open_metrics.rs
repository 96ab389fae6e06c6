//! OpenMetrics 1.0.0: the text format with exemplars.
//!
//! It differs from the older one in a few places: a counter's family has its name without `_total`,
//! an edge is a number with a point, and the page ends with `# EOF`.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use super::exemplar::Exemplar;
use super::family::{Escaped, Family, Number, Sample, Value, write_labels};
use super::histogram::Snapshot;

/// A page in this format.
pub(super) fn write(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let metric = family.metric;
        let stem = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        // A gauge may have the name that a counter has without its ending; then that is no family.
        let clashes = stem != metric.name && families.iter().any(|it| it.metric.name == stem);
        let (name, kind) = if clashes {
            (metric.name, "unknown")
        } else {
            (stem, metric.kind.as_str())
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# TYPE {name} {kind}");
        let _ = writeln!(out, "# HELP {name} {}", Escaped(metric.help));
        for sample in &family.samples {
            match &sample.value {
                Value::Number(value, exemplar) => {
                    line(
                        &mut out,
                        metric.name,
                        sample,
                        None,
                        *value,
                        exemplar.as_ref(),
                    );
                }
                Value::Times(times, exemplars) => {
                    write_times(&mut out, name, sample, times, exemplars);
                }
            }
        }
    }
    out.push_str("# EOF\n");
    out
}

fn write_times(
    out: &mut String,
    name: &str,
    sample: &Sample,
    times: &Snapshot,
    exemplars: &[(usize, Exemplar)],
) {
    let of = |place: usize| {
        let mut found = exemplars.iter().filter(|(at, _)| *at == place);
        found.next().map(|(_, exemplar)| exemplar)
    };
    let bucket = format!("{name}_bucket");
    let mut edges = 0;
    for (place, (edge, below)) in times.cumulative().enumerate() {
        edges = place + 1;
        let le = format!("{edge:?}");
        line(out, &bucket, sample, Some(&le), below as f64, of(place));
    }
    let count = times.count() as f64;
    line(out, &bucket, sample, Some("+Inf"), count, of(edges));
    let sum = times.sum_seconds();
    line(out, &format!("{name}_sum"), sample, None, sum, None);
    line(out, &format!("{name}_count"), sample, None, count, None);
}

fn line(
    out: &mut String,
    name: &str,
    sample: &Sample,
    le: Option<&str>,
    value: f64,
    exemplar: Option<&Exemplar>,
) {
    out.push_str(name);
    write_labels(out, &sample.labels, le.map(|le| ("le", le)));
    let _ = write!(out, " {}", Number(value));
    if let Some(it) = exemplar {
        let at = it.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let _ = write!(
            out,
            " # {{trace_id=\"{}\",span_id=\"{}\"}} {} {:.3}",
            it.trace,
            it.span,
            Number(it.value),
            at.as_secs_f64()
        );
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_sentry::ClassId;

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::family::{Page, metrics};
    use crate::trace::{SpanId, TraceId};

    metrics! { ALL:
        SHED = Counter "shed_total", "Requests \"shed\".", "";
        TIMES = Histogram "seconds", "Times.", "";
    }

    #[test]
    fn page_has_exemplars_in_their_buckets() {
        let exemplar = Exemplar {
            trace: TraceId::new(0xabc).unwrap(),
            span: SpanId::new(7).unwrap(),
            value: 0.9,
            at: UNIX_EPOCH + Duration::from_millis(1500),
        };
        let metrics = Metrics::new(1);
        let core = metrics.core(0);
        core.record_waiting(ClassId(0), Duration::from_millis(900));
        core.record_response_exemplar(ClassId(0), exemplar);
        let totals = metrics.totals();
        let mut page = Page::default();
        page.begin(&SHED)
            .exemplified(&[("class", "a")], 2.0, Some(exemplar));
        let class = &totals.classes[0];
        page.begin(&TIMES)
            .responses(&[], &class.waiting, &class.exemplars);
        let text = write(&page.finish());
        let id = "trace_id=\"00000000000000000000000000000abc\",span_id=\"0000000000000007\"";
        let begin = "# TYPE shed counter\n# HELP shed Requests \\\"shed\\\".\n";
        let line = format!("shed_total{{class=\"a\"}} 2 # {{{id}}} 0.9 1.500\n");
        assert!(text.starts_with(&format!("{begin}{line}")), "{text}");
        let bucket = format!("seconds_bucket{{le=\"1.0\"}} 1 # {{{id}}} 0.9 1.500\n");
        assert!(text.contains(&bucket), "{text}");
        assert!(text.contains("seconds_bucket{le=\"64.0\"} 1\n"), "{text}");
        assert!(text.ends_with("seconds_count 1\n# EOF\n"), "{text}");
        assert_eq!(text.matches(" # {").count(), 2);
        assert_eq!(ALL.len(), 2);
    }
}
