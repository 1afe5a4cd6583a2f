//! A line chart as SVG, readable on light and dark pages alike.

use std::fmt::Write;

use super::book::Spread;

pub struct Chart {
    pub title: &'static str,
    /// What the numbers at the bottom count.
    pub across: &'static str,
    pub ticks: Vec<String>,
    pub scale: Scale,
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    FromZero,
    Logarithmic,
}

pub struct Series {
    pub name: &'static str,
    /// A colour of `STYLE`.
    pub colour: &'static str,
    /// One for each tick.
    pub points: Vec<Option<Spread>>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 580.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 336.0;

const STYLE: &str = "
    .card { fill: #ffffff; stroke: #d0d7de; }
    .ink { fill: #1f2328; } .soft { fill: #59636e; }
    .grid { stroke: #d8dee4; }
    .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; } .whisker { stroke-width: 1.5; }
    .blue { stroke: #0969da; } .amber { stroke: #bf8700; } .green { stroke: #1a7f37; }
    .blue-ink { fill: #0969da; } .amber-ink { fill: #9a6700; } .green-ink { fill: #1a7f37; }
    .strong { font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #3d444d; }
      .ink { fill: #f0f6fc; } .soft { fill: #9198a1; }
      .grid { stroke: #30363d; }
      .blue { stroke: #58a6ff; } .amber { stroke: #e3b341; } .green { stroke: #3fb950; }
      .blue-ink { fill: #58a6ff; } .amber-ink { fill: #e3b341; } .green-ink { fill: #3fb950; }
    }
  ";

impl Chart {
    pub fn svg(&self) -> String {
        let axis = Axis::over(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-labelledby=\"title\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu \
             Sans', sans-serif\" font-size=\"14\">\n  <title id=\"title\">{0}</title>\n  \
             <style>{STYLE}</style>\n  <rect class=\"card\" x=\"1\" y=\"1\" width=\"{1}\" \
             height=\"{2}\" rx=\"12\"/>\n  <text class=\"ink strong\" x=\"24\" y=\"36\" \
             font-size=\"16\">{0}</text>\n",
            self.title,
            WIDTH - 2.0,
            HEIGHT - 2.0
        );
        for value in axis.marks() {
            let y = axis.y(value);
            let _ = writeln!(
                svg,
                "  <line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 10.0,
                y + 5.0,
                thousands(value)
            );
        }
        for (number, tick) in self.ticks.iter().enumerate() {
            let _ = writeln!(
                svg,
                "  <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                self.x(number),
                BOTTOM + 24.0
            );
        }
        let _ = writeln!(
            svg,
            "  <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT.midpoint(RIGHT),
            BOTTOM + 48.0,
            self.across
        );
        for series in &self.series {
            self.draw(series, &axis, &mut svg);
        }
        self.label(&axis, &mut svg);
        svg + "</svg>\n"
    }

    /// The medians, joined; through each a line from the lowest to the highest.
    fn draw(&self, series: &Series, axis: &Axis, svg: &mut String) {
        let points = series.points.iter().enumerate();
        let points: Vec<_> =
            points.filter_map(|(number, point)| Some((self.x(number), (*point)?))).collect();
        let path: Vec<String> =
            points.iter().map(|(x, at)| format!("{x:.1},{:.1}", axis.y(at.median))).collect();
        let colour = series.colour;
        let _ =
            writeln!(svg, "  <polyline class=\"line {colour}\" points=\"{}\"/>", path.join(" "));
        for (x, at) in points {
            let [low, median, high] = [at.low, at.median, at.high].map(|value| axis.y(value));
            let _ = writeln!(
                svg,
                "  <line class=\"whisker {colour}\" x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" \
                 y2=\"{high:.1}\"/><circle class=\"{colour}-ink\" cx=\"{x:.1}\" cy=\"{median:.1}\" \
                 r=\"4\"/>"
            );
        }
    }

    /// Names at the ends of their lines, moved apart where they would overlap.
    fn label(&self, axis: &Axis, svg: &mut String) {
        const APART: f64 = 18.0;
        let end =
            |series: &Series| Some(axis.y(series.points.iter().rev().flatten().next()?.median));
        let mut names: Vec<_> =
            self.series.iter().filter_map(|series| Some((end(series)?, series))).collect();
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut lowest = TOP;
        for (y, series) in names {
            let y = y.max(lowest);
            lowest = y + APART;
            let _ = writeln!(
                svg,
                "  <text class=\"{}-ink strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                series.colour,
                RIGHT + 12.0,
                y + 5.0,
                series.name
            );
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a handful of ticks")]
    fn x(&self, number: usize) -> f64 {
        let inset = 24.0;
        let steps = (self.ticks.len() - 1).max(1) as f64;
        LEFT + inset + (RIGHT - LEFT - 2.0 * inset) * number as f64 / steps
    }
}

struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Axis {
    fn over(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| series.points.iter().flatten());
        let highest = points().map(|point| point.high).fold(0.0, f64::max);
        let lowest = points().map(|point| point.low).fold(f64::INFINITY, f64::min);
        match chart.scale {
            Scale::FromZero => Self { low: 0.0, high: round_up(highest), scale: chart.scale },
            Scale::Logarithmic => Self {
                low: 10_f64.powf(lowest.log10().floor()),
                high: 10_f64.powf(highest.log10().ceil()),
                scale: chart.scale,
            },
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::FromZero => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => {
                (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    fn marks(&self) -> Vec<f64> {
        match self.scale {
            Scale::FromZero => {
                (0..=4).map(|quarter| self.high * f64::from(quarter) / 4.0).collect()
            }
            Scale::Logarithmic => {
                let tens = std::iter::successors(Some(self.low), |mark| Some(mark * 10.0));
                tens.take_while(|mark| *mark <= self.high * 1.001).collect()
            }
        }
    }
}

/// To a number whose quarters are round as well.
fn round_up(highest: f64) -> f64 {
    let unit = 10_f64.powf(highest.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * unit).find(|bound| *bound >= highest).unwrap_or(highest)
}

pub fn thousands(number: f64) -> String {
    if number < 10.0 && number.fract() > 0.0 {
        return format!("{number}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
