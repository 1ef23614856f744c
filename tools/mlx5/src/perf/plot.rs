//! The report as a drawing: the distribution of one latency test, or the result of each size.

use plotters::prelude::*;

use super::report::{Latencies, Measured, Report};
use crate::output::Failure;

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";

/// A drawing. Both scales are logarithmic; `tick` labels the x axis.
struct Drawing {
    x: &'static str,
    y: &'static str,
    tick: fn(&f64) -> String,
    /// Maximum number of ticks.
    ticks: usize,
    curves: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// The report as SVG. Errors: there is nothing to draw.
pub fn svg(report: &Report) -> Result<String, Failure> {
    let drawing = match report.rows {
        [Measured::Latency(row)] => of_one_size(row),
        rows => of_each_size(rows, report.gbits),
    };
    let mut title = report.title(" ") + " Test";
    if let [Measured::Latency(row)] = report.rows {
        title += &format!(", {} bytes", row.size);
    }
    draw(&drawing, &title, report.note().unwrap_or_default())
}

fn of_one_size(row: &Latencies) -> Drawing {
    let curve = tail(&row.curve);
    let nines = curve.last().map_or(0.0, |(nines, _)| *nines);
    Drawing {
        x: "messages",
        y: "usec",
        tick: |nines| percent(*nines),
        ticks: nines as usize + 1,
        curves: vec![("so many messages took at most", curve)],
    }
}

/// The curve over the number of nines: 0.9 becomes 1, 0.99 becomes 2. The 100th percentile has no place on that scale.
fn tail(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points = curve.iter().filter(|(part, _)| *part < 1.0);
    points.map(|(part, time)| (-(1.0 - part).log10(), *time)).collect()
}

fn percent(nines: f64) -> String {
    let digits = (nines.ceil() as usize).saturating_sub(2);
    format!("{:.digits$} %", 100.0 * (1.0 - 10f64.powf(-nines)))
}

fn of_each_size(rows: &[Measured], gbits: bool) -> Drawing {
    let log = |size: usize| (size as f64).log2();
    let latencies = |rung: &'static str| -> Vec<(f64, f64)> {
        let row = |row: &Measured| match row {
            Measured::Latency(row) => Some((log(row.size), row.at(rung))),
            Measured::Bandwidth(_) => None,
        };
        rows.iter().filter_map(row).collect()
    };
    let bandwidth = rows.iter().filter_map(|row| match row {
        Measured::Bandwidth(row) => Some((log(row.size), row.average(gbits))),
        Measured::Latency(_) => None,
    });
    let bandwidth: Vec<_> = bandwidth.collect();
    let (y, curves) = match (bandwidth.is_empty(), gbits) {
        (true, _) => ("usec", vec![("typical", latencies("50")), ("99 %", latencies("99"))]),
        (false, true) => ("Gb/sec", vec![("average", bandwidth)]),
        (false, false) => ("MiB/sec", vec![("average", bandwidth)]),
    };
    Drawing { x: "bytes", y, tick: |log| bytes(*log), ticks: rows.len(), curves }
}

fn bytes(log: f64) -> String {
    match log.round() as u32 {
        log @ 0..10 => format!("{}", 1u64 << log),
        log @ 10..20 => format!("{} Ki", 1u64 << (log - 10)),
        log => format!("{} Mi", 1u64 << (log.min(40) - 20)),
    }
}

/// A label of the y axis.
fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Minimum and maximum of `values`; never equal.
fn span(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
    if least < most { (least, most) } else { (least, least + 1.0) }
}

fn draw(drawing: &Drawing, title: &str, note: &str) -> Result<String, Failure> {
    let points = || drawing.curves.iter().flat_map(|(_, points)| points.iter().copied());
    let points = || points().filter(|(x, y)| x.is_finite() && *y > 0.0);
    if points().next().is_none() {
        return Err("there is nothing to draw".into());
    }
    let (left, right) = span(points().map(|point| point.0));
    let (bottom, top) = span(points().map(|point| point.1));
    let mut svg = String::new();
    let failed = |error: &dyn std::fmt::Display| format!("the drawing failed: {error}");
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(|error| failed(&error))?;
        let root = root.titled(note, (FONT, 16)).map_err(|error| failed(&error))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 24))
            .margin(16)
            // Room for half of the last tick's label.
            .margin_right(32)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(left..right, (bottom * 0.9..top * 1.1).log_scale())
            .map_err(|error| failed(&error))?;
        chart
            .configure_mesh()
            .x_desc(drawing.x)
            .y_desc(drawing.y)
            .x_labels(drawing.ticks)
            .x_label_formatter(&drawing.tick)
            .x_max_light_lines(1)
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(|error| failed(&error))?;
        for (index, (name, points)) in drawing.curves.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let drawn = points.iter().copied().filter(|(x, y)| x.is_finite() && *y > 0.0);
            chart
                .draw_series(LineSeries::new(drawn, colour.stroke_width(2)))
                .map_err(|error| failed(&error))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()
            .map_err(|error| failed(&error))?;
        root.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_percentiles_and_sizes() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(percent), ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
        assert_eq!([1.0, 10.0, 16.0, 23.0].map(bytes), ["2", "1 Ki", "64 Ki", "8 Mi"]);
        assert_eq!([0.1 + 1e-9, 1.0, 10000.0].map(number), ["0.1", "1", "10000"]);
    }

    #[test]
    fn the_tail_is_drawn_by_its_nines() {
        let tail = tail(&[(0.0, 1.0), (0.9, 2.0), (0.99, 3.0), (1.0, 4.0)]);
        let nines: Vec<i64> = tail.iter().map(|(nines, _)| nines.round() as i64).collect();
        assert_eq!(nines, [0, 1, 2]);
    }
}
