//! From a [`Chart`] to SVG, through `plotters`.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::layout::{
    AXIS, GRID, LABEL_SIZE, LEGEND_ROW, SWATCH, TEXT, TICK_SIZE, TITLE_SIZE, TITLE_STRIP,
    UNITS_PER_PIXEL, WIDTH, colour, height, legend, legend_height, px,
};
use super::scale::{Extent, tick};
use super::{Chart, ChartError, Layer, Mark, Point};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Axes<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;
type Drawn = Result<(), String>;

/// One chart as an SVG document.
///
/// # Errors
/// When the drawing library refuses, for instance because a range is empty.
pub fn svg(chart: &Chart) -> Result<String, ChartError> {
    svg_grid(std::slice::from_ref(chart), 1)
}

/// Several charts in rows of `columns`, as one SVG document.
///
/// # Errors
/// As [`svg`].
pub fn svg_grid(charts: &[Chart], columns: usize) -> Result<String, ChartError> {
    let columns = columns.clamp(1, charts.len().max(1));
    let rows: Vec<&[Chart]> = charts.chunks(columns).collect();
    let heights: Vec<u32> = rows.iter().map(|row| row_height(row)).collect();
    let size = (WIDTH * columns as u32, heights.iter().sum());

    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let mut top = 0;
        for (row, &row_height) in rows.iter().zip(&heights) {
            for (column, chart) in row.iter().enumerate() {
                let left = WIDTH as usize * column;
                let place = root.clone().shrink((left as u32, top), (WIDTH, row_height));
                draw(chart, &place).map_err(|cause| ChartError {
                    title: chart.title.clone(),
                    cause,
                })?;
            }
            top += row_height;
        }
    }
    Ok(in_pixels(&text, size))
}

fn row_height(row: &[Chart]) -> u32 {
    row.iter().map(height).max().unwrap_or(0)
}

/// States the size in pixels; the `viewBox` that `plotters` writes keeps the finer units.
fn in_pixels(text: &str, (width, height): (u32, u32)) -> String {
    let units = format!("width=\"{width}\" height=\"{height}\"");
    let (width, height) = (width / UNITS_PER_PIXEL, height / UNITS_PER_PIXEL);
    let pixels = format!("width=\"{width}\" height=\"{height}\"");
    text.replacen(&units, &pixels, 1)
}

fn draw(chart: &Chart, area: &Area<'_>) -> Drawn {
    area.fill(&WHITE).map_err(says)?;
    let (title, rest) = area.split_vertically(TITLE_STRIP);
    let entries = legend(chart);
    let (strip, plot) = rest.split_vertically(legend_height(&entries));
    draw_title(chart, &title)?;
    for entry in &entries {
        draw_entry(entry.layer, entry.x, entry.row, &strip)?;
    }
    draw_plot(chart, &plot)
}

fn draw_title(chart: &Chart, area: &Area<'_>) -> Drawn {
    let style = ("sans-serif", TITLE_SIZE, FontStyle::Bold)
        .into_text_style(area)
        .color(&TEXT)
        .pos(Pos::new(HPos::Center, VPos::Center));
    let middle = (WIDTH as i32 / 2, TITLE_STRIP as i32 / 2);
    area.draw_text(&chart.title, &style, middle).map_err(says)
}

fn draw_entry(layer: &Layer, x: u32, row: u32, strip: &Area<'_>) -> Drawn {
    let (x, y) = (x as i32, (row * LEGEND_ROW + LEGEND_ROW / 2) as i32);
    draw_swatch(layer, x, y, strip)?;
    let style = text_style(LABEL_SIZE, strip).pos(Pos::new(HPos::Left, VPos::Center));
    strip
        .draw_text(&layer.label, &style, (x + SWATCH as i32, y))
        .map_err(says)
}

fn draw_swatch(layer: &Layer, x: i32, y: i32, strip: &Area<'_>) -> Drawn {
    let ink = colour(layer.ink);
    let (left, right) = (x, x + (SWATCH - px(8)) as i32);
    let middle = (x + right) / 2;
    match layer.mark {
        Mark::Points(_) => strip.draw(&Circle::new((middle, y), px(4), ink.filled())),
        Mark::Crosses(_) => strip.draw(&Cross::new((middle, y), px(5), ink.stroke_width(px(2)))),
        Mark::RuleX(_) | Mark::RuleY(_) => strip.draw(&DashedPathElement::new(
            [(left, y), (right, y)],
            px(5),
            px(4),
            ink.stroke_width(px(1)),
        )),
        Mark::Line(_) | Mark::Steps(_) | Mark::Band(_) => {
            let line = vec![(left, y), (right, y)];
            strip.draw(&PathElement::new(line, ink.stroke_width(px(3))))
        }
    }
    .map_err(says)
}

fn draw_plot(chart: &Chart, area: &Area<'_>) -> Drawn {
    let extent = chart.extent();
    let (x, y) = (extent.x.0..extent.x.1, extent.y.0..extent.y.1);
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_right(px(24))
        .margin_top(px(6))
        .margin_bottom(px(8))
        .margin_left(px(8))
        .x_label_area_size(px(44))
        .y_label_area_size(px(60));
    if chart.y.log {
        let axes = builder.build_cartesian_2d(x, y.log_scale()).map_err(says)?;
        draw_layers(chart, axes, &extent)
    } else {
        let axes = builder.build_cartesian_2d(x, y).map_err(says)?;
        draw_layers(chart, axes, &extent)
    }
}

fn draw_layers<Y>(chart: &Chart, mut axes: Axes<'_, '_, Y>, extent: &Extent) -> Drawn
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    draw_mesh(chart, &mut axes)?;
    let shown = Shown {
        extent,
        log: chart.y.log,
    };
    for layer in &chart.layers {
        draw_layer(layer, &mut axes, &shown)?;
    }
    Ok(())
}

fn draw_mesh<Y>(chart: &Chart, axes: &mut Axes<'_, '_, Y>) -> Drawn
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let tick_style = ("sans-serif", TICK_SIZE).into_font().color(&TEXT);
    let label_style = ("sans-serif", LABEL_SIZE).into_font().color(&TEXT);
    axes.configure_mesh()
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
        .x_labels(10)
        .y_labels(8)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(px(1)))
        .axis_style(AXIS.stroke_width(px(1)))
        .set_all_tick_mark_size(px(4))
        .label_style(tick_style)
        .axis_desc_style(label_style)
        .draw()
        .map_err(says)
}

/// What of a layer lies inside the axes.
struct Shown<'a> {
    extent: &'a Extent,
    log: bool,
}

impl Shown<'_> {
    fn drawable(&self, (x, y): Point) -> bool {
        x.is_finite() && y.is_finite() && !(self.log && y <= 0.0)
    }

    /// Keeps a corner of a band that leaves the range on its border.
    fn clamp(&self, (x, y): Point) -> Point {
        let Extent {
            x: (x0, x1),
            y: (y0, y1),
        } = *self.extent;
        (x.clamp(x0, x1), y.clamp(y0, y1))
    }

    fn inside(&self, point: Point) -> bool {
        self.drawable(point) && self.clamp(point) == point
    }

    /// The connected parts of a line inside the axes: a gap where a value is missing, a cut where
    /// it leaves the range.
    fn pieces(&self, points: &[Point]) -> Vec<Vec<Point>> {
        let mut pieces: Vec<Vec<Point>> = Vec::new();
        for pair in points.windows(2) {
            if !(self.drawable(pair[0]) && self.drawable(pair[1])) {
                continue;
            }
            let Some((from, to)) = self.extent.clip(pair[0], pair[1], self.log) else {
                continue;
            };
            match pieces.last_mut() {
                Some(piece) if piece.last() == Some(&from) => piece.push(to),
                _ => pieces.push(vec![from, to]),
            }
        }
        pieces
    }
}

fn draw_layer<Y>(layer: &Layer, axes: &mut Axes<'_, '_, Y>, shown: &Shown<'_>) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    let ink = colour(layer.ink);
    match &layer.mark {
        Mark::Line(points) => draw_line(points, ink, axes, shown),
        Mark::Steps(points) => draw_line(&stairs(points), ink, axes, shown),
        Mark::Points(points) => {
            let dots = points.iter().filter(|&&point| shown.inside(point));
            let dots = dots.map(|&point| Circle::new(point, px(3), ink.filled()));
            axes.draw_series(dots).map(drop).map_err(says)
        }
        Mark::Crosses(points) => {
            let crosses = points.iter().filter(|&&point| shown.inside(point));
            let crosses = crosses.map(|&point| Cross::new(point, px(5), ink.stroke_width(px(2))));
            axes.draw_series(crosses).map(drop).map_err(says)
        }
        Mark::Band(bounds) => draw_band(bounds, ink, axes, shown),
        Mark::RuleX(x) => {
            let (low, high) = shown.extent.y;
            draw_rule([(*x, low), (*x, high)], ink, axes, shown)
        }
        Mark::RuleY(y) => {
            let (low, high) = shown.extent.x;
            draw_rule([(low, *y), (high, *y)], ink, axes, shown)
        }
    }
}

fn draw_line<Y>(
    points: &[Point],
    ink: RGBColor,
    axes: &mut Axes<'_, '_, Y>,
    shown: &Shown<'_>,
) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    let pieces = shown.pieces(points).into_iter();
    let lines = pieces.map(|piece| PathElement::new(piece, ink.stroke_width(px(2))));
    axes.draw_series(lines).map(drop).map_err(says)
}

/// The corners of a value that holds from each point to the next.
fn stairs(points: &[Point]) -> Vec<Point> {
    let corners = points
        .windows(2)
        .flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(points.last().copied()).collect()
}

fn draw_band<Y>(
    bounds: &[(f64, f64, f64)],
    ink: RGBColor,
    axes: &mut Axes<'_, '_, Y>,
    shown: &Shown<'_>,
) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    let bounds: Vec<_> = bounds
        .iter()
        .filter(|&&(x, low, high)| shown.drawable((x, low)) && shown.drawable((x, high)))
        .collect();
    let there = bounds.iter().map(|&&(x, low, _)| shown.clamp((x, low)));
    let back = bounds
        .iter()
        .rev()
        .map(|&&(x, _, high)| shown.clamp((x, high)));
    let outline: Vec<Point> = there.chain(back).collect();
    if outline.is_empty() {
        return Ok(());
    }
    axes.draw_series([Polygon::new(outline, ink.mix(0.18))])
        .map(drop)
        .map_err(says)
}

fn draw_rule<Y>(
    ends: [Point; 2],
    ink: RGBColor,
    axes: &mut Axes<'_, '_, Y>,
    shown: &Shown<'_>,
) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    if !ends.iter().all(|&end| shown.inside(end)) {
        return Ok(());
    }
    let rule = DashedPathElement::new(ends, px(6), px(5), ink.stroke_width(px(1)));
    axes.draw_series([rule]).map(drop).map_err(says)
}

fn text_style<'a>(size: u32, area: &Area<'_>) -> TextStyle<'a> {
    ("sans-serif", size).into_text_style(area).color(&TEXT)
}

fn says(error: impl std::fmt::Display) -> String {
    error.to_string()
}
