//! Options of GENEVE that flow rules match.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{
    CreateGeneralObjectIn, DestroyGeneralObjectIn, QueryGeneralObjectIn, QueryGeneralObjectOut, ReplyWithTail, WithTail,
};
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{GeneveTlvOption, ObjType};

use crate::access::RawCommand;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// An option of GENEVE whose data flow rules match, in whatever place among a frame's options it is:
/// [`FlowMatch::geneve_option_data`](crate::objects::FlowMatch::geneve_option_data). PRM "GENEVE_TLV_OPT".
///
/// Match parameters have room for one option, which all users of a card share: its kernel's and other programs' too.
/// Rules that match it keep it. Dropping it, and them, ends it.
///
/// ```no_run
/// use mlx5_dv::objects::{FlowActions, FlowMatch, FlowRule, FlowRules, GeneveOption};
///
/// fn drop_tenant(device: &std::sync::Arc<mlx5_dv::Device>, rules: &FlowRules) -> Result<FlowRule, mlx5_dv::Error> {
///     let tenant = GeneveOption::create(device, 0x0102, 0x03, 1)?;
///     rules.add(0, &FlowMatch::new().geneve_option_data(&tenant, 0x00c0_ffee, u32::MAX), FlowActions::drop())
/// }
/// ```
#[derive(Debug)]
pub struct GeneveOption {
    class: u16,
    kind: u8,
    words: u8,
    object: Object,
}

impl GeneveOption {
    /// Makes the card look for the option of `class`, type `kind` and `words` words of data, of which the first is
    /// matched.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that looks for none (`general_obj_types`); [`Error::Invalid`] for data of a
    /// length that it does not look at; [`Error::Command`] if there is an option already (`max_geneve_tlv_options`);
    /// [`Error::Io`].
    pub fn create(device: &Arc<Device>, class: u16, kind: u8, words: u8) -> Result<Arc<Self>, Error> {
        let most = longest(device)?;
        if !(1..=most).contains(&words) {
            let wrong = Invalid::out_of_range("words of a GENEVE option", words.into(), 1..=most.into(), "this card");
            return Err(wrong.capability("max_geneve_tlv_option_data_len").into());
        }
        let (mut create, mut context) = (CreateGeneralObjectIn::default(), GeneveTlvOption::ZERO);
        create.w().obj_type(ObjType::GeneveTlvOpt);
        context.w().option_class(class).option_type(kind).option_data_length(words);
        let create = WithTail::new(create, Layout::as_bytes(&context).to_vec());
        let what = "a GENEVE option";
        // SAFETY: an object of this type is what the card's parser looks for, and the command names no memory.
        let created = unsafe {
            Object::create_over_memory(device, &create, what, |out| {
                let mut destroy = DestroyGeneralObjectIn::default();
                destroy.w().obj_type(ObjType::GeneveTlvOpt).obj_id(out.reply.obj_id());
                (destroy, format!("GENEVE option {class:#06x}/{kind:#04x}"))
            })
        };
        let (object, out) = created?;
        let option = GeneveOption { class, kind, words, object };
        match option.field(out.reply.obj_id())? {
            0 => Ok(Arc::new(option)),
            field => {
                // Match parameters have the data of option 0 alone.
                let wrong = Invalid::out_of_range("geneve_option_fte_index", field.into(), 0..=0, "a flow rule");
                Err(wrong.mend("end the other options of this card first").into())
            }
        }
    }

    /// `geneve_option_fte_index`: which field of match parameters has the data.
    fn field(&self, obj_id: u32) -> Result<u8, Error> {
        let mut query = QueryGeneralObjectIn::default();
        query.w().obj_type(ObjType::GeneveTlvOpt).obj_id(obj_id);
        let mut query = WithTail::<_, u8>::new(query, Vec::new());
        query.out_tail = GeneveTlvOption::SIZE;
        let raw = RawCommand::new(&query, self.object.name());
        // SAFETY: the query changes nothing and names no memory.
        let output = unsafe { self.device().access().query(self.object.handle(), raw.clone()) };
        let reply: ReplyWithTail<QueryGeneralObjectOut> = raw.reply(&output?)?;
        Ok(GeneveTlvOption::read(&reply.tail).unwrap_or_default().geneve_option_fte_index())
    }

    /// Class of the option.
    pub fn class(&self) -> u16 {
        self.class
    }

    /// Type of the option, with the bit that says that it is critical.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Length of its data, in words of four bytes.
    pub fn words(&self) -> u8 {
        self.words
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Ends the option, which no match or rule may have. On an error it stays alive, and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |option| option.object.destroy())
    }
}

/// The longest data of an option that the card looks for, in words.
fn longest(device: &Device) -> Result<u8, Error> {
    let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    let has = general.general_obj_types() >> ObjType::GeneveTlvOpt.number() & 1 != 0;
    let lacking = [
        ("general_obj_types (GENEVE_TLV_OPT)", !has),
        ("max_geneve_tlv_options", general.max_geneve_tlv_options() == 0),
        ("max_geneve_tlv_option_data_len", general.max_geneve_tlv_option_data_len() == 0),
    ];
    match lacking.into_iter().find(|(_, lacks)| *lacks) {
        Some((capability, _)) => Err(Error::Unsupported { what: "options of GENEVE in flow rules".into(), capability }),
        None => Ok(general.max_geneve_tlv_option_data_len()),
    }
}
