//! Frames between two functions of a software card, on one polling thread: bursts to a striding queue, one frame back,
//! copied or from where it was received.

use std::error::Error;
use std::hint;
use std::sync::Arc;

use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd};
use mlx5_dv::queue::Side;
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, Forwarder, FrameFlags, StridingOptions, StridingQueue};
use mlx5_open::Sim;

use super::Foul;

/// Frames with one doorbell, all but the last without a completion of their own.
const BURST: usize = 4;
/// Bytes of a frame.
const FRAME: usize = 60;
const RECEIVES: usize = 8;
/// Polls without anything: minutes.
const PATIENCE: u64 = 20_000_000_000;

/// Both ends, with receives posted.
pub struct Frames {
    near: EthernetQueue,
    /// Sends back.
    far: EthernetQueue,
    packets: StridingQueue,
    /// Sends back what `packets` has.
    forwarder: Forwarder,
    exchanges: usize,
    /// The burst's frames, while they are not in flight.
    burst: Vec<Buffer>,
    reply: [u8; FRAME],
    _sim: Sim,
}

impl Frames {
    /// Two functions of a new card.
    pub fn new() -> Result<Frames, Box<dyn Error>> {
        let sim = Sim::builder().functions(2).build()?;
        let (near, far) = (sim.open(0)?, sim.open(1)?);
        let pds = [Pd::alloc(&near)?, Pd::alloc(&far)?];
        let mut options = EthernetOptions::default();
        options.inline_bytes = FRAME as u16;
        let queue = |pd: &Arc<Pd>| EthernetQueue::new(pd, options.clone());
        let (mut here, there) = (queue(&pds[0])?, queue(&pds[1])?);
        let mut packets = StridingQueue::new(&pds[1], StridingOptions::default())?;
        packets.listen(&[])?;
        let forwarder = Forwarder::new(&packets, 64)?;
        here.listen(&[])?;
        let len = here.sq().longest_frame().next_multiple_of(64);
        for buffer in ExclusiveRegion::allocate(&pds[0], RECEIVES * len)?.buffers(len)?.into_iter().take(RECEIVES) {
            here.receive(buffer)?;
        }
        let frame = |to: mlx5_dv::Mac, from: mlx5_dv::Mac| {
            let mut frame = [0x5a; FRAME];
            frame[..6].copy_from_slice(&to.0);
            frame[6..12].copy_from_slice(&from.0);
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        };
        let mut burst = ExclusiveRegion::allocate(&pds[0], BURST * 64)?.buffers(64)?;
        burst.truncate(BURST);
        for buffer in &mut burst {
            buffer.set_len(FRAME);
            buffer.as_mut_slice().copy_from_slice(&frame(far.mac(), near.mac()));
        }
        let reply = frame(near.mac(), far.mac());
        Ok(Frames { near: here, far: there, packets, forwarder, exchanges: 0, burst, reply, _sim: sim })
    }

    /// Exchanges `count` bursts.
    pub fn play(&mut self, count: u64) -> Result<(), Foul> {
        (0..count).try_for_each(|_| self.exchange())
    }

    fn exchange(&mut self) -> Result<(), Foul> {
        let mut batch = self.near.batch();
        batch.quiet();
        while let Some(buffer) = self.burst.pop() {
            if self.burst.is_empty() {
                batch.signalled();
            }
            batch.send(buffer, FrameFlags::empty()).map_err(|_| Foul::Refused)?;
        }
        batch.ring();
        for _ in 1..BURST {
            let packet = poll(|| self.packets.poll().map_err(|_| Foul::Failed))?;
            if packet.len() != FRAME || packet.completion().stripped_vlan().is_some() {
                return Err(Foul::Wrong);
            }
        }
        self.exchanges += 1;
        if self.exchanges.is_multiple_of(2) {
            self.forward()?;
        } else {
            poll(|| Ok(self.packets.burst(1).map_err(|_| Foul::Failed)?.next().map(|_| ())))?;
            self.far.send_inline(&self.reply, FrameFlags::empty()).map_err(|_| Foul::Refused)?;
            let sent = poll(|| self.far.poll().map_err(|_| Foul::Nonsense))?;
            sent.result.map_err(|_| Foul::Failed)?;
        }
        let mut is_answered = false;
        while !is_answered || self.burst.len() < BURST {
            let done = poll(|| self.near.poll().map_err(|_| Foul::Nonsense))?;
            let side = done.result.map_err(|_| Foul::Failed)?.work.side;
            let heard = done.received().map(|frame| *frame == self.reply);
            match (side, done.buffer) {
                (Side::Send, Some(buffer)) => self.burst.push(buffer),
                (Side::Receive, Some(buffer)) if heard == Some(true) => {
                    self.near.receive(buffer).map_err(|_| Foul::Refused)?;
                    is_answered = true;
                }
                _ => return Err(Foul::Wrong),
            }
        }
        Ok(())
    }
}

impl Frames {
    /// Sends the next frame back.
    fn forward(&mut self) -> Result<(), Foul> {
        let mut batch = self.forwarder.batch(FrameFlags::empty()).map_err(|_| Foul::Failed)?;
        let back = |frame: &mut [u8]| {
            let (to, from) = frame.split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
            true
        };
        poll(|| {
            let burst = self.packets.burst(1).map_err(|_| Foul::Failed)?;
            let count = batch.push_each(burst, back).map_err(|_| Foul::Refused)?;
            Ok((count != 0).then_some(()))
        })?;
        batch.ring();
        Ok(())
    }
}

/// Polls until there is something.
fn poll<T>(mut next: impl FnMut() -> Result<Option<T>, Foul>) -> Result<T, Foul> {
    for _ in 0..PATIENCE {
        if let Some(found) = next()? {
            return Ok(found);
        }
        hint::spin_loop();
    }
    Err(Foul::Failed)
}
