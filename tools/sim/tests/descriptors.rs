//! A server whose process has run out of file descriptors continues to serve when there are some again. A test program
//! of its own, because the limit is for the whole process.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mlx5_sim::card::Card;
use mlx5_sim::serve::vfio_user::serve;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vfio_user::Client;

#[test]
fn a_client_that_comes_while_descriptors_are_short_is_served_later() {
    let folder = tempfile::tempdir().unwrap();
    let card = Card::builder().build().unwrap();
    let service = serve(card.function(0), folder.path().join("nic.sock")).unwrap();
    // Gives the server time to wait for a client, and then to find no descriptor for it.
    let patience = Duration::from_millis(500);
    std::thread::sleep(patience);
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;

    // One descriptor is left, for the client.
    setrlimit(Resource::Nofile, Rlimit { current: Some(next + 1), ..before }).unwrap();
    let client = UnixStream::connect(service.path()).unwrap();
    std::thread::sleep(patience);
    setrlimit(Resource::Nofile, before).unwrap();

    assert!(!service.has_ended(), "the server gave up");
    drop(client);
    let mut id = [0; 2];
    let mut client = Client::new(service.path()).unwrap();
    client.region_read(vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut id).unwrap();
    assert_eq!(id, [0xb3, 0x15]);
}
