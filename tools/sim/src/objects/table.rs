//! A numbered table of objects, each of a user context.

use std::collections::BTreeMap;

/// The user context of the driver itself, which may name every object. PRM `uid` 0.
pub const DRIVER: u16 = 0;
/// The `uid` of what the driver makes for all its users: any user context may name it. Linux calls it the shared resources'.
pub const SHARED: u16 = 0xffff;

/// Objects by number, the lowest free number given out first.
///
/// While a command of a user context runs ([`act_for`](Self::act_for)), the table is as if it held that context's objects
/// alone, and the [`SHARED`] ones, which it cannot take out.
#[derive(Debug)]
pub struct Table<T> {
    first: u32,
    count: u32,
    next: u32,
    free: std::collections::BTreeSet<u32>,
    entries: BTreeMap<u32, Entry<T>>,
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
        let (free, entries) = Default::default();
        Table { first, count, next: first, free, entries, acting: DRIVER }
    }

    /// From now on, `uid` is who asks and who makes objects.
    pub fn act_for(&mut self, uid: u16) {
        self.acting = uid;
    }

    /// How many objects are of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.entries.values().filter(|entry| entry.owner == uid).count()
    }

    /// The number the next [`insert`](Self::insert) gives; `None` when the table is full.
    pub fn next_number(&self) -> Option<u32> {
        if let Some(number) = self.free.first() {
            return Some(*number);
        }
        (self.next - self.first < self.count).then_some(self.next)
    }

    /// Takes the object in; gives it back when the table is full.
    pub fn insert(&mut self, object: T) -> Result<u32, T> {
        let Some(number) = self.next_number() else { return Err(object) };
        if !self.free.remove(&number) {
            self.next += 1;
        }
        self.entries.insert(number, Entry { owner: self.acting, object });
        Ok(number)
    }

    /// The object of that number.
    pub fn get(&self, number: u32) -> Option<&T> {
        let entry = self.entries.get(&number)?;
        self.may_name(entry.owner).then_some(&entry.object)
    }

    /// The object of that number, to change.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let owner = self.entries.get(&number)?.owner;
        if !self.may_name(owner) {
            return None;
        }
        self.entries.get_mut(&number).map(|entry| &mut entry.object)
    }

    /// Takes the object out; its number is free again.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let owner = self.entries.get(&number)?.owner;
        if !self.is_driver() && self.acting != owner {
            return None;
        }
        let entry = self.entries.remove(&number)?;
        self.free.insert(number);
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
        self.entries.range(number..).next().map(|(number, _)| *number)
    }

    /// Number and object of each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(number, entry)| (*number, &entry.object))
    }

    /// Number and object of each, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().map(|(number, entry)| (*number, &mut entry.object))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
