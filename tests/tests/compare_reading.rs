//! Comparisons of any outcome -> their headline, sentences and table: no word contradicts the table, and the table
//! contradicts no number.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use std::collections::BTreeMap;

use espalier_compare::record::{Arm, Base, Comparison, Divergence, DocumentDivergence, Failure};
use espalier_compare::report::{ArmFindings, Findings, Reading, RunFindings, Summary, Table};
use espalier_engine::document_loss::DocumentLoss;
use espalier_tests::Random;
use espalier_trainer::train::HeldOut;

const OUTCOMES: u64 = 10_000;
const DRAWS: u32 = 40;
const STEP: u64 = 9;

/// A comparison of any outcome.
fn outcome(index: u64) -> Findings {
    let mut random = Random::of(index, 11);
    let arms = random.pick(&[0, 1, 2, 2, 3, 3, 4, 5, 6]);
    let seeds = random.pick(&[1, 2, 3, 3, 3, 4, 5]);
    let documents = random.pick(&[0, 1, 2, 3, 8, 12]);
    let eval_only = random.once_in(4);
    let has_dense = !random.once_in(4);
    let vocab = random.pick(&[0, 8, 512]);
    let scales = [0.0, 0.0, 1e-3, 0.1, 1.0];
    let [apart, of_seeds, of_runs, of_both] =
        [(); 4].map(|()| random.pick(&scales) * random.pick(&[1.0, 1.0, 30.0]));
    let trained: Vec<u64> = (0..documents)
        .map(|_| random.pick(&[0, 1, 7, 20]))
        .collect();
    let level = random.pick(&[1.0, 3.0, 9.0]);
    let shared: Vec<f64> = (0..documents).map(|_| random.normal()).collect();
    let by_seed: Vec<f64> = (0..seeds).map(|_| of_seeds * random.normal()).collect();
    let mut found = Vec::new();
    for arm in 0..arms {
        // Ties, and arms that scatter otherwise than others.
        let excess = apart * random.pick(&[0.0, 0.0, 1.0, 2.0, -1.5, 8.0]);
        let own = of_runs * random.pick(&[0.0, 1.0, 1.0, 10.0]);
        let held_out = |random: &mut Random, shift: f64, step: u64| {
            let document = |(trained, shared): (&u64, &f64)| {
                let loss = level + excess + shift + shared + of_both * random.normal();
                let loss = match random.below(4000) {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    2 => 1e300,
                    _ => loss * *trained as f64,
                };
                DocumentLoss {
                    loss,
                    correct: 0,
                    trained: *trained,
                }
            };
            let mut documents: Vec<DocumentLoss> =
                trained.iter().zip(&shared).map(document).collect();
            if random.once_in(60) {
                documents.pop();
            }
            HeldOut { step, documents }
        };
        let before = held_out(&mut random, 0.0, 0);
        let mut runs = Vec::new();
        for (seed, of_seed) in by_seed.iter().enumerate().filter(|_| !eval_only) {
            let shift = of_seed + own * random.normal();
            let run = held_out(&mut random, shift, STEP);
            if !random.once_in(25) {
                runs.push(RunFindings {
                    seed: seed as u64,
                    held_out: BTreeMap::from([(STEP, run)]),
                    ..RunFindings::default()
                });
            }
        }
        let failures = match random.below(20) {
            0 => vec![None],
            1 => vec![Some(0)],
            _ => Vec::new(),
        };
        let failures = failures.into_iter().map(|seed| Failure {
            seed,
            step: 3,
            message: "it broke".to_owned(),
        });
        let is_dense = has_dense && arm == 0;
        let divergence = (has_dense && !is_dense).then(|| {
            let size = excess.abs() + 0.01;
            let each = trained.iter().map(|tokens| DocumentDivergence {
                sum: *tokens as f64 * (size + of_both * random.normal()).abs(),
                tokens: *tokens,
            });
            let documents: Vec<DocumentDivergence> = each.collect();
            let documents = if random.once_in(15) {
                Vec::new()
            } else {
                documents
            };
            Divergence {
                tokens: trained.iter().sum(),
                mean: size,
                documents,
                ..Divergence::default()
            }
        });
        let base = Base {
            vocab,
            divergence,
            held_out: Some(before),
            ..Base::default()
        };
        found.push(ArmFindings {
            arm: Arm {
                name: format!("arm{arm}"),
                failures: failures.collect(),
                ..Arm::default()
            },
            base: (!random.once_in(15)).then_some(base),
            runs,
        });
    }
    Findings {
        comparison: Comparison {
            dense_baseline: (has_dense && arms > 0).then(|| "arm0".to_owned()),
            seeds: (0..seeds as u64).collect(),
            eval_only,
            arms: found.iter().map(|arm| arm.arm.clone()).collect(),
            ..Comparison::default()
        },
        arms: found,
        step: (!eval_only).then_some(STEP),
        planned: Some(STEP),
        notes: Vec::new(),
    }
}

/// The table as it is printed: each arm's verdict, and what it is above the lowest by.
struct Lines(BTreeMap<String, (String, Option<[f64; 3]>)>);

impl Lines {
    fn of(summary: &Summary) -> Self {
        let table = Table::new(&summary.arms);
        let column = |name: &str| table.heads.iter().position(|head| *head == name);
        let (verdict, above) = (column("verdict"), column("above the lowest"));
        let lines = table.lines.iter().map(|line| {
            let above = above
                .map(|at| line[at].as_str())
                .filter(|cell| !cell.is_empty());
            let verdict = line[verdict.expect("a verdict")].clone();
            (line[0].clone(), (verdict, above.map(numbers)))
        });
        Lines(lines.collect())
    }

    fn verdict(&self, arm: &str) -> &str {
        let line = self.0.get(arm);
        &line.unwrap_or_else(|| panic!("there is no arm {arm:?}")).0
    }

    fn all(&self, verdict: &str) -> Vec<&str> {
        let those = self.0.iter().filter(|(_, line)| line.0 == verdict);
        those.map(|(name, _)| name.as_str()).collect()
    }
}

/// `+0.030 (+0.008 to +0.051)`.
fn numbers(text: &str) -> [f64; 3] {
    let text = text.replace('\u{2212}', "-");
    let each = text
        .split([' ', '(', ')'])
        .filter_map(|word| word.parse().ok());
    let each: Vec<f64> = each.collect();
    each.try_into()
        .unwrap_or_else(|_| panic!("not three numbers: {text}"))
}

/// The arms in `a`, `a and b`, `a, b and c`.
fn arms(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .split(" and ")
        .flat_map(|part| part.split(", "))
        .collect();
    names.sort_unstable();
    names
}

/// Holds every claim of the text against the table, and the table against itself.
fn check(summary: &Summary, findings: &Findings) {
    let (lines, reading) = (Lines::of(summary), &summary.reading);
    let text = reading.to_string();
    assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("not a number"));
    let [best, lowest, worse, untold] =
        ["best", "lowest", "worse", "not told apart"].map(|verdict| lines.all(verdict));
    assert!(best.len() + lowest.len() <= 1);
    assert_eq!(
        best.is_empty() && lowest.is_empty(),
        worse.is_empty() && untold.is_empty()
    );
    for (name, (verdict, above)) in &lines.0 {
        match (verdict.as_str(), above) {
            ("worse", Some([estimate, low, _])) => assert!(*estimate >= 0.0 && *low >= 0.0),
            ("not told apart", Some([estimate, low, high])) => {
                assert!(*estimate >= 0.0 && *low <= 0.0 && *high >= 0.0, "{name}");
            }
            ("worse" | "not told apart", None) => panic!("{name}: no difference is shown"),
            _ => (),
        }
    }
    let headline = reading.headline.as_str();
    if let Some((name, _)) = headline.split_once(" is best") {
        assert_eq!((best.as_slice(), lowest.len()), ([name].as_slice(), 0));
        assert!(untold.is_empty() && !worse.is_empty());
    } else if let Some((name, _)) = headline.split_once(" is closest to the dense base") {
        assert_eq!(best, [name]);
        assert!(untold.is_empty() && findings.comparison.eval_only);
    } else if let Some((names, rest)) = headline.split_once(" cannot be told from ") {
        assert_eq!(arms(names), untold);
        let (leader, rest) = rest.split_once("; ").unwrap_or((rest, ""));
        assert_eq!(lowest, [leader]);
        let said = rest
            .strip_suffix(" is worse")
            .or(rest.strip_suffix(" are worse"));
        assert_eq!(said.map(arms).unwrap_or_default(), worse);
    } else if headline.starts_with("No difference was found") {
        assert!(worse.is_empty() && best.is_empty() && !untold.is_empty());
        assert!(summary.pairs.iter().all(|pair| !pair.is_real));
    } else {
        let nothing = [&best, &lowest, &worse, &untold];
        assert!(nothing.into_iter().all(Vec::is_empty), "{headline}");
        assert!(summary.pairs.iter().all(|pair| !pair.is_real), "{headline}");
    }
    let is_headed = !best.is_empty();
    assert_eq!(
        headline.contains("best") || headline.contains("closest"),
        is_headed
    );
    for sentence in &reading.sentences {
        check_sentence(sentence, &lines, summary);
    }
    let shown = reading.sentences.len() - trouble(reading.sentences.as_slice());
    assert!(shown <= 3, "{text}");
    check_pairs(summary, &lines);
}

/// Sentences of what failed or takes no part.
fn trouble(sentences: &[String]) -> usize {
    let is = |sentence: &&String| sentence.contains("failed") || sentence.starts_with("Not judged");
    sentences.iter().filter(is).count()
}

fn check_sentence(sentence: &str, lines: &Lines, summary: &Summary) {
    if let Some((before, _)) = sentence.split_once(" has the lowest ") {
        let name = before.rsplit(' ').next().expect("a word");
        assert!(
            ["best", "lowest", "no verdict"].contains(&lines.verdict(name)),
            "{sentence}"
        );
    }
    for end in [
        " lies above it by more than noise",
        " lie above it by more than noise",
    ] {
        let Some((before, _)) = sentence.split_once(end) else {
            continue;
        };
        let (_, names) = before.rsplit_once("; ").expect("behind the first part");
        if names == "all others" {
            assert!(lines.all("not told apart").is_empty() && lines.all("worse").len() > 1);
        } else {
            assert_eq!(arms(names), lines.all("worse"), "{sentence}");
        }
    }
    if sentence.contains("no other can be told from it") {
        assert!(lines.all("worse").is_empty() && !lines.all("lowest").is_empty());
    }
    for part in sentence.split(", but ").skip(1) {
        let claims = part
            .trim_end_matches('.')
            .split(" and ")
            .flat_map(|part| part.split(", "));
        for claim in claims.filter(|claim| claim.contains(" is worse than ")) {
            let (worse, better) = claim.split_once(" is worse than ").expect("a claim");
            let pair = summary
                .pairs
                .iter()
                .find(|pair| pair.arms == [worse, better] || pair.arms == [better, worse]);
            let pair = pair.expect("a pair");
            let estimate = pair.judged().expect("a difference").estimate;
            let sign = if pair.arms[0] == worse { 1.0 } else { -1.0 };
            assert!(pair.is_real && sign * estimate > 0.0, "{sentence}");
        }
    }
    if sentence.starts_with("To tell what was not told") {
        let (_, list) = sentence.split_once("about ").expect("a list");
        for item in list.trim_end_matches('.').split(" for ").skip(1) {
            let name = item.split([',', ' ']).next().expect("a word");
            assert_eq!(lines.verdict(name), "not told apart", "{sentence}");
        }
    }
    if let Some((_, rest)) = sentence.split_once("may lie ")
        && let Some((_, smaller)) = rest.split_once("apart; ")
    {
        let names = smaller.split(" is nearer").next().expect("a part");
        let names = names.split(" are nearer").next().expect("a part");
        assert!(
            arms(names)
                .iter()
                .all(|name| lines.verdict(name) == "worse"),
            "{sentence}"
        );
    }
}

/// Each pair's numbers against its verdict, and against the table's.
fn check_pairs(summary: &Summary, lines: &Lines) {
    for pair in &summary.pairs {
        let Some(judged) = pair.judged() else {
            assert!(!pair.is_real);
            continue;
        };
        assert!(
            judged.together.contains(judged.estimate) && judged.interval.contains(judged.estimate)
        );
        assert_eq!(
            pair.is_real,
            pair.is_decided && !judged.together.contains(0.0),
            "{:?}",
            pair.arms
        );
        assert!(pair.judgement().starts_with("real") == pair.is_real);
        let [first, second] = [0, 1].map(|at| lines.verdict(&pair.arms[at]));
        for (verdict, other, sign) in [(first, second, 1.0), (second, first, -1.0)] {
            if ["best", "lowest"].contains(&other) && verdict != "no verdict" {
                assert_eq!(pair.is_real, verdict == "worse");
                assert!(sign * judged.estimate >= 0.0);
            }
        }
        // Recomputed from nothing but the losses by seed.
        let mean = judged.by_seed.iter().sum::<f64>() / judged.by_seed.len() as f64;
        assert!((mean - judged.estimate).abs() <= 1e-9 * (1.0 + mean.abs()));
    }
}

#[test]
fn no_outcome_gives_a_text_that_contradicts_its_table() {
    let mut headlines: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..OUTCOMES {
        let findings = outcome(index);
        let summary = Summary::of(&findings, DRAWS);
        let checked = std::panic::catch_unwind(|| check(&summary, &findings));
        if checked.is_err() {
            let table = Table::new(&summary.arms).to_text();
            panic!(
                "outcome {index}:\n{table}{}\n{:?}",
                summary.reading, summary.facts.obstacle
            );
        }
        let kind = summary
            .reading
            .headline
            .replace(|letter: char| letter.is_ascii_digit(), "");
        *headlines
            .entry(kind.chars().take(24).collect())
            .or_default() += 1;
    }
    println!("{headlines:#?}");
    // All kinds of outcome were seen.
    for (words, fewest) in [
        ("arm is best", 200),
        ("arm is closest to", 20),
        ("No difference was found", 300),
        ("Too few seeds", 300),
        ("No winner without", 50),
        ("No winner: worse", 300),
        ("Nothing to compare", 100),
    ] {
        let seen = headlines
            .iter()
            .filter(|(headline, _)| headline.starts_with(words));
        let seen: usize = seen.map(|(_, count)| count).sum();
        assert!(seen >= fewest, "{words:?} {seen} times");
    }
}

/// What a text says, turned into what it does not say, where the table holds what would be needed for either.
fn turned(summary: &Summary) -> Vec<Reading> {
    let lines = Lines::of(summary);
    let mut texts = Vec::new();
    let mut turn = |change: &dyn Fn(&str) -> String| {
        let reading = &summary.reading;
        texts.push(Reading {
            headline: change(&reading.headline),
            sentences: reading.sentences.iter().map(|text| change(text)).collect(),
            verdict: reading.verdict,
        });
    };
    // Two arms change places.
    let [leader, others] = [["best", "lowest"], ["worse", "not told apart"]].map(|verdicts| {
        let names = verdicts.map(|verdict| lines.all(verdict));
        names.concat()
    });
    if let ([leader], [other, ..]) = (leader.as_slice(), others.as_slice()) {
        turn(&|text| {
            let text = text.replace(leader, "the other").replace(other, leader);
            text.replace("the other", other)
        });
    }
    let headline = summary.reading.headline.as_str();
    if headline.contains(" is best") || headline.contains(" is closest") {
        turn(&|text| {
            if text == headline {
                "No difference was found".to_owned()
            } else {
                text.to_owned()
            }
        });
    }
    if let [lowest] = lines.all("lowest").as_slice() {
        turn(&|text| {
            if text == headline {
                format!("{lowest} is best")
            } else {
                text.to_owned()
            }
        });
    }
    // What lies above the lowest is said of all, or of none.
    if !lines.all("worse").is_empty() && !lines.all("not told apart").is_empty() {
        turn(
            &|text| match text.split_once(" above it by more than noise") {
                Some((before, rest)) => {
                    let (first, _) = before.rsplit_once("; ").expect("two parts");
                    format!("{first}; all others lie above it by more than noise{rest}")
                }
                None => text.to_owned(),
            },
        );
        turn(&|text| match text.split_once("; ") {
            Some((first, rest)) if rest.contains(" above it by more than noise") => {
                format!("{first}; no other can be told from it.")
            }
            _ => text.to_owned(),
        });
    }
    texts
}

/// The checker sees what it is to see: each text that says something else fails.
#[test]
fn a_text_that_says_something_else_is_found_out() {
    let mut seen = 0;
    for index in 0..2000 {
        let findings = outcome(index);
        let summary = Summary::of(&findings, DRAWS);
        for reading in turned(&summary) {
            let other = Summary {
                reading,
                ..summary.clone()
            };
            let checked = std::panic::catch_unwind(|| check(&other, &findings));
            assert!(checked.is_err(), "outcome {index}: {}", other.reading);
            seen += 1;
        }
    }
    assert!(seen > 500, "{seen}");
}
