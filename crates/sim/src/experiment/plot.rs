//! The figures of an experiment: which series, drawn how.

use std::num::NonZeroUsize;

use serde::Deserialize;
use toml::Spanned;

use super::check::estimate;
use super::record::{Record, smoothed};
use crate::chart::{Chart, Point};

/// One panel of a figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Above the panel.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Name and unit of the vertical axis.
    pub y: String,
    /// Fixed horizontal range.
    pub x_range: Option<(f64, f64)>,
    /// Fixed vertical range.
    pub y_range: Option<(f64, f64)>,
    /// Logarithmic vertical axis.
    #[serde(default)]
    pub y_log: bool,
    /// Draws the unit circle, with both axes to the same scale.
    #[serde(default)]
    pub unit_circle: bool,
    /// Our series, first at the bottom.
    pub layers: Vec<LayerSpec>,
    /// Points that the paper's text gives.
    #[serde(default)]
    pub paper: Vec<PaperPoints>,
    /// References and limits.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// One of our series.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// Name of the run.
    pub run: Spanned<String>,
    /// Name of the series.
    pub series: Spanned<String>,
    /// Text in the legend; the run's label when missing.
    pub label: Option<String>,
    /// How it is drawn.
    #[serde(default)]
    pub draw: Draw,
    /// Moving average of this length in x.
    pub smooth: Option<f64>,
    /// Which colour of the palette, from 1; the next unused one when missing.
    pub colour: Option<NonZeroUsize>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// The mean over the repetitions, with its confidence band.
    #[default]
    Mean,
    /// The first repetition as a line: an example of a realisation.
    Example,
    /// The first repetition as a value that holds until the next one.
    Steps,
    /// The first repetition as dots.
    Dots,
    /// The first repetition as crosses, the mark of a pole.
    Poles,
    /// The distribution of y over all repetitions.
    Cdf,
}

/// Points that the paper's text gives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperPoints {
    /// Text in the legend.
    pub label: String,
    /// Where they are.
    pub points: Vec<Point>,
}

/// A dashed line across the panel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Text in the legend.
    pub label: String,
    /// A vertical line there.
    pub x: Option<f64>,
    /// A horizontal line there.
    pub y: Option<f64>,
}

/// A layer with its data: what is drawn, and what the CSV file has.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Text in the legend.
    pub label: String,
    /// How it is drawn.
    pub draw: Draw,
    /// Which colour, from 1.
    pub colour: Option<NonZeroUsize>,
    /// What is drawn.
    pub points: Vec<Spot>,
}

/// A point with the confidence interval of its y; without one, both ends are y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    /// Where on the horizontal axis.
    pub x: f64,
    /// Where on the vertical axis.
    pub y: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl LayerSpec {
    /// The data of this layer from the records of its run, one per repetition.
    pub(super) fn drawn(&self, run_label: &str, records: &[Record]) -> Drawn {
        let all: Vec<Vec<Point>> = records.iter().map(|record| self.points(record)).collect();
        let points = match self.draw {
            Draw::Mean => mean_of(&all),
            Draw::Cdf => all.concat().into_iter().map(exactly).collect(),
            Draw::Example | Draw::Steps | Draw::Dots | Draw::Poles => {
                let first = all.into_iter().next().unwrap_or_default();
                first.into_iter().map(exactly).collect()
            }
        };
        Drawn {
            label: self.label.clone().unwrap_or_else(|| run_label.to_owned()),
            draw: self.draw,
            colour: self.colour,
            points,
        }
    }

    fn points(&self, record: &Record) -> Vec<Point> {
        let points = record.series(self.series.get_ref());
        match self.smooth {
            Some(window) => smoothed(points, window),
            None => points.to_vec(),
        }
    }
}

fn exactly((x, y): Point) -> Spot {
    Spot {
        x,
        y,
        low: y,
        high: y,
    }
}

/// The mean over the repetitions at each x; repetitions of one run share their x.
fn mean_of(repetitions: &[Vec<Point>]) -> Vec<Spot> {
    let Some(first) = repetitions.first() else {
        return Vec::new();
    };
    let at = |index: usize| {
        repetitions
            .iter()
            .filter_map(move |points| points.get(index))
    };
    first
        .iter()
        .enumerate()
        .map(|(index, &(x, _))| {
            let ys: Vec<f64> = at(index)
                .map(|&(_, y)| y)
                .filter(|y| y.is_finite())
                .collect();
            let mean = estimate(&ys);
            if mean.half_width.is_finite() {
                Spot {
                    x,
                    y: mean.mean,
                    low: mean.mean - mean.half_width,
                    high: mean.mean + mean.half_width,
                }
            } else {
                exactly((x, mean.mean))
            }
        })
        .collect()
}

impl Plot {
    /// The panel with its data.
    pub(super) fn chart(&self, layers: &[Drawn]) -> Chart {
        let mut chart = Chart::new(&self.title).x(&self.x).y(&self.y);
        if let Some((low, high)) = self.x_range {
            chart = chart.x_range(low, high);
        }
        if let Some((low, high)) = self.y_range {
            chart = chart.y_range(low, high);
        }
        if self.y_log {
            chart = chart.y_log();
        }
        if self.unit_circle {
            chart = chart.unit_circle();
        }
        let chart = layers.iter().fold(chart, add_layer);
        let chart = self.rules.iter().fold(chart, add_rule);
        let paper = self.paper.iter();
        paper.fold(chart, |chart, paper| {
            chart.paper(&paper.label, paper.points.clone())
        })
    }
}

fn add_layer(chart: Chart, layer: &Drawn) -> Chart {
    let chart = add_mark(chart, layer);
    let chart = match layer.colour {
        Some(colour) => chart.coloured(colour.get() - 1),
        None => chart,
    };
    let uncertain = layer.points.iter().any(|spot| spot.low < spot.high);
    if uncertain {
        chart.band(bounds(&layer.points))
    } else {
        chart
    }
}

fn add_mark(chart: Chart, layer: &Drawn) -> Chart {
    let points: Vec<Point> = layer.points.iter().map(|spot| (spot.x, spot.y)).collect();
    match layer.draw {
        Draw::Mean | Draw::Example => chart.line(&layer.label, points),
        Draw::Steps => chart.steps(&layer.label, points),
        Draw::Dots => chart.points(&layer.label, points),
        Draw::Poles => chart.poles(&layer.label, points),
        Draw::Cdf => {
            let values: Vec<f64> = points.iter().map(|&(_, y)| y).collect();
            chart.cdf(&layer.label, &values)
        }
    }
}

/// The band of a quantity that is never negative (a rate, a time) does not reach below zero.
fn bounds(points: &[Spot]) -> Vec<(f64, f64, f64)> {
    let negative = points.iter().any(|spot| spot.y < 0.0);
    let floor = if negative { f64::NEG_INFINITY } else { 0.0 };
    let bounds = points
        .iter()
        .map(|spot| (spot.x, spot.low.max(floor), spot.high));
    bounds.collect()
}

fn add_rule(chart: Chart, rule: &Rule) -> Chart {
    match (rule.x, rule.y) {
        (Some(x), _) => chart.rule_x(&rule.label, x),
        (None, Some(y)) => chart.rule_y(&rule.label, y),
        (None, None) => chart,
    }
}
