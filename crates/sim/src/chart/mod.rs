//! Figures as SVG.
//!
//! A [`Chart`] is plain data: axes and layers. [`svg`] draws one, [`svg_grid`] several side by
//! side. Layout is ours (a legend strip that never covers data, colours that stay apart for
//! colour-blind readers); the axes and marks are drawn by `plotters`.
//!
//! ```
//! use tidegate_sim::chart::{Chart, svg};
//!
//! let chart = Chart::new("Step response")
//!     .x("time (s)")
//!     .y("utilization")
//!     .line("measured", vec![(0.0, 0.0), (1.0, 0.6), (2.0, 0.8)])
//!     .rule_y("reference", 0.8);
//! assert!(svg(&chart).unwrap().contains("Step response"));
//! ```
//!
//! Points that are not finite leave a gap in a line; they never reach the drawing code.

mod draw;
mod layout;
mod scale;

pub use draw::{svg, svg_grid};

use scale::Extent;

/// A point of a figure, in the units of its axes.
pub type Point = (f64, f64);

/// A figure could not be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw `{title}`: {cause}")]
pub struct ChartError {
    title: String,
    cause: String,
}

/// One pair of axes with its layers, drawn in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    layers: Vec<Layer>,
    equal_axes: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Axis {
    label: String,
    range: Option<(f64, f64)>,
    log: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Layer {
    /// Text in the legend; an empty one has no entry.
    label: String,
    ink: Ink,
    mark: Mark,
}

/// What a layer is drawn with: a colour of the palette, or one with a fixed meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    Series(usize),
    /// What the paper has.
    Paper,
    /// References, limits, the unit circle.
    Guide,
}

#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Line(Vec<Point>),
    Steps(Vec<Point>),
    Points(Vec<Point>),
    Crosses(Vec<Point>),
    /// `(x, low, high)`.
    Band(Vec<(f64, f64, f64)>),
    RuleX(f64),
    RuleY(f64),
}

impl Chart {
    /// An empty figure.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// Names the horizontal axis, with its unit.
    #[must_use]
    pub fn x(mut self, label: impl Into<String>) -> Self {
        self.x.label = label.into();
        self
    }

    /// Names the vertical axis, with its unit.
    #[must_use]
    pub fn y(mut self, label: impl Into<String>) -> Self {
        self.y.label = label.into();
        self
    }

    /// Fixes the horizontal range; without it the data decide.
    #[must_use]
    pub fn x_range(mut self, low: f64, high: f64) -> Self {
        self.x.range = Some((low, high));
        self
    }

    /// Fixes the vertical range; without it the data decide.
    #[must_use]
    pub fn y_range(mut self, low: f64, high: f64) -> Self {
        self.y.range = Some((low, high));
        self
    }

    /// Makes the vertical axis logarithmic; points at or below zero are left out.
    #[must_use]
    pub fn y_log(mut self) -> Self {
        self.y.log = true;
        self
    }

    /// A line through `points`.
    #[must_use]
    pub fn line(self, label: impl Into<String>, points: Vec<Point>) -> Self {
        self.series(label, Mark::Line(points))
    }

    /// A value that holds from each point to the next.
    #[must_use]
    pub fn steps(self, label: impl Into<String>, points: Vec<Point>) -> Self {
        self.series(label, Mark::Steps(points))
    }

    /// Dots.
    #[must_use]
    pub fn points(self, label: impl Into<String>, points: Vec<Point>) -> Self {
        self.series(label, Mark::Points(points))
    }

    /// The share of `samples` at or below each value.
    #[must_use]
    pub fn cdf(self, label: impl Into<String>, samples: &[f64]) -> Self {
        self.series(label, Mark::Steps(scale::distribution(samples)))
    }

    /// A confidence band `(x, low, high)` in the colour of the layer added before it.
    #[must_use]
    pub fn band(mut self, bounds: Vec<(f64, f64, f64)>) -> Self {
        let ink = self.layers.last().map_or(Ink::Series(0), |layer| layer.ink);
        let at = self.layers.len().saturating_sub(1);
        let band = Layer {
            label: String::new(),
            ink,
            mark: Mark::Band(bounds),
        };
        self.layers.insert(at, band);
        self
    }

    /// Gives the layer added last the `index`th colour of the palette, from 0: the same thing in
    /// two charts has the same colour.
    #[must_use]
    pub fn coloured(mut self, index: usize) -> Self {
        if let Some(layer) = self.layers.last_mut() {
            layer.ink = Ink::Series(index);
        }
        self
    }

    /// What the paper has, as crosses over our lines.
    #[must_use]
    pub fn paper(self, label: impl Into<String>, points: Vec<Point>) -> Self {
        self.layer(label, Ink::Paper, Mark::Crosses(points))
    }

    /// A dashed vertical line at `x`.
    #[must_use]
    pub fn rule_x(self, label: impl Into<String>, x: f64) -> Self {
        self.layer(label, Ink::Guide, Mark::RuleX(x))
    }

    /// A dashed horizontal line at `y`.
    #[must_use]
    pub fn rule_y(self, label: impl Into<String>, y: f64) -> Self {
        self.layer(label, Ink::Guide, Mark::RuleY(y))
    }

    /// Crosses, the customary mark of a pole.
    #[must_use]
    pub fn poles(self, label: impl Into<String>, points: Vec<Point>) -> Self {
        self.series(label, Mark::Crosses(points))
    }

    /// The border of stability of a discrete-time loop; both axes get the same scale.
    #[must_use]
    pub fn unit_circle(mut self) -> Self {
        const STEPS: u32 = 180;
        let circle = (0..=STEPS).map(|step| {
            let (sin, cos) = (std::f64::consts::TAU * f64::from(step) / f64::from(STEPS)).sin_cos();
            (cos, sin)
        });
        self.equal_axes = true;
        self.layer("unit circle", Ink::Guide, Mark::Line(circle.collect()))
    }

    fn series(self, label: impl Into<String>, mark: Mark) -> Self {
        let ink = Ink::Series(self.inks_used());
        self.layer(label, ink, mark)
    }

    fn layer(mut self, label: impl Into<String>, ink: Ink, mark: Mark) -> Self {
        let label = label.into();
        self.layers.push(Layer { label, ink, mark });
        self
    }

    fn inks_used(&self) -> usize {
        let used = self.layers.iter().filter_map(|layer| match layer.ink {
            Ink::Series(index) => Some(index + 1),
            _ => None,
        });
        used.max().unwrap_or(0)
    }

    /// The ranges of both axes: what was asked for, or what the layers need.
    fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for layer in &self.layers {
            layer.mark.include_in(&mut extent, self.y.log);
        }
        extent.resolve(&self.x, &self.y, self.equal_axes)
    }
}

impl Mark {
    fn include_in(&self, extent: &mut Extent, log: bool) {
        let mut add = |x: f64, y: f64| {
            if !(log && y <= 0.0) {
                extent.add(x, y);
            }
        };
        match self {
            Self::Line(points)
            | Self::Steps(points)
            | Self::Points(points)
            | Self::Crosses(points) => points.iter().for_each(|&(x, y)| add(x, y)),
            Self::Band(bounds) => bounds.iter().for_each(|&(x, low, high)| {
                add(x, low);
                add(x, high);
            }),
            Self::RuleX(x) => add(*x, f64::NAN),
            Self::RuleY(y) => add(f64::NAN, *y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Chart {
        Chart::new("All marks <&>")
            .x("load (requests/s)")
            .y("response time (s)")
            .line(
                "mean",
                vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, 2.0)],
            )
            .band(vec![(0.0, 0.5, 1.5), (2.0, 2.5, 3.5), (3.0, 1.5, 2.5)])
            .steps("limit", vec![(0.0, 1.0), (1.5, 2.0), (3.0, 2.0)])
            .points("samples", vec![(0.5, 0.7), (2.5, 2.2)])
            .cdf("shares", &[0.1, 0.4, 0.4, f64::NAN])
            .paper("paper", vec![(1.0, 1.0)])
            .rule_x("peak", 1.2)
            .rule_y("target", 2.5)
    }

    #[test]
    fn every_mark_is_drawn_and_text_is_escaped() {
        let svg = svg(&everything()).unwrap();
        assert!(svg.starts_with("<svg"));
        assert!(svg.contains("All marks &lt;&amp;&gt;"));
        assert!(svg.contains("response time (s)"));
        for label in [
            "mean", "limit", "samples", "shares", "paper", "peak", "target",
        ] {
            assert!(svg.contains(label), "legend lacks {label}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_chart_is_axes_without_marks() {
        assert!(
            svg(&Chart::new("nothing yet"))
                .unwrap()
                .contains("nothing yet")
        );
    }

    #[test]
    fn a_log_axis_leaves_out_what_has_no_logarithm() {
        let chart = Chart::new("log")
            .y_log()
            .line("l", vec![(0.0, 0.0), (1.0, 1.0), (2.0, 1000.0)]);
        assert_eq!(chart.extent().y, (1.0, 1000.0));
        svg(&chart).unwrap();
    }

    #[test]
    fn a_band_lies_under_its_line_and_shares_its_colour() {
        let chart = everything();
        assert!(matches!(chart.layers[0].mark, Mark::Band(_)));
        assert_eq!(chart.layers[0].ink, chart.layers[1].ink);
        assert_ne!(chart.layers[1].ink, chart.layers[2].ink);
    }

    #[test]
    fn a_root_locus_keeps_the_circle_round() {
        let extent = Chart::new("locus").unit_circle().extent();
        assert_eq!(extent.x.1 - extent.x.0, extent.y.1 - extent.y.0);
    }
}
