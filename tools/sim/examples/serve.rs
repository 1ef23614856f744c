//! Serves function 0 of a software ConnectX at a vfio-user socket, until it is killed:
//! `serve SOCKET [PROFILE]`. What `mlx5 sim` does, without its options; strict violations go to standard error.

use std::error::Error;
use std::time::Duration;

use mlx5_sim::card::Card;
use mlx5_sim::profile::Profile;
use mlx5_sim::serve::vfio_user;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("usage: serve SOCKET [PROFILE]")?;
    let name = arguments.next().unwrap_or_else(|| "connectx5".into());
    let profile = Profile::by_name(&name).ok_or_else(|| format!("{name}: one of {:?}", Profile::NAMES))?;
    let card = Card::builder().profile(profile).strict(true).build()?;
    let function = card.function(0);
    let _service = vfio_user::serve(function.clone(), &socket)?;
    println!("listening on {socket}");
    loop {
        std::thread::sleep(Duration::from_millis(200));
        for violation in function.strict().take() {
            eprintln!("strict: {violation}");
        }
    }
}
