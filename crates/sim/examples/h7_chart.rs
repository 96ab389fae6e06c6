//! scratch
use tidegate_sim::chart::*;
fn main() {
    let c1 = Chart::new("Step response of the utilization loop")
        .x("time (s)")
        .y("utilization")
        .line(
            "{20, 2.8}, M/M/1",
            (0..60)
                .map(|i| (i as f64, 0.8 + 0.1 * ((i as f64) * 0.5).sin()))
                .collect(),
        )
        .band(
            (0..60)
                .map(|i| {
                    (
                        i as f64,
                        0.7 + 0.1 * ((i as f64) * 0.5).sin(),
                        0.9 + 0.1 * ((i as f64) * 0.5).sin(),
                    )
                })
                .collect(),
        )
        .steps(
            "{20, 0.1}, M/D/1",
            (0..60)
                .map(|i| (i as f64, if i % 7 < 3 { 1.0 } else { 0.2 }))
                .collect(),
        )
        .points("samples", vec![(3., 0.5), (9., 0.4)])
        .paper("paper (text)", vec![(20., 0.8)])
        .rule_y("reference", 0.8);
    let c2 = Chart::new("Root locus")
        .x("Re z")
        .y("Im z")
        .unit_circle()
        .line("branch 1", vec![(1., 0.), (0.7, 0.3), (0.3, 0.5)])
        .line("branch 2", vec![(1., 0.), (0.7, -0.3), (0.3, -0.5)])
        .poles("K = 20", vec![(0.745, 0.342), (0.745, -0.342)]);
    let c3 = Chart::new("CDF")
        .x("utilization")
        .y("share of intervals")
        .cdf(
            "a",
            &(0..1000)
                .map(|i| (i as f64 * 0.37).sin())
                .collect::<Vec<_>>(),
        );
    let c4 = Chart::new("Log")
        .x("load")
        .y("response time (s)")
        .y_log()
        .line(
            "a",
            (1..100)
                .map(|i| (i as f64, 1.0 / (101.0 - i as f64) * 100.))
                .collect(),
        );
    print!("{}", svg_grid(&[c1, c2, c3, c4], 2).unwrap());
}
