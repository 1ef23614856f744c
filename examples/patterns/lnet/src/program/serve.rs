//! The node that answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use mlx5_lnet::wire::{Header, LnetMessage};
use mlx5_lnet::{Event, Lnet, Payload, RequestId, TRANSFER_BYTES, ping, status};

use crate::work::{BRW_PORTAL, Failure, PLACES};

/// How long a node without work pauses.
const PAUSE: Duration = Duration::from_micros(50);
/// Turns without work until it pauses.
const EMPTY_TURNS: u32 = 1000;
/// How long peers may take to learn that it goes.
const FAREWELL: Duration = Duration::from_secs(2);

/// Answers until `stop`.
pub(crate) fn serve(lnet: &mut Lnet, stop: &AtomicBool) -> Result<(), Failure> {
    let region = MemoryRegion::allocate(lnet.pd(), (PLACES + 1) * TRANSFER_BYTES, AccessFlags::LOCAL_WRITE)?;
    let mut store = Store { region, waiting: HashMap::new() };
    let mut empty = 0;
    while !stop.load(Ordering::Relaxed) {
        match lnet.poll()? {
            Some(event) => {
                empty = 0;
                store.take(lnet, event)?;
            }
            None if empty < EMPTY_TURNS => {
                empty += 1;
                std::hint::spin_loop();
            }
            None => std::thread::sleep(PAUSE),
        }
    }
    lnet.shut_down(FAREWELL)?;
    Ok(())
}

/// What was written.
struct Store {
    region: Arc<MemoryRegion>,
    /// Requests whose memory another has, with where they are from.
    waiting: HashMap<RequestId, Header>,
}

impl Store {
    fn take(&mut self, lnet: &mut Lnet, event: Event) -> Result<(), Failure> {
        match event {
            Event::Incoming { request, header, .. } => self.answer(lnet, request, header),
            Event::Answered { payload, result, .. } => {
                if let Err(error) = result {
                    eprintln!("lnet: a request was not answered: {error}");
                }
                drop(payload);
                let waiting: Vec<_> = self.waiting.drain().collect();
                waiting.into_iter().for_each(|(request, header)| self.answer(lnet, request, header));
            }
            Event::Connected { peer, version, queue_depth, max_fragments } => {
                println!("{peer} is connected: version {version:#x}, {queue_depth} credits, {max_fragments} fragments");
            }
            Event::Disconnected { peer, failure } => println!("{peer} is disconnected: {failure}"),
            _ => {}
        }
        Ok(())
    }

    fn answer(&mut self, lnet: &mut Lnet, request: RequestId, header: Header) {
        let (portal, place, len, is_put) = match header.message {
            LnetMessage::Put(put) => (put.portal, put.match_bits, header.payload_length, true),
            LnetMessage::Get(get) => (get.portal, get.match_bits, get.sink_length, false),
            _ => return refuse(lnet, request),
        };
        let at = match (portal, place) {
            (ping::PORTAL, ping::MATCH_BITS) if !is_put => PLACES * TRANSFER_BYTES,
            (BRW_PORTAL, place) if place < PLACES as u64 => place as usize * TRANSFER_BYTES,
            _ => return refuse(lnet, request),
        };
        let info = ping::info(lnet.nid());
        let len = if portal == ping::PORTAL { info.len().min(len as usize) } else { len as usize };
        if len > TRANSFER_BYTES {
            return refuse(lnet, request);
        }
        let payload = match len {
            0 => Ok(Payload::default()),
            len => self.region.buffer(at..at + len).map(|buffer| Payload::new(vec![buffer]).unwrap_or_default()),
        };
        let Ok(mut payload) = payload else {
            self.waiting.insert(request, header);
            return;
        };
        if portal == ping::PORTAL {
            payload.write(&info[..len]);
        }
        let answered = if is_put { lnet.receive(request, payload) } else { lnet.reply(request, payload) };
        if let Err(refused) = answered {
            eprintln!("lnet: a request was not answered: {refused}");
        }
    }
}

fn refuse(lnet: &mut Lnet, request: RequestId) {
    // One whose connection is gone needs no answer.
    let _ = lnet.refuse(request, status::ENOENT);
}
