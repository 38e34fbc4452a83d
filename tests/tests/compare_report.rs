//! A comparison's report: its statements follow from the numbers, for any contents of the
//! directory.

mod comparison;

use std::fs;
use std::path::Path;

use espalier_compare::record::{self, Failure};
use espalier_compare::report::{ComparisonVerdict, Report};
use espalier_system::files::COMPARISON;
use espalier_trainer::train;
use serde_json::{Value as Json, json};

use comparison::{
    SAMPLES, STEPS, Sample, Scene, edit_base, edit_comparison, folder, pair, report, save, text,
};

#[test]
fn planted_differences_are_found_and_no_others() {
    let scene = Scene::default();
    let report = report(&scene, |_| {});
    let numbers = serde_json::to_value(&report).expect("JSON");
    assert_eq!(numbers["pairs"].as_array().map(Vec::len), Some(6));
    for (place, real) in [(1, false), (2, true), (3, true)] {
        let arm = SAMPLES[place].name;
        let truth = scene.loss(place, STEPS) - scene.loss(0, STEPS);
        let pair = pair(&numbers, arm, "dense");
        let [low, high] = [0, 1].map(|end| {
            pair["difference"]["together"][end]
                .as_f64()
                .expect("a number")
        });
        assert!(low <= truth && truth <= high, "{arm}: {low} to {high}");
        assert_eq!(pair["is_real"], real, "{arm}");
        assert_eq!(pair["seeds"], json!([42, 43, 44]));
    }
    // The losses computed by hand from the files.
    let rows = numbers["arms"].as_array().expect("arms");
    let gap = |row: &Json, when: &str| row[when]["loss"].as_f64().expect("a loss");
    let after = gap(&rows[3], "after") - gap(&rows[0], "after");
    let estimate = pair(&numbers, "hqq-2", "dense")["difference"]["estimate"].as_f64();
    assert!((after - estimate.expect("a number")).abs() < 1e-12);
    assert_eq!(report.reading.verdict, ComparisonVerdict::SeveralAreBest);
    let text = text(&report);
    for words in [
        "dense cannot be distinguished from nf4; hqq-3 and hqq-2 are worse.",
        "After 60 steps under 3 seeds (42, 43, 44) nf4 has the lowest held-out loss",
        "over 40 held-out documents",
        "hqq-3 and hqq-2 are above it by more than noise.",
        "Confirming the remaining differences",
        "documents for dense",
        "Noise floor: ",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let table = report.table();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(
        table.contains("4.127") && table.contains("hqq-3") && table.contains("not told apart"),
        "{table}"
    );
}

#[test]
fn fewer_than_three_seeds_or_no_training_is_reported() {
    let two = Scene {
        seeds: vec![1, 2],
        ..Scene::default()
    };
    let two = report(&two, |_| {});
    assert_eq!(two.reading.verdict, ComparisonVerdict::NoVerdict);
    assert!(
        two.pairs
            .iter()
            .all(|pair| !pair.is_real && pair.difference.is_some())
    );
    assert!(
        text(&two).contains("fewer than 3 seeds cannot show the effect"),
        "{}",
        text(&two)
    );

    let untrained = Scene {
        eval_only: true,
        ..Scene::default()
    };
    let untrained = report(&untrained, |_| {});
    let words = "nf4 is closest to the dense base. Without training nf4 has the lowest divergence";
    assert!(text(&untrained).contains(words), "{}", text(&untrained));
    assert!(untrained.pairs.iter().any(|pair| pair.is_real));
    assert!(untrained.noise.is_none() && untrained.arms.iter().all(|arm| arm.after.is_none()));
}

#[test]
fn bases_are_ranked_only_by_their_divergence_over_documents() {
    let scene = Scene {
        eval_only: true,
        ..Scene::default()
    };
    // Two arms: the one with the smaller weight error diverges more on most documents, but not on
    // all.
    let close = |out: &Path, scatter: f64| {
        edit_base(out, "hqq-3", |base| {
            let divergence = base.divergence.as_mut().expect("one");
            for (at, document) in divergence.documents.iter_mut().enumerate() {
                let turn = if at % 2 == 0 { 1.0 } else { -1.0 };
                document.sum = 100.0 * (0.0031 + scatter * turn);
            }
        });
        edit_base(out, "nf4", |base| {
            let divergence = base.divergence.as_mut().expect("one");
            divergence
                .documents
                .iter_mut()
                .for_each(|document| document.sum = 0.32);
        });
    };
    let undecided = report(&scene, |out| close(out, 0.003));
    assert_eq!(undecided.reading.verdict, ComparisonVerdict::SeveralAreBest);
    let words = "nf4 cannot be distinguished from hqq-3; hqq-2 is worse.";
    assert!(text(&undecided).contains(words), "{}", text(&undecided));
    assert!(
        text(&undecided).contains("documents for nf4"),
        "{}",
        text(&undecided)
    );
    let reported = report(&scene, |out| close(out, 0.000_05));
    assert!(
        text(&reported).starts_with("hqq-3 is closest to the dense base."),
        "{}",
        text(&reported)
    );
    // Earlier records have no divergence of documents: no winner, with the reason.
    let old = report(&scene, |out| {
        for arm in ["nf4", "hqq-3", "hqq-2"] {
            edit_base(out, arm, |base| {
                base.divergence.as_mut().expect("one").documents.clear()
            });
        }
    });
    assert_eq!(old.reading.verdict, ComparisonVerdict::NothingToCompare);
    assert!(
        text(&old).contains("has no divergence by document"),
        "{}",
        text(&old)
    );
    // Without a dense arm there is no ranking.
    let no_dense = report(&scene, |out| {
        edit_comparison(out, |found| found.dense_baseline = None)
    });
    assert!(
        text(&no_dense).starts_with("No winner without a dense arm."),
        "{}",
        text(&no_dense)
    );
    assert!(no_dense.pairs.iter().all(|pair| !pair.is_real));
}

#[test]
fn models_worse_than_guessing_have_no_best_arm() {
    for eval_only in [true, false] {
        let scene = Scene {
            eval_only,
            ..Scene::default()
        };
        let report = report(&scene, |out| {
            for arm in SAMPLES {
                // ln 6 = 1.79, below every loss.
                edit_base(out, arm.name, |base| base.vocab = 6);
            }
        });
        assert_eq!(report.reading.verdict, ComparisonVerdict::NoVerdict);
        let text = text(&report);
        assert!(
            text.starts_with("No winner: worse than guessing."),
            "{text}"
        );
        assert!(text.contains("guessing among 6 tokens 1.79"), "{text}");
        assert!(report.pairs.iter().all(|pair| !pair.is_real), "{text}");
    }
}

#[test]
fn failed_arms_are_named_and_the_others_are_compared() {
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
        "Not judged: nf4 (has too few seeds in common with the others).",
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

#[test]
fn missing_and_broken_files_are_reported_and_do_not_end_the_report() {
    let broken = report(&Scene::default(), |out| {
        // A run in progress, a torn file, a loss that is not a number, an arm without a base.
        let run = |arm: &str, seed: u64| record::run_directory(out, arm, seed);
        fs::remove_file(train::held_out_file(&run("nf4", 43), STEPS)).expect("there");
        fs::write(
            train::held_out_file(&run("nf4", 42), STEPS),
            b"{\"step\":60,",
        )
        .expect("written");
        let path = train::held_out_file(&run("hqq-3", 42), STEPS);
        let text = fs::read_to_string(&path).expect("there");
        let number = text.find("\"loss\":").expect("a loss") + 7;
        let end = number + text[number..].find(',').expect("more");
        let text = format!("{}null{}", &text[..number], &text[end..]);
        fs::write(&path, text).expect("written");
        fs::remove_file(record::base_file(out, "hqq-2")).expect("there");
        fs::remove_dir_all(run("hqq-2", 44)).expect("there");
        fs::write(run("hqq-2", 43).join("metrics.jsonl"), b"\xff{").expect("written");
    });
    let text = text(&broken);
    assert_eq!(
        text.matches("step-60.json is left out").count(),
        2,
        "{text}"
    );
    let seeds: Vec<usize> = broken.pairs.iter().map(|pair| pair.seeds.len()).collect();
    assert_eq!(seeds, [1, 2, 2, 1, 0, 1]);
    assert!(broken.pairs.iter().all(|pair| !pair.is_real), "{text}");
    assert_eq!(broken.reading.verdict, ComparisonVerdict::NoVerdict);

    for documents in [0, 1] {
        let scene = Scene {
            documents,
            ..Scene::default()
        };
        let report = report(&scene, |_| {});
        assert!(
            report.pairs.iter().all(|pair| !pair.is_real),
            "{documents} documents"
        );
    }
    let nobody = Scene {
        samples: Vec::new(),
        ..Scene::default()
    };
    assert_eq!(
        report(&nobody, |_| {}).reading.verdict,
        ComparisonVerdict::NothingToCompare
    );
    let alone = Scene {
        samples: SAMPLES[..1].to_vec(),
        ..Scene::default()
    };
    assert_eq!(
        report(&alone, |_| {}).reading.verdict,
        ComparisonVerdict::NothingToCompare
    );
    let nothing = report(&Scene::default(), |out| {
        fs::remove_dir_all(out.join("arms")).expect("there");
    });
    assert_eq!((nothing.arms.len(), nothing.step), (4, None));
}

#[test]
fn other_documents_or_another_length_cannot_be_compared() {
    let report = report(&Scene::default(), |out| {
        let path = train::held_out_file(&record::run_directory(out, "nf4", 42), STEPS);
        let bytes = fs::read(&path).expect("there");
        let mut held_out: train::HeldOut = serde_json::from_slice(&bytes).expect("losses");
        held_out.documents[3].trained += 1;
        save(&path, &held_out);
    });
    let pair = &report.pairs[0];
    assert_eq!((pair.arms[0].as_str(), &pair.difference), ("nf4", &None));
    assert!(text(&report).contains("not evaluated on the same held-out documents"));
}

#[test]
fn the_page_is_self_contained_and_names_cannot_inject_markup() {
    let name = "<b onload=x>\"&";
    let mut samples = SAMPLES.to_vec();
    samples[1] = Sample {
        name,
        ..samples[1].clone()
    };
    let scene = Scene {
        samples,
        ..Scene::default()
    };
    let place = folder(&scene, |_| {});
    let pages = [0, 1].map(|_| {
        let report = Report::of(place.path()).expect("a report");
        fs::read_to_string(report.write(place.path()).expect("written")).expect("a page")
    });
    assert_eq!(pages[0], pages[1]);
    assert!(!pages[0].contains("<b onload"));
    for foreign in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!pages[0].contains(foreign), "{foreign:?}");
    }
    for words in [
        "Held-out loss",
        "Above dense, 95 % interval",
        "Weight error by layer",
        "down_proj",
        "Bits against loss",
        "Step time <span",
        "Token accuracy <span",
        "Perplexity <span",
    ] {
        assert!(pages[0].contains(words), "no {words:?}");
    }
    let charts = pages[0]
        .matches("<script type=\"application/json\">")
        .count();
    assert_eq!(charts, 5);
    let numbers = fs::read(place.path().join("report.json")).expect("numbers");
    let numbers: Json = serde_json::from_slice(&numbers).expect("JSON");
    assert_eq!(numbers["charts"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_folder_that_holds_no_comparison_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let error = Report::of(place.path()).expect_err("nothing there");
    assert_eq!(error.exit_code(), 2);
    fs::write(place.path().join(COMPARISON), "{").expect("written");
    let error = Report::of(place.path()).expect_err("no comparison");
    assert!(
        error.to_string().contains("no record of a comparison"),
        "{error}"
    );
}
