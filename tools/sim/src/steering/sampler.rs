//! Flow samplers: every frame goes on to one table, and a copy of some to another. PRM "Sampler Object".
//!
//! Nobody promises which frames these are: Linux and DPDK speak of a rate, one of `sample_ratio` in the mean. So each
//! frame is drawn by itself, and who counts on every n-th one is wrong here, too. The draws are of the card's seed: in
//! virtual time every run has the same samples.

use mlx5_prm::flow::FlowTableType;

use crate::fault::Random;

/// A flow sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// Type of its tables, and of those whose entries lead to it.
    pub table_type: FlowTableType,
    /// Above that of tables whose entries lead to it, and below those of its own.
    pub level: u8,
    /// Of so many frames one is sampled in the mean; of 1, each. Never 0.
    pub ratio: u32,
    /// Where the copies go.
    pub sample_table: u32,
    /// Where all frames go.
    pub default_table: u32,
}

impl Sampler {
    /// The tables where a frame goes on.
    pub(super) fn tables(&self, chance: &mut Random) -> impl Iterator<Item = u32> + use<> {
        let sampled = (chance.below(self.ratio) == 0).then_some(self.sample_table);
        sampled.into_iter().chain([self.default_table])
    }
}
