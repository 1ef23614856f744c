//! The driver over a socket, on a software card in another process, which is then killed.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mlx5_dv::access::UarMapping;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_dv::{Death, Device, Error, Options};
use mlx5_prm::cmd::{NopIn, QueryAdapterIn};
use mlx5_sim::card::Card;

/// A bounded time: the server's reply timeout, and some more.
const SOON: Duration = Duration::from_secs(15);
/// Environment variable with the socket's path for the child.
const SOCKET: &str = "MLX5_DV_TEST_SOCKET";

/// Runs in the child process of the other tests.
#[test]
#[ignore = "not a test: a child process of the others"]
fn serve_when_told_to() {
    let socket = std::env::var_os(SOCKET).expect("a parent that names a socket");
    let card = Card::builder().strict(true).build().unwrap();
    let _service = mlx5_sim::serve::vfio_user::serve(card.function(0), PathBuf::from(socket)).unwrap();
    // Until it is killed; but not forever, in case the parent dies.
    std::thread::sleep(Duration::from_secs(120));
}

/// A model in another process.
struct Model {
    child: Child,
    directory: tempfile::TempDir,
}

impl Model {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_when_told_to", "--ignored"])
            .env(SOCKET, directory.path().join("nic.sock"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let model = Model { child, directory };
        let begin = Instant::now();
        // The file is there before anybody listens.
        while UnixStream::connect(model.socket()).is_err() {
            assert!(begin.elapsed() < SOON, "the model does not serve");
            std::thread::sleep(Duration::from_millis(5));
        }
        model
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nic.sock")
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(socket: &Path, options: Options) -> Result<Arc<Device>, Error> {
    mlx5_open::open_with(&format!("vfio-user:{}", socket.display()), options)
}

/// Waits until `counter` is `count` above what it is now.
fn wait_for(counter: &AtomicU32, count: u32) {
    let (begin, end) = (Instant::now(), counter.load(Relaxed) + count);
    while counter.load(Relaxed) < end {
        assert!(begin.elapsed() < SOON, "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hasty() -> Options {
    let mut options = Options::default();
    options.health_interval = Duration::from_millis(20);
    options.sign_replies = true;
    options
}

#[test]
fn comes_up_over_the_socket_again_and_again() {
    let model = Model::start();
    for _ in 0..3 {
        let device = open(&model.socket(), hasty()).unwrap();
        assert!(device.port().unwrap().up);
        assert!(device.caps().log_max_qp > 0);
        let uar = device.access().alloc_uar(UarMapping::Uncached).unwrap();
        assert!(uar.mapping().is_some(), "the server hands out the memory of UAR pages");
        device.access().free_uar(uar).unwrap();
        device.execute(&NopIn::default(), "").unwrap();
    }
}

#[test]
fn a_killed_model_ends_every_wait() {
    let mut model = Model::start();
    let device = open(&model.socket(), hasty()).unwrap();
    let events = device.async_events().events;
    let begin = Instant::now();
    let answered = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (device, answered) = (&device, &answered);
        let busy: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    loop {
                        if let Err(error) = device.execute(&QueryAdapterIn::default(), "") {
                            return error;
                        }
                        answered.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        wait_for(answered, 30);
        model.child.kill().unwrap();
        for busy in busy {
            let error = busy.join().unwrap();
            assert!(error.is_dead() && error.to_string().contains("server is gone"), "{error}");
        }
    });
    assert!(events.recv_timeout(SOON).is_err(), "listeners are told");
    assert!(matches!(device.death(), Some(Error::Dead(Death::ServerGone { .. }))), "{:?}", device.death());
    drop(device);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let error = open(&model.socket(), hasty()).expect_err("nobody serves");
    assert!(error.to_string().contains("mlx5 sim --socket"), "{error}");
}

/// Two connections of `device`, connected to each other, and buffers.
fn connected(device: &Arc<Device>) -> (Connection, Connection, Vec<Buffer>) {
    let pd = Pd::alloc(device).unwrap();
    let region = MemoryRegion::allocate(&pd, 64 * 1024, AccessFlags::LOCAL_WRITE).unwrap();
    let mut a = Connection::new(&pd, ConnectionOptions::default()).unwrap();
    let mut b = Connection::new(&pd, ConnectionOptions::default()).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    (a, b, region.buffers(4096).unwrap())
}

#[test]
fn messages_arrive_over_the_socket_until_the_model_is_killed_and_nothing_is_lost_but_the_card() {
    let mut model = Model::start();
    let device = open(&model.socket(), hasty()).unwrap();
    let (mut a, mut b, mut buffers) = connected(&device);
    let mut exchange = |a: &mut Connection, b: &mut Connection, text: &[u8]| -> Result<(), String> {
        let (mut sent, target) = (buffers.pop().ok_or("no buffer")?, buffers.pop().ok_or("no buffer")?);
        sent.write(0, text);
        b.receive(target).map_err(|refused| format!("{refused:?}"))?;
        let sent = a.send_blocking(sent, SOON).map_err(|error| format!("{error:?}"))?;
        let done = b.wait(SOON).map_err(|error| format!("{error:?}"))?;
        let mut came = vec![0; text.len()];
        done.buffer.iter().for_each(|buffer| buffer.read(0, &mut came));
        assert_eq!(came, text);
        buffers.extend(sent.into_iter().chain(done.buffer));
        Ok(())
    };
    for i in 0..100u32 {
        exchange(&mut a, &mut b, &i.to_be_bytes()).unwrap();
    }
    let begin = Instant::now();
    let exchanged = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(&exchanged, 20);
            model.child.kill().unwrap();
        });
        let error = loop {
            if let Err(error) = exchange(&mut a, &mut b, b"in mid-traffic") {
                break error;
            }
            exchanged.fetch_add(1, Relaxed);
        };
        assert!(error.contains("Dead") || error.contains("ServerGone"), "{error}");
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_ne!((a.in_flight(), b.in_flight()), ((0, 0), (0, 0)), "buffers are in flight");
    let last = Arc::downgrade(&device);
    drop((a, b, buffers, device));
    assert!(last.upgrade().is_none(), "something still holds the device");
}

#[test]
fn a_model_killed_while_nobody_asks_is_noticed() {
    let mut model = Model::start();
    let device = open(&model.socket(), hasty()).unwrap();
    let events = device.async_events().events;
    model.child.kill().unwrap();
    assert!(matches!(events.recv_timeout(SOON), Err(std::sync::mpsc::RecvTimeoutError::Disconnected)));
    assert!(device.death().is_some());
}
