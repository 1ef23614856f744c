//! The report of frames, as text and JSON.

use mlx5_tools::fields::VERSION;
use serde_json::{Value, json};

use super::mode::Mode;
use crate::perf::platform::Platform;
use crate::perf::report::{LADDER, Latencies};

const LINE: &str = "---------------------------------------------------------------------------------------";

/// The result of one size.
pub struct Row {
    /// Bytes of a frame with its check sequence.
    pub size: usize,
    /// Frames that this end, or of two ends the receiver, has counted.
    pub frames: u64,
    /// Frames that found no receive, or that did not come back; `None` for an end that does not receive.
    pub lost: Option<u64>,
    /// From the first frame's completion to the last's, by the card's clock.
    pub seconds: f64,
    /// Times there and back.
    pub latency: Option<Latencies>,
}

impl Row {
    /// Frames a second.
    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.frames.saturating_sub(1) as f64 / self.seconds } else { 0.0 }
    }

    fn gbits(&self) -> f64 {
        self.per_second() * self.size as f64 * 8.0 / 1e9
    }

    /// Its row of the table.
    pub fn line(&self) -> String {
        let lost = self.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string());
        let (mpps, gbits) = (self.per_second() / 1e6, self.gbits());
        let mut line =
            format!(" {:<7}    {:<13}    {mpps:<12.6}    {gbits:<10.3}    {lost:<10}", self.size, self.frames);
        if let Some(latency) = &self.latency {
            line += &format!("    {:<10.2}    {:.2}", latency.typical, latency.at("99"));
        }
        line + "\n"
    }

    fn json(&self) -> Value {
        json!({
            "size": self.size,
            "frames": self.frames,
            "lost": self.lost,
            "seconds": self.seconds,
            "Mpps": self.per_second() / 1e6,
            "Gbps": self.gbits(),
            "latency": self.latency.as_ref().map(Latencies::json),
        })
    }
}

/// What comes before the rows.
pub fn head(mode: Mode, queues: u8, platforms: &[Platform]) -> String {
    let title = match mode {
        Mode::Tx => "Frames sent",
        Mode::Rx => "Frames received",
        Mode::Forward => "Frames sent back",
        Mode::Lat => "Frames there and back",
    };
    let mut text = format!("{LINE}\n                    {title}\n Queues          : {queues}\n");
    platforms.iter().for_each(|platform| text += &format!(" Card            : {platform}\n"));
    text += &format!("{LINE}\n #bytes     #frames          rate[Mpps]      BW[Gb/sec]    lost          ");
    text += if mode == Mode::Lat { "t_typical[usec]    99%[usec]\n" } else { "\n" };
    text
}

/// What comes after the rows: the percentiles if there is one row, and the note.
pub fn foot(rows: &[Row], note: Option<&str>) -> String {
    let mut text = format!("{LINE}\n");
    if let [Row { latency: Some(latency), .. }] = rows {
        text += " percentile    t[usec]\n";
        LADDER.iter().zip(&latency.ladder).for_each(|(rung, time)| text += &format!(" {rung:<10}    {time:.2}\n"));
        text += &format!("{LINE}\n");
    }
    text + &note.map_or_else(String::new, |note| format!("({note})\n"))
}

/// The document.
pub fn json(mode: Mode, queues: u8, rows: &[Row], platforms: &[Platform], note: Option<&str>) -> Value {
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    json!({
        "version": VERSION, "test": mode, "queues": queues, "results": rows, "cards": platforms, "note": note,
    })
}
