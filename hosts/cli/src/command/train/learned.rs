//! A run's report -> what the last lines of `host train` tell of it: training loss and answers.

use std::path::Path;

use espalier_report::{Report, Sample};
use espalier_system::number::significant;

use crate::visible::visible;

/// Most characters of a line's text.
const WIDTH: usize = 84;
/// The mark of what is left out.
const CUT: char = '…';

/// What a run learned, by its report.
#[derive(Debug, Default)]
pub struct Learned {
    /// Mean training loss at the beginning and at the end, where these are different steps.
    pub training_loss: Option<[f64; 2]>,
    /// Held-out questions with their answers before and after.
    pub samples: Vec<Sample>,
}

impl Learned {
    /// That of the run in `directory`; nothing where it has no report.
    pub fn of(directory: &Path) -> Self {
        let Ok(report) = Report::of(directory) else {
            return Learned::default();
        };
        Learned {
            training_loss: (report.headline.training_loss).filter(|_| report.headline.steps > 1),
            samples: report.samples,
        }
    }

    /// The training loss as the report shows it; `last` is that of the last step.
    pub fn training_loss(&self, last: f64) -> String {
        match self.training_loss {
            Some(ends) => {
                let [before, after] = ends.map(|loss| significant(loss, 4));
                format!("training loss {before} -> {after}")
            }
            None => format!("training loss {last:.4}"),
        }
    }

    /// Each question, its expected answer, and the answers before and after.
    pub fn questions(&self) -> Vec<String> {
        self.samples.iter().flat_map(question).collect()
    }
}

/// The lines of a question.
fn question(sample: &Sample) -> Vec<String> {
    let mut lines = vec![format!("question  {}", end(&sample.question))];
    let after = sample.after.as_ref();
    let answers = [
        Some(("expected", &sample.expected)),
        Some(("before", &sample.before.text)),
        after.map(|after| ("after", &after.text)),
    ];
    for (name, text) in answers.into_iter().flatten() {
        lines.push(
            format!("  {name:<10}{}", beginning(text))
                .trim_end()
                .to_owned(),
        );
    }
    lines
}

/// The first characters of a text on one line.
fn beginning(text: &str) -> String {
    let shown: Vec<char> = text.chars().map(visible).collect();
    if shown.len() <= WIDTH {
        return shown.into_iter().collect();
    }
    shown[..WIDTH - 1].iter().copied().chain([CUT]).collect()
}

/// The last characters of a text on one line.
fn end(text: &str) -> String {
    let shown: Vec<char> = text.chars().map(visible).collect();
    match shown.len().checked_sub(WIDTH) {
        None | Some(0) => shown.into_iter().collect(),
        Some(over) => [CUT].iter().chain(&shown[over + 1..]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_to_a_line() {
        let long: String = (0..200)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        for (cut, of_text) in [
            (beginning(&long), &long[..WIDTH - 1]),
            (end(&long), &long[117..]),
        ] {
            assert_eq!(cut.chars().count(), WIDTH);
            assert_eq!(cut.trim_matches(CUT), of_text);
        }
        assert_eq!(beginning("a\nb"), "a⏎b");
        assert_eq!(end(&long[..WIDTH]), &long[..WIDTH]);
    }

    #[test]
    fn the_loss_is_that_of_the_report_where_there_is_one() {
        assert_eq!(
            Learned::default().training_loss(4.52184),
            "training loss 4.5218"
        );
        let learned = Learned {
            training_loss: Some([10.41234, 0.098765]),
            ..Learned::default()
        };
        assert_eq!(learned.training_loss(0.5), "training loss 10.41 -> 0.09877");
    }
}
