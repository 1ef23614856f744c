//! The card's instructions per message, counted by callgrind: its thread reads the doorbell, and works until nothing is
//! left.

use mlx5_benches::{Failure, callgrind};
use mlx5_sim::function::Function;
use mlx5_sim::{bar, engine};

use super::pair::{DEPTH, End, Kind, Pair};

/// Argument for the child process that counts.
pub const ARGUMENT: &str = "--count";

/// Name, operation, message size in bytes, messages per doorbell.
const CASES: [(&str, Kind, usize, usize); 6] = [
    ("SEND 64 B, one a doorbell", Kind::Send, 64, 1),
    ("SEND 64 B, 64 a doorbell", Kind::Send, 64, 64),
    ("RDMA WRITE 64 B, one a doorbell", Kind::Write, 64, 1),
    ("RDMA WRITE 64 B, 64 a doorbell", Kind::Write, 64, 64),
    ("RDMA READ 64 B, 16 a doorbell", Kind::Read, 64, 16),
    ("RDMA WRITE 64 KiB", Kind::Write, 1 << 16, 1),
];

/// Prints the table.
pub fn measure(full: bool) -> Result<(), Failure> {
    if !full {
        return child();
    }
    let counts = match callgrind::run(&[ARGUMENT]) {
        Ok(counts) => counts,
        Err(why) => {
            println!("\ninstructions: not measured: {why}");
            return Ok(());
        }
    };
    println!("\n| message | the card's instructions | with strict mode |\n| --- | ---: | ---: |");
    for (name, _, _, batch) in CASES {
        let of = |strict: bool| {
            let count = counts.get(&format!("{name} {strict}"))?;
            Some(format!("{:.0}", count / batch as f64))
        };
        let [plain, strict] = [false, true].map(|strict| of(strict).unwrap_or("-".into()));
        println!("| {name} | {plain} | {strict} |");
    }
    Ok(())
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    for strict in [false, true] {
        let mut pair = Pair::new(strict)?;
        for (name, kind, len, batch) in CASES {
            for warm in [true, true, false] {
                pair = round(pair, &format!("{name} {strict}"), kind, len, batch, warm)?;
            }
        }
    }
    Ok(())
}

/// Messages from the first end to the second, posted on the card's own thread so that it only works when called.
fn round(mut pair: Pair, name: &str, kind: Kind, len: usize, batch: usize, warm: bool) -> Result<Pair, Failure> {
    let name = name.to_owned();
    let [mut from, mut to] = pair.ends;
    let work = move |f: &mut Function| -> Result<[End; 2], Failure> {
        if kind == Kind::Send {
            to.receive(len, batch)?;
        }
        from.post(kind, len, batch)?;
        if warm {
            turns(f)
        } else {
            callgrind::count(&name, || turns(f))
        }
        from.finish_send()?;
        if kind == Kind::Send {
            for _ in 0..batch {
                to.finish_receive()?;
            }
        }
        Ok([from, to])
    };
    pair.ends = pair.handle.with(work).ok_or("the card is gone")??;
    Ok(pair)
}

/// The work of the card's thread until it has nothing to do. A message to the function itself never leaves it.
#[inline(never)]
fn turns(f: &mut Function) {
    for _ in 0..DEPTH {
        if !(bar::poll(f) | engine::run(f)) {
            return;
        }
    }
}
