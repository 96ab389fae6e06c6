use tidegate_config::Share;

use super::*;
use crate::my_service::ClassOfService;

fn question(kill: u32) -> Question {
    let service = MyService {
        duration: Duration::from_secs(80).into(),
        workers: 8,
        ..MyService::default()
    };
    Question {
        service,
        replicas: vec![1, 2, 3],
        growth: 2.0,
        kill,
        seed: 1,
    }
}

/// One replica does 320/s, and 400/s are asked for.
#[test]
fn replicas_needed_are_those_whose_capacity_is_above_the_rate() {
    let question = question(1);
    let rows = plan(&question).unwrap();
    let [one, two, three] = &rows[..] else {
        panic!("three rows")
    };
    assert!(one.kept_per_second < 320.0 && one.headroom < 0.0, "{one:?}");
    assert!(two.in_target > ENOUGH && two.headroom > 0.2, "{two:?}");
    assert!(
        (two.revenue_per_second - two.goodput_per_second).abs() < 1e-6,
        "{two:?}"
    );
    assert!(two.in_target_after_kill.unwrap() < 0.85, "{two:?}");
    assert!(three.in_target_after_kill.unwrap() > 0.97, "{three:?}");
    let words = in_words(&question.asked(), &rows);
    assert!(
        words.starts_with("2 replicas keep 99 % within 500 ms up to"),
        "{words}"
    );
    assert!(words.contains("With 1 lost, 1 replica keeps"), "{words}");
}

#[test]
fn too_few_replicas_are_said_to_be_too_few() {
    let mut question = question(0);
    question.replicas = vec![1];
    let rows = plan(&question).unwrap();
    let words = in_words(&question.asked(), &rows);
    assert!(
        words.starts_with("No number of replicas up to 1"),
        "{words}"
    );
}

#[test]
fn words_name_the_classes_that_a_loss_leaves() {
    let mut question = question(1);
    let class = |name: &str, share, revenue| ClassOfService {
        name: name.to_owned(),
        share: Share(share),
        revenue,
    };
    question.service.class = vec![class("gold", 0.3, 5.0), class("free", 0.7, 1.0)];
    question.replicas = vec![2];
    let mut rows = plan(&question).unwrap();
    let [gold, free] = &rows[0].classes_after_kill[..] else {
        panic!("two classes: {rows:?}")
    };
    assert!(
        gold.in_target > 0.95 && free.in_target < 0.9,
        "{gold:?} {free:?}"
    );
    // Mean worth of a request: 0.3 * 5 + 0.7.
    let worth = rows[0].revenue_per_second / rows[0].goodput_per_second;
    assert!((worth - 2.2).abs() < 0.1, "{worth}");
    let shares = |gold: f64, free: f64| {
        let share = |class: &str, in_target| ClassShare {
            class: class.to_owned(),
            in_target,
        };
        vec![share("gold", gold), share("free", free)]
    };
    for (gold, free, expected) in [
        (0.998, 0.61, "target: gold (100 %), not free (61 %)."),
        (
            0.9,
            0.2,
            "target: no class whole, gold (90 %) and free (20 %).",
        ),
    ] {
        rows[0].classes_after_kill = shares(gold, free);
        let words = in_words(&question.asked(), &rows);
        assert!(words.contains(expected), "{words}");
    }
}
