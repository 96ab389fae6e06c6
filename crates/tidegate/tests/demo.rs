//! `tidegate demo` as a newcomer runs it.

use std::process::Command;

use serde_json::Value;

fn demo(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--quick"])
        .args(flags)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// What is asserted holds on a busy machine too: the unprotected side collapses by arithmetic,
/// not by timing.
#[test]
fn the_protected_side_serves_more_and_wastes_less() {
    let summary: Value = serde_json::from_str(&demo(&["--json"])).expect("one JSON object");
    let number = |side: &str, key: &str| summary[side][key].as_f64().expect(key);
    assert_eq!(number("with", "requests"), number("without", "requests"));
    assert!(number("with", "served_in_time") > 1.5 * number("without", "served_in_time"));
    assert!(number("without", "wasted_share") > 0.4, "{summary}");
    assert!(number("with", "wasted_share") < 0.2, "{summary}");
    assert!(number("with", "shed") > 0.0, "{summary}");
    assert_eq!(number("without", "shed"), 0.0);
    assert!(summary["without"]["recovery_s"].is_null(), "{summary}");
}

#[test]
fn without_a_terminal_the_story_is_told_in_lines() {
    let story = demo(&[]);
    for words in [
        "A calm day.",
        "Overload: up to four times",
        "Half of the capacity is lost.",
        "The overload has ended",
        "served in time",
        "back to normal after the rush",
    ] {
        assert!(story.contains(words), "`{words}` in:\n{story}");
    }
    assert!(!story.contains('\x1b'), "no control sequences:\n{story}");
}
