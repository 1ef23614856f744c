//! Cost of a flow rule, and of a frame that it is for, by the number of rules that there are.

use std::sync::Arc;
use std::time::Duration;

use mlx5_benches::{Failure, median};
use mlx5_dv::objects::{ExclusiveRegion, FlowMatch, FlowRule, FlowRules, FlowRulesOptions, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::{Device, Mac};
use mlx5_open::Sim;

use super::extent::Extent;
use super::timing::nanoseconds;

const COUNTS: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// Rules that are added, frames that are sent, and rules that are deleted, with each number of rules.
const RUNS: u32 = 501;
const FRAME: usize = 60;
const PATIENCE: Duration = Duration::from_secs(20);

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    let (counts, runs) = if extent == Extent::Full { (&COUNTS[..], RUNS) } else { (&COUNTS[..1], 3) };
    let sim = Sim::builder().functions(2).strict(false).build()?;
    let (here, there) = (sim.open(0)?, sim.open(1)?);
    let (mut sender, mut receiver) = (queue(&here)?, queue(&there)?);
    let mut options = FlowRulesOptions::default();
    (options.priorities, options.entries) = (1, 1 << 18);
    let rules = FlowRules::create(&there, options)?;
    rules.start()?;
    println!(
        "| rules | add one, us | to the first row | a frame there and received, us | to the first row | delete one, us |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let (mut made, mut first): (Vec<FlowRule>, _) = (Vec::new(), None);
    for &count in counts {
        while made.len() < count as usize {
            made.push(rules.add(0, &for_number(made.len() as u32), receiver.tir())?);
        }
        let (mut adds, mut frames, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..runs {
            let number = count + run;
            let (time, rule) = nanoseconds(|| rules.add(0, &for_number(number), receiver.tir()));
            adds.push(time);
            let rule = rule?;
            let (time, passed) = nanoseconds(|| pass(&mut sender, &mut receiver, number));
            frames.push(time);
            passed?;
            let (time, deleted) = nanoseconds(|| rule.delete());
            deletes.push(time);
            deleted?;
        }
        let [add, frame, delete] = [&mut adds, &mut frames, &mut deletes].map(|samples| median(samples) / 1e3);
        let (first_add, first_frame) = *first.get_or_insert((add, frame));
        let (by_add, by_frame) = (add / first_add, frame / first_frame);
        println!("| {count} | {add:.0} | {by_add:.2} | {frame:.0} | {by_frame:.2} | {delete:.0} |");
    }
    Ok(())
}

/// Frames from the source MAC address of that number.
fn for_number(number: u32) -> FlowMatch {
    FlowMatch::new().source_mac(source(number))
}

fn source(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

fn queue(device: &Arc<Device>) -> Result<EthernetQueue, Failure> {
    let pd = Pd::alloc(device)?;
    let mut options = EthernetOptions::default();
    options.inline_bytes = FRAME as u16;
    let mut queue = EthernetQueue::new(&pd, options)?;
    let len = queue.sq().longest_frame().next_multiple_of(64);
    let region = ExclusiveRegion::allocate(&pd, 4 * len)?;
    for buffer in region.buffers(len)?.into_iter().take(4) {
        queue.receive(buffer)?;
    }
    Ok(queue)
}

/// Sends a frame from that address, and receives it.
fn pass(sender: &mut EthernetQueue, receiver: &mut EthernetQueue, number: u32) -> Result<(), Failure> {
    let mut frame = [&receiver.device().mac().0[..], &source(number).0, &[0x88, 0xb5]].concat();
    frame.resize(FRAME, 0);
    sender.send_inline(&frame, FrameFlags::empty())?;
    sender.wait(PATIENCE)?.result?;
    let done = receiver.wait(PATIENCE)?;
    if done.received() != Some(&frame[..]) {
        return Err(format!("frame {number} is another: {:02x?}", done.received()).into());
    }
    if let Some(buffer) = done.buffer {
        receiver.receive(buffer)?;
    }
    Ok(())
}
