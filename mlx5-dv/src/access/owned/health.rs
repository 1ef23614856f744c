//! Checks firmware's health. PRM "Health Buffer", "Health Counter".

use std::time::Duration;

use mlx5_prm::init_seg::HealthSyndrome;

use super::registers::Registers;
use crate::access::liveness::Liveness;
use crate::error::Death;

/// Watches the health counter and the health buffer.
#[derive(Debug)]
pub struct Health {
    /// The counter's last value, and when it last changed.
    last: Option<(u32, Duration)>,
    /// How long the counter may stand still.
    patience: Duration,
    /// The last reported syndrome: each is logged once.
    reported: HealthSyndrome,
}

impl Health {
    /// Starts without a measurement.
    pub fn new(patience: Duration) -> Self {
        Health { last: None, patience, reported: HealthSyndrome::None }
    }

    /// Checks once; marks the card dead if it is.
    pub fn check(&mut self, registers: &Registers, liveness: &Liveness, now: Duration) {
        // A failed register access has marked the card dead already.
        let _ = self.look(registers, liveness, now);
    }

    fn look(&mut self, registers: &Registers, liveness: &Liveness, now: Duration) -> Result<(), Death> {
        let health = registers.health()?;
        // After it: a card that vanishes in between is not ill, though its registers read as ones.
        registers.check_presence()?;
        let syndrome = health.synd();
        // Only a syndrome with rfr (reset required) is fatal. Others are logged, whatever their severity: a card that
        // reports high temperature still works.
        if syndrome != HealthSyndrome::None && health.rfr() {
            liveness.end(Death::Health { syndrome, ext_synd: health.ext_synd() });
            return Ok(());
        }
        if registers.interface_disabled()? {
            liveness.end(Death::Disabled);
            return Ok(());
        }
        if syndrome != self.reported {
            tracing::warn!(%syndrome, ext_synd = health.ext_synd(), "health syndrome");
            self.reported = syndrome;
        }
        let counter = registers.health_counter()?;
        match self.last {
            Some((last, since)) if last == counter => {
                let after = now.saturating_sub(since);
                if after >= self.patience {
                    liveness.end(Death::CounterStill { after });
                }
            }
            _ => self.last = Some((counter, now)),
        }
        Ok(())
    }
}
