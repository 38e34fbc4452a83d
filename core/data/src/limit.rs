//! The counts of rows and `data.max_lost` -> whether the loss is allowed, and whether it is
//! reported.

use super::counts::{Counts, percent};
use super::error::DataError;
use super::options::DataOptions;

/// The share of the trained tokens, or of the rows, above which a loss is reported even in quiet
/// mode.
pub const TOLD_LOST: f64 = 0.01;

/// Whether the user chose what happens to long rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLongIs {
    /// The user chose: tokens lost to length are reported.
    Chosen,
    /// The default holds: tokens lost to length count against `data.max_lost`.
    Default,
}

impl Counts {
    /// Whether so much is lost, or so many rows train nothing, that it has to be reported.
    pub fn tells(&self) -> bool {
        let rows = self.rows.max(1) as f64;
        self.share(self.lost.total()) > TOLD_LOST
            || (self.untrained + self.dropped.total()) as f64 / rows > TOLD_LOST
    }

    /// Refuses rows that lose more than `data.max_lost` allows; `which` names them.
    ///
    /// # Errors
    /// [`DataError::Lost`], with the counts by reason and what to set.
    pub fn check_lost(
        &self,
        which: &'static str,
        options: &DataOptions,
        too_long: TooLongIs,
    ) -> Result<(), DataError> {
        let lost = match too_long {
            TooLongIs::Chosen => self.lost.dropped,
            TooLongIs::Default => self.lost.total(),
        };
        let share = self.share(lost);
        if share <= options.max_lost {
            return Ok(());
        }
        let to_length = self.lost.to_length();
        Err(DataError::Lost {
            which,
            share: percent(share),
            most: options.max_lost,
            reasons: self.summary(),
            advice: match too_long {
                TooLongIs::Default if to_length > 0 => format!(
                    "raise data.max_seq_len, which is {} where the longest row has {} tokens, or set \
                     data.too_long to say that long rows may be cut (\"truncate\") or left out \
                     (\"drop\")",
                    options.max_seq_len, self.longest
                ),
                _ => "correct the rows".to_owned(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Lost;

    #[test]
    fn more_than_the_share_is_refused_unless_the_user_chose_what_happens() {
        let counts = |truncated, dropped| Counts {
            rows: 100,
            truncated: 1,
            trained_tokens: 1000 - truncated - dropped,
            lost: Lost {
                truncated,
                dropped,
                ..Lost::default()
            },
            ..Counts::default()
        };
        let options = DataOptions::default();
        let check = |counts: Counts, chosen| counts.check_lost("training", &options, chosen);
        check(counts(100, 0), TooLongIs::Default).expect("no more than a tenth");
        check(counts(101, 0), TooLongIs::Chosen).expect("chosen");
        let refused = check(counts(90, 11), TooLongIs::Default).expect_err("more than a tenth");
        let text = refused.to_string();
        assert!(
            text.contains("10.1 %") && text.contains("data.max_lost = 0.1"),
            "{text}"
        );
        check(counts(0, 101), TooLongIs::Chosen).expect_err("bad rows were not chosen");
        assert!(!counts(10, 0).tells() && counts(11, 0).tells());
    }
}
