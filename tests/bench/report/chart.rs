//! Decisions a second as a picture: one panel for each row, its bars in proportion to the fastest of the row.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::grouped;
use crate::contender::Contender;
use crate::sample::Metric;
use crate::series::Series;

const WIDTH: i32 = 960;
const HEAD: i32 = 52;
const PANEL_HEAD: i32 = 30;
const BAR: i32 = 22;
const LEFT: i32 = 190;
/// Room for the number behind the longest bar.
const RIGHT: i32 = 140;
const FONT: &str = "sans-serif";

const OURS: RGBColor = RGBColor(0x3b, 0x7d, 0xb8);
const PEER: RGBColor = RGBColor(0xb4, 0xb9, 0xc0);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const PALE_INK: RGBColor = RGBColor(0x66, 0x66, 0x66);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// The picture as SVG.
pub(crate) fn of(all: &[Series]) -> Result<String, Box<dyn Error>> {
    let mut picture = String::new();
    draw(all, &mut picture)?;
    Ok(picture)
}

fn draw(all: &[Series], picture: &mut String) -> Drawn {
    let height: i32 = all.iter().map(height).sum();
    let root = SVGBackend::with_string(picture, (WIDTH as u32, (HEAD + height) as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new("Decisions a second, of each row in proportion to the fastest", (24, 16), font(19, &INK)))?;
    let mut top = HEAD;
    for series in all {
        draw_panel(series, top, &root)?;
        top += self::height(series);
    }
    root.present()?;
    Ok(())
}

fn height(series: &Series) -> i32 {
    PANEL_HEAD + BAR * series.row.contenders.len() as i32
}

fn font(size: i32, color: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).color(color)
}

fn draw_panel(series: &Series, top: i32, area: &Area<'_>) -> Drawn {
    area.draw(&Text::new(series.row.title(), (24, top + 9), font(15, &INK)))?;
    let rates: Vec<(Contender, f64)> = series
        .middles()
        .map(|(contender, middle)| (contender, middle.ok().and_then(|it| it.get(Metric::PerSecond)).unwrap_or(0.0)))
        .collect();
    let fastest = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let right = font(13, &PALE_INK).pos(Pos::new(HPos::Right, VPos::Top));
    for (index, (contender, rate)) in rates.into_iter().enumerate() {
        let y = top + PANEL_HEAD + BAR * index as i32;
        let end = LEFT + (f64::from(WIDTH - LEFT - RIGHT) * rate / fastest) as i32;
        let color = if contender.is_ours() { OURS } else { PEER };
        area.draw(&Text::new(contender.name(), (LEFT - 10, y + 3), right.clone()))?;
        area.draw(&Rectangle::new([(LEFT, y + 2), (end.max(LEFT + 1), y + BAR - 3)], color.filled()))?;
        area.draw(&Text::new(grouped(rate), (end + 8, y + 3), font(13, &INK)))?;
    }
    Ok(())
}
