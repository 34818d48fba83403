//! A replay as a picture: allowed and denied over time, one panel for each limiter.

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Report;
use super::tally::Tally;
use super::timeline::{Timeline, length, moment};
use crate::failure::Failure;
use crate::terminal::{grouped, safe};

const WIDTH: u32 = 1100;
const HEAD_HEIGHT: u32 = 64;
const PANEL_HEIGHT: u32 = 230;
const MOST_TIME_LABELS: u64 = 10;
const MOST_COUNT_LABELS: usize = 5;
const FONT: &str = "sans-serif";

// Told apart by those who see no red or no green too.
const ALLOWED: RGBColor = RGBColor(0x3b, 0x7d, 0xb8);
const DENIED: RGBColor = RGBColor(0xe0, 0x6c, 0x1f);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const PALE_INK: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the picture as SVG.
pub(super) fn write(report: &Report<'_>, path: &Path) -> Result<(), Failure> {
    if report.timeline.steps == 0 {
        return Err(Failure::Usage("there is nothing to plot: the log holds no request".to_owned()));
    }
    let name = safe(path.as_os_str().as_encoded_bytes());
    let mut picture = String::new();
    draw(report, &mut picture).map_err(|error| Failure::Usage(format!("the plot cannot be drawn: {error}")))?;
    fs::write(path, picture).map_err(|error| Failure::Usage(format!("the plot {name} cannot be written: {error}")))
}

fn draw(report: &Report<'_>, picture: &mut String) -> Drawn {
    let height = HEAD_HEIGHT + PANEL_HEIGHT * report.limits.len() as u32;
    let root = SVGBackend::with_string(picture, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    draw_head(report, &head)?;
    for (panel, (name, tally)) in body.split_evenly((report.limits.len(), 1)).iter().zip(&report.limits) {
        draw_panel(report, name, tally, panel)?;
    }
    root.present()?;
    Ok(())
}

fn font(size: i32, color: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).color(color)
}

fn draw_head(report: &Report<'_>, area: &Area<'_>) -> Drawn {
    let log = report.log;
    let (first, last) = log.span().unwrap_or_default();
    let requests = grouped(log.records.len() as u64);
    let title = format!("{requests} requests of {} keys ({})", grouped(log.keys.len() as u64), report.key.name());
    let span = format!("{} to {} UTC, a bar for each {}", moment(first), moment(last), length(report.timeline.step));
    area.draw(&Text::new(title, (24, 14), font(20, &INK)))?;
    area.draw(&Text::new(span, (24, 40), font(14, &PALE_INK)))?;
    let mut x = WIDTH as i32 - 190;
    for (name, color) in [("allowed", ALLOWED), ("denied", DENIED)] {
        area.draw(&Rectangle::new([(x, 17), (x + 14, 31)], color.filled()))?;
        area.draw(&Text::new(name, (x + 20, 16), font(15, &INK)))?;
        x += 96;
    }
    Ok(())
}

fn draw_panel(report: &Report<'_>, name: &str, tally: &Tally, area: &Area<'_>) -> Drawn {
    let timeline = report.timeline;
    let marks = timeline.marks(MOST_TIME_LABELS);
    let most = tally.allowed.iter().zip(&tally.denied).map(|(allowed, denied)| allowed + denied).max().unwrap_or(0);
    let counts = 0..(most + most.div_ceil(12)).max(1);
    let (caption, body) = area.split_vertically(34);
    draw_caption(report, name, tally, &caption)?;
    let mut chart = ChartBuilder::on(&body)
        .margin_left(16)
        .margin_right(24)
        .margin_top(4)
        .margin_bottom(8)
        .x_label_area_size(26)
        .y_label_area_size(52)
        .build_cartesian_2d((timeline.start..timeline.end()).with_key_points(marks.times.clone()), counts)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(PALE_INK)
        .x_labels(marks.times.len())
        .y_labels(MOST_COUNT_LABELS)
        .x_label_formatter(&|time| marks.label(*time))
        .y_label_formatter(&|count| grouped(*count))
        .label_style(font(13, &PALE_INK))
        .draw()?;
    chart.draw_series(bars(timeline, tally))?;
    Ok(())
}

fn draw_caption(report: &Report<'_>, name: &str, tally: &Tally, area: &Area<'_>) -> Drawn {
    let (allowed, denied) = (tally.total_allowed(), tally.total_denied());
    let percent = denied as f64 * 100.0 / (allowed + denied).max(1) as f64;
    let counts = format!(
        "{} allowed, {} denied ({percent:.1} %), {} of {} keys ever denied",
        grouped(allowed),
        grouped(denied),
        grouped(tally.keys_ever_denied()),
        grouped(report.log.keys.len() as u64)
    );
    let right = font(14, &PALE_INK).pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(name.to_owned(), (24, 10), font(17, &INK)))?;
    area.draw(&Text::new(counts, (WIDTH as i32 - 24, 12), right))?;
    Ok(())
}

/// For each step the allowed, and the denied on top of them.
fn bars<'a>(timeline: &'a Timeline, tally: &'a Tally) -> impl Iterator<Item = Rectangle<(u64, u64)>> + 'a {
    tally.allowed.iter().zip(&tally.denied).enumerate().flat_map(move |(index, (&allowed, &denied))| {
        let left = timeline.start + timeline.step * index as u64;
        let bar = move |from: u64, to: u64, color: RGBColor| {
            let mut bar = Rectangle::new([(left, to), (left + timeline.step, from)], color.filled());
            bar.set_margin(0, 0, 1, 1);
            (to > from).then_some(bar)
        };
        [bar(0, allowed, ALLOWED), bar(allowed, allowed + denied, DENIED)].into_iter().flatten()
    })
}
