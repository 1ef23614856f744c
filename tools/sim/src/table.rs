//! A numbered table of objects, each owned by a user context.

use std::collections::BTreeSet;

/// The user context of the driver, which may name every object. PRM `uid` 0.
pub const DRIVER: u16 = 0;
/// The `uid` of what the driver makes for all its users: any user context may name it. Linux calls it the shared
/// resources'.
pub const SHARED: u16 = 0xffff;

/// Objects by number, the lowest free number given out first.
///
/// While a command of a user context runs ([`act_for`](Self::act_for)), the table is as if it held that context's
/// objects alone, and the [`SHARED`] ones, which it cannot take out.
#[derive(Debug)]
pub struct Table<T> {
    first: u32,
    count: u32,
    /// By number, from the first on. The last is never empty.
    places: Vec<Option<Entry<T>>>,
    /// The numbers of the empty ones.
    free: BTreeSet<u32>,
    acting: u16,
}

#[derive(Debug)]
struct Entry<T> {
    owner: u16,
    object: T,
}

impl<T> Table<T> {
    /// An empty table whose numbers start at `first`, with room for `count` objects.
    pub fn new(first: u32, count: u32) -> Self {
        Table { first, count, places: Vec::new(), free: BTreeSet::new(), acting: DRIVER }
    }

    /// From now on, `uid` is who asks and who makes objects.
    pub fn act_for(&mut self, uid: u16) {
        self.acting = uid;
    }

    /// How many objects are of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.places.iter().flatten().filter(|entry| entry.owner == uid).count()
    }

    /// The number the next [`insert`](Self::insert) gives; `None` when the table is full.
    pub fn next_number(&self) -> Option<u32> {
        if let Some(number) = self.free.first() {
            return Some(*number);
        }
        let used = self.places.len() as u32;
        (used < self.count).then(|| self.first + used)
    }

    /// Takes the object in; gives it back when the table is full.
    pub fn insert(&mut self, object: T) -> Result<u32, T> {
        let Some(number) = self.next_number() else { return Err(object) };
        let entry = Some(Entry { owner: self.acting, object });
        match self.free.pop_first() {
            Some(_) => self.places[(number - self.first) as usize] = entry,
            None => self.places.push(entry),
        }
        Ok(number)
    }

    /// Takes in `count` objects with numbers one after the other, the first a multiple of `alignment`. `None`, and none
    /// of them, when they have no room.
    pub fn insert_run(&mut self, count: u32, alignment: u32, make: impl Fn() -> T) -> Option<u32> {
        let after = self.first + self.places.len() as u32;
        let start = after.checked_next_multiple_of(alignment)?;
        if (start - self.first).checked_add(count)? > self.count || count == 0 {
            return None;
        }
        for number in after..start {
            self.places.push(None);
            self.free.insert(number);
        }
        let owner = self.acting;
        self.places.extend((0..count).map(|_| Some(Entry { owner, object: make() })));
        Some(start)
    }

    /// The place of a number, if it has one.
    fn place(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.first).map(|place| place as usize)
    }

    /// The object of that number.
    pub fn get(&self, number: u32) -> Option<&T> {
        let entry = self.places.get(self.place(number)?)?.as_ref()?;
        self.may_name(entry.owner).then_some(&entry.object)
    }

    /// The object of that number, to change.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        let place = self.place(number)?;
        self.places[place].as_mut().map(|entry| &mut entry.object)
    }

    /// Takes the object out; its number is free again.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place(number)?;
        let owner = self.places.get(place)?.as_ref()?.owner;
        if !self.is_driver() && self.acting != owner {
            return None;
        }
        let entry = self.places[place].take()?;
        self.free.insert(number);
        while let Some(None) = self.places.last() {
            self.places.pop();
            self.free.pop_last();
        }
        Some(entry.object)
    }

    fn may_name(&self, owner: u16) -> bool {
        self.is_driver() || self.acting == owner || owner == SHARED
    }

    fn is_driver(&self) -> bool {
        self.acting == DRIVER || self.acting == SHARED
    }

    /// The lowest number from `number` on that is in use.
    pub fn next_from(&self, number: u32) -> Option<u32> {
        let number = number.max(self.first);
        let places = self.places.get(self.place(number)?..)?;
        Some(number + places.iter().position(Option::is_some)? as u32)
    }

    /// Number and object of each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = (self.first..).zip(&self.places);
        numbered.filter_map(|(number, entry)| Some((number, &entry.as_ref()?.object)))
    }

    /// Number and object of each, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let numbered = (self.first..).zip(&mut self.places);
        numbered.filter_map(|(number, entry)| Some((number, &mut entry.as_mut()?.object)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_free_number_is_given_out_first() {
        let mut table = Table::new(5, 3);
        assert_eq!(
            [table.insert('a'), table.insert('b'), table.insert('c'), table.insert('d')],
            [Ok(5), Ok(6), Ok(7), Err('d')]
        );
        assert_eq!((table.remove(6), table.remove(5), table.remove(5)), (Some('b'), Some('a'), None));
        assert_eq!((table.next_from(0), table.next_from(8)), (Some(7), None));
        assert_eq!((table.insert('e'), table.insert('f')), (Ok(5), Ok(6)));
        assert_eq!((table.get(4), table.get(5), table.get(8)), (None, Some(&'e'), None));
    }

    #[test]
    fn a_user_s_objects_are_nobody_else_s() {
        let mut table = Table::new(1, 8);
        table.act_for(7);
        let own = table.insert('a').unwrap();
        table.act_for(SHARED);
        let shared = table.insert('b').unwrap();
        table.act_for(8);
        assert_eq!((table.get(own), table.get(shared)), (None, Some(&'b')));
        assert_eq!([own, shared].map(|number| table.get_mut(number).copied()), [None, Some('b')]);
        assert_eq!((table.remove(own), table.remove(shared)), (None, None));
        table.act_for(DRIVER);
        assert_eq!((table.owned_by(7), table.len()), (1, 2));
        assert_eq!((table.remove(shared), table.remove(own), table.is_empty()), (Some('b'), Some('a'), true));
    }

    #[test]
    fn a_run_has_numbers_one_after_the_other() {
        let mut table = Table::new(1, 12);
        assert_eq!(table.insert('a'), Ok(1));
        assert_eq!((table.insert_run(4, 4, || 'b'), table.len()), (Some(4), 5));
        assert_eq!((table.get(3), table.get(4), table.get(7)), (None, Some(&'b'), Some(&'b')));
        assert_eq!((table.insert_run(6, 4, || 'c'), table.len()), (None, 5), "8 to 12 are five");
        assert_eq!(table.insert('d'), Ok(2), "what alignment left out is given out");
        for number in [1, 2, 4, 5, 6, 7] {
            assert!(table.remove(number).is_some());
        }
        assert!(table.is_empty());
        assert_eq!(table.insert_run(3, 1, || 'e'), Some(1));
    }

    proptest! {
        /// As a map would have it.
        #[test]
        fn holds_what_was_put_in(steps in prop::collection::vec((any::<bool>(), 0u32..12), 1..200)) {
            let (mut table, mut map) = (Table::new(3, 10), std::collections::BTreeMap::new());
            for (turn, (put, number)) in steps.into_iter().enumerate() {
                if put {
                    let lowest = (3..13).find(|number| !map.contains_key(number));
                    prop_assert_eq!((table.next_number(), table.insert(turn).ok()), (lowest, lowest));
                    lowest.map(|number| map.insert(number, turn));
                } else {
                    prop_assert_eq!(table.remove(number + 2), map.remove(&(number + 2)));
                }
                prop_assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
                prop_assert!(table.iter().eq(map.iter().map(|(number, object)| (*number, object))));
                prop_assert_eq!(table.next_from(number), map.range(number..).next().map(|(number, _)| *number));
            }
        }
    }
}
