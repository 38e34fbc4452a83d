//! The same comparison made twice -> the same numbers, but for those that the documents name as measured of the machine.

use espalier_torture::training;

use std::fs;

use serde_json::Value as Json;
use training::{Training, last_line};

/// What is measured, by its place in an arm of `report.json`: times, and the memory that the program itself takes.
const MEASURED: [&str; 11] = [
    "/encode_secs",
    "/tokens_per_sec",
    "/memory/observed_peak_bytes",
    "/memory/planned_peak_bytes",
    "/memory/planned/program",
    "/memory/world/process/program",
    "/memory/world/process/loading_peak",
    "/memory/world/process/available",
    "/memory/world/machine/program",
    "/memory/world/machine/loading_peak",
    "/memory/world/machine/available",
];

/// `report.json` of the comparison, without what is measured.
fn numbers(training: &Training, out: &str) -> Json {
    let more = "--plugins lora --arms nf4,nf4:block_size=128 --seeds 2";
    let mut command = training.command_of("compare", out, more);
    let output = command.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let text = fs::read(training.path(out).join("report.json")).expect("a report");
    let mut report: Json = serde_json::from_slice(&text).expect("JSON");
    let arms = report["arms"].as_array_mut().expect("arms");
    assert_eq!(arms.len(), 3);
    for place in MEASURED {
        for arm in arms.iter_mut() {
            let value = arm.pointer_mut(place);
            *value.unwrap_or_else(|| panic!("no {place}")) = Json::Null;
        }
    }
    report
}

#[test]
fn a_comparison_made_twice_differs_in_what_is_measured_and_in_nothing_else() {
    let training = Training::new("--set adapter.lora.dropout=0.1");
    let (first, again) = (numbers(&training, "first"), numbers(&training, "again"));
    assert!(first["arms"][1]["after"]["loss"].is_f64(), "{first}");
    assert_eq!(first, again);
}

#[test]
fn what_is_measured_is_named_in_the_documents() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.md");
    let page = fs::read_to_string(page).expect("the page");
    for place in MEASURED {
        let name = place.rsplit('/').next().expect("a name");
        assert!(page.contains(&format!("`{name}`")), "no `{name}`");
    }
}
