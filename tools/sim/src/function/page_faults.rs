//! Page faults that software has been told of, and not dealt with yet. PRM "Page Fault Handling".

use std::collections::BTreeMap;

/// Bits of a token.
const TOKEN_BITS: u32 = 24;
/// Maximum number of page faults at one time.
const MOST: usize = 1 << 16;

/// Which side of a queue pair waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Requester,
    Responder,
}

/// A page fault that software has been told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageFault {
    /// The queue pair that waits, as the scheduler knows it.
    pub queue: u32,
    pub side: Side,
    /// `page_fault_type` and `wq_number` of the answer to a transport's fault.
    pub kind: u8,
    pub wq_number: u32,
}

/// The page faults of a function, by token.
#[derive(Debug, Default)]
pub(crate) struct PageFaults {
    /// Tokens given so far.
    given: u64,
    pending: BTreeMap<u32, PageFault>,
}

impl PageFaults {
    /// A token for the next fault; `None` if there are too many.
    pub fn token(&mut self) -> Option<u32> {
        if self.pending.len() >= MOST {
            return None;
        }
        loop {
            self.given += 1;
            let token = self.given as u32 & ((1 << TOKEN_BITS) - 1);
            if token != 0 && !self.pending.contains_key(&token) {
                return Some(token);
            }
        }
    }

    /// Software is told of this fault.
    pub fn add(&mut self, token: u32, fault: PageFault) {
        self.pending.insert(token, fault);
    }

    /// Takes the fault of this token, if it is pending and `is_meant`.
    pub fn take(&mut self, token: u32, is_meant: impl Fn(&PageFault) -> bool) -> Option<PageFault> {
        self.pending.get(&token).filter(|fault| is_meant(fault))?;
        self.pending.remove(&token)
    }

    /// Whether this token was ever given. Its queue pair may be gone since.
    pub fn was_given(&self, token: u64) -> bool {
        token > 0 && token <= self.given.min((1 << TOKEN_BITS) - 1)
    }

    /// The queue pair waits no more.
    pub fn forget(&mut self, queue: u32) {
        self.pending.retain(|_, fault| fault.queue != queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_once_and_by_the_answer_that_means_it() {
        let mut faults = PageFaults::default();
        let fault = |queue| PageFault { queue, side: Side::Requester, kind: 1, wq_number: queue };
        let (a, b) = (faults.token().unwrap(), { faults.token().unwrap() });
        faults.add(a, fault(5));
        faults.add(b, fault(6));
        assert_eq!(faults.take(a, |fault| fault.wq_number == 6), None);
        assert_eq!(faults.take(a, |_| true), Some(fault(5)));
        assert_eq!(faults.take(a, |_| true), None);
        faults.forget(6);
        assert_eq!(faults.take(b, |_| true), None);
        assert!(faults.was_given(u64::from(b)) && !faults.was_given(u64::from(b) + 1) && !faults.was_given(0));
    }

    #[test]
    fn there_is_a_limit_to_faults_at_one_time() {
        let mut faults = PageFaults::default();
        for queue in 0..MOST as u32 {
            let token = faults.token().unwrap();
            faults.add(token, PageFault { queue, side: Side::Responder, kind: 0, wq_number: 0 });
        }
        assert_eq!(faults.token(), None);
        faults.forget(9);
        assert!(faults.token().is_some());
    }
}
