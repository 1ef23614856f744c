//! Places in a text, found without a walk over it: a log may have millions of lines.

use std::ops::Range;

/// Where the lines of a text are.
pub struct Lines<'a> {
    /// The text.
    pub text: &'a str,
    starts: Vec<usize>,
}

/// Bytes of a line that are looked at around a place: no kernel prints a longer line.
const NEAR: usize = 4096;

impl<'a> Lines<'a> {
    /// The lines of `text`.
    pub fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(end, _)| end + 1)).collect();
        Lines { text, starts }
    }

    /// Number of the line at byte `at`, from 0.
    pub fn number(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// Where a line starts, by its number.
    pub fn start(&self, number: usize) -> usize {
        self.starts.get(number).copied().unwrap_or(self.text.len())
    }

    /// A line by its number, without its end.
    pub fn line(&self, number: usize) -> &'a str {
        let line = &self.text[self.start(number)..self.start(number + 1)];
        line.strip_suffix('\n').unwrap_or(line)
    }

    /// What stands near byte `at` in its line: of all but giants the whole line.
    pub fn near(&self, at: usize) -> &'a str {
        let line = self.line(self.number(at));
        let at = at - self.start(self.number(at));
        &line[floor(line, at.saturating_sub(NEAR))..floor(line, at.saturating_add(NEAR))]
    }

    /// What stands before byte `at` in its line; nothing if that is more than any log's prefix.
    pub fn before(&self, at: usize) -> Option<&'a str> {
        let start = self.start(self.number(at));
        (at - start <= NEAR).then(|| &self.text[start..at])
    }
}

/// The last boundary of characters up to byte `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Ranges, which may overlap, asked for whether one has a place.
pub struct Spans {
    /// By start: the start, and the largest end of those up to here.
    sorted: Vec<(usize, usize)>,
}

impl Spans {
    /// Whether one of the ranges has `at`.
    pub fn contain(&self, at: usize) -> bool {
        let before = self.sorted.partition_point(|(start, _)| *start <= at);
        before.checked_sub(1).is_some_and(|last| self.sorted[last].1 > at)
    }
}

impl FromIterator<Range<usize>> for Spans {
    fn from_iter<I: IntoIterator<Item = Range<usize>>>(ranges: I) -> Self {
        let mut sorted: Vec<(usize, usize)> = ranges.into_iter().map(|range| (range.start, range.end)).collect();
        sorted.sort_unstable();
        let mut end = 0;
        for span in &mut sorted {
            end = end.max(span.1);
            span.1 = end;
        }
        Spans { sorted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_bytes() {
        let lines = Lines::of("ab\n\ncd");
        assert_eq!([0, 2, 3, 4, 6].map(|at| lines.number(at)), [0, 0, 1, 2, 2]);
        assert_eq!([0, 1, 2, 3].map(|number| lines.line(number)), ["ab", "", "cd", ""]);
        assert_eq!((lines.before(5), lines.near(5), lines.near(1)), (Some("c"), "cd", "ab"));
        let giant = "é".repeat(NEAR * 2);
        let lines = Lines::of(&giant);
        assert_eq!((lines.before(giant.len() - 2), lines.near(NEAR * 2 + 1).len()), (None, NEAR * 2));
    }

    #[test]
    fn a_place_is_in_any_of_the_ranges_that_overlap() {
        let spans: Spans = [4..6, 0..3, 10..20, 12..13].into_iter().collect();
        let held: Vec<usize> = (0..25).filter(|at| spans.contain(*at)).collect();
        assert_eq!(held, [0, 1, 2, 4, 5].into_iter().chain(10..20).collect::<Vec<_>>());
        assert!(![].into_iter().collect::<Spans>().contain(0));
    }
}
