//! A numbered table of objects.

use std::collections::BTreeMap;

/// Objects by number, the lowest free number given out first.
#[derive(Debug)]
pub struct Table<T> {
    first: u32,
    count: u32,
    next: u32,
    free: std::collections::BTreeSet<u32>,
    entries: BTreeMap<u32, T>,
}

impl<T> Table<T> {
    /// An empty table whose numbers start at `first`, with room for `count` objects.
    pub fn new(first: u32, count: u32) -> Self {
        Table { first, count, next: first, free: Default::default(), entries: BTreeMap::new() }
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
        self.entries.insert(number, object);
        Ok(number)
    }

    /// The object of that number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(&number)
    }

    /// The object of that number, to change.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(&number)
    }

    /// Takes the object out; its number is free again.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let object = self.entries.remove(&number)?;
        self.free.insert(number);
        Some(object)
    }

    /// The lowest number from `number` on that is in use.
    pub fn next_from(&self, number: u32) -> Option<u32> {
        self.entries.range(number..).next().map(|(number, _)| *number)
    }

    /// Number and object of each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(number, object)| (*number, object))
    }

    /// Number and object of each, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().map(|(number, object)| (*number, object))
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
