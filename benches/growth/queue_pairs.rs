//! Rate of creating and destroying queue pairs, and what each of them needs.

use std::sync::Arc;
use std::time::Instant;

use mlx5_benches::{Failure, median};
use mlx5_dv::objects::QueuePair;

use super::extent::Extent;
use super::stage::Stage;

/// Results for one number of queue pairs. Microseconds of each call, in order.
struct Figures {
    create: Vec<f64>,
    connect: Vec<f64>,
    destroy: Vec<f64>,
    /// Bytes of the driver's heap, of its thread.
    heap: i64,
    /// Bytes of the umems.
    umem: u64,
    /// Mapped DMA ranges.
    ranges: usize,
    /// File descriptors of this process, which also runs the card.
    descriptors: usize,
}

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    println!(
        "| QPs | create us | connect us | destroy us | made and connected a second | umem bytes | heap bytes | mapped ranges \
         | descriptors |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for &count in extent.queue_pairs() {
        let mut figures = run(count)?;
        let whole: f64 = figures.create.iter().chain(&figures.connect).sum();
        // Where most of them are there.
        let (last, first) = (count - count.div_ceil(4), count.div_ceil(4));
        println!(
            "| {count} | {:.1} | {:.1} | {:.1} | {:.0} | {} | {} | {} | {} |",
            median(&mut figures.create[last..]),
            median(&mut figures.connect),
            median(&mut figures.destroy[..first]),
            count as f64 * 1e6 / whole,
            figures.umem / count as u64,
            figures.heap / count as i64,
            figures.ranges,
            figures.descriptors,
        );
    }
    println!(
        "\ntimes: medians, of the last quarter that is created, of all, and of the first quarter that is destroyed"
    );
    println!("umem and heap are of each queue pair; ranges and descriptors are what all of them add");
    Ok(())
}

fn run(count: usize) -> Result<Figures, Failure> {
    let stage = Stage::new()?;
    let desk = stage.desk()?;
    let (ranges, descriptors) = (stage.handle.counts().dma_ranges, descriptors());
    let umem_before = umem_bytes(&stage)?;

    let mut qps: Vec<Arc<QueuePair>> = Vec::with_capacity(count);
    let mut create = Vec::with_capacity(count);
    let mut result: Result<(), Failure> = Ok(());
    let heap = allocation_counter::measure(|| {
        result = (0..count).try_for_each(|_| {
            qps.push(timed(&mut create, || stage.create(&desk.uar, desk.completions.cq()))?);
            Ok(())
        });
    });
    result?;
    let mut connect = Vec::with_capacity(count);
    for qp in &qps {
        timed(&mut connect, || stage.connect(std::slice::from_ref(qp)))?;
    }

    let umem = umem_bytes(&stage)? - umem_before;
    let ranges = stage.handle.counts().dma_ranges - ranges;
    let descriptors = self::descriptors() - descriptors;

    let mut destroy = Vec::with_capacity(count);
    for qp in qps {
        timed(&mut destroy, || qp.destroy().map_err(|refused| refused.to_string().into()))?;
    }
    Ok(Figures { create, connect, destroy, heap: heap.bytes_current, umem, ranges, descriptors })
}

fn timed<T>(samples: &mut Vec<f64>, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let started = Instant::now();
    let result = work()?;
    samples.push(started.elapsed().as_secs_f64() * 1e6);
    Ok(result)
}

pub fn umem_bytes(stage: &Stage) -> Result<u64, Failure> {
    let bytes = stage.handle.with(|f| f.nic.objects.umems.iter().map(|(_, umem)| umem.memory.len()).sum());
    bytes.ok_or_else(|| "the card is gone".into())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
