//! Counts of the texts that steps read.

/// What steps count of the texts that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextCounts {
    /// texts and lists of which a part was left out, since they were too long
    pub truncated: u32,
    /// tokens that were made of them, special tokens included, padding not
    pub tokens: u64,
}

impl TextCounts {
    /// Adds the counts of another step.
    pub const fn add(&mut self, other: Self) {
        self.truncated = self.truncated.saturating_add(other.truncated);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}
