//! Speed: the program on one core, the card on another.

use std::time::Instant;

use mlx5_benches::{Failure, median};

use super::pair::{End, Kind, Pair};

const RUNS: usize = 5;
/// Messages for each doorbell, and doorbells in flight.
const BATCH: usize = 32;
const UNDER_WAY: usize = 2;

/// Prints the tables.
pub fn measure(full: bool) -> Result<(), Failure> {
    let (runs, scale) = if full { (RUNS, 1) } else { (1, 1000) };
    let mut pair = Pair::new(false)?;

    println!("\n| ping-pong | us an iteration | least |\n| --- | ---: | ---: |");
    for len in [16, 128, 4096] {
        let (median, least) = spread(runs, || ping_pong(&mut pair, len, 5_000 / scale))?;
        println!("| SEND {len} B to and fro | {:.2} | {:.2} |", median * 1e6, least * 1e6);
    }

    println!("\n| messages | a second | MB/s | best MB/s |\n| --- | ---: | ---: | ---: |");
    let cases = [
        ("RDMA WRITE", Kind::Write, 64, 2_000),
        ("SEND", Kind::Send, 64, 2_000),
        ("RDMA READ", Kind::Read, 64, 1_000),
        ("RDMA WRITE", Kind::Write, 4096, 1_000),
        ("RDMA WRITE", Kind::Write, 64 << 10, 100),
        ("RDMA WRITE", Kind::Write, 1 << 20, 10),
        ("RDMA READ", Kind::Read, 1 << 20, 10),
    ];
    for (name, kind, len, batches) in cases {
        let batches = (batches / scale).max(2);
        let (median, least) = spread(runs, || stream(&mut pair, kind, len, batches))?;
        let rate = |seconds: f64| len as f64 / seconds / 1e6;
        println!("| {name} {len} B | {:.0} | {:.0} | {:.0} |", 1.0 / median, rate(median), rate(least));
    }
    println!("\nmedians of {RUNS} runs: the program on one core, the card on another");
    Ok(())
}

/// Median and minimum of `run`.
fn spread(runs: usize, mut run: impl FnMut() -> Result<f64, Failure>) -> Result<(f64, f64), Failure> {
    let mut samples = (0..runs).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok((median(&mut samples), samples.into_iter().fold(f64::INFINITY, f64::min)))
}

/// Seconds of one round trip.
fn ping_pong(pair: &mut Pair, len: usize, exchanges: usize) -> Result<f64, Failure> {
    let [a, b] = &mut pair.ends;
    let started = Instant::now();
    for _ in 0..exchanges {
        pass(a, b, len)?;
        pass(b, a, len)?;
    }
    Ok(started.elapsed().as_secs_f64() / exchanges as f64)
}

fn pass(from: &mut End, to: &mut End, len: usize) -> Result<(), Failure> {
    to.receive(len, 1)?;
    from.post(Kind::Send, len, 1)?;
    to.finish_receive()?;
    from.finish_send()
}

/// Seconds per message of `batches` batches, some of which are in flight at a time.
fn stream(pair: &mut Pair, kind: Kind, len: usize, batches: usize) -> Result<f64, Failure> {
    let [from, to] = &mut pair.ends;
    let started = Instant::now();
    let mut posted = 0;
    for _ in 0..batches {
        if posted == UNDER_WAY {
            finish(from, to, kind)?;
            posted -= 1;
        }
        if kind == Kind::Send {
            to.receive(len, BATCH)?;
        }
        from.post(kind, len, BATCH)?;
        posted += 1;
    }
    for _ in 0..posted {
        finish(from, to, kind)?;
    }
    Ok(started.elapsed().as_secs_f64() / (batches * BATCH) as f64)
}

/// Waits for a batch.
fn finish(from: &mut End, to: &mut End, kind: Kind) -> Result<(), Failure> {
    from.finish_send()?;
    if kind == Kind::Send {
        for _ in 0..BATCH {
            to.finish_receive()?;
        }
    }
    Ok(())
}
