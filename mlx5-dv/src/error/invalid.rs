//! Arguments that can never work: one variant for each cause, with the values that were compared.

use std::ops::{Range, RangeInclusive};

use mlx5_prm::ctx::QueueState;
use mlx5_prm::values::ServiceType;

/// An argument, or a combination of arguments, that can never work. Nothing was changed.
///
/// `what` is the name of an option or attribute as it stands in the program, such as `send_wqes`. Objects are named by
/// kind and number, such as `QP 0x43`. `capability` is the PRM name of the capability that sets a limit.
///
/// ```
/// use mlx5_dv::{Error, Invalid};
///
/// /// The largest value that is accepted instead, where `error` is about a value that is too large.
/// fn most(error: &Error) -> Option<u64> {
///     match error {
///         Error::Invalid(Invalid::OutOfRange { given, limit, .. }) if given > limit.end() => Some(*limit.end()),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A number outside of its range.
    #[error(
        "{what} is {given}, and {of} takes {}{}{}", range_text(limit), capability_text(*capability, limit), mend_text(*mend)
    )]
    OutOfRange {
        /// The option or attribute.
        what: &'static str,
        /// The value, as the limit counts: rounded up to a power of two where the card wants one.
        given: u64,
        /// What is accepted; empty where nothing is.
        limit: RangeInclusive<u64>,
        /// Whose limit it is, such as `this card`.
        of: &'static str,
        /// The capability that sets the limit.
        capability: Option<&'static str>,
        /// What to do about it, where it is not plain.
        mend: Option<&'static str>,
    },
    /// A number with more bits than its field.
    #[error("{what} is {given:#x}, and the field has {bits} bits")]
    TooWide {
        /// The option or attribute.
        what: &'static str,
        /// The value.
        given: u64,
        /// Bits of the field.
        bits: u32,
    },
    /// A number that is not a multiple of another.
    #[error("{what} is {given:#x}, and must be a multiple of {multiple_of}")]
    Misaligned {
        /// The argument.
        what: &'static str,
        /// The value.
        given: u64,
        /// What it must be a multiple of.
        multiple_of: u64,
    },
    /// A range that is empty, or reaches beyond what it is a part of.
    #[error("{what} {given:?} of {of}{}", bounds_text(given, *len))]
    OutOfBounds {
        /// What is counted: bytes, indices.
        what: &'static str,
        /// The range.
        given: Range<u64>,
        /// What it is a part of.
        of: &'static str,
        /// How long that is.
        len: u64,
    },
    /// A range, part of which is in use.
    #[error("{what} {given:?} overlap {taken:?}, which {by} has")]
    Overlap {
        /// What is counted.
        what: &'static str,
        /// The range.
        given: Range<u64>,
        /// The one in use.
        taken: Range<u64>,
        /// Who uses that.
        by: &'static str,
    },
    /// Nothing where something is needed.
    #[error("{what} without {lacks}")]
    Empty {
        /// What was to be made.
        what: &'static str,
        /// What it was given nothing of.
        lacks: &'static str,
    },
    /// A call, or an option, that works only together with another option.
    #[error("{what} needs {requires}")]
    Requires {
        /// The call or the option.
        what: String,
        /// What it needs.
        requires: &'static str,
    },
    /// WQEs longer than the card's.
    #[error(
        "{what} {sges}{} need a WQE of {needed} bytes, and this card takes at most {most} ({capability})", inline_text(*inline_bytes)
    )]
    WqeTooLong {
        /// The option that says how many scatter/gather elements.
        what: &'static str,
        /// Its value.
        sges: u16,
        /// Bytes of inline data, the option; `None` for receives.
        inline_bytes: Option<u16>,
        /// Bytes of a WQE that holds them.
        needed: u64,
        /// Bytes of the longest WQE.
        most: u64,
        /// The capability that sets the limit.
        capability: &'static str,
    },
    /// Packets that do not pass the port.
    #[error("{}", mtu_text(what, *payload, *headers, *mtu, *max_mtu, *syndrome))]
    PortMtu {
        /// The attribute, or what packets are of.
        what: &'static str,
        /// Bytes of payload of a packet.
        payload: u32,
        /// Bytes of headers that a packet may have.
        headers: u32,
        /// The port's MTU, in bytes.
        mtu: u16,
        /// The largest that the port can have, where it is known: see [`Options::mtu`](crate::Options::mtu).
        max_mtu: Option<u16>,
        /// The syndrome of firmware's BAD_PARAM, where firmware was asked.
        syndrome: Option<u32>,
    },
    /// Objects of different devices.
    #[error("{what} must be of one device")]
    ForeignDevice {
        /// The objects.
        what: &'static str,
    },
    /// What the way to this device does not have: the kernel keeps it, or no kernel is there to keep it.
    #[error("{}: {mend}", access_text(what, device, *kernel))]
    WrongAccess {
        /// What was asked for.
        what: &'static str,
        /// The device string.
        device: String,
        /// Whether the kernel keeps the function (`devx:`), and with it what was asked for.
        kernel: bool,
        /// What to do instead.
        mend: &'static str,
    },
    /// A queue in a state that forbids the call. Queue pairs have [`StateError`](crate::StateError).
    #[error("{object} is in {state}, and {call} needs {wanted}; first call {first}")]
    WrongState {
        /// The queue.
        object: String,
        /// The state it is in.
        state: QueueState,
        /// What was called.
        call: &'static str,
        /// The state, or states, that the call needs.
        wanted: &'static str,
        /// The call that leads there.
        first: &'static str,
    },
    /// A call for queue pairs of another service.
    #[error("{object} is of service {service}, and {call} is for {}: use {instead}", services_text(wanted))]
    WrongService {
        /// The queue pair.
        object: String,
        /// Its service.
        service: ServiceType,
        /// What was called.
        call: &'static str,
        /// The services that the call is for.
        wanted: &'static [ServiceType],
        /// The calls for its service.
        instead: &'static str,
    },
    /// A queue is handed out once between two resets.
    #[error("the {queue} of {object} was handed out already: reset {object} first")]
    QueueTaken {
        /// The object.
        object: String,
        /// Which of its queues.
        queue: &'static str,
    },
    /// A reset while a queue of the object is still used.
    #[error("{object} cannot be reset while its {queue} is in use: drop the queue first")]
    QueueInUse {
        /// The object.
        object: String,
        /// Which of its queues.
        queue: &'static str,
    },
    /// Something there is one of, and it is taken.
    #[error("{what} is taken by {by}: {mend}")]
    Taken {
        /// What was asked for.
        what: String,
        /// Who has it.
        by: String,
        /// What to do instead.
        mend: &'static str,
    },
    /// A table without a free entry.
    #[error("all {entries} entries of {object} are taken: {mend}")]
    NoRoom {
        /// The table.
        object: String,
        /// How many entries it has.
        entries: u64,
        /// How to get a free one.
        mend: &'static str,
    },
    /// A rule's value has bits that its group, or matcher, does not look at.
    #[error("the rule's value has bits that {by} does not look at, in byte {offset:#x} of the headers' fields")]
    OutsideCriteria {
        /// The group or matcher.
        by: String,
        /// The first byte of `fte_match_set_lyr_2_4` with such bits.
        offset: usize,
    },
    /// A UAR page that is mapped otherwise than the call needs.
    #[error("UAR page {page:#x} is {}: {mend}", mapping.text())]
    UarMapping {
        /// Its number.
        page: u32,
        /// How it is mapped.
        mapping: MappingKind,
        /// What to do instead.
        mend: &'static str,
    },
    /// An address that nothing here knows.
    #[error("the {what} of {of} is not known: {mend}")]
    Unknown {
        /// What is missing, such as `MAC address`.
        what: &'static str,
        /// Of what.
        of: String,
        /// What to do.
        mend: &'static str,
    },
    /// A value of another kind than the call takes.
    #[error("{given} is no {what}{}", mend_text(*mend))]
    NotA {
        /// What the call takes.
        what: &'static str,
        /// The value, as text.
        given: String,
        /// What would be one.
        mend: Option<&'static str>,
    },
}

impl Invalid {
    /// `what` is `given`, and `of` takes `limit`.
    pub(crate) fn out_of_range(what: &'static str, given: u64, limit: RangeInclusive<u64>, of: &'static str) -> Self {
        Invalid::OutOfRange { what, given, limit, of, capability: None, mend: None }
    }

    /// The same, out of a range that `name` sets.
    pub(crate) fn capability(mut self, name: &'static str) -> Self {
        if let Invalid::OutOfRange { capability, .. } = &mut self {
            *capability = Some(name);
        }
        self
    }

    /// The same, out of a range; `text` says what to do.
    pub(crate) fn mend(mut self, text: &'static str) -> Self {
        if let Invalid::OutOfRange { mend, .. } = &mut self {
            *mend = Some(text);
        }
        self
    }
}

/// How a UAR page is mapped into this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingKind {
    /// Not at all: its doorbells are calls of the access.
    Unmapped,
    /// Mapped, of either kind.
    Mapped,
    /// Mapped write-combining.
    WriteCombining,
}

impl MappingKind {
    fn text(self) -> &'static str {
        match self {
            MappingKind::Unmapped => "not mapped here",
            MappingKind::Mapped => "mapped",
            MappingKind::WriteCombining => "mapped write-combining",
        }
    }
}

fn range_text(limit: &RangeInclusive<u64>) -> String {
    match limit.clone().into_inner() {
        (least, most) if least > most => "none".into(),
        (0, most) => format!("at most {most}"),
        (least, u64::MAX) => format!("at least {least}"),
        (least, most) if least == most => format!("{least}"),
        (least, most) => format!("{least} to {most}"),
    }
}

/// The PRM's names of logarithms begin with `log_`: their value is shown beside the limit that it stands for.
fn capability_text(capability: Option<&str>, limit: &RangeInclusive<u64>) -> String {
    match capability {
        None => String::new(),
        Some(log) if log.starts_with("log_") => format!(" ({log} = {})", limit.end().checked_ilog2().unwrap_or(0)),
        Some(name) => format!(" ({name})"),
    }
}

fn bounds_text(given: &Range<u64>, len: u64) -> String {
    if given.is_empty() { ": the range is empty".into() } else { format!(", which has {len}") }
}

fn inline_text(inline_bytes: Option<u16>) -> String {
    inline_bytes.map_or_else(String::new, |bytes| format!(" and inline_bytes {bytes}"))
}

fn mtu_text(what: &str, payload: u32, headers: u32, mtu: u16, max_mtu: Option<u16>, syndrome: Option<u32>) -> String {
    let lower = if max_mtu.is_some() { "use a smaller one, or " } else { "" };
    let most = max_mtu.map_or_else(String::new, |most| format!(", at most {most}"));
    let refused = syndrome.map_or_else(String::new, |syndrome| format!(" (BAD_PARAM, syndrome {syndrome:#x})"));
    format!(
        "{what} is {payload}, and the port's MTU of {mtu} leaves no room for it and {headers} bytes of headers; {lower}open \
         the card with a larger Options::mtu{most}{refused}"
    )
}

fn access_text(what: &str, device: &str, kernel: bool) -> String {
    if kernel {
        format!("the kernel keeps the {what} of {device}")
    } else {
        format!("{device} is a function of our own, where no kernel has {what}")
    }
}

fn services_text(services: &[ServiceType]) -> String {
    services.iter().map(ServiceType::to_string).collect::<Vec<_>>().join(" or ")
}

fn mend_text(mend: Option<&str>) -> String {
    mend.map_or_else(String::new, |mend| format!(": {mend}"))
}
