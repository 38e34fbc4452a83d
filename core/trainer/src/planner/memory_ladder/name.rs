//! The name of a published ladder.

use std::str::FromStr;

use espalier_config::nearest;

use super::published::{LADDERS, PublishedLadder};

/// Which of the published ladders is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderName(usize);

impl LadderName {
    /// The ladder of the study that measured `preset`, else the last one.
    pub fn of_preset(preset: Option<&str>) -> Self {
        let of_preset = |ladder: &PublishedLadder| Some(ladder.preset) == preset;
        let found = LADDERS.iter().position(of_preset);
        LadderName(found.unwrap_or(LADDERS.len() - 1))
    }

    pub(super) fn ladder(self) -> &'static PublishedLadder {
        &LADDERS[self.0]
    }
}

impl FromStr for LadderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || LADDERS.iter().map(|ladder| ladder.name);
        let found = names().position(|name| name == text);
        found.map(LadderName).ok_or_else(|| {
            let all: Vec<&str> = names().collect();
            let meant = nearest(text, names());
            let meant = meant.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
            format!("expected one of {}, found `{text}`{meant}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_has_the_ladder_that_measured_it() {
        let of = |preset| LadderName::of_preset(preset).ladder().name;
        assert_eq!(of(Some("llama2-7b")), "optimizers");
        assert_eq!(of(Some("llama3.2-3b")), "recipe");
        assert_eq!(of(None), "recipe");
        let slip = "recipes".parse::<LadderName>().expect_err("a slip");
        assert!(slip.contains("`recipe`"), "{slip}");
    }
}
