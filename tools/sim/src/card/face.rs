//! Properties of a function that its handles can read without asking the card.

use std::sync::Arc;

use super::claim::Driver;
use crate::dma::Dma;
use crate::fault::Faults;
use crate::function::Function;
use crate::profile::Profile;
use crate::strict::Strict;

/// Constant or shared properties of a function.
#[derive(Debug)]
pub(super) struct Face {
    pub index: usize,
    pub profile: Profile,
    pub strict: Strict,
    pub faults: Faults,
    pub dma: Dma,
    pub driver: Arc<Driver>,
    pub bar_size: u64,
    pub vectors: u16,
}

impl Face {
    pub(super) fn of(function: &Function) -> Arc<Self> {
        Arc::new(Face {
            index: function.nic.index,
            profile: function.nic.profile.clone(),
            strict: function.nic.strict.clone(),
            faults: function.nic.faults.clone(),
            dma: function.nic.dma.clone(),
            driver: Arc::default(),
            bar_size: function.bar.size(),
            vectors: function.nic.pci.vectors(),
        })
    }
}
