//! What has crossed PCIe: tables of `mlx5 sim --stats`.

use std::fmt::Write;

use mlx5_sim::card::FunctionHandle;
use mlx5_sim::dma::{Crossed, Purpose, Traffic};
use serde_json::json;

use crate::output::{Failure, print, print_json_line};

/// Prints the traffic of each function.
pub fn show(functions: &[FunctionHandle], json: bool) -> Result<(), Failure> {
    for function in functions {
        let (index, traffic) = (function.index(), function.traffic());
        let queues = traffic.queues.iter().map(|queue| (queue.kind, queue.number, &queue.traffic));
        if json {
            let queues: Vec<_> = queues
                .map(|(kind, number, traffic)| json!({ "kind": kind, "number": number, "pcie": purposes(traffic) }))
                .collect();
            print_json_line(&json!({ "function": index, "pcie": purposes(&traffic.total), "queues": queues }))?;
            continue;
        }
        let mut text = format!(
            "{:<22}{:>12}{:>16}{:>12}{:>16}\n",
            format!("function {index}"),
            "PCIe reads",
            "bytes",
            "writes",
            "bytes"
        );
        for purpose in Purpose::ALL {
            line(&mut text, purpose.name(), traffic.total.of(purpose));
        }
        line(&mut text, "all", traffic.total.total());
        for (kind, number, traffic) in queues {
            line(&mut text, &format!("{kind} {number:#x}"), traffic.total());
        }
        print(&text)?;
    }
    Ok(())
}

fn line(text: &mut String, name: &str, crossed: Crossed) {
    let Crossed { reads, read_bytes, writes, write_bytes } = crossed;
    let _ = writeln!(text, "  {name:<20}{reads:>12}{read_bytes:>16}{writes:>12}{write_bytes:>16}");
}

fn purposes(traffic: &Traffic) -> serde_json::Value {
    let of = |crossed: Crossed| {
        json!({
            "reads": crossed.reads,
            "read_bytes": crossed.read_bytes,
            "writes": crossed.writes,
            "write_bytes": crossed.write_bytes,
        })
    };
    Purpose::ALL.into_iter().map(|purpose| (purpose.name().to_owned(), of(traffic.of(purpose)))).collect()
}
