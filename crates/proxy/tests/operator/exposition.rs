//! A strict reader of the Prometheus text format 0.0.4.

use std::collections::{BTreeMap, HashMap};

/// All samples by their series, after checking the page line by line.
pub(crate) fn parse(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n'), "the last line must end");
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut helped = "";
    let mut family = "";
    let mut samples = BTreeMap::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split(' ').next().unwrap();
            assert!(help.len() > helped.len() + 1, "help is empty: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "help comes right before the type");
            assert!(is_name(name), "{name}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(types.insert(name, kind).is_none(), "{name} is there twice");
            family = name;
        } else {
            let (series, value) = sample(line);
            let name = series.split('{').next().unwrap();
            let suffixes: &[&str] = match types[family] {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let belongs = suffixes.iter().any(|s| name == format!("{family}{s}"));
            assert!(belongs, "{line} is not of {family}");
            let twice = samples.insert(series.to_owned(), value).is_some();
            assert!(!twice, "{series} is there twice");
        }
    }
    for (name, _) in types.iter().filter(|(_, kind)| **kind == "histogram") {
        check_histogram(page, name);
    }
    samples
}

fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> (&str, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let number = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        value => value.parse().unwrap_or_else(|_| panic!("{line}")),
    };
    let Some((name, labels)) = series.split_once('{') else {
        assert!(is_name(series), "{line}");
        return (series, number);
    };
    assert!(is_name(name), "{line}");
    check_labels(labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")));
    (series, number)
}

/// `name="value",name="value"`, with `\\`, `\"` and `\n` escaped.
fn check_labels(mut rest: &str) {
    loop {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{rest}"));
        assert!(is_name(name), "{name}");
        let mut escaped = false;
        let end = value.find(|c: char| {
            let ends = c == '"' && !escaped;
            assert!(!escaped || ['\\', '"', 'n'].contains(&c), "{value}");
            escaped = c == '\\' && !escaped;
            ends
        });
        let after = &value[end.unwrap_or_else(|| panic!("{value}")) + 1..];
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return assert_eq!(after, ""),
        }
    }
}

/// Buckets rise in edge and count, end with +Inf, and that is the count.
fn check_histogram(page: &str, name: &str) {
    let prefix = format!("{name}_bucket{{");
    let mut last: HashMap<String, (f64, f64)> = HashMap::new();
    for line in page.lines().filter(|line| line.starts_with(&prefix)) {
        let (series, count) = sample(line);
        let (others, le) = series.split_once("le=\"").unwrap();
        let le = match le.trim_end_matches("\"}") {
            "+Inf" => f64::INFINITY,
            le => le.parse().unwrap(),
        };
        let labels = others[prefix.len()..].trim_end_matches(',').to_owned();
        if let Some((edge, below)) = last.insert(labels, (le, count)) {
            assert!(edge < le && below <= count, "{line}");
        }
    }
    for (labels, (edge, count)) in last {
        assert_eq!(edge, f64::INFINITY);
        let braced = if labels.is_empty() {
            labels
        } else {
            format!("{{{labels}}}")
        };
        let line = format!("{name}_count{braced} {count}");
        assert!(page.lines().any(|found| found == line), "{line}");
        assert!(page.contains(&format!("\n{name}_sum{braced} ")));
    }
}
