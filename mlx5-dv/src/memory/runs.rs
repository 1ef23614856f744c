//! Free ranges of larger pieces of memory.

use std::collections::{BTreeMap, BTreeSet};

/// Free runs of units, indexed by position and by length. A position is the piece's number and the unit's index in it:
/// runs of different pieces never merge.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    /// Length by position.
    by_place: BTreeMap<(u64, usize), usize>,
    /// Length and position.
    by_length: BTreeSet<(usize, u64, usize)>,
}

impl FreeRuns {
    /// Takes `units` consecutive units from the shortest run that has enough. Returns their piece and the first index.
    pub(super) fn take(&mut self, units: usize) -> Option<(u64, usize)> {
        let &(length, piece, first) = self.by_length.range((units, 0, 0)..).next()?;
        self.remove(piece, first);
        self.insert(piece, first + units, length - units);
        Some((piece, first))
    }

    /// Frees `units` units at `first` and merges them with free neighbours. Returns the length of the resulting run.
    pub(super) fn give(&mut self, piece: u64, mut first: usize, mut units: usize) -> usize {
        units += self.remove(piece, first + units).unwrap_or(0);
        let before = self.by_place.range((piece, 0)..(piece, first)).next_back();
        if let Some((&(_, start), &length)) = before
            && start + length == first
        {
            self.remove(piece, start);
            (first, units) = (start, units + length);
        }
        self.insert(piece, first, units);
        units
    }

    /// Removes the run that starts at `first`; returns its length.
    pub(super) fn remove(&mut self, piece: u64, first: usize) -> Option<usize> {
        let length = self.by_place.remove(&(piece, first))?;
        self.by_length.remove(&(length, piece, first));
        Some(length)
    }

    fn insert(&mut self, piece: u64, first: usize, length: usize) {
        if length > 0 {
            self.by_place.insert((piece, first), length);
            self.by_length.insert((length, piece, first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shortest_run_that_serves_is_taken() {
        let mut runs = FreeRuns::default();
        for (piece, units) in [(1, 8), (2, 3), (3, 5)] {
            assert_eq!(runs.give(piece, 0, units), units);
        }
        assert_eq!(runs.take(4), Some((3, 0)));
        assert_eq!(runs.take(3), Some((2, 0)));
        assert_eq!(runs.take(1), Some((3, 4)));
        assert_eq!(runs.take(9), None);
        assert_eq!(runs.take(8), Some((1, 0)));
        assert_eq!(runs.take(1), None);
    }

    #[test]
    fn pieces_do_not_touch() {
        let mut runs = FreeRuns::default();
        runs.give(1, 0, 4);
        assert_eq!(runs.give(2, 0, 4), 4);
        assert_eq!(runs.take(5), None);
    }

    proptest! {
        /// No unit is taken twice, and when all are freed each piece is one run again.
        #[test]
        fn what_is_taken_is_nobody_else_s(steps in prop::collection::vec((1usize..6, any::<bool>()), 1..100)) {
            const PIECES: u64 = 3;
            const UNITS: usize = 20;
            let mut runs = FreeRuns::default();
            (0..PIECES).for_each(|piece| { runs.give(piece, 0, UNITS); });
            let mut taken: Vec<(u64, usize, usize)> = Vec::new();
            for (units, back) in steps {
                if back && !taken.is_empty() {
                    let (piece, first, units) = taken.swap_remove(units % taken.len());
                    runs.give(piece, first, units);
                } else if let Some((piece, first)) = runs.take(units) {
                    prop_assert!(first + units <= UNITS);
                    let is_apart = |&(other, start, count): &(u64, usize, usize)| {
                        other != piece || first + units <= start || start + count <= first
                    };
                    prop_assert!(taken.iter().all(is_apart));
                    taken.push((piece, first, units));
                }
            }
            for (piece, first, units) in taken {
                runs.give(piece, first, units);
            }
            let whole: Vec<_> = (0..PIECES).map(|piece| (UNITS, piece, 0)).collect();
            prop_assert_eq!(runs.by_length.into_iter().collect::<Vec<_>>(), whole);
        }
    }
}
