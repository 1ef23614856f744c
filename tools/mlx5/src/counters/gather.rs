//! Where each counter comes from, by the way to the card.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mlx5_dv::discovery::{DeviceName, Interface, RdmaDevice, Sysfs};
use mlx5_dv::{Device, Error, PortCounters, VportCounters};
use mlx5_prm::cmd::QueryQCounterOut;
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::PortCounterGroup;

use super::names::{self, PCIE, PORT};
use super::report::{Counter, Group, Sample};
use crate::output::Failure;

/// The port of the kernel's device that the driver uses.
const LINUX_PORT: u8 = 1;
/// A setting among the counters: how long the kernel keeps what it read, in milliseconds.
const LIFESPAN: &str = "lifespan";
const OURS: &str = "this program drives the function: the kernel keeps no counters of it";

/// A card that was opened, and what the system shows of it.
pub struct Card<'a> {
    /// What it was opened by.
    pub name: &'a DeviceName,
    /// The card.
    pub device: &'a Device,
    /// The system.
    pub sysfs: &'a Sysfs,
}

impl Card<'_> {
    /// All counters as they are now.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn sample(&self) -> Result<Sample, Failure> {
        let mut sample = Sample::now();
        match self.name {
            DeviceName::Devx(name) => self.of_kernel(name, &mut sample)?,
            _ => self.of_own(&mut sample)?,
        }
        Ok(sample)
    }

    /// The kernel keeps the function: it is asked, but for the vport, which the card tells.
    fn of_kernel(&self, name: &str, sample: &mut Sample) -> Result<(), Failure> {
        let interface = interface(self.sysfs.rdma_device(name).as_ref());
        let counters = interface.and_then(|interface| match Interface::counters(&interface) {
            Ok(counters) => Ok((format!("ethtool -S {interface}"), counters)),
            Err(error) => Err(format!("{interface}: {error}")),
        });
        self.vport(sample)?;
        match counters {
            Ok((source, counters)) => of_interface(&source, counters, sample),
            Err(reason) => {
                sample.unknown(Group::Port, "", reason.clone());
                sample.unknown(Group::Pcie, "", reason.clone());
                sample.unknown(Group::Netdev, "", reason);
            }
        }
        let source = format!("/sys/class/infiniband/{name}/ports/{LINUX_PORT}");
        let own = self.sysfs.hw_counters(name, LINUX_PORT).into_iter().filter(|(name, _)| name != LIFESPAN);
        let (queue, hardware): (Vec<_>, Vec<_>) = own.map(Counter::of).partition(|counter| of_queues(&counter.name));
        sample.add(Group::Queue, &format!("{source}/hw_counters"), queue);
        sample.add(Group::Hardware, &format!("{source}/hw_counters"), hardware);
        let standard = self.sysfs.standard_counters(name, LINUX_PORT).into_iter().map(Counter::of);
        sample.add(Group::Infiniband, &format!("{source}/counters"), standard.collect());
        Ok(())
    }

    /// The function is ours: registers and commands tell.
    fn of_own(&self, sample: &mut Sample) -> Result<(), Failure> {
        let mut groups = Groups::default();
        for name in PORT.iter() {
            match groups.get(self.device, name.group, name.priority)? {
                Ok(group) => {
                    let value = group.get(name.prm).ok_or_else(|| format!("PPCNT has no {}", name.prm))?;
                    sample.put(Group::Port, Counter { name: name.name.clone(), value, prm: Some(name.prm) });
                }
                Err(reason) => sample.unknown(Group::Port, &name.group.to_string(), reason.clone()),
            }
        }
        sample.source(Group::Port, "register PPCNT");
        self.pcie(sample)?;
        self.vport(sample)?;
        sample.unknown(
            Group::Queue,
            "",
            "this program drives the function, and has made no queue pair that could have counted".into(),
        );
        let prm = "rx_icrc_encapsulated";
        match groups.get(self.device, PortCounterGroup::EthernetExtended, 0)? {
            Ok(group) => {
                let value = group.get(prm).ok_or("PPCNT has no rx_icrc_encapsulated")?;
                sample.add(
                    Group::Hardware,
                    "register PPCNT",
                    vec![Counter { name: prm.into(), value, prm: Some(prm) }],
                );
            }
            Err(reason) => sample.unknown(Group::Hardware, "", reason.clone()),
        }
        sample.unknown(Group::Infiniband, "", format!("{OURS}; those of the vport count the same packets"));
        sample.unknown(Group::Netdev, "", OURS.into());
        Ok(())
    }

    fn pcie(&self, sample: &mut Sample) -> Result<(), Failure> {
        match answer(self.device.query_pcie_counters())? {
            Ok(read) => {
                let read = read.ok_or("the card's registers are the kernel's")?;
                let known = PCIE.iter().filter_map(|(name, prm)| {
                    Some(Counter { name: (*name).to_owned(), value: read.get(prm)?, prm: Some(prm) })
                });
                let known: Vec<Counter> = known.collect();
                match known.is_empty() {
                    true => sample.unknown(Group::Pcie, "", "the card announces none (MCAM)".into()),
                    false => sample.add(Group::Pcie, "register MPCNT", known),
                }
            }
            Err(reason) => sample.unknown(Group::Pcie, "", reason),
        }
        Ok(())
    }

    fn vport(&self, sample: &mut Sample) -> Result<(), Failure> {
        match answer(self.device.query_vport_counters())? {
            Ok(counters) => {
                let all = names::of_vport(&counters).into_iter().map(Counter::of);
                sample.add(Group::Vport, "QUERY_VPORT_COUNTER", all.collect());
            }
            Err(reason) => sample.unknown(Group::Vport, "", reason),
        }
        Ok(())
    }
}

/// The groups of register PPCNT that were read.
#[derive(Default)]
struct Groups(BTreeMap<(u32, u8), Result<PortCounters, String>>);

impl Groups {
    /// The group, or why the card has it not.
    fn get(
        &mut self,
        device: &Device,
        group: PortCounterGroup,
        priority: u8,
    ) -> Result<&Result<PortCounters, String>, Failure> {
        match self.0.entry((group.number(), priority)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let read = answer(device.query_port_counters(group, priority))?;
                let read = read.and_then(|read| read.ok_or_else(|| "the kernel passes no register on".to_owned()));
                Ok(new.insert(read))
            }
        }
    }
}

/// The network interface of the kernel's device.
fn interface(rdma: Option<&RdmaDevice>) -> Result<String, String> {
    let rdma = rdma.ok_or("the system shows no such RDMA device any more")?;
    let port = rdma.ports.iter().find(|port| port.number == LINUX_PORT).ok_or("the RDMA device has no port 1")?;
    port.interface.clone().ok_or_else(|| "the port's network interface is not in this network namespace".into())
}

/// Adds the counters of the kernel's network interface: the port's, and its own. Those of the vport are known already.
fn of_interface(source: &str, counters: Vec<(String, u64)>, sample: &mut Sample) {
    let of_vport: BTreeSet<String> =
        names::of_vport(&VportCounters::default()).into_iter().map(|(name, _)| name).collect();
    let (mut port, mut pcie, mut netdev) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in counters {
        let of_port = PORT.iter().find(|port| port.name == name || global(&port.name) == name);
        let of_pcie = PCIE.iter().find(|(known, _)| *known == name);
        match (of_port, of_pcie) {
            (Some(known), _) => port.push(Counter { name, value, prm: Some(known.prm) }),
            (None, Some((_, prm))) => pcie.push(Counter { name, value, prm: Some(prm) }),
            (None, None) if of_vport.contains(&name) => {}
            (None, None) => netdev.push(Counter { name, value, prm: None }),
        }
    }
    sample.add(Group::Port, source, port);
    sample.add(Group::Pcie, source, pcie);
    sample.add(Group::Netdev, source, netdev);
}

/// Global pause has the names of priority 0, with another word.
fn global(name: &str) -> String {
    name.replace("prio0_pause", "global_pause")
}

/// Whether QUERY_Q_COUNTER has a counter of this name, which the kernel shows under the PRM's.
fn of_queues(name: &str) -> bool {
    !["status", "syndrome"].contains(&name) && QueryQCounterOut::INFO.field(name).is_some()
}

/// The answer to a query. A refusal, or a missing capability, is why it is not known; any other failure ends the
/// program.
fn answer<T>(asked: Result<T, Error>) -> Result<Result<T, String>, Failure> {
    match asked {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::Command(error)) if error.status().is_some() => Ok(Err(error.to_string())),
        Err(Error::Unsupported { capability, .. }) => Ok(Err(format!("the card has none: {capability} is 0"))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_an_interface_are_sorted_by_what_counts() {
        let named = [
            "tx_packets_phy",
            "rx_global_pause",
            "rx_vport_unicast_packets",
            "rx0_packets",
            "tx_vport_new",
            "rx_pci_signal_integrity",
        ];
        let counters = named.map(|name| (name.to_owned(), 7)).to_vec();
        let mut sample = Sample::now();
        of_interface("ethtool -S eth0", counters, &mut sample);
        assert_eq!(sample.names(Group::Port), ["tx_packets_phy", "rx_global_pause"]);
        assert_eq!(sample.names(Group::Netdev), ["rx0_packets", "tx_vport_new"], "what nothing else shows is not lost");
        assert_eq!(sample.names(Group::Pcie), ["rx_pci_signal_integrity"]);
        assert!(of_queues("out_of_buffer") && !of_queues("roce_adp_retransmits") && !of_queues("status"));
    }
}
