//! Invalid arguments: one variant per cause, with the values that were compared.

use std::ops::{Range, RangeInclusive};

use mlx5_prm::ctx::QueueState;
use mlx5_prm::values::ServiceType;

/// An argument, or a combination of arguments, that can never work. Nothing was changed.
///
/// `what` is the name of an option or attribute as it is in the program, such as `send_wqes`. Objects are named by kind
/// and number, such as `QP 0x43`. `capability` is the PRM name of the capability that sets a limit.
///
/// ```
/// use mlx5_dv::{Error, Invalid};
///
/// // The largest accepted value, if `error` reports a value that is too large.
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
    /// A number outside its range.
    #[error(
        "{what} is {given}, and {of} takes {}{}{}", range_text(limit), capability_text(*capability, limit), mend_text(*mend)
    )]
    OutOfRange {
        /// The option or attribute.
        what: &'static str,
        /// The value as it is compared: rounded up to a power of two where the card needs one.
        given: u64,
        /// The accepted range; empty if no value is accepted.
        limit: RangeInclusive<u64>,
        /// What sets the limit, such as `this card`.
        of: &'static str,
        /// The capability that sets the limit.
        capability: Option<&'static str>,
        /// What to do about it, if known.
        mend: Option<&'static str>,
    },
    /// A number too large for its field.
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
    /// A range that is empty, or exceeds the object that it is a part of.
    #[error("{what} {given:?} of {of}{}", bounds_text(given, *len))]
    OutOfBounds {
        /// The unit: bytes, indices.
        what: &'static str,
        /// The range.
        given: Range<u64>,
        /// The object that contains the range.
        of: &'static str,
        /// Its length.
        len: u64,
    },
    /// A range that overlaps one in use.
    #[error("{what} {given:?} overlap {taken:?}, which {by} has")]
    Overlap {
        /// The unit.
        what: &'static str,
        /// The range.
        given: Range<u64>,
        /// The range in use.
        taken: Range<u64>,
        /// Its user.
        by: &'static str,
    },
    /// An empty argument that must not be empty.
    #[error("{what} without {lacks}")]
    Empty {
        /// The object to create.
        what: &'static str,
        /// What is missing.
        lacks: &'static str,
    },
    /// A call or option that requires another option.
    #[error("{what} needs {requires}")]
    Requires {
        /// The call or option.
        what: String,
        /// The requirement.
        requires: &'static str,
    },
    /// A WQE that is longer than the card supports.
    #[error(
        "{what} {sges}{} need a WQE of {needed} bytes, and this card takes at most {most} ({capability})", inline_text(*inline_bytes)
    )]
    WqeTooLong {
        /// The option that sets the number of scatter/gather elements.
        what: &'static str,
        /// Its value.
        sges: u16,
        /// The option for bytes of inline data; `None` for receives.
        inline_bytes: Option<u16>,
        /// Bytes of a WQE that holds them.
        needed: u64,
        /// The largest WQE of this card in bytes.
        most: u64,
        /// The capability that sets the limit.
        capability: &'static str,
    },
    /// Packets larger than the port's MTU.
    #[error("{}", mtu_text(what, *payload, *headers, *mtu, *max_mtu, *syndrome))]
    PortMtu {
        /// The attribute, or the kind of packets.
        what: &'static str,
        /// Payload bytes per packet.
        payload: u32,
        /// Bytes of headers that a packet may have.
        headers: u32,
        /// The port's MTU, in bytes.
        mtu: u16,
        /// The port's maximum MTU, if known: see [`Options::mtu`](crate::Options::mtu).
        max_mtu: Option<u16>,
        /// The syndrome of firmware's BAD_PARAM, if firmware was asked.
        syndrome: Option<u32>,
    },
    /// Objects of different devices.
    #[error("{what} must be of one device")]
    ForeignDevice {
        /// The objects.
        what: &'static str,
    },
    /// A feature that this kind of access does not have: only the kernel has it, or only an owned function does.
    #[error("{}: {mend}", access_text(what, device, *kernel))]
    WrongAccess {
        /// The feature.
        what: &'static str,
        /// The device string.
        device: String,
        /// Whether the kernel owns the function (`devx:`).
        kernel: bool,
        /// What to do instead.
        mend: &'static str,
    },
    /// A queue in a state that does not allow the call. For queue pairs: [`StateError`](crate::StateError).
    #[error("{object} is in {state}, and {call} needs {wanted}; first call {first}")]
    WrongState {
        /// The queue.
        object: String,
        /// The state it is in.
        state: QueueState,
        /// The call.
        call: &'static str,
        /// The state, or states, that the call requires.
        wanted: &'static str,
        /// The call that leads to that state.
        first: &'static str,
    },
    /// A call for queue pairs of another service type.
    #[error("{object} is of service {service}, and {call} is for {}: use {instead}", services_text(wanted))]
    WrongService {
        /// The queue pair.
        object: String,
        /// Its service type.
        service: ServiceType,
        /// The call.
        call: &'static str,
        /// The service types that the call supports.
        wanted: &'static [ServiceType],
        /// The calls for its service type.
        instead: &'static str,
    },
    /// A queue can be handed out only once between two resets.
    #[error("the {queue} of {object} was handed out already: reset {object} first")]
    QueueTaken {
        /// The object.
        object: String,
        /// Which of its queues.
        queue: &'static str,
    },
    /// A reset of an object whose queue is in use.
    #[error("{object} cannot be reset while its {queue} is in use: drop the queue first")]
    QueueInUse {
        /// The object.
        object: String,
        /// Which of its queues.
        queue: &'static str,
    },
    /// A unique resource that is in use.
    #[error("{what} is taken by {by}: {mend}")]
    Taken {
        /// The resource.
        what: String,
        /// Its user.
        by: String,
        /// What to do instead.
        mend: &'static str,
    },
    /// A full table.
    #[error("all {entries} entries of {object} are taken: {mend}")]
    NoRoom {
        /// The table.
        object: String,
        /// Its number of entries.
        entries: u64,
        /// How to get a free one.
        mend: &'static str,
    },
    /// A flow rule that matches other fields than its group or matcher compares.
    #[error(
        "the rule matches bits that {by} does not look at, or not all that it does: byte {offset:#x} of fte_match_param"
    )]
    OutsideCriteria {
        /// The group or matcher.
        by: String,
        /// The first byte of `fte_match_param` with such bits.
        offset: usize,
    },
    /// Two header fields that exclude each other, in what a flow rule matches.
    #[error("no frame has both {first} and {second}")]
    Contradiction {
        /// The field that was named first.
        first: String,
        /// The other one.
        second: String,
    },
    /// A flow rule that names something twice.
    #[error("a flow rule names {what} twice: leave one of them out")]
    NamedTwice {
        /// What it names.
        what: String,
    },
    /// An action of a flow rule that has no effect, since of what else the rule does.
    #[error("{action} has no effect in a rule that {beside}: leave one of them out")]
    NoEffect {
        /// The action, such as `a flow tag`.
        action: &'static str,
        /// What the rule does, such as `drops frames`.
        beside: &'static str,
    },
    /// A UAR page with the wrong mapping for the call.
    #[error("UAR page {page:#x} is {}: {mend}", mapping.text())]
    UarMapping {
        /// Its number.
        page: u32,
        /// How it is mapped.
        mapping: MappingKind,
        /// What to do instead.
        mend: &'static str,
    },
    /// An address that cannot be resolved.
    #[error("the {what} of {of} is not known: {mend}")]
    Unknown {
        /// What is missing, such as `MAC address`.
        what: &'static str,
        /// The object whose address it is.
        of: String,
        /// What to do.
        mend: &'static str,
    },
    /// A value of the wrong kind.
    #[error("{given} is no {what}{}", mend_text(*mend))]
    NotA {
        /// The expected kind.
        what: &'static str,
        /// The value, as text.
        given: String,
        /// What to use instead, if known.
        mend: Option<&'static str>,
    },
}

impl Invalid {
    /// `what` is `given`; `of` accepts `limit`.
    pub(crate) fn out_of_range(what: &'static str, given: u64, limit: RangeInclusive<u64>, of: &'static str) -> Self {
        Invalid::OutOfRange { what, given, limit, of, capability: None, mend: None }
    }

    /// Names the capability that sets the range.
    pub(crate) fn capability(mut self, name: &'static str) -> Self {
        if let Invalid::OutOfRange { capability, .. } = &mut self {
            *capability = Some(name);
        }
        self
    }

    /// Adds what to do about it.
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
    /// Not mapped: doorbells are written through the access.
    Unmapped,
    /// Mapped, uncached or write combining.
    Mapped,
    /// Mapped write combining.
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

/// For a capability whose PRM name begins with `log_`, the message shows the logarithm beside the limit.
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
