//! The memory of a message: gather from, and scatter to, a WQE's data segments. PRM "Memory Data Segment", "Inline Data
//! Segment".

use mlx5_prm::cqe::CqeSyndrome;

use crate::function::Nic;
use crate::objects::{Absent, MkeyRights, Piece, Qp, SendWork, User};

/// Appends `len` bytes of the message, from byte `from` on, to `bytes`. Returns false if memory cannot be read.
pub(crate) fn gather(qp: &Qp, nic: &Nic, work: &SendWork, mut from: u32, len: u32, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    bytes.resize(start + len as usize, 0);
    let mut room = &mut bytes[start..];
    for piece in &work.pieces {
        if room.is_empty() {
            break;
        }
        if from >= piece.len() {
            from -= piece.len();
            continue;
        }
        let (now, later) = room.split_at_mut(room.len().min((piece.len() - from) as usize));
        let ok = match *piece {
            Piece::Memory { key, address, .. } => {
                nic.read(qp.user(), key, address.wrapping_add(u64::from(from)), now, MkeyRights::LOCAL_READ)
            }
            Piece::Inline { at, .. } => {
                let at = (at + from) as usize;
                now.copy_from_slice(&work.inline[at..at + now.len()]);
                true
            }
        };
        if !ok {
            return false;
        }
        (room, from) = (later, 0);
    }
    room.is_empty()
}

/// Writes `bytes` to the memory that `pieces` describe, from byte `from` on. Fails with the syndrome of the CQE.
pub(crate) fn scatter(
    user: User,
    nic: &Nic,
    pieces: &[Piece],
    mut from: u32,
    mut bytes: &[u8],
) -> Result<(), CqeSyndrome> {
    for piece in pieces {
        if bytes.is_empty() {
            break;
        }
        if from >= piece.len() {
            from -= piece.len();
            continue;
        }
        let (now, later) = bytes.split_at(bytes.len().min((piece.len() - from) as usize));
        let Piece::Memory { key, address, .. } = *piece else { return Err(CqeSyndrome::LocalQpOperation) };
        let address = address.wrapping_add(u64::from(from));
        if !nic.write(user, key, address, now, MkeyRights::LOCAL_WRITE) {
            nic.allows(user, key, address, now.len() as u64, MkeyRights::LOCAL_WRITE); // reports the reason
            return Err(CqeSyndrome::LocalProtection);
        }
        (bytes, from) = (later, 0);
    }
    if bytes.is_empty() { Ok(()) } else { Err(CqeSyndrome::LocalLength) }
}

/// What is absent of `len` bytes from byte `from` on, and how many bytes of its piece follow. `None` if there is
/// another reason why they cannot be reached.
pub(crate) fn absent(
    user: User,
    nic: &Nic,
    pieces: &[Piece],
    mut from: u32,
    mut len: u32,
    rights: MkeyRights,
) -> Option<(Absent, u64)> {
    for piece in pieces {
        let skipped = from.min(piece.len());
        let now = len.min(piece.len() - skipped);
        if let Piece::Memory { key, address, .. } = *piece
            && now > 0
        {
            let at = address.wrapping_add(u64::from(skipped));
            if let Some(absent) = nic.absent(user, key, at, now.into(), rights) {
                return Some((absent, (piece.len() - skipped - now).into()));
            }
            nic.allows(user, key, at, now.into(), rights).then_some(())?;
        }
        (from, len) = (from - skipped, len - now);
    }
    None
}
