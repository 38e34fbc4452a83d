//! The numbers of a comparison -> one paragraph in plain words.
//!
//! Each sentence follows from numbers by a rule that the report states in its small print.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::cost;
use super::findings::Findings;
use super::pair::Pair;
use super::row::ArmRow;
use crate::compare::statistics::{FEWEST_SEEDS, Noise};
use crate::report::number::significant;

/// How the sentences come about, for the report's small print.
pub const RULES: &str = "The difference of two arms is the mean over seeds of the difference of \
    their held-out losses a token, paired by seed and document. Its 95 % interval adds two parts: \
    documents are drawn anew 10 000 times, paired (bootstrap), and the seeds' part follows \
    Student's t, since a few seeds cannot be drawn from themselves. A difference is real where \
    that interval does not hold 0, and within noise where it does. Fewer than 3 seeds or 2 \
    documents give no verdict. Without training no seed plays a part, and documents alone decide. \
    The noise floor is what the same arm does under other seeds: two means that differ in their \
    seeds alone lie closer than that in 95 % of cases, by the mean spread of all arms. Arms are \
    paired by seed, so a difference can be real and yet below the floor: then it is there, but \
    another seed matters more. To judge all pairs at once each takes its share of the 5 % \
    (Bonferroni).";

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// One arm is better than every other.
    OneIsBest,
    /// Several arms cannot be told from the best, others can.
    SeveralAreBest,
    /// No arm can be told from the best.
    AllAlike,
    /// Seeds or documents are too few to tell.
    NoVerdict,
    /// There are no two arms with losses to compare.
    NothingToCompare,
}

/// A comparison in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// What it comes to.
    pub verdict: Verdict,
    /// The same in a few words.
    pub headline: String,
    /// Why, and what else stands out.
    pub sentences: Vec<String>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.headline, self.sentences.join(" "))
    }
}

/// All that a reading is made of.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    /// What was recorded.
    pub findings: &'a Findings,
    /// A line an arm.
    pub rows: &'a [ArmRow],
    /// Each two of them.
    pub pairs: &'a [Pair],
    /// The noise of all arms.
    pub noise: Option<&'a Noise>,
}

/// Reads the numbers.
pub fn read(numbers: Numbers<'_>) -> Reading {
    let leader = leader(numbers.rows);
    let (verdict, equals) = match leader {
        Some(leader) => judge(numbers, leader),
        None => (Verdict::NothingToCompare, Vec::new()),
    };
    let mut sentences = vec![circumstances(numbers)];
    sentences.extend(leader.map(|leader| best(numbers, verdict, leader, &equals)));
    sentences.extend(cost::sentences(numbers));
    sentences.extend(others(numbers));
    sentences.extend(floor(numbers));
    sentences.extend(multiplicity(numbers.pairs));
    sentences.extend(trouble(numbers));
    Reading {
        verdict,
        headline: headline(numbers, verdict, leader, &equals),
        sentences,
    }
}

/// The place of the arm with the lowest held-out loss.
fn leader(rows: &[ArmRow]) -> Option<usize> {
    let loss = |row: &ArmRow| row.quality.map(|quality| quality.loss);
    let known = rows
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((place, loss(row)?)));
    known
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(place, _)| place)
}

/// The verdict, and the places of the arms that cannot be told from the leader.
fn judge(numbers: Numbers<'_>, leader: usize) -> (Verdict, Vec<usize>) {
    let with_leader = numbers
        .pairs
        .iter()
        .filter(|pair| pair.places.contains(&leader));
    let judged: Vec<&Pair> = with_leader
        .filter(|pair| pair.difference.is_some())
        .collect();
    if judged.is_empty() {
        return (Verdict::NothingToCompare, Vec::new());
    }
    let verdict_of = |pair: &&Pair| pair.difference.as_ref().is_some_and(|d| d.has_verdict());
    if !judged.iter().all(verdict_of) {
        return (Verdict::NoVerdict, Vec::new());
    }
    let alike = judged.iter().filter(|pair| !pair.is_real);
    let other = |pair: &&Pair| pair.places.into_iter().find(|place| *place != leader);
    let mut equals: Vec<usize> = alike.filter_map(other).collect();
    equals.sort_unstable();
    let verdict = match equals.len() {
        0 => Verdict::OneIsBest,
        all if all == judged.len() => Verdict::AllAlike,
        _ => Verdict::SeveralAreBest,
    };
    (verdict, equals)
}

fn headline(
    numbers: Numbers<'_>,
    verdict: Verdict,
    leader: Option<usize>,
    equals: &[usize],
) -> String {
    let name = |place: &usize| numbers.rows[*place].name.clone();
    let together: Vec<String> = leader.iter().chain(equals).map(name).collect();
    match verdict {
        Verdict::OneIsBest => format!("{} is best", listed(&together)),
        Verdict::SeveralAreBest => format!("{} are best", listed(&together)),
        Verdict::AllAlike => "No difference is real".to_owned(),
        Verdict::NoVerdict => "Too few to tell".to_owned(),
        Verdict::NothingToCompare => "Nothing to compare yet".to_owned(),
    }
}

/// What was done to all arms alike.
fn circumstances(
    Numbers {
        findings,
        rows,
        pairs,
        ..
    }: Numbers<'_>,
) -> String {
    let comparison = &findings.comparison;
    let arms = counted(rows.len(), "arm");
    let first = findings.arms.iter().find_map(|arm| arm.before());
    let held_out = first.map(|held_out| {
        let bearing = held_out
            .documents
            .iter()
            .filter(|document| document.trained > 0);
        let documents = counted(bearing.count(), "held-out document");
        format!("{documents} ({} trained tokens)", held_out.total().trained)
    });
    let documents = pairs
        .iter()
        .find_map(|pair| Some(pair.difference.as_ref()?.documents));
    let held_out = held_out
        .or(documents.map(|documents| counted(documents, "held-out document")))
        .unwrap_or_else(|| "held-out documents".to_owned());
    if comparison.eval_only {
        return format!("{arms} were asked for {held_out}; nothing was trained.");
    }
    let seeds = seeds(&comparison.seeds);
    let steps = match (findings.step, findings.planned) {
        (Some(step), Some(planned)) if step < planned => {
            format!("are on their way, compared after {step} of {planned} steps,")
        }
        (Some(step), _) => format!(
            "took {} on the same batches",
            counted(step as usize, "step")
        ),
        (None, _) => "have begun".to_owned(),
    };
    format!("{arms} {steps} under {seeds} and were asked for {held_out}.")
}

fn best(numbers: Numbers<'_>, verdict: Verdict, leader: usize, equals: &[usize]) -> String {
    let row = &numbers.rows[leader];
    let quality = row.quality.expect("the leader has a loss");
    let mut text = format!(
        "The lowest held-out loss has {}, {} nats a token (perplexity {})",
        row.name,
        significant(quality.loss, 4),
        significant(quality.perplexity, 4)
    );
    let names: Vec<String> = equals
        .iter()
        .map(|place| numbers.rows[*place].name.clone())
        .collect();
    let seeds = numbers.findings.comparison.seeds.len();
    let few_seeds = seeds < FEWEST_SEEDS && !numbers.findings.comparison.eval_only;
    text += &match verdict {
        Verdict::OneIsBest => {
            ", lower than every other arm's, and the difference is real.".to_owned()
        }
        Verdict::SeveralAreBest | Verdict::AllAlike => format!(
            "; {} cannot be told from it: the {} within noise.{}",
            listed(&names),
            if names.len() == 1 {
                "difference is"
            } else {
                "differences are"
            },
            smallest(numbers, leader, equals)
        ),
        Verdict::NoVerdict if few_seeds => format!(
            ", but {} give no verdict ({FEWEST_SEEDS} do at least): the intervals are over \
             documents alone and know nothing of what another seed would change.",
            counted(seeds, "seed")
        ),
        Verdict::NoVerdict => {
            ", but the runs or documents that can be compared are too few for a verdict.".to_owned()
        }
        Verdict::NothingToCompare => ", and there is no other arm to compare it with.".to_owned(),
    };
    text
}

/// Which of the best takes the fewest bits.
fn smallest(numbers: Numbers<'_>, leader: usize, equals: &[usize]) -> String {
    let best = equals
        .iter()
        .chain([&leader])
        .map(|place| &numbers.rows[*place]);
    let known = best.filter_map(|row| Some((row, row.bits_per_weight?)));
    match known.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((row, bits)) => {
            let bits = significant(bits, 3);
            format!(
                " The smallest of them is {} with {bits} bits a weight.",
                row.name
            )
        }
        None => String::new(),
    }
}

/// The pairs without the yardstick.
fn others(numbers: Numbers<'_>) -> Option<String> {
    let yardstick = numbers.findings.yardstick()?;
    let rest = numbers
        .pairs
        .iter()
        .filter(|pair| !pair.places.contains(&yardstick));
    let judged: Vec<&Pair> = rest.filter(|pair| pair.difference.is_some()).collect();
    if judged.is_empty()
        || !judged
            .iter()
            .all(|pair| pair.difference.as_ref().is_some_and(|d| d.has_verdict()))
    {
        return None;
    }
    let noise: Vec<&&Pair> = judged.iter().filter(|pair| !pair.is_real).collect();
    if noise.is_empty() {
        let places = judged.iter().flat_map(|pair| pair.places);
        let mut places: Vec<usize> = places.collect::<BTreeSet<_>>().into_iter().collect();
        let loss = |place: &usize| numbers.rows[*place].quality.map_or(f64::NAN, |q| q.loss);
        places.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
        let names = places.iter().map(|place| numbers.rows[*place].name.clone());
        let names: Vec<String> = names.collect();
        let order = names.join(" below ");
        return Some(format!("Among the others the order is real: {order}."));
    }
    if noise.len() == judged.len() {
        return Some(match noise[..] {
            [only] => format!(
                "{} and {} cannot be told apart.",
                only.arms[1], only.arms[0]
            ),
            _ => "No two of the others can be told apart.".to_owned(),
        });
    }
    let alike = noise
        .iter()
        .map(|pair| format!("{} and {}", pair.arms[1], pair.arms[0]));
    let alike = alike.collect::<Vec<_>>().join(", or ");
    Some(format!(
        "Among the others, {alike} cannot be told apart; their other differences are real."
    ))
}

fn floor(
    Numbers {
        findings, noise, ..
    }: Numbers<'_>,
) -> Option<String> {
    let noise = noise.filter(|_| !findings.comparison.eval_only)?;
    let seeds = findings.comparison.seeds.len();
    Some(format!(
        "The same arm under other seeds scatters by {} nats (standard deviation): two means of {} \
         that differ in nothing else may lie {} apart.",
        significant(noise.deviation, 2),
        counted(seeds, "seed"),
        significant(noise.range, 2)
    ))
}

fn multiplicity(pairs: &[Pair]) -> Option<String> {
    let judged = |pair: &&Pair| pair.difference.as_ref().is_some_and(|d| d.has_verdict());
    let judged: Vec<&Pair> = pairs.iter().filter(judged).collect();
    let real = judged.iter().filter(|pair| pair.is_real).count();
    let together = judged.iter().filter(|pair| pair.is_real_together).count();
    (judged.len() > 1).then(|| {
        format!(
            "Where arms do not differ one pair in twenty looks real by chance; here {real} of {} \
             {} real, {together} of them also where all pairs are judged at once.",
            judged.len(),
            if real == 1 { "is" } else { "are" }
        )
    })
}

/// What failed, and what could not be compared or read.
fn trouble(
    Numbers {
        findings, pairs, ..
    }: Numbers<'_>,
) -> Vec<String> {
    let failures = findings.arms.iter().flat_map(|arm| {
        arm.arm.failures.iter().map(|failure| match failure.seed {
            Some(seed) => format!(
                "{} failed under seed {seed} after step {}: {}.",
                arm.arm.name, failure.step, failure.message
            ),
            None => format!("{} failed: {}.", arm.arm.name, failure.message),
        })
    });
    let failed = |arm: &String| {
        let found = findings.arms.iter().find(|found| found.arm.name == *arm);
        found.is_some_and(|found| !found.arm.failures.is_empty())
    };
    let missing = pairs.iter().filter(|pair| !pair.arms.iter().any(failed));
    let missing = missing.filter_map(|pair| {
        let [first, second] = &pair.arms;
        Some(format!(
            "{first} and {second} cannot be compared: {}.",
            pair.missing.as_ref()?
        ))
    });
    let notes = findings.notes.iter().map(|note| format!("{note}."));
    failures.chain(missing.take(3)).chain(notes).collect()
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
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
