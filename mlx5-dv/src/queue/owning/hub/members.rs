//! Connections of a hub, looked up in constant time by the user index of their completions.

use std::mem;

/// ID of a connection of a [`Hub`](super::Hub). The ID of a connection that left never matches a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

/// Bits of a `user_index` for the slot number.
const SLOT_BITS: u32 = 14;
/// Maximum number of connections of a hub.
pub(super) const MOST: u32 = 1 << SLOT_BITS;
/// Number of generations per slot in a 24-bit `user_index`. One less than the bits allow, since all ones mean no index.
const GENERATIONS: u32 = (1 << (24 - SLOT_BITS)) - 1;

impl<T> Slot<T> {
    fn empty(slot: u32, generation: u32) -> Self {
        Slot { generation, user_index: ConnectionId { slot, generation }.user_index(), place: Place::Free }
    }
}

impl ConnectionId {
    /// The `user_index` of its queue pair.
    pub(super) fn user_index(self) -> u32 {
        ((self.generation % GENERATIONS) << SLOT_BITS) | self.slot
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// That of the ID: kept, as polls need it.
    user_index: u32,
    place: Place<T>,
}

/// A place for a member.
// As an `Option` with a tag of its own: in a niche of the member, it would take one instruction more to look.
#[derive(Debug)]
#[repr(u8)]
enum Place<T> {
    Free,
    Taken(T),
}

impl<T> Place<T> {
    #[inline(always)]
    fn as_ref(&self) -> Option<&T> {
        match self {
            Place::Free => None,
            Place::Taken(member) => Some(member),
        }
    }

    #[inline(always)]
    fn as_mut(&mut self) -> Option<&mut T> {
        match self {
            Place::Free => None,
            Place::Taken(member) => Some(member),
        }
    }

    fn take(&mut self) -> Option<T> {
        match mem::replace(self, Place::Free) {
            Place::Free => None,
            Place::Taken(member) => Some(member),
        }
    }
}

/// Members by slot.
#[derive(Debug)]
pub(super) struct Members<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Members<T> {
    /// No members, at most `most`.
    pub(super) fn new(most: u32) -> Self {
        let slots = (0..most).map(|slot| Slot::empty(slot, 0)).collect();
        Members { slots, free: (0..most).rev().collect() }
    }

    /// Extends the table to `most` slots.
    pub(super) fn grow(&mut self, most: u32) {
        let first = self.slots.len() as u32;
        self.slots.extend((first..most).map(|slot| Slot::empty(slot, 0)));
        // Those that have been used come first again.
        self.free.splice(0..0, (first..most).rev());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The ID of the next member; `None` if all slots are in use.
    pub(super) fn next(&self) -> Option<ConnectionId> {
        let slot = *self.free.last()?;
        Some(ConnectionId { slot, generation: self.slots.get(slot as usize)?.generation })
    }

    /// The ID of the next member once `id` is removed; `None` if there is no such member.
    pub(super) fn renewed(&self, id: ConnectionId) -> Option<ConnectionId> {
        self.get(id).map(|_| ConnectionId { generation: id.generation.wrapping_add(1), ..id })
    }

    /// Adds `member` with the ID that [`next`](Self::next) returned.
    pub(super) fn insert(&mut self, member: T) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].place = Place::Taken(member);
        }
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&T> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.place.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.place.as_mut() } else { None }
    }

    /// The member of `user_index`.
    #[inline(always)]
    pub(super) fn find(&mut self, user_index: u32) -> Option<(ConnectionId, &mut T)> {
        let at = user_index & (MOST - 1);
        let slot = self.slots.get_mut(at as usize)?;
        if slot.user_index != user_index {
            return None;
        }
        Some((ConnectionId { slot: at, generation: slot.generation }, slot.place.as_mut()?))
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        let member = slot.place.take()?;
        *slot = Slot::empty(id.slot, slot.generation.wrapping_add(1));
        self.free.push(id.slot);
        Some(member)
    }

    /// Calls `change` on all members.
    pub(super) fn each_mut(&mut self, change: impl FnMut(&mut T)) {
        self.slots.iter_mut().filter_map(|slot| slot.place.as_mut()).for_each(change);
    }

    /// IDs of all members.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.place.as_ref().is_some());
        slots.map(|(at, slot)| ConnectionId { slot: at as u32, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_is_not_found_and_not_taken_for_who_came_later() {
        let mut members = Members::new(2);
        let first = members.next().unwrap();
        members.insert("first");
        assert_eq!(members.find(first.user_index()).map(|(id, member)| (id, *member)), Some((first, "first")));
        assert_eq!(members.remove(first), Some("first"));
        assert!(members.find(first.user_index()).is_none() && members.remove(first).is_none());
        let second = members.next().unwrap();
        members.insert("second");
        assert_eq!(second.slot, first.slot);
        assert!(members.find(first.user_index()).is_none() && members.get(first).is_none());
        assert_eq!(members.get(second), Some(&"second"));
        members.insert("third");
        assert_eq!((members.next(), members.len(), members.ids().count()), (None, 2, 2));
    }

    #[test]
    fn who_is_there_stays_when_slots_are_added() {
        let mut members = Members::new(1);
        let first = members.next().unwrap();
        members.insert(1);
        assert_eq!(members.next(), None);
        members.grow(3);
        for number in [2, 3] {
            assert!(members.next().is_some());
            members.insert(number);
        }
        assert_eq!((members.next(), members.len(), members.get(first)), (None, 3, Some(&1)));
        members.grow(2);
        assert_eq!(members.len(), 3, "never fewer");
    }

    #[test]
    fn a_user_index_has_24_bits_that_are_not_all_ones() {
        let mut members = Members::new(MOST);
        (0..MOST).for_each(|_| members.insert(()));
        for generation in (0..3000).chain(u32::MAX - 3000..=u32::MAX) {
            let index = ConnectionId { slot: MOST - 1, generation }.user_index();
            assert!(index < 0xff_ffff, "generation {generation}: {index:#x}");
        }
        // Values that only a faulty card reports.
        assert!(members.find(0xff_ffff).is_none() && members.find(u32::MAX).is_none());
    }
}
