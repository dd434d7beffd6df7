//! Plots as SVG files. This program draws them itself, so that a report needs no other program.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Colours that can be told apart on white, by people who see no red or no green too.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 130, 95),
    RGBColor(140, 60, 140),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// The size of a plot, in pixels.
const SIZE: (u32, u32) = (640, 400);

/// A line through points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The scale of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// By equal steps.
    Linear,
    /// By equal factors.
    Logarithmic,
}

/// One plot with its axes and lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The name of its file, without `.svg`.
    pub file: String,
    /// The title above the plot.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: &'static str,
    /// The label of the vertical axis, with its unit. The axis begins at zero, so that heights can be compared.
    pub y: &'static str,
    /// The scale of the horizontal axis.
    pub axis: Axis,
    /// The lines of the plot.
    pub series: Vec<Series>,
}

impl Plot {
    /// Writes the plot into a folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let mut text = String::new();
        let drawn = match (self.range(|point| point.0), self.axis) {
            (Some((low, high)), Axis::Linear) => self.draw(from(low, high)..high, &mut text),
            (Some((low, high)), Axis::Logarithmic) => self.draw((low..high).log_scale(), &mut text),
            (None, _) => Ok(()),
        };
        drawn.map_err(|error| anyhow!("cannot draw {}: {error}", self.file))?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("{}.svg", self.file));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The least and the greatest value; `None` without points.
    fn range(&self, of: impl Fn(&(f64, f64)) -> f64) -> Option<(f64, f64)> {
        let values = || self.series.iter().flat_map(|series| &series.points).map(&of);
        let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        // A range has some length.
        Some((low, if high > low { high } else { low + 1.0 }))
    }

    fn draw<X>(&self, x: X, text: &mut String) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let top = self.range(|point| point.1).map_or(1.0, |(_, high)| high) * 1.08;
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(&area);
        builder.caption(&self.title, ("sans-serif", 18)).margin(12).x_label_area_size(44).y_label_area_size(64);
        let mut chart = builder.build_cartesian_2d(x, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x).y_desc(self.y).light_line_style(WHITE).label_style(("sans-serif", 13));
        mesh.x_label_formatter(&|value| short(*value)).y_label_formatter(&|value| short(*value)).draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let line = LineSeries::new(series.points.iter().copied(), color.stroke_width(2));
            let drawn = chart.draw_series(line)?.label(&series.name);
            drawn.legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
            chart.draw_series(series.points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).label_font(("sans-serif", 13));
        // The legend is put where the lines are not: below them if they stay in the upper half, else where they do not
        // begin or end high.
        let is_high = self.range(|point| point.1).is_some_and(|(low, _)| low > top / 2.0);
        let falls = |series: &Series| series.points.first().zip(series.points.last()).is_some_and(|(a, b)| a.1 > b.1);
        let corner = match (is_high, self.series.iter().any(falls)) {
            (true, _) => SeriesLabelPosition::LowerLeft,
            (false, true) => SeriesLabelPosition::UpperRight,
            (false, false) => SeriesLabelPosition::UpperLeft,
        };
        labels.position(corner).draw()?;
        area.present()?;
        Ok(())
    }
}

/// Where a linear axis begins: at zero, unless that would leave most of it empty.
fn from(low: f64, high: f64) -> f64 {
    if low > (high - low) / 2.0 { low } else { 0f64.min(low) }
}

/// A number in its shortest form on an axis.
fn short(value: f64) -> String {
    let plain = |value: f64, unit: &str| {
        let digits = format!("{value:.2}");
        format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
    };
    match value.abs() {
        size if size >= 1e6 => plain(value / 1e6, " M"),
        size if size >= 1e4 => plain(value / 1e3, " k"),
        _ => plain(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_a_picture_with_its_words() {
        let folder = std::env::temp_dir().join(format!("kasha-plot-{}", std::process::id()));
        let series = |name: &str, points: &[(f64, f64)]| Series { name: name.to_owned(), points: points.to_vec() };
        let plot = Plot {
            file: "test".to_owned(),
            title: "A title".to_owned(),
            x: "clients",
            y: "thousands",
            axis: Axis::Logarithmic,
            series: vec![series("one", &[(1.0, 2.0), (64.0, 9.0)]), series("other", &[(1.0, 1.0)])],
        };
        plot.write(&folder).unwrap();
        let text = std::fs::read_to_string(folder.join("test.svg")).unwrap();
        assert!(text.starts_with("<svg") && text.contains("A title") && text.contains("other"), "{text}");
        let empty = Plot { series: Vec::new(), axis: Axis::Linear, ..plot };
        empty.write(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let shown = [0.0, 0.25, 1.5, 64.0, 9999.0, 25_000.0, 1_270_000.0].map(short);
        assert_eq!(shown, ["0", "0.25", "1.5", "64", "9999", "25 k", "1.27 M"]);
    }
}
