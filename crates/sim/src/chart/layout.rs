//! Where things go in a figure: title, legend strip, plot area; and the colours.

use plotters::style::RGBColor;

use super::{Chart, Ink, Layer};

/// `plotters` rounds coordinates to whole units, so one pixel of a figure is several of them.
pub(super) const UNITS_PER_PIXEL: u32 = 4;

/// Pixels in the units that `plotters` draws in.
pub(super) const fn px(pixels: u32) -> u32 {
    pixels * UNITS_PER_PIXEL
}

pub(super) const WIDTH: u32 = px(620);
/// Height without the legend.
const HEIGHT: u32 = px(380);
/// A root locus is square, so that the unit circle is one.
const SQUARE_HEIGHT: u32 = px(600);

pub(super) const TITLE_SIZE: u32 = px(18);
pub(super) const LABEL_SIZE: u32 = px(15);
pub(super) const TICK_SIZE: u32 = px(14);
pub(super) const TITLE_STRIP: u32 = px(34);
pub(super) const LEGEND_ROW: u32 = px(20);
/// Room for the sample of ink before a legend's text.
pub(super) const SWATCH: u32 = px(28);
const LEGEND_LEFT: u32 = px(68);
const ENTRY_GAP: u32 = px(16);

pub(super) const TEXT: RGBColor = RGBColor(0x2b, 0x2f, 0x36);
pub(super) const GRID: RGBColor = RGBColor(0xe8, 0xea, 0xee);
pub(super) const AXIS: RGBColor = RGBColor(0x9a, 0xa1, 0xab);
const PAPER: RGBColor = RGBColor(0x11, 0x11, 0x11);
const GUIDE: RGBColor = RGBColor(0x7a, 0x82, 0x8e);

/// Okabe and Ito's palette, ordered by contrast on white: apart for colour-blind readers. Five
/// more for figures with many lines; from the thirteenth on colours repeat.
const PALETTE: [RGBColor; 12] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xb0, 0x5a, 0x91),
    RGBColor(0xe0, 0x9a, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x5c, 0x4b, 0x8a),
    RGBColor(0x8c, 0x6d, 0x31),
    RGBColor(0xb2, 0x18, 0x2b),
    RGBColor(0x66, 0x8d, 0x1c),
    RGBColor(0x0b, 0x5f, 0x6b),
    RGBColor(0xe3, 0x77, 0xc2),
];

pub(super) fn colour(ink: Ink) -> RGBColor {
    match ink {
        Ink::Series(index) => PALETTE[index % PALETTE.len()],
        Ink::Paper => PAPER,
        Ink::Guide => GUIDE,
    }
}

/// A legend entry: its layer, and the place of its swatch from the top left of the strip.
pub(super) struct Entry<'a> {
    pub(super) layer: &'a Layer,
    pub(super) x: u32,
    pub(super) row: u32,
}

/// Places the labelled layers in rows, left to right.
pub(super) fn legend(chart: &Chart) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let (mut x, mut row) = (LEGEND_LEFT, 0);
    for layer in chart.layers.iter().filter(|layer| !layer.label.is_empty()) {
        let width = SWATCH + text_width(&layer.label) + ENTRY_GAP;
        if x > LEGEND_LEFT && x + width > WIDTH {
            x = LEGEND_LEFT;
            row += 1;
        }
        entries.push(Entry { layer, x, row });
        x += width;
    }
    entries
}

pub(super) fn legend_height(entries: &[Entry<'_>]) -> u32 {
    entries
        .last()
        .map_or(0, |entry| (entry.row + 1) * LEGEND_ROW)
}

pub(super) fn height(chart: &Chart) -> u32 {
    let plot = if chart.equal_axes {
        SQUARE_HEIGHT
    } else {
        HEIGHT
    };
    plot + legend_height(&legend(chart))
}

/// `plotters` sets letters smaller than asked (by 1.24), and sans-serif ones are about 0.6 wide.
fn text_width(text: &str) -> u32 {
    text.chars().count() as u32 * LABEL_SIZE * 48 / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_colours_of_their_own() {
        let series = 0..PALETTE.len();
        let mut colours: Vec<RGBColor> = series.map(|i| colour(Ink::Series(i))).collect();
        colours.sort_by_key(|c| (c.0, c.1, c.2));
        colours.dedup();
        assert_eq!(colours.len(), PALETTE.len());
    }

    #[test]
    fn a_long_legend_wraps() {
        let label = "a label of some forty characters or so..";
        let chart = Chart::new("t")
            .line(label, vec![])
            .line("", vec![])
            .line(label, vec![])
            .line(label, vec![]);
        let entries = legend(&chart);
        assert_eq!(entries.iter().map(|e| e.row).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(legend_height(&entries), 3 * LEGEND_ROW);
    }
}
