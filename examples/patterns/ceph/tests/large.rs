//! Operations of 1 MiB in virtual time: what lost frames cost are waits for the card's timer, and these are few.

mod common;

use std::time::Duration;

use common::{LONG, Pair, SERVER, pattern};
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::wire::{Data, OsdOp, OsdReply};
use mlx5_ceph::{Event, Messenger, MessengerOptions};
use mlx5_sim::world::Conditions;

const BYTES: usize = 1 << 20;
const OPERATIONS: u64 = 12;
/// Of the card's timer: 4.096 us << 14, which is the timeout of our queue pairs.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 14);

/// More than an operation takes that waits for no timer.
const QUICK: Duration = Duration::from_micros(100);

/// How long operations take on a connection that is there, two at a time, over a cable that loses `loss` of a
/// million frames.
fn time_of(seed: u64, loss: u32) -> Duration {
    let pair = Pair::with(seed, Conditions { loss, ..Conditions::default() });
    let messenger = |at: usize| {
        let mut options = if at == 0 { MessengerOptions::client(1) } else { MessengerOptions::osd(0) };
        (options.stack.buffer_size, options.stack.send_buffers, options.stack.receive_queue_len) = (8192, 512, 1023);
        Messenger::with_lines(&pair.devices[at], options, Box::new(pair.lines[at].clone())).unwrap()
    };
    let (mut client, mut server) = (messenger(0), messenger(1));
    server.bind(SERVER.parse().unwrap()).unwrap();
    let peer = client.connect(SERVER.parse().unwrap()).unwrap();
    let content = Data::from(pattern(1, BYTES));
    let (mut sent, mut answered, mut begin) = (0, 0, pair.now());
    while answered < OPERATIONS {
        assert!(pair.now() < begin + LONG);
        while sent < OPERATIONS && sent < answered + 2 {
            sent += 1;
            let op = OsdOp { object: "object".into(), pool: 1, tid: sent, bytes: BYTES as u32 };
            client.send(peer, Message::new(op.header(), op.encode(), content.clone())).unwrap();
        }
        let moved = client.poll().unwrap() | server.poll().unwrap();
        while let Some(event) = server.next_event() {
            if let Event::Message(from, message) = event {
                assert!(*message.data == *content);
                let reply = OsdReply { object: "object".into(), result: 0 };
                let tid = message.header.tid;
                server.send(from, Message::new(reply.header(tid), reply.encode(), Data::default())).unwrap();
            }
        }
        while let Some(event) = client.next_event() {
            match event {
                Event::Connected(_) => begin = pair.now(),
                Event::Message(..) => answered += 1,
                Event::Broken(..) => panic!("broken"),
                _ => {}
            }
        }
        pair.pause(moved);
    }
    pair.assert_lawful();
    pair.now() - begin
}

/// Of a thousand packets and the few that answer them one in a hundred is lost. Nearly always another one comes behind
/// it, out of sequence, and the NAK has it sent again at once. The timer alone helps if that NAK, or the first packet
/// that is sent again, is lost, too: a responder asks once. Or if nothing comes behind: IBTA 9.7.6.1.3.
#[test]
fn lost_frames_cost_a_timeout_where_nothing_else_tells_of_them() {
    let whole = time_of(1, 0);
    assert!(whole < OPERATIONS as u32 * QUICK, "{whole:?}");
    let mut all = 0;
    for seed in 1..4 {
        let more = time_of(seed, 10_000) - whole;
        let timeouts = (more.as_secs_f64() / TIMEOUT.as_secs_f64()).round() as u32;
        assert!(more < timeouts * TIMEOUT + OPERATIONS as u32 * QUICK, "{more:?} are not {timeouts} timeouts");
        assert!(u64::from(timeouts) <= OPERATIONS / 2, "{timeouts} timeouts");
        println!("{more:?}: {timeouts} timeouts");
        all += timeouts;
    }
    assert!(all > 0);
}
