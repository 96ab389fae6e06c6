//! A short pass: the repository's own vectors and some mutations of them.

use tidegate_hostile::report::Report;
use tidegate_hostile::run::{Subject, run};
use tidegate_hostile::vector::Vector;
use tidegate_hostile::{downgrade, mutate, vector};

fn with_mutations(count: usize) -> Vec<Vector> {
    let mut vectors = vector::own();
    let mutated: Vec<_> = mutate::mutations(&vectors, 7).take(count).collect();
    vectors.extend(mutated);
    vectors.extend(downgrade::vectors());
    vectors
}

async fn report(subject: Subject, vectors: Vec<Vector>) -> Report {
    run(subject, vectors.into_iter())
        .await
        .expect("the proxy starts")
}

#[tokio::test]
async fn only_canonical_bytes_reach_the_upstream() {
    let report = report(Subject::Tidegate, with_mutations(2000)).await;
    assert!(report.is_clean(), "{report}\n{}", report.examples());
    let sound = report.class("sound");
    assert_eq!(sound.arrived, sound.vectors, "sound requests arrive");
}

#[tokio::test]
async fn the_judge_sees_a_careless_proxy() {
    let report = report(Subject::Careless, with_mutations(500)).await;
    let sound = report.class("sound");
    let total = report.total();
    let hostile = vector::own().len() - sound.vectors;
    let own = vector::own()
        .iter()
        .map(|v| v.class.to_string())
        .collect::<std::collections::BTreeSet<_>>();
    let seen: usize = own
        .iter()
        .filter(|class| *class != "sound")
        .map(|class| report.class(class).breached)
        .sum();
    assert!(seen * 10 >= hostile * 9, "{seen} of {hostile}\n{report}");
    assert!(total.breached >= seen, "{report}");
}
