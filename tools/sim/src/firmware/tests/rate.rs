//! Rates that send queues may be held to: all refusals, and whose they are.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::SetPpRateLimitContext;

use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::objects::Rate;

fn rate(index: u16, kbps: u32) -> SetPpRateLimitIn {
    let (mut command, mut context) = (SetPpRateLimitIn::default(), SetPpRateLimitContext::default());
    context.w().rate_limit(kbps).burst_upper_bound(3000);
    command.w().rate_limit_index(index).ctx(&context);
    command
}

#[test]
fn rates_are_set_within_their_table_and_range_and_cleared() {
    let mut client = Client::up();
    assert_eq!(client.refused(&rate(0, 1)), Syndrome::NoSuchRate, "0 is for no limit");
    assert_eq!(client.refused(&rate(128, 1)), Syndrome::RateIndex);
    assert_eq!(client.refused(&rate(1, 100_000_001)), Syndrome::RateRange);
    for (index, kbps) in [(1, 1), (127, 100_000_000)] {
        client.exec(&rate(index, kbps)).unwrap();
        assert_eq!(client.f.nic.objects.rates.get(index), Some(Rate { kbps, burst: 3000 }));
    }
    let mut clear = SetPpRateLimitIn::default();
    clear.w().rate_limit_index(1);
    client.exec(&clear).unwrap();
    assert_eq!(client.f.nic.objects.rates.get(1), None);
}
