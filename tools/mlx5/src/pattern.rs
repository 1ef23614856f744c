//! Regular expressions of the command line.

use regex::{Regex, RegexBuilder};

use crate::output::{Failure, usage};

/// `pattern`, ignoring case.
///
/// # Errors
/// It is no regular expression.
pub fn compiled(pattern: &str) -> Result<Regex, Failure> {
    RegexBuilder::new(pattern).case_insensitive(true).build().map_err(|error| {
        // Its first lines point into the pattern.
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        usage(format!("{pattern:?} is not a regular expression: {reason}; `.*` matches anything, `\\.` a dot"))
    })
}
