//! A changed scene -> its report.

use std::fs;
use std::path::Path;

use espalier_compare::record::{self, Comparison};
use espalier_compare::report::Report;
use espalier_system::files::COMPARISON;
use serde_json::{Value as Json, json};

use super::scene::{Scene, save};

/// A comparison in a new folder, changed by `edit`.
pub fn folder(scene: &Scene, edit: impl FnOnce(&Path)) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    scene.write(place.path());
    edit(place.path());
    place
}

pub fn report(scene: &Scene, edit: impl FnOnce(&Path)) -> Report {
    let place = folder(scene, edit);
    let report = Report::of(place.path()).expect("a report");
    let page = report.write(place.path()).expect("written");
    let page = fs::read_to_string(page).expect("a page");
    assert!(!page.contains("NaN") && !page.contains("undefined"));
    report
}

pub fn text(report: &Report) -> String {
    report.reading.to_string()
}

pub fn edit_comparison(out: &Path, edit: impl FnOnce(&mut Comparison)) {
    let path = out.join(COMPARISON);
    let bytes = fs::read(&path).expect("there");
    let mut comparison = serde_json::from_slice(&bytes).expect("a comparison");
    edit(&mut comparison);
    save(&path, &comparison);
}

/// The pair of these arms: the first's loss less the second's.
pub fn pair<'a>(numbers: &'a Json, first: &str, second: &str) -> &'a Json {
    let mut pairs = numbers["pairs"].as_array().expect("pairs").iter();
    pairs
        .find(|pair| pair["arms"] == json!([first, second]))
        .expect("this pair")
}

pub fn edit_base(out: &Path, arm: &str, edit: impl FnOnce(&mut record::Base)) {
    let path = record::base_file(out, arm);
    let bytes = fs::read(&path).expect("there");
    let mut base = serde_json::from_slice(&bytes).expect("a base");
    edit(&mut base);
    save(&path, &base);
}
