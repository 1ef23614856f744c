//! Steering of the frames that a function receives to queues for Ethernet frames.

use std::sync::Arc;

use crate::device::{Device, Hearing, check_groups};
use crate::error::Error;
use crate::net::{Mac, Promiscuous};
use crate::objects::{FlowGroup, FlowMatch, FlowMatcher, FlowRule, FlowTable, Tir};

/// Rules that match the same fields, at least one, and where matching frames go.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) rules: Vec<(FlowMatch, Arc<Tir>)>,
}

impl Class {
    /// Frames to `addresses`, all to `tir`.
    pub(super) fn by_address(addresses: &[Mac], tir: &Arc<Tir>) -> Self {
        let rules = addresses.iter().map(|&mac| (FlowMatch::new().destination_mac(mac), Arc::clone(tir)));
        Class { rules: rules.collect() }
    }

    /// A match of the class's fields.
    fn example(&self) -> FlowMatch {
        self.rules.first().map_or_else(FlowMatch::new, |(matched, _)| matched.clone())
    }
}

/// The function's own address, broadcast, and `groups`, which must be multicast.
pub(super) fn addresses(device: &Device, groups: &[Mac]) -> Result<Vec<Mac>, Error> {
    check_groups(groups)?;
    Ok([device.mac(), Mac::BROADCAST].iter().chain(groups).copied().collect())
}

/// Rules that bring frames to queues, until it is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    _hearing: Option<Hearing>,
    _rules: Vec<FlowRule>,
    is_promiscuous: bool,
    device: Arc<Device>,
}

impl Listening {
    /// Brings frames to the function's own address, to broadcast and to `groups` to `tir`, in place of what `listening`
    /// did.
    pub(super) fn replace(listening: &mut Option<Self>, groups: &[Mac], tir: &Arc<Tir>) -> Result<(), Error> {
        let addresses = addresses(tir.device(), groups)?;
        *listening = None;
        let classes = [Class::by_address(&addresses, tir)];
        *listening = Some(Self::start(tir.device(), &addresses, &classes)?);
        Ok(())
    }

    /// Brings all frames of the port to `tir`, in place of what `listening` did.
    pub(super) fn to_all(listening: &mut Option<Self>, tir: &Arc<Tir>) -> Result<(), Error> {
        *listening = None;
        let device = tir.device();
        device.check_promiscuous()?;
        let all = [Class { rules: vec![(FlowMatch::new(), Arc::clone(tir))] }];
        let mut started = Self::alone(device, &[Mac::BROADCAST], &all)?;
        // Before it is set: dropping clears it.
        started.is_promiscuous = true;
        device.set_promiscuous(Promiscuous::all())?;
        *listening = Some(started);
        Ok(())
    }

    /// Brings frames to `addresses`, which [`addresses`] gave, to where `classes` say, the first class first.
    pub(super) fn start(device: &Arc<Device>, addresses: &[Mac], classes: &[Class]) -> Result<Self, Error> {
        match device.is_owned() {
            true => Self::alone(device, addresses, classes),
            false => Self::beside_kernel(device, classes),
        }
    }

    fn alone(device: &Arc<Device>, addresses: &[Mac], classes: &[Class]) -> Result<Self, Error> {
        let count = |class: &Class| u32::try_from(class.rules.len()).unwrap_or(u32::MAX);
        let entries = classes.iter().map(count).fold(0, u32::saturating_add);
        let table = FlowTable::create(device, 0, entries)?;
        let (mut rules, mut start) = (Vec::new(), 0);
        for class in classes {
            let end = start + count(class);
            let group = FlowGroup::create(&table, start..end, &class.example())?;
            for (matched, tir) in &class.rules {
                rules.push(FlowRule::create(&group, matched, tir)?);
            }
            start = end;
        }
        // Broadcast counts as multicast here: Linux lists it, too.
        let hearing = Some(device.hear(&addresses[1..])?);
        let listening =
            Listening { _hearing: hearing, _rules: rules, is_promiscuous: false, device: Arc::clone(device) };
        table.set_root()?;
        Ok(listening)
    }

    fn beside_kernel(device: &Arc<Device>, classes: &[Class]) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (priority, class) in (0..).zip(classes) {
            let matcher = FlowMatcher::create(device, priority, &class.example())?;
            for (matched, tir) in &class.rules {
                rules.push(FlowRule::beside_kernel(&matcher, matched, tir)?);
            }
        }
        Ok(Listening { _hearing: None, _rules: rules, is_promiscuous: false, device: Arc::clone(device) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // On a dead card nothing is left to be cleared.
        if self.is_promiscuous
            && let Err(error) = self.device.set_promiscuous(Promiscuous::empty())
            && !error.is_dead()
        {
            tracing::warn!(%error, "the function's promiscuous mode is left as it was");
        }
    }
}
