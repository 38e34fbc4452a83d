//! A summary -> whether its text contradicts its table, or the table a number.

use espalier_compare::report::{Findings, Summary};

use super::lines::Lines;

/// The arms in `a`, `a and b`, `a, b and c`.
fn arms(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .split(" and ")
        .flat_map(|part| part.split(", "))
        .collect();
    names.sort_unstable();
    names
}

/// Checks every claim of the text against the table, and the table against itself.
pub fn check(summary: &Summary, findings: &Findings) {
    let (lines, reading) = (Lines::of(summary), &summary.reading);
    let text = reading.to_string();
    assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("not a number"));
    let [best, lowest, worse, undecided] =
        ["best", "lowest", "worse", "not told apart"].map(|verdict| lines.all(verdict));
    assert!(best.len() + lowest.len() <= 1);
    assert_eq!(
        best.is_empty() && lowest.is_empty(),
        worse.is_empty() && undecided.is_empty()
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
        assert!(undecided.is_empty() && !worse.is_empty());
    } else if let Some((name, _)) = headline.split_once(" is closest to the dense base") {
        assert_eq!(best, [name]);
        assert!(undecided.is_empty() && findings.comparison.eval_only);
    } else if let Some((names, rest)) = headline.split_once(" cannot be distinguished from ") {
        assert_eq!(arms(names), undecided);
        let (leader, rest) = rest.split_once("; ").unwrap_or((rest, ""));
        assert_eq!(lowest, [leader]);
        let worse_names = rest
            .strip_suffix(" is worse")
            .or(rest.strip_suffix(" are worse"));
        assert_eq!(worse_names.map(arms).unwrap_or_default(), worse);
    } else if headline.starts_with("No difference was found") {
        assert!(worse.is_empty() && best.is_empty() && !undecided.is_empty());
        assert!(summary.pairs.iter().all(|pair| !pair.is_real));
    } else {
        let nothing = [&best, &lowest, &worse, &undecided];
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

/// Sentences about failed or excluded arms.
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
        " is above it by more than noise",
        " are above it by more than noise",
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
    if sentence.contains("no other can be distinguished from it") {
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
            let estimate = pair.ranked_by().expect("a difference").estimate;
            let sign = if pair.arms[0] == worse { 1.0 } else { -1.0 };
            assert!(pair.is_real && sign * estimate > 0.0, "{sentence}");
        }
    }
    if sentence.starts_with("Confirming the remaining differences") {
        let (_, list) = sentence.split_once("about ").expect("a list");
        for item in list.trim_end_matches('.').split(" for ").skip(1) {
            let name = item.split([',', ' ']).next().expect("a word");
            assert_eq!(lines.verdict(name), "not told apart", "{sentence}");
        }
    }
    if let Some((_, rest)) = sentence.split_once("may differ by ")
        && let Some((_, smaller)) = rest.split_once("; ")
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

/// Each pair's numbers against its verdict and the table's.
fn check_pairs(summary: &Summary, lines: &Lines) {
    for pair in &summary.pairs {
        let Some(judged) = pair.ranked_by() else {
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
        assert!(pair.conclusion().starts_with("real") == pair.is_real);
        let [first, second] = [0, 1].map(|at| lines.verdict(&pair.arms[at]));
        for (verdict, other, sign) in [(first, second, 1.0), (second, first, -1.0)] {
            if ["best", "lowest"].contains(&other) && verdict != "no verdict" {
                assert_eq!(pair.is_real, verdict == "worse");
                assert!(sign * judged.estimate >= 0.0);
            }
        }
        // Recomputed from the losses by seed alone.
        let mean = judged.by_seed.iter().sum::<f64>() / judged.by_seed.len() as f64;
        assert!((mean - judged.estimate).abs() <= 1e-9 * (1.0 + mean.abs()));
    }
}
