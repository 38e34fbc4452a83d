//! The conclusions of a comparison -> a headline, two sentences and further notes.
//!
//! No conclusion is drawn here: the sentences and the table only express [`Facts`].

use std::fmt;

use espalier_system::number::{signed, significant};
use serde::Serialize;

use super::enumeration::listed;
use super::facts::{ComparisonVerdict, Facts, Measure, Obstacle, Standing};
use super::findings::Findings;
use super::pair::{Pair, shown, shown_width};
use super::row::ArmRow;
use super::{same_memory, trouble};
use crate::statistics::{FEWEST_SEEDS, Noise};

/// The rules of the sentences, for the report's small print.
pub const RULES: &str = "The difference of two arms is the mean over seeds of the difference of \
    their held-out losses a token, paired by seed and document. Its interval adds two parts: \
    documents are resampled 10 000 times, paired (bootstrap), and the seeds' part follows \
    Student's t. The variance over seeds is pooled over all arms, which share their seeds. An \
    arm of far larger variance is left out of the pool, and a pair of larger variance than the \
    pool keeps its own. The arm with the lowest loss is compared with each other arm. The \
    interval corrects for choosing that arm by the same numbers: it is as wide as the range of \
    that many arms requires (Tukey, Games and Howell). After an arm is found worse, fewer \
    comparisons remain (Holm). An arm is worse where that interval does not hold 0. Where it \
    does, no difference was found, which does not show that there is none. An arm is best where \
    every other arm is worse. Where no arm differs, two arms are reported to differ in 5 of 100 \
    comparisons, and in up to 13 where arms vary very unequally (3 to 16 times). Fewer than 3 \
    seeds or 2 documents give no verdict, nor does a loss above that of guessing. Without \
    training, bases are ranked by the divergence of their predictions from the dense base's \
    (KL), over documents alone. Without a dense arm they are not ranked. The noise floor is the \
    effect of other seeds on the same arm: two means that differ only in their seeds are closer \
    than that in 95 % of cases. Arms are paired by seed, so a difference can be real and yet \
    below the floor. The numbers of seeds and documents that would confirm a difference follow \
    from the measured variance, for 8 of 10 comparisons, if the difference has its measured \
    size.";

/// Most arms for which the needed seeds and documents are printed.
const MOST_NEEDS: usize = 3;

/// A comparison in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The verdict.
    pub verdict: ComparisonVerdict,
    /// The verdict in a few words.
    pub headline: String,
    /// The reasons and further notes.
    pub sentences: Vec<String>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.headline, self.sentences.join(" "))
    }
}

/// The inputs of a reading.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    /// The records.
    pub findings: &'a Findings,
    /// The conclusions.
    pub facts: &'a Facts,
    /// One row per arm.
    pub rows: &'a [ArmRow],
    /// All pairs.
    pub pairs: &'a [Pair],
    /// The noise of all arms.
    pub noise: Option<&'a Noise>,
}

impl Numbers<'_> {
    fn name(&self, place: usize) -> String {
        self.rows[place].name.clone()
    }

    fn names(&self, places: &[usize]) -> String {
        let names: Vec<String> = places.iter().map(|place| self.name(*place)).collect();
        listed(&names)
    }

    /// The pair of the arm at `place` with the leader.
    fn with_leader(&self, place: usize) -> Option<&Pair> {
        let leader = self.facts.leader?;
        let mut pairs = self.pairs.iter();
        pairs.find(|pair| pair.places == [place, leader] || pair.places == [leader, place])
    }

    fn is_trained(&self) -> bool {
        self.facts.measure == Measure::HeldOutLoss
    }

    /// `+0.030 (+0.008 to +0.051)`: the excess of the arm at `place` over the leader.
    fn above(&self, place: usize) -> String {
        self.facts.above(place).map_or_else(String::new, |above| {
            let interval = above.together;
            let estimate = signed(above.estimate, shown_width(interval));
            format!("{estimate} ({})", shown(interval))
        })
    }
}

/// Expresses the conclusions in words.
pub fn read(numbers: Numbers<'_>) -> Reading {
    let mut sentences = vec![finding(numbers)];
    sentences.extend(same_memory::sentences(
        numbers.findings,
        numbers.facts,
        numbers.rows,
    ));
    sentences.extend(needs(numbers));
    sentences.extend(floor(numbers));
    sentences.extend(trouble::sentences(numbers.findings, numbers.facts));
    Reading {
        verdict: numbers.facts.verdict,
        headline: headline(numbers),
        sentences,
    }
}

fn headline(numbers: Numbers<'_>) -> String {
    let facts = numbers.facts;
    let leader = facts
        .leader
        .map(|place| numbers.name(place))
        .unwrap_or_default();
    let worse = facts.those(Standing::Worse);
    let untold = numbers.names(&facts.those(Standing::NotToldApart));
    match (facts.verdict, facts.obstacle) {
        (ComparisonVerdict::OneIsBest, _) => {
            let of = of_those(numbers, "of");
            if numbers.is_trained() {
                format!("{leader} is best{of}")
            } else {
                format!("{leader} is closest to the dense base{of}")
            }
        }
        (ComparisonVerdict::SeveralAreBest, _) => format!(
            "{untold} cannot be distinguished from {leader}; {} {} worse",
            numbers.names(&worse),
            if worse.len() == 1 { "is" } else { "are" }
        ),
        (ComparisonVerdict::AllAlike, _) if facts.other_significant_pairs().is_empty() => {
            format!("No difference was found{}", of_those(numbers, "among"))
        }
        (ComparisonVerdict::AllAlike, _) => {
            format!("{untold} cannot be distinguished from {leader}")
        }
        (_, Some(Obstacle::FewSeeds)) => "Too few seeds for a verdict".to_owned(),
        (_, Some(Obstacle::FewDocuments)) => "Too few documents for a verdict".to_owned(),
        (_, Some(Obstacle::NoDense)) => "No winner without a dense arm".to_owned(),
        (_, Some(Obstacle::WorseThanGuessing { .. })) => {
            "No winner: worse than guessing".to_owned()
        }
        (ComparisonVerdict::NoVerdict | ComparisonVerdict::NothingToCompare, None) => {
            if numbers.is_trained() {
                "Nothing to compare yet".to_owned()
            } else {
                "Nothing to rank".to_owned()
            }
        }
    }
}

/// ` of the 3 arms that can be judged`, where others are not ranked.
fn of_those(numbers: Numbers<'_>, of: &str) -> String {
    let facts = numbers.facts;
    let takes_part = |place: &usize| {
        let mut all = facts.comparisons.iter();
        facts.leader == Some(*place) || all.any(|comparison| comparison.places.contains(place))
    };
    let places = 0..numbers.rows.len();
    let judged = places.filter(takes_part).count();
    let others = numbers.rows.len() - facts.those(Standing::DenseBaseline).len();
    if judged < others {
        format!(" {of} the {} that can be judged", counted(judged, "arm"))
    } else {
        String::new()
    }
}

/// The first sentence: the leader, its lead and the significant differences.
fn finding(numbers: Numbers<'_>) -> String {
    let facts = numbers.facts;
    let when = circumstances(numbers);
    let lead = |leader: usize| {
        let what = if numbers.is_trained() {
            "the lowest held-out loss"
        } else {
            "the lowest divergence from the dense base"
        };
        format!(
            "{when} {} has {what}{}, {} nats a token {}",
            numbers.name(leader),
            of_those(numbers, "of"),
            significant(facts.lowest, 4),
            extent(facts.extent)
        )
    };
    match (facts.obstacle, facts.leader) {
        (Some(Obstacle::NoDense), _) => "Nothing was trained, and without a dense arm there is \
            nothing that the bases' predictions could be compared with: leave --no-dense away, or \
            train."
            .to_owned(),
        (Some(Obstacle::WorseThanGuessing { loss, vocab }), _) => format!(
            "The {} held-out loss is {} nats a token, that of guessing among {vocab} tokens {}: \
             the model does worse than guessing on these rows, so that no arm is ranked.",
            if numbers.is_trained() {
                "lowest"
            } else {
                "dense base's"
            },
            significant(loss, 4),
            significant((vocab as f64).ln(), 3),
        ),
        (Some(Obstacle::FewSeeds), Some(leader)) => format!(
            "{}, but fewer than {FEWEST_SEEDS} seeds cannot show the effect of another seed: \
             the intervals are over documents alone.",
            lead(leader)
        ),
        (Some(Obstacle::FewDocuments), Some(leader)) => {
            format!("{}, which covers this document only.", lead(leader))
        }
        (None, Some(leader)) => format!("{}; {}.", lead(leader), told(numbers)),
        (_, None) => {
            if numbers.is_trained() {
                format!("{when} there are no two arms with held-out losses of the same rows.")
            } else {
                format!("{when} there are no two arms whose divergences can be ranked.")
            }
        }
    }
}

/// The significant differences among the other arms.
fn told(numbers: Numbers<'_>) -> String {
    let facts = numbers.facts;
    let worse = facts.those(Standing::Worse);
    let beside = facts.other_significant_pairs();
    let beside = beside.iter().take(MOST_NEEDS).map(|[worse, better]| {
        format!(
            "{} is worse than {}",
            numbers.name(*worse),
            numbers.name(*better)
        )
    });
    let beside: Vec<String> = beside.collect();
    let beside = if beside.is_empty() {
        String::new()
    } else {
        format!(", but {}", listed(&beside))
    };
    match (facts.verdict, worse.first()) {
        (ComparisonVerdict::OneIsBest, Some(next)) if worse.len() == 1 => {
            format!(
                "{} has a loss {} higher",
                numbers.name(*next),
                numbers.above(*next)
            )
        }
        (ComparisonVerdict::OneIsBest, Some(next)) => format!(
            "all others are above it by more than noise, the nearest, {}, by {}",
            numbers.name(*next),
            numbers.above(*next)
        ),
        (ComparisonVerdict::SeveralAreBest, _) => format!(
            "{} {} above it by more than noise{beside}",
            numbers.names(&worse),
            if worse.len() == 1 { "is" } else { "are" }
        ),
        (ComparisonVerdict::AllAlike, _) => {
            format!("no other can be distinguished from it{beside}")
        }
        _ => "there is no other arm to compare with it".to_owned(),
    }
}

/// The conditions of the comparison.
fn circumstances(numbers: Numbers<'_>) -> String {
    let Numbers {
        findings, facts, ..
    } = numbers;
    if !numbers.is_trained() {
        return "Without training".to_owned();
    }
    let steps = match (findings.step, findings.planned) {
        (Some(step), Some(planned)) if step < planned => {
            format!("So far, after {step} of {planned} steps")
        }
        (Some(step), _) => format!("After {}", counted(step as usize, "step")),
        (None, _) => return "So far".to_owned(),
    };
    if facts.seeds.is_empty() {
        steps
    } else {
        format!("{steps} under {}", seeds(&facts.seeds))
    }
}

fn extent([documents, tokens]: [u64; 2]) -> String {
    let documents = counted(documents as usize, "held-out document");
    format!("over {documents} ({})", counted(tokens as usize, "token"))
}

/// The second sentence: seeds and documents needed for the differences that are not significant.
fn needs(numbers: Numbers<'_>) -> Option<String> {
    let facts = numbers.facts;
    let mut untold = facts.those(Standing::NotToldApart);
    untold.reverse();
    let pairs: Vec<(usize, &Pair)> = untold
        .iter()
        .filter_map(|place| Some((*place, numbers.with_leader(*place)?)))
        .collect();
    let known = pairs
        .iter()
        .filter_map(|(place, pair)| Some((*place, pair.needed?)));
    let each = known.take(MOST_NEEDS).map(|(place, needed)| {
        let documents = counted(needed.documents, "document");
        let what = match needed.seeds {
            0 => documents,
            count if needed.documents as u64 == facts.extent[0] => counted(count, "seed"),
            count => format!("{} and {documents}", counted(count, "seed")),
        };
        format!("{} for {}", what, numbers.name(place))
    });
    let each: Vec<String> = each.collect();
    let hopeless = "the remaining differences are too small for any number of seeds and documents";
    match (pairs.is_empty(), each.is_empty()) {
        (true, _) => None,
        (false, true) => Some(format!("At their measured size, {hopeless}.")),
        (false, false) => Some(format!(
            "Confirming the remaining differences at their measured size would take about {}.",
            listed(&each)
        )),
    }
}

/// The noise floor: a separate sentence, not a condition.
fn floor(numbers: Numbers<'_>) -> Option<String> {
    let noise = numbers.noise.filter(|_| numbers.is_trained())?;
    if numbers.facts.obstacle.is_some() {
        return None;
    }
    if noise.deviation == 0.0 {
        return Some("Seeds have no effect here.".to_owned());
    }
    let below = numbers
        .facts
        .those(Standing::Worse)
        .into_iter()
        .filter(|place| {
            let pair = numbers.with_leader(*place);
            pair.is_some_and(|pair| pair.is_below_noise_floor)
        });
    let below: Vec<usize> = below.collect();
    let smaller = match below.as_slice() {
        [] => String::new(),
        places => format!(
            "; {} {} nearer than that: real under the same seeds, but another seed moves an arm \
             further",
            numbers.names(places),
            if places.len() == 1 { "is" } else { "are" }
        ),
    };
    Some(format!(
        "Noise floor: an arm scatters by {} nats over seeds (standard deviation), so that \
         the means of two equal arms over {} may differ by {}{smaller}.",
        significant(noise.deviation, 2),
        counted(numbers.facts.seeds.len(), "seed"),
        significant(noise.range, 2)
    ))
}

/// `3 seeds (42, 43, 44)`, `600 seeds`.
pub fn seeds(seeds: &[u64]) -> String {
    let numbers: Vec<String> = seeds.iter().map(u64::to_string).collect();
    match seeds.len() {
        1..=8 => format!("{} ({})", counted(seeds.len(), "seed"), numbers.join(", ")),
        many => counted(many, "seed"),
    }
}

/// `1 seed`, `3 seeds`.
pub fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}
