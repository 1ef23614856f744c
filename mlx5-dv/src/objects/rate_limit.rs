//! Rate limits of send queues for frames ("packet pacing").

use std::sync::Arc;

use mlx5_prm::caps::{CmdHcaCap, QosCap};
use mlx5_prm::cmd::SetPpRateLimitIn;
use mlx5_prm::ctx::SetPpRateLimitContext;
use mlx5_prm::layout::Layout;

use super::check::in_range;
use super::kernel_object::KernelObject;
use crate::access::KernelObjectKind;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};

/// A rate for send queues. As libibverbs' `ibv_qp_rate_limit_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimitOptions {
    /// Thousands of bits a second. From `packet_pacing_min_rate` to `packet_pacing_max_rate`.
    pub kbps: u32,
    /// Bytes that may go out at once, if the card takes a bound (`packet_pacing_burst_bound`). Default: 0, the card's
    /// own.
    pub burst: u32,
    /// Bytes of most frames, which make the card more exact (`packet_pacing_typical_size`). Default: 0, the card's own.
    pub typical_packet: u16,
}

impl RateLimitOptions {
    /// `kbps` thousands of bits a second; everything else is the card's choice.
    pub fn new(kbps: u32) -> Self {
        RateLimitOptions { kbps, burst: 0, typical_packet: 0 }
    }

    /// Sets [`burst`](Self::burst).
    pub fn burst(mut self, bytes: u32) -> Self {
        self.burst = bytes;
        self
    }

    /// Sets [`typical_packet`](Self::typical_packet).
    pub fn typical_packet(mut self, bytes: u16) -> Self {
        self.typical_packet = bytes;
        self
    }

    fn context(self, caps: &QosCap) -> Result<SetPpRateLimitContext, Error> {
        let limits = caps.packet_pacing_min_rate().max(1).into()..=caps.packet_pacing_max_rate().into();
        in_range("kbps", self.kbps.into(), limits, "packet_pacing_min_rate, packet_pacing_max_rate")?;
        let lacks = |wanted: bool, has: bool, what: &str, capability| match wanted && !has {
            true => Err(Error::Unsupported { what: what.into(), capability }),
            false => Ok(()),
        };
        let bound = caps.packet_pacing_burst_bound();
        lacks(self.burst != 0, bound, "a bound of a rate's bursts", "packet_pacing_burst_bound")?;
        let size = caps.packet_pacing_typical_size();
        lacks(self.typical_packet != 0, size, "a rate's typical packet", "packet_pacing_typical_size")?;
        let mut context = SetPpRateLimitContext::default();
        context.w().rate_limit(self.kbps).burst_upper_bound(self.burst).typical_packet_size(self.typical_packet);
        Ok(context)
    }
}

/// A rate limit. Send queues share it by [`Sq::set_rate_limit`](super::Sq::set_rate_limit); each is held to it by
/// itself. PRM "SET_PP_RATE_LIMIT".
#[derive(Debug)]
pub struct RateLimit {
    index: u16,
    options: RateLimitOptions,
    /// On DevX the kernel has set it.
    kernel: Option<KernelObject>,
    device: Arc<Device>,
}

impl RateLimit {
    /// Sets a rate.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that limits no rates; [`Error::Invalid`] for a rate out of its range, or if all
    /// its rates are in use; [`Error::Command`], [`Error::Io`].
    pub fn create(device: &Arc<Device>, options: RateLimitOptions) -> Result<Arc<Self>, Error> {
        let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        let caps: QosCap = device.caps().current(CapPage::Qos).unwrap_or(QosCap::ZERO);
        let lacking = [("qos", !general.qos()), ("packet_pacing", !caps.packet_pacing())];
        if let Some((capability, _)) = lacking.into_iter().find(|(_, lacks)| *lacks) {
            return Err(Error::Unsupported { what: "rate limits of send queues".into(), capability });
        }
        let context = options.context(&caps)?;
        let device = Arc::clone(device);
        if let Some(kernel) = device.access().kernel_verbs() {
            let (handle, index) = kernel.set_rate_limit(context.as_bytes())?;
            let kernel = Some(KernelObject::made(&device, KernelObjectKind::RateLimit, handle));
            return Ok(Arc::new(RateLimit { index, options, kernel, device }));
        }
        let mut taken = device.rate_limits();
        let size = caps.packet_pacing_rate_table_size();
        // Index 0 stands for no limit.
        let Some(index) = (1..size).find(|index| !taken.contains(index)) else {
            let (given, limit) = (u64::from(size), 1..=u64::from(size.saturating_sub(1)));
            return Err(Invalid::out_of_range("rate limits", given, limit, "packet_pacing_rate_table_size").into());
        };
        set(&device, index, &context)?;
        taken.insert(index);
        drop(taken);
        Ok(Arc::new(RateLimit { index, options, kernel: None, device }))
    }

    /// `packet_pacing_rate_limit_index` of queues.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The rate.
    pub fn options(&self) -> RateLimitOptions {
        self.options
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for RateLimit {
    /// On DevX the kernel clears it when its object is destroyed.
    fn drop(&mut self) {
        if self.kernel.is_some() {
            return;
        }
        match set(&self.device, self.index, &SetPpRateLimitContext::ZERO) {
            Ok(()) => {
                self.device.rate_limits().remove(&self.index);
            }
            // On a dead card nothing is left to be cleared.
            Err(error) => tracing::error!(%error, "rate limit {} was not cleared", self.index),
        }
    }
}

fn set(device: &Device, index: u16, context: &SetPpRateLimitContext) -> Result<(), CommandError> {
    let mut command = SetPpRateLimitIn::default();
    command.w().rate_limit_index(index).ctx(context);
    device.execute(&command, &format!("rate limit {index}")).map(drop)
}
