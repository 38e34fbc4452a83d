//! Comparisons of any outcome -> their headline, sentences and table: no word contradicts the table, and the table
//! contradicts no number.

use std::collections::BTreeMap;

use espalier_interface::random::{Purpose, key, normal, philox};
use espalier_trainer::compare::record::{
    Arm, Base, Comparison, Divergence, DocumentDivergence, DocumentLoss, Failure, HeldOut,
};
use espalier_trainer::compare::report::{ArmFindings, Findings, RunFindings, Summary, Table};

const OUTCOMES: u64 = 10_000;
const DRAWS: u32 = 40;
const STEP: u64 = 9;

/// Random numbers, one after the other.
struct Dice([u32; 2], u32);

impl Dice {
    fn words(&mut self) -> [u32; 4] {
        self.1 += 1;
        philox(self.0, [self.1, 0, 0, 0])
    }

    fn below(&mut self, count: usize) -> usize {
        self.words()[0] as usize % count
    }

    fn normal(&mut self) -> f64 {
        let words = self.words();
        f64::from(normal([words[0], words[1]])[0])
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

/// A comparison of any outcome.
fn outcome(index: u64) -> Findings {
    let mut dice = Dice(key(index, Purpose::SYNTHETIC, 11), 0);
    let arms = dice.one_of(&[0, 1, 2, 2, 3, 3, 4, 5, 6]);
    let seeds = dice.one_of(&[1, 2, 3, 3, 3, 4, 5]);
    let documents = dice.one_of(&[0, 1, 2, 3, 8, 12]);
    let eval_only = dice.below(4) == 0;
    let has_dense = dice.below(4) > 0;
    let vocab = dice.one_of(&[0, 8, 512]);
    let scales = [0.0, 0.0, 1e-3, 0.1, 1.0];
    let [apart, of_seeds, of_runs, of_both] =
        [(); 4].map(|()| dice.one_of(&scales) * dice.one_of(&[1.0, 1.0, 30.0]));
    let trained: Vec<u64> = (0..documents)
        .map(|_| dice.one_of(&[0, 1, 7, 20]))
        .collect();
    let level = dice.one_of(&[1.0, 3.0, 9.0]);
    let shared: Vec<f64> = (0..documents).map(|_| dice.normal()).collect();
    let by_seed: Vec<f64> = (0..seeds).map(|_| of_seeds * dice.normal()).collect();
    let mut found = Vec::new();
    for arm in 0..arms {
        // Ties, and arms that scatter otherwise than others.
        let excess = apart * dice.one_of(&[0.0, 0.0, 1.0, 2.0, -1.5, 8.0]);
        let own = of_runs * dice.one_of(&[0.0, 1.0, 1.0, 10.0]);
        let held_out = |dice: &mut Dice, shift: f64, step: u64| {
            let document = |(trained, shared): (&u64, &f64)| {
                let loss = level + excess + shift + shared + of_both * dice.normal();
                let loss = match dice.below(4000) {
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
            if dice.below(60) == 0 {
                documents.pop();
            }
            HeldOut { step, documents }
        };
        let before = held_out(&mut dice, 0.0, 0);
        let mut runs = Vec::new();
        for (seed, of_seed) in by_seed.iter().enumerate().filter(|_| !eval_only) {
            let shift = of_seed + own * dice.normal();
            let run = held_out(&mut dice, shift, STEP);
            if dice.below(25) > 0 {
                runs.push(RunFindings {
                    seed: seed as u64,
                    held_out: BTreeMap::from([(STEP, run)]),
                    ..RunFindings::default()
                });
            }
        }
        let failures = match dice.below(20) {
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
                sum: *tokens as f64 * (size + of_both * dice.normal()).abs(),
                tokens: *tokens,
            });
            let documents: Vec<DocumentDivergence> = each.collect();
            let documents = if dice.below(15) == 0 {
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
            base: (dice.below(15) > 0).then_some(base),
            runs,
        });
    }
    Findings {
        comparison: Comparison {
            yardstick: (has_dense && arms > 0).then(|| "arm0".to_owned()),
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

/// The checker sees what it is to see: a text of another table fails.
#[test]
fn a_text_of_another_outcome_is_found_out() {
    let found_out = (0..400).filter(|index| {
        let findings = outcome(*index);
        let mut summary = Summary::of(&findings, DRAWS);
        let other = Summary::of(&outcome(index + 1), DRAWS);
        summary.reading = other.reading;
        std::panic::catch_unwind(|| check(&summary, &findings)).is_err()
    });
    assert!(found_out.count() > 200);
}
