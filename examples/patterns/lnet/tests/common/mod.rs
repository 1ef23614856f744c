//! Nodes on software cards in virtual time.

#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion};
use mlx5_lnet::{Event, Lnet, Nid, Options, Payload};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::{Card, SteppedCard};
use mlx5_sim::world::Conditions;

pub const STEP: Duration = Duration::from_micros(50);
/// Longer than anything takes.
pub const LONG: Duration = Duration::from_secs(900);

pub fn nid(number: u8) -> Nid {
    Nid::o2ib([10, 0, 0, number].into(), 0)
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 8) % limit
    }

    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// Two cards and a cable.
pub struct Lab {
    pub world: World,
    pub cards: [Arc<SteppedCard>; 2],
    pub devices: [Arc<Device>; 2],
}

impl Lab {
    /// `loss` of a million frames are lost, half as many doubled, and half as many delayed.
    pub fn new(seed: u64, loss: u32) -> Self {
        Self::with_functions(seed, loss, 1)
    }

    /// The second card has as many functions.
    pub fn with_functions(seed: u64, loss: u32, functions: usize) -> Self {
        let world = World::new(seed);
        let conditions = Conditions { loss, duplication: loss / 2, reordering: loss / 2, ..Conditions::default() };
        let builders = [Card::builder(), Card::builder().functions(functions)];
        let (cards, _) = world.simulated().joined(builders, conditions).unwrap();
        let devices = cards.each_ref().map(|card| world.open(card).unwrap());
        Lab { world, cards, devices }
    }

    pub fn now(&self) -> Duration {
        self.world.clock().now()
    }

    /// Where the node of card `number` is reached.
    pub fn address(&self, number: usize) -> SocketAddr {
        SocketAddr::new(self.devices[number].gids()[0].address.into(), mlx5_lnet::PORT)
    }

    /// Node `number`, which knows the other one.
    pub fn node(&self, number: usize, with: impl FnOnce(&mut Options)) -> Node {
        let mut options = Options::new(nid(number as u8 + 1));
        with(&mut options);
        let mut lnet = Lnet::new(&self.devices[number], None, options).unwrap();
        lnet.set_address(nid(2 - number as u8), self.address(1 - number));
        Node { lnet, events: Vec::new() }
    }

    /// Node 3 on the second function of the second card, which knows node 1.
    pub fn third(&self) -> Node {
        let device = self.world.open_with(&self.cards[1], 1, mlx5_dv::Options::default()).unwrap();
        let mut lnet = Lnet::new(&device, None, Options::new(nid(3))).unwrap();
        lnet.set_address(nid(1), self.address(0));
        Node { lnet, events: Vec::new() }
    }

    pub fn pass(&self) {
        self.world.clock().pause(STEP);
    }

    /// Nothing that a card objects to.
    pub fn assert_lawful(&self) {
        for card in &self.cards {
            assert_eq!(card.function(0).strict().take(), []);
        }
    }
}

/// A node, and what it has told.
pub struct Node {
    pub lnet: Lnet,
    pub events: Vec<Event>,
}

impl Node {
    /// Memory for others to write to.
    pub fn region(&self, len: usize) -> Arc<MemoryRegion> {
        MemoryRegion::allocate(self.lnet.pd(), len, AccessFlags::LOCAL_WRITE).unwrap()
    }

    pub fn poll(&mut self) {
        while let Some(event) = self.lnet.poll().unwrap() {
            self.events.push(event);
        }
    }

    /// Takes the first event that `is` knows.
    pub fn take<T>(&mut self, is: impl Fn(&Event) -> Option<T>) -> Option<(T, Event)> {
        let at = self.events.iter().position(|event| is(event).is_some())?;
        let event = self.events.remove(at);
        is(&event).map(|value| (value, event))
    }
}

/// A payload of one buffer.
pub fn plain(region: &Arc<MemoryRegion>, at: usize, len: usize) -> Payload {
    Payload::new(vec![region.buffer(at..at + len).unwrap()]).unwrap()
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn bytes_of(payload: &Payload) -> Vec<u8> {
    let mut bytes = vec![0; payload.len()];
    payload.read(&mut bytes);
    bytes
}

/// Buffers of `lens` bytes, with random gaps or in pages, in a region of `room` bytes.
pub fn scattered(region: &Arc<MemoryRegion>, random: &mut Random, at: usize, room: usize, len: usize) -> Vec<Buffer> {
    const PAGE: usize = 4096;
    let pieces = len.div_ceil(PAGE);
    match random.below(3) {
        // One behind the other.
        0 => vec![region.buffer(at..at + len).unwrap()],
        // Pages, in another order: no gaps.
        1 if room >= (pieces + 1) * PAGE && at.is_multiple_of(PAGE) => {
            let piece = |number: usize| at + (pieces - 1 - number) * PAGE;
            let len_of = |number: usize| PAGE.min(len - number * PAGE);
            (0..pieces).map(|number| region.buffer(piece(number)..piece(number) + len_of(number)).unwrap()).collect()
        }
        // Anything.
        _ => {
            let (mut buffers, mut at, end, mut left) = (Vec::new(), at, at + room, len);
            while left > 0 {
                let spare = end - at - left;
                at += random.below(spare.min(200) as u64 + 1) as usize;
                let most = if buffers.len() == 200 { left } else { left.min(2 * PAGE) };
                let here = 1 + random.below(most as u64) as usize;
                let here = if buffers.len() == 200 { left } else { here };
                buffers.push(region.buffer(at..at + here).unwrap());
                at += here;
                left -= here;
            }
            buffers
        }
    }
}
