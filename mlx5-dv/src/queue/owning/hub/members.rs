//! The connections of a hub, found in constant time by what their completions carry.

/// Which connection of a [`Hub`](super::Hub). One that has left is never taken for one that joined later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    place: u32,
    life: u32,
}

/// Bits of a `user_index` that name a place.
const PLACE_BITS: u32 = 14;
/// The most connections of a hub.
pub(super) const MOST: u32 = 1 << PLACE_BITS;
/// How many lives of a place a `user_index` of 24 bits tells apart. One fewer than its bits could, as all ones mean
/// that there is no index.
const LIVES: u32 = (1 << (24 - PLACE_BITS)) - 1;

impl ConnectionId {
    /// What the completions of its queue pair carry.
    pub(super) fn user_index(self) -> u32 {
        ((self.life % LIVES) << PLACE_BITS) | self.place
    }
}

#[derive(Debug)]
struct Place<T> {
    life: u32,
    member: Option<T>,
}

/// Members by place.
#[derive(Debug)]
pub(super) struct Members<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Members<T> {
    /// None yet, of `most`.
    pub(super) fn new(most: u32) -> Self {
        let places = (0..most).map(|_| Place { life: 0, member: None }).collect();
        Members { places, free: (0..most).rev().collect() }
    }

    /// Makes places for `most` in all.
    pub(super) fn grow(&mut self, most: u32) {
        let first = self.places.len() as u32;
        self.places.extend((first..most).map(|_| Place { life: 0, member: None }));
        // Those that have been used come first again.
        self.free.splice(0..0, (first..most).rev());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Who comes next; `None` where all places are taken.
    pub(super) fn next(&self) -> Option<ConnectionId> {
        let place = *self.free.last()?;
        Some(ConnectionId { place, life: self.places.get(place as usize)?.life })
    }

    /// Puts `member` where [`next`](Self::next) said.
    pub(super) fn insert(&mut self, member: T) {
        if let Some(place) = self.free.pop() {
            self.places[place as usize].member = Some(member);
        }
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&T> {
        let place = self.places.get(id.place as usize)?;
        place.member.as_ref().filter(|_| place.life == id.life)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let place = self.places.get_mut(id.place as usize)?;
        if place.life == id.life { place.member.as_mut() } else { None }
    }

    /// Whose completion carries `user_index`.
    #[inline(always)]
    pub(super) fn find(&mut self, user_index: u32) -> Option<(ConnectionId, &mut T)> {
        let at = user_index & (MOST - 1);
        let place = self.places.get_mut(at as usize)?;
        let id = ConnectionId { place: at, life: place.life };
        if id.user_index() != user_index {
            return None;
        }
        Some((id, place.member.as_mut()?))
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let place = self.places.get_mut(id.place as usize).filter(|place| place.life == id.life)?;
        let member = place.member.take()?;
        place.life = place.life.wrapping_add(1);
        self.free.push(id.place);
        Some(member)
    }

    /// All there are.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        let places = self.places.iter().enumerate().filter(|(_, place)| place.member.is_some());
        places.map(|(at, place)| ConnectionId { place: at as u32, life: place.life })
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
        assert_eq!(second.place, first.place);
        assert!(members.find(first.user_index()).is_none() && members.get(first).is_none());
        assert_eq!(members.get(second), Some(&"second"));
        members.insert("third");
        assert_eq!((members.next(), members.len(), members.ids().count()), (None, 2, 2));
    }

    #[test]
    fn who_is_there_stays_when_places_are_added() {
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
        for life in (0..3000).chain(u32::MAX - 3000..=u32::MAX) {
            let index = ConnectionId { place: MOST - 1, life }.user_index();
            assert!(index < 0xff_ffff, "life {life}: {index:#x}");
        }
        // Whatever a card makes up.
        assert!(members.find(0xff_ffff).is_none() && members.find(u32::MAX).is_none());
    }
}
