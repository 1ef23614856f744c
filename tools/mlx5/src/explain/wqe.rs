//! Send WQEs: decoded segment by segment, and checked.

use mlx5_prm::ctx::{AccessMode, Klm, Mkc, Mtt};
use mlx5_prm::decode::Dump;
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::obj::{FlowMeterParameters, IpsecAso, MacsecAso};
use mlx5_prm::wqe::{
    AsoCtrlSeg, AsoOpmod, AtomicSeg, BaseAv, CheckPsvSeg, CtrlSeg, DataSeg, EthSeg, FastRegisterSeg,
    FlowTblAccessOpmod, FlowUpdateCtrlSeg, GetPsvSeg, HeaderModifyArgumentUpdateSeg, InlineSegHeader, Ksm,
    MaskedAtomicSeg, MmoMetadataSeg, RaddrSeg, RepeatBlockSeg, RepeatEntry, SEGMENT, SendEnableSeg, SetPsvSeg,
    SteCtrlSeg, SteDataSeg, SteOperation, TagMatchingSeg, TlsOpmod, TlsProgressSeg, TlsStaticParams, UdAdrsVector,
    UmrCtrlSeg, UmrPointerDescArgument, WaitCqSeg, WaitOpmod, WaitSeg, WqeOpcode, XrcSeg,
};

use super::report::Report;

/// The service of a send queue, which determines the segments after the control segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// A connection: RC, UC.
    #[default]
    Connected,
    /// Datagrams.
    Ud,
    /// Dynamically connected.
    Dc,
    /// Extended reliable connected.
    Xrc,
    /// Raw packets: an SQ.
    Raw,
}

/// Report on a send WQE of a queue of this service; without it, of the one that its first segment looks like.
pub fn explain_as(bytes: &[u8], service: Option<Service>) -> Option<Report> {
    let guessed = guess(bytes);
    let mut report = explain(bytes, service.unwrap_or(guessed))?;
    let note = match (service, guessed) {
        (None, Service::Raw) => "raw, by its first segment, an Ethernet segment; `--service` names another",
        (None, Service::Ud) => "ud, by its first segment, an address vector; `--service` names another",
        (None, Service::Dc) => "dc, by its first segment, an address vector; `--service` names another",
        (None, _) if has_address(CtrlSeg::read(bytes)?.opcode()) => "connected, assumed; `--service` names another",
        _ => return Some(report),
    };
    report.fields.push(("service", note.to_owned()));
    Some(report)
}

/// The service by the first segment. A send's data segment has a byte count, and an address of the host; the segment
/// of a remote address ends in a reserved dword, where an address vector has bit 31 of its third or its fourth dword.
fn guess(bytes: &[u8]) -> Service {
    let Some(ctrl) = CtrlSeg::read(bytes) else { return Service::Connected };
    if is_remote(ctrl.opcode()) {
        return guess_remote(bytes);
    }
    let (Some(data), true) = (bytes.get(SEGMENT..).and_then(DataSeg::read), is_send(ctrl.opcode())) else {
        return Service::Connected;
    };
    // The byte of the Ethernet segment that asks for checksums is the highest of a data segment's lkey.
    const CHECKSUMS: u32 = 0xf0 << 24;
    // `ext` of an address vector would make a kernel's address of a data segment's.
    const EXTENDED: u64 = 0x80 << 56;
    match () {
        () if data.addr() & (0xff << 56) == EXTENDED && bytes.len() >= SEGMENT + UdAdrsVector::SIZE => Service::Ud,
        () if data.byte_count() == 0 && data.lkey() & !CHECKSUMS == 0 => Service::Raw,
        () => Service::Connected,
    }
}

fn guess_remote(bytes: &[u8]) -> Service {
    let dword = |at: usize| bytes.get(at..at + 4).unwrap_or_default();
    let is_zero = |at: usize| dword(at).iter().all(|byte| *byte == 0);
    // Keys may have bit 31, too: then a byte count follows, where a vector reserves the dword.
    let extended = dword(0x18).first().is_some_and(|byte| byte & 0x80 != 0)
        && is_zero(0x20)
        && bytes.len() >= SEGMENT + UdAdrsVector::SIZE + RaddrSeg::SIZE;
    if !is_zero(0x1c) || extended { Service::Dc } else { Service::Connected }
}

/// Whether the service determines what the segments after the control segment are.
fn has_address(opcode: WqeOpcode) -> bool {
    is_send(opcode) || is_remote(opcode)
}

/// Whether it has the segment of a remote address.
fn is_remote(opcode: WqeOpcode) -> bool {
    matches!(
        opcode,
        WqeOpcode::RdmaWrite
            | WqeOpcode::RdmaWriteImm
            | WqeOpcode::RdmaRead
            | WqeOpcode::AtomicCs
            | WqeOpcode::AtomicFa
            | WqeOpcode::AtomicMaskedCs
            | WqeOpcode::AtomicMaskedFa
    )
}

fn is_send(opcode: WqeOpcode) -> bool {
    matches!(opcode, WqeOpcode::Send | WqeOpcode::SendImm | WqeOpcode::SendInval)
}

/// Report on a send WQE.
pub fn explain(bytes: &[u8], service: Service) -> Option<Report> {
    let ctrl = CtrlSeg::read(bytes)?;
    let opcode = ctrl.opcode();
    let promised = usize::from(ctrl.ds()) * SEGMENT;
    let mut offending = Vec::new();
    if let WqeOpcode::Unknown(number) = opcode {
        offending.push(format!("opcode {number:#x} is not a send opcode"));
    }
    if ctrl.ds() == 0 {
        offending.push("ds is 0, but the control segment alone counts 1".into());
    } else if promised > bytes.len() {
        offending.push(format!("ds {} promises {promised} bytes, given are {}", ctrl.ds(), bytes.len()));
    }
    let end = promised.clamp(SEGMENT, bytes.len());
    let decoded = Dump::new(&CtrlSeg::INFO, &bytes[..SEGMENT]).to_string();
    let mut segments = Segments { opcode, rest: &bytes[SEGMENT..end], cut: promised > bytes.len(), decoded, offending };
    segments.all(ctrl.opmod(), service);
    let Segments { decoded, offending, .. } = segments;
    let meaning = if offending.is_empty() { "valid by itself" } else { "a card would refuse it" };
    Some(Report {
        what: format!("send WQE {opcode} of QP {:#x}, index {}", ctrl.qp_or_sq(), ctrl.wqe_index()),
        meaning: meaning.into(),
        offending,
        decoded: Some(decoded),
        ..Report::default()
    })
}

/// The segments after the control segment, as far as read.
struct Segments<'a> {
    opcode: WqeOpcode,
    rest: &'a [u8],
    /// Whether bytes are missing, which was reported already.
    cut: bool,
    decoded: String,
    offending: Vec<String>,
}

impl<'a> Segments<'a> {
    /// Reads the segments of the opcode.
    fn all(&mut self, opmod: u8, service: Service) -> Option<()> {
        let tls = !matches!(TlsOpmod::from_number(opmod.into()), TlsOpmod::Unknown(_));
        match self.opcode {
            // Padding of the ring.
            WqeOpcode::Nop => return Some(()),
            WqeOpcode::Send | WqeOpcode::SendImm | WqeOpcode::SendInval => {
                self.address(service)?;
                self.data();
            }
            WqeOpcode::Lso | WqeOpcode::EnhancedMpsw => {
                self.ethernet()?;
                self.data();
            }
            WqeOpcode::RdmaWrite | WqeOpcode::RdmaWriteImm | WqeOpcode::RdmaRead => {
                self.address(service)?;
                self.take(&RaddrSeg::INFO)?;
                self.data();
            }
            WqeOpcode::AtomicCs | WqeOpcode::AtomicFa | WqeOpcode::AtomicMaskedCs | WqeOpcode::AtomicMaskedFa => {
                self.address(service)?;
                self.take(&RaddrSeg::INFO)?;
                match self.opcode {
                    WqeOpcode::AtomicMaskedCs => self.take(&MaskedAtomicSeg::INFO)?,
                    _ => self.take(&AtomicSeg::INFO)?,
                };
                self.just(1);
            }
            WqeOpcode::Umr => self.umr(tls)?,
            WqeOpcode::SetPsv if tls => drop(self.take(&TlsProgressSeg::INFO)?),
            WqeOpcode::SetPsv => drop(self.take(&SetPsvSeg::INFO)?),
            WqeOpcode::GetPsv => drop(self.take(&GetPsvSeg::INFO)?),
            WqeOpcode::CheckPsv => drop(self.take(&CheckPsvSeg::INFO)?),
            WqeOpcode::Dump => self.just(1),
            WqeOpcode::Wait if opmod == WaitOpmod::CqPi.number() as u8 => drop(self.take(&WaitCqSeg::INFO)?),
            WqeOpcode::Wait => drop(self.take(&WaitSeg::INFO)?),
            WqeOpcode::SendEnable => drop(self.take(&SendEnableSeg::INFO)?),
            WqeOpcode::Mmo => {
                self.take(&MmoMetadataSeg::INFO)?;
                self.just(2);
            }
            WqeOpcode::TagMatching => {
                self.take(&TagMatchingSeg::INFO)?;
                self.data();
            }
            WqeOpcode::FlowTblAccess => self.flow_table(opmod)?,
            WqeOpcode::AccessAso => self.steering_object(opmod)?,
            WqeOpcode::FastRegister => drop(self.take(&FastRegisterSeg::INFO)?),
            WqeOpcode::BindMw
            | WqeOpcode::LocalInval
            | WqeOpcode::ConfigCmd
            | WqeOpcode::RgetPsv
            | WqeOpcode::RcheckPsv => self.unpublished(),
            WqeOpcode::Unknown(_) => self.shown("segments of an unknown opcode"),
        }
        if !self.rest.is_empty() {
            let more = self.rest.len().div_ceil(SEGMENT);
            self.offending.push(format!("{} ends {more} segments before ds says", self.opcode));
            self.shown("bytes after its last segment");
        }
        Some(())
    }

    /// Reads a segment.
    fn take(&mut self, info: &'static Info) -> Option<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(info.size) else {
            if !self.cut {
                self.offending.push(format!("{} needs a {}: ds is too small", self.opcode, info.prm_name()));
            }
            self.shown("bytes too few for a segment");
            return None;
        };
        self.decoded += &Dump::new(info, head).to_string();
        self.rest = tail;
        Some(head)
    }

    /// Reads the first segments, by the queue's service.
    fn address(&mut self, service: Service) -> Option<()> {
        match service {
            Service::Connected => {}
            Service::Xrc => drop(self.take(&XrcSeg::INFO)?),
            Service::Raw => self.ethernet()?,
            Service::Ud | Service::Dc => {
                let extended = BaseAv::read(self.rest).is_some_and(|address| address.ext());
                self.take(if extended { &UdAdrsVector::INFO } else { &BaseAv::INFO })?;
            }
        }
        Some(())
    }

    /// Reads the Ethernet segment and its inline headers, of which two bytes are in the segment.
    fn ethernet(&mut self) -> Option<()> {
        let segment = EthSeg::read(self.take(&EthSeg::INFO)?)?;
        let inlined = if segment.insert_vlan() { 0 } else { usize::from(segment.inline_hdr_sz()) };
        let further = inlined.saturating_sub(2).next_multiple_of(SEGMENT);
        let Some((headers, tail)) = self.rest.split_at_checked(further) else {
            if !self.cut {
                self.offending.push(format!("inline_hdr_sz {inlined} runs past the WQE's end: ds is too small"));
            }
            self.shown("inlined headers");
            return None;
        };
        self.bytes("inlined headers", &headers[..inlined.saturating_sub(2)]);
        self.rest = tail;
        Some(())
    }

    /// Reads data up to the end, inline or by address; returns the number of pieces.
    fn data(&mut self) -> usize {
        let mut count = 0;
        while let Some(head) = self.rest.get(..SEGMENT) {
            count += 1;
            if InlineSegHeader::read(head).is_some_and(|header| header.inline()) {
                self.inline();
            } else {
                self.take(&DataSeg::INFO);
            }
        }
        count
    }

    /// Reads inline data, up to the next segment.
    fn inline(&mut self) {
        let Some(header) = InlineSegHeader::read(self.rest) else { return };
        let end = InlineSegHeader::SIZE + usize::from(header.byte_count());
        self.decoded += &Dump::new(&InlineSegHeader::INFO, &self.rest[..InlineSegHeader::SIZE]).to_string();
        if end > self.rest.len() && !self.cut {
            let count = header.byte_count();
            self.offending.push(format!("inline byte_count {count} runs past the WQE's end: ds is too small"));
        }
        self.bytes("inline data", &self.rest[InlineSegHeader::SIZE..end.min(self.rest.len())]);
        self.rest = &self.rest[end.next_multiple_of(SEGMENT).min(self.rest.len())..];
    }

    /// Reads data of exactly `wanted` pieces.
    fn just(&mut self, wanted: usize) {
        let count = self.data();
        if count > wanted || (count < wanted && !self.cut) {
            self.offending.push(format!("{} takes {wanted} data segments, it has {count}", self.opcode));
        }
    }

    /// Reads a UMR: the memory key and its list, or TLS parameters in place of the key.
    fn umr(&mut self, tls: bool) -> Option<()> {
        let control = UmrCtrlSeg::read(self.take(&UmrCtrlSeg::INFO)?)?;
        if tls {
            return self.take(&TlsStaticParams::INFO).map(drop);
        }
        let mode = Mkc::read(self.take(&Mkc::INFO)?)?.access_mode();
        if !control.inline() {
            while !self.rest.is_empty() {
                self.take(&UmrPointerDescArgument::INFO)?;
            }
            return Some(());
        }
        let list = usize::from(control.xlt_octowords()) * SEGMENT;
        let after = self.rest.len().saturating_sub(list);
        if list > self.rest.len() && !self.cut {
            self.offending.push(format!("xlt_octowords promises {list} bytes of list: ds is too small"));
        }
        let repeated = RepeatBlockSeg::read(self.rest).is_some_and(|block| block.op() == REPEAT);
        if repeated {
            self.take(&RepeatBlockSeg::INFO)?;
        }
        let entry = match mode {
            _ if repeated => &RepeatEntry::INFO,
            AccessMode::Mtt => &Mtt::INFO,
            AccessMode::Ksm => &Ksm::INFO,
            _ => &Klm::INFO,
        };
        while self.rest.len() > after {
            self.take(entry)?;
        }
        if !self.rest.is_empty() {
            self.shown("after the list: padding, or a signature's BSF");
        }
        Some(())
    }

    /// Reads a flow table entry, or an argument of header changes.
    fn flow_table(&mut self, opmod: u8) -> Option<()> {
        if FlowTblAccessOpmod::from_number(opmod.into()) == FlowTblAccessOpmod::HeaderModifyArgument {
            self.take(&FlowUpdateCtrlSeg::INFO)?;
            return self.take(&HeaderModifyArgumentUpdateSeg::INFO).map(drop);
        }
        let control = SteCtrlSeg::read(self.take(&SteCtrlSeg::INFO)?)?;
        // Deletion needs no more data; an entry that matches a range has two parts.
        if control.op() == SteOperation::Activate || !self.rest.is_empty() {
            self.take(&SteDataSeg::INFO)?;
        }
        if !self.rest.is_empty() {
            self.take(&SteDataSeg::INFO)?;
        }
        Some(())
    }

    /// Reads an advanced steering operation; without data the object is only read.
    fn steering_object(&mut self, opmod: u8) -> Option<()> {
        self.take(&AsoCtrlSeg::INFO)?;
        if self.rest.is_empty() {
            return Some(());
        }
        match AsoOpmod::from_number(opmod.into()) {
            AsoOpmod::Ipsec => drop(self.take(&IpsecAso::INFO)?),
            AsoOpmod::Macsec => drop(self.take(&MacsecAso::INFO)?),
            AsoOpmod::FlowMeter => {
                self.take(&FlowMeterParameters::INFO)?;
                self.take(&FlowMeterParameters::INFO)?;
            }
            AsoOpmod::Unknown(_) => self.shown("data of an unknown object"),
        }
        Some(())
    }

    /// Shows undocumented segments dword by dword.
    fn unpublished(&mut self) {
        self.decoded += &format!("{}: undocumented in public headers, drivers and manuals\n", self.opcode);
        for (i, dword) in self.rest.chunks(4).enumerate().filter(|(_, dword)| dword.iter().any(|byte| *byte != 0)) {
            self.decoded += &format!("  {:#06x} {}\n", SEGMENT + i * 4, mlx5_tools::fields::hex(dword));
        }
        self.rest = &[];
    }

    /// Shows the rest as bytes.
    fn shown(&mut self, what: &str) {
        self.bytes(what, self.rest);
        self.rest = &[];
    }

    fn bytes(&mut self, what: &str, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.decoded += &format!("{what}, {:#x} bytes\n  {}\n", bytes.len(), mlx5_tools::fields::hex(bytes));
        }
    }
}

/// `op` of a [`RepeatBlockSeg`].
const REPEAT: u32 = 0x400;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a WQE with these segments, `ds` as it must be.
    fn said(opcode: WqeOpcode, opmod: u8, service: Service, segments: &[&[u8]]) -> Report {
        let rest = segments.concat();
        let mut ctrl = CtrlSeg::default();
        let _ = ctrl.w().opcode(opcode).opmod(opmod).ds((1 + rest.len().div_ceil(SEGMENT)) as u8).qp_or_sq(0x43);
        explain(&[ctrl.as_bytes(), &rest[..]].concat(), service).expect("a control segment")
    }

    fn data() -> Vec<u8> {
        let mut data = DataSeg::default();
        let _ = data.w().byte_count(8).lkey(0x1234).addr(0x5000);
        data.as_bytes().to_vec()
    }

    /// The names of the layouts that were read, in their order.
    fn read(report: &Report) -> Vec<String> {
        let decoded = report.decoded.as_deref().unwrap_or_default().lines();
        let heads = decoded.filter(|line| !line.starts_with(' '));
        heads.skip(1).filter_map(|line| line.split(',').next()).map(str::to_owned).collect()
    }

    fn names(infos: &[&Info]) -> Vec<String> {
        infos.iter().map(|info| info.prm_name().to_string()).collect()
    }

    #[test]
    fn an_address_vector_before_a_remote_address_is_dc() {
        let mut address = UdAdrsVector::default().as_bytes().to_vec();
        let mut remote = RaddrSeg::default();
        let _ = remote.w().rkey(0x1234);
        let mut ctrl = CtrlSeg::default();
        let _ = ctrl.w().opcode(WqeOpcode::RdmaWrite).ds(6).qp_or_sq(0x43);
        let given = |address: &[u8]| [ctrl.as_bytes(), address, remote.as_bytes(), &data()].concat();
        // `ext` alone, and with all of the vector.
        address[8] = 0x80;
        let alone = given(&address);
        address[12..16].copy_from_slice(&[0x11, 0x22, 0x33, 0x44]);
        for wqe in [alone, given(&address)] {
            let (guessed, named) = (explain_as(&wqe, None).unwrap(), explain_as(&wqe, Some(Service::Dc)).unwrap());
            assert_eq!((&guessed.decoded, &guessed.offending), (&named.decoded, &named.offending));
            assert!(guessed.fields.iter().any(|(name, text)| *name == "service" && text.starts_with("dc, by")));
        }
        let connected = [ctrl.as_bytes(), remote.as_bytes(), &data()].concat();
        let report = explain_as(&connected, None).unwrap();
        assert!(report.fields.iter().any(|(name, text)| *name == "service" && text.starts_with("connected, assumed")));
    }

    #[test]
    fn every_opcode_with_a_layout_is_read_to_its_end() {
        let zeros = [0; 0x100];
        type Case = (WqeOpcode, u8, &'static [&'static Info]);
        let cases: [Case; 24] = [
            (WqeOpcode::Nop, 0, &[]),
            (WqeOpcode::Send, 0, &[&DataSeg::INFO]),
            (WqeOpcode::RdmaWriteImm, 0, &[&RaddrSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::AtomicFa, 0, &[&RaddrSeg::INFO, &AtomicSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::AtomicMaskedCs, 8, &[&RaddrSeg::INFO, &MaskedAtomicSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::AtomicMaskedFa, 8, &[&RaddrSeg::INFO, &AtomicSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::Lso, 0, &[&EthSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::EnhancedMpsw, 0, &[&EthSeg::INFO, &DataSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::Umr, 0, &[&UmrCtrlSeg::INFO, &Mkc::INFO, &UmrPointerDescArgument::INFO]),
            (WqeOpcode::Umr, 1, &[&UmrCtrlSeg::INFO, &TlsStaticParams::INFO]),
            (WqeOpcode::SetPsv, 0, &[&SetPsvSeg::INFO]),
            (WqeOpcode::SetPsv, 2, &[&TlsProgressSeg::INFO]),
            (WqeOpcode::GetPsv, 2, &[&GetPsvSeg::INFO]),
            (WqeOpcode::Dump, 0, &[&DataSeg::INFO]),
            (WqeOpcode::Wait, 0, &[&WaitCqSeg::INFO]),
            (WqeOpcode::Wait, 1, &[&WaitSeg::INFO]),
            (WqeOpcode::SendEnable, 0, &[&SendEnableSeg::INFO]),
            (WqeOpcode::Mmo, 1, &[&MmoMetadataSeg::INFO, &DataSeg::INFO, &DataSeg::INFO]),
            (WqeOpcode::FlowTblAccess, 1, &[&FlowUpdateCtrlSeg::INFO, &HeaderModifyArgumentUpdateSeg::INFO]),
            (WqeOpcode::FlowTblAccess, 0, &[&SteCtrlSeg::INFO, &SteDataSeg::INFO]),
            (WqeOpcode::AccessAso, 0, &[&AsoCtrlSeg::INFO, &IpsecAso::INFO]),
            (WqeOpcode::AccessAso, 5, &[&AsoCtrlSeg::INFO, &MacsecAso::INFO]),
            (WqeOpcode::AccessAso, 2, &[&AsoCtrlSeg::INFO, &FlowMeterParameters::INFO, &FlowMeterParameters::INFO]),
            (WqeOpcode::AccessAso, 2, &[&AsoCtrlSeg::INFO]),
        ];
        for (opcode, opmod, infos) in cases {
            let segments: Vec<&[u8]> = infos.iter().map(|info| &zeros[..info.size]).collect();
            let report = said(opcode, opmod, Service::Connected, &segments);
            assert_eq!((read(&report), &report.offending), (names(infos), &Vec::new()), "{opcode} {opmod}");
            if let [.., last] = segments[..]
                && opcode != WqeOpcode::Send
            {
                let short = &segments.concat()[..infos.iter().map(|info| info.size).sum::<usize>() - last.len()];
                let report = said(opcode, opmod, Service::Connected, &[short]);
                let optional = [WqeOpcode::RdmaWriteImm, WqeOpcode::Lso, WqeOpcode::EnhancedMpsw];
                let without_data = opcode == WqeOpcode::AccessAso && infos.len() == 2;
                let may = optional.contains(&opcode) || (opcode, opmod) == (WqeOpcode::Umr, 0) || without_data;
                assert_eq!(report.offending.is_empty(), may, "{opcode} {opmod} cut short: {:?}", report.offending);
            }
            let report = said(opcode, opmod, Service::Connected, &[&zeros[..], &zeros[..]]);
            let lists = names(infos).last() == Some(&DataSeg::INFO.prm_name().to_string()) || opcode == WqeOpcode::Nop;
            assert!(lists || opcode == WqeOpcode::Umr || !report.offending.is_empty(), "{opcode} {opmod} too long");
        }
    }

    #[test]
    fn what_nobody_has_published_is_said_to_be_so_and_shown_by_dwords() {
        let mut segments = [0; 32];
        segments[20..24].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        for opcode in [WqeOpcode::BindMw, WqeOpcode::LocalInval, WqeOpcode::RgetPsv, WqeOpcode::RcheckPsv] {
            let report = said(opcode, 0, Service::Connected, &[&segments]);
            assert_eq!(report.offending, Vec::<String>::new());
            let decoded = report.decoded.expect("dwords");
            assert!(decoded.contains("undocumented") && decoded.contains("0x0024 deadbeef"), "{decoded}");
        }
    }

    #[test]
    fn a_rule_of_hardware_steering_is_read_by_its_stcs_and_its_tag() {
        let (mut control, mut data) = (SteCtrlSeg::default(), SteDataSeg::default());
        let _ = control.w().op(SteOperation::Activate).direct_index(0x1234);
        let _ = data.w().definer_id(9).counter_id(7);
        let report = said(WqeOpcode::FlowTblAccess, 0, Service::Connected, &[control.as_bytes(), data.as_bytes()]);
        let decoded = report.decoded.expect("fields");
        assert!(decoded.contains("direct_index = 0x1234") && decoded.contains("definer_id = 0x9"), "{decoded}");
        let _ = control.w().op(SteOperation::Deactivate);
        let report = said(WqeOpcode::FlowTblAccess, 0, Service::Connected, &[control.as_bytes()]);
        assert_eq!(report.offending, Vec::<String>::new());
    }

    #[test]
    fn the_queues_service_tells_what_comes_first() {
        let mut address = UdAdrsVector::default();
        let _ = address.w().ext(true).destination_qp_dct(0x77);
        let cases: [(Service, Vec<u8>, &Info); 4] = [
            (Service::Ud, address.as_bytes().to_vec(), &UdAdrsVector::INFO),
            (Service::Dc, vec![0; BaseAv::SIZE], &BaseAv::INFO),
            (Service::Xrc, vec![0; XrcSeg::SIZE], &XrcSeg::INFO),
            (Service::Raw, vec![0; EthSeg::SIZE], &EthSeg::INFO),
        ];
        for (service, first, info) in cases {
            let report = said(WqeOpcode::Send, 0, service, &[&first, &data()]);
            assert_eq!((read(&report), report.offending), (names(&[info, &DataSeg::INFO]), Vec::new()), "{service:?}");
        }
    }

    #[test]
    fn without_a_service_the_first_segment_tells_ethernet_and_datagrams() {
        let mut eth = EthSeg::default();
        let _ = eth.w().inline_hdr_sz(18).l3_csum(true).l4_csum(true);
        let mut address = UdAdrsVector::default();
        let _ = address.w().ext(true).destination_qp_dct(0x77);
        let ethernet = [eth.as_bytes(), &[0xab; 16], &data()].concat();
        let datagram = [address.as_bytes(), &data()].concat();
        let cases: [(Vec<u8>, &[&Info]); 3] = [
            (ethernet, &[&EthSeg::INFO]),
            (datagram, &[&UdAdrsVector::INFO, &DataSeg::INFO]),
            (data(), &[&DataSeg::INFO]),
        ];
        for (segments, infos) in cases {
            let mut ctrl = CtrlSeg::default();
            let ds = (1 + segments.len() / SEGMENT) as u8;
            let _ = ctrl.w().opcode(WqeOpcode::Send).ds(ds).qp_or_sq(0x43);
            let report = explain_as(&[ctrl.as_bytes(), &segments].concat(), None).expect("a WQE");
            assert_eq!(report.offending, Vec::<String>::new(), "{report}");
            assert!(read(&report).starts_with(&names(infos)), "{report}");
            assert!(report.fields.iter().any(|(name, _)| *name == "service"), "{report}");
        }
    }

    #[test]
    fn data_segments_are_counted_where_their_number_is_fixed() {
        let (raddr, atomic) = ([0; RaddrSeg::SIZE], [0; AtomicSeg::SIZE]);
        let report = said(WqeOpcode::AtomicCs, 0, Service::Connected, &[&raddr, &atomic, &data(), &data()]);
        assert_eq!(report.offending, ["ATOMIC_CS takes 1 data segments, it has 2"]);
        let report = said(WqeOpcode::Wait, 0, Service::Connected, &[&[0; 0x20]]);
        assert_eq!(report.offending, ["WAIT ends 1 segments before ds says"]);
    }

    #[test]
    fn inlined_headers_are_skipped_before_data() {
        let mut eth = EthSeg::default();
        let _ = eth.w().inline_hdr_sz(18);
        let report = said(WqeOpcode::Send, 0, Service::Raw, &[eth.as_bytes(), &[0xab; 16], &data()]);
        assert_eq!(report.offending, Vec::<String>::new());
        assert!(report.decoded.expect("fields").contains("abababab"));
        let _ = eth.w().inline_hdr_sz(100);
        let report = said(WqeOpcode::Send, 0, Service::Raw, &[eth.as_bytes(), &[0xab; 16]]);
        assert_eq!(report.offending, ["inline_hdr_sz 100 runs past the WQE's end: ds is too small"]);
    }

    #[test]
    fn a_wqe_that_promises_more_than_it_has_is_named() {
        let mut ctrl = CtrlSeg::default();
        let _ = ctrl.w().opcode(WqeOpcode::RdmaWrite).ds(5).qp_or_sq(0x43);
        let report = explain(&[ctrl.as_bytes(), &[0; 16][..]].concat(), Service::Connected).expect("32 bytes");
        assert_eq!(report.offending, ["ds 5 promises 80 bytes, given are 32"]);
        let _ = ctrl.w().ds(1);
        let report = explain(ctrl.as_bytes(), Service::Connected).expect("16 bytes");
        assert_eq!(report.offending, ["RDMA_WRITE needs a wqe_raddr_seg: ds is too small"]);
    }

    #[test]
    fn inline_data_that_runs_past_the_end_is_named() {
        let mut header = InlineSegHeader::default();
        let _ = header.w().byte_count(100);
        let report = said(WqeOpcode::Send, 0, Service::Connected, &[header.as_bytes(), &[0; 12]]);
        assert!(report.offending[0].contains("byte_count 100"));
    }
}
