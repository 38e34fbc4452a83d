//! A comparison's report: what it says follows from the numbers, whatever the directory holds.

mod comparison;

use std::fs;
use std::path::Path;

use comparison::{SAMPLES, STEPS, Scene, save};
use espalier_trainer::compare::record::{self, Comparison, Failure};
use espalier_trainer::compare::report::{Report, Verdict};
use serde_json::{Value as Json, json};

/// A comparison in a folder of its own, changed by `edit`.
fn folder(scene: &Scene, edit: impl FnOnce(&Path)) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    scene.write(place.path());
    edit(place.path());
    place
}

fn report(scene: &Scene, edit: impl FnOnce(&Path)) -> Report {
    let place = folder(scene, edit);
    let report = Report::of(place.path()).expect("a report");
    let page = report.write(place.path()).expect("written");
    let page = fs::read_to_string(page).expect("a page");
    assert!(!page.contains("NaN") && !page.contains("undefined"));
    report
}

fn text(report: &Report) -> String {
    report.reading.to_string()
}

fn edit_comparison(out: &Path, edit: impl FnOnce(&mut Comparison)) {
    let path = out.join(record::COMPARISON);
    let bytes = fs::read(&path).expect("there");
    let mut comparison = serde_json::from_slice(&bytes).expect("a comparison");
    edit(&mut comparison);
    save(&path, &comparison);
}

/// The pair of these arms: the loss of the second is taken from the first's.
fn pair<'a>(numbers: &'a Json, first: &str, second: &str) -> &'a Json {
    let mut pairs = numbers["pairs"].as_array().expect("pairs").iter();
    pairs
        .find(|pair| pair["arms"] == json!([first, second]))
        .expect("this pair")
}

#[test]
fn differences_that_were_put_in_are_found_and_no_others() {
    let scene = Scene::default();
    let report = report(&scene, |_| {});
    let numbers = serde_json::to_value(&report).expect("JSON");
    assert_eq!(numbers["pairs"].as_array().map(Vec::len), Some(6));
    for (place, real) in [(1, false), (2, true), (3, true)] {
        let arm = SAMPLES[place].name;
        let truth = scene.loss(place, STEPS) - scene.loss(0, STEPS);
        let pair = pair(&numbers, arm, "dense");
        let [low, high] = [0, 1].map(|end| {
            pair["difference"]["interval"][end]
                .as_f64()
                .expect("a number")
        });
        assert!(low <= truth && truth <= high, "{arm}: {low} to {high}");
        assert_eq!(pair["is_real"], real, "{arm}");
        assert_eq!(pair["seeds"], json!([42, 43, 44]));
    }
    // The losses that follow from the files, by hand.
    let rows = numbers["arms"].as_array().expect("arms");
    let gap = |row: &Json, when: &str| row[when]["loss"].as_f64().expect("a loss");
    let after = gap(&rows[3], "after") - gap(&rows[0], "after");
    let estimate = pair(&numbers, "hqq-2", "dense")["difference"]["estimate"].as_f64();
    assert!((after - estimate.expect("a number")).abs() < 1e-12);
    assert_eq!(report.reading.verdict, Verdict::SeveralAreBest);
    let text = text(&report);
    for words in [
        "nf4",
        "within noise",
        "60 steps",
        "40 held-out documents",
        "Of 6 pairs",
        "made up for",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let table = report.table();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(
        table.contains("4.127") && table.contains("hqq-3"),
        "{table}"
    );
}

#[test]
fn fewer_than_three_seeds_or_no_training_is_said() {
    let two = Scene {
        seeds: vec![1, 2],
        ..Scene::default()
    };
    let two = report(&two, |_| {});
    assert_eq!(two.reading.verdict, Verdict::NoVerdict);
    assert!(
        two.pairs
            .iter()
            .all(|pair| !pair.is_real && pair.difference.is_some())
    );
    assert!(
        text(&two).contains("2 seeds give no verdict"),
        "{}",
        text(&two)
    );

    let untrained = Scene {
        eval_only: true,
        ..Scene::default()
    };
    let untrained = report(&untrained, |_| {});
    assert!(text(&untrained).contains("nothing was trained"));
    assert!(untrained.pairs.iter().any(|pair| pair.is_real));
    assert!(untrained.noise.is_none() && untrained.arms.iter().all(|arm| arm.after.is_none()));
}

#[test]
fn what_failed_is_named_and_the_rest_is_compared() {
    let report = report(&Scene::default(), |out| {
        edit_comparison(out, |comparison| {
            comparison.arms[1].failures.push(Failure {
                seed: Some(43),
                step: 7,
                message: "the loss is not finite".to_owned(),
            });
            comparison.arms[3].failures.push(Failure {
                seed: None,
                step: 0,
                message: "not enough memory".to_owned(),
            });
        });
        fs::remove_dir_all(record::arm_directory(out, "hqq-2")).expect("removed");
    });
    let text = text(&report);
    for words in [
        "nf4 failed under seed 43 after step 7: the loss",
        "hqq-2 failed: not enough",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let seeds = |first: &str, second: &str| {
        let mut pairs = report.pairs.iter();
        let pair = pairs
            .find(|pair| pair.arms == [first, second])
            .expect("this pair");
        (pair.seeds.clone(), pair.difference.is_some())
    };
    assert_eq!(seeds("nf4", "dense"), (vec![42, 44], true));
    assert_eq!(seeds("hqq-3", "dense"), (vec![42, 43, 44], true));
    assert_eq!(seeds("hqq-2", "dense"), (vec![], false));
}
