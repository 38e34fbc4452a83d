//! Shares of peak: their reference, its measurement, and that no share exceeds 100 %.

use std::fs;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_engine::measure::{Cause, Peaks, gemm_rate_within};
use espalier_engine::observer::Unobserved;
use espalier_interface::{BufferRange, DType, MemoryKind};
use espalier_report::Report;
use espalier_tests::golden_path;
use espalier_tests::rows::golden_rows;
use espalier_trainer::session::Session;
use serde_json::{Value as Json, json};

/// A step above the peak triggers a new measurement; a step above that measurement becomes the
/// peak.
#[test]
fn a_step_above_the_peak_triggers_a_new_measurement() {
    let mut peaks = Peaks::default();
    peaks.push(1, 100.0, Cause::Start);
    assert_eq!(peaks.share(1, 80.0, || panic!("it is not beaten")), 0.8);
    assert_eq!(peaks.share(2, 110.0, || Some(220.0)), 0.5);
    assert_eq!(peaks.share(3, 230.0, || Some(200.0)), 1.0);
    assert_eq!(peaks.share(4, 240.0, || None), 1.0);
    let causes: Vec<Cause> = peaks.0.iter().map(|peak| peak.cause).collect();
    assert_eq!(
        causes,
        [Cause::Start, Cause::Again, Cause::Step, Cause::Step]
    );
    for step in 5..50 {
        let rate = 1000.0 * step as f64;
        assert_eq!(peaks.share(step, rate, || Some(rate - 1.0)), 1.0);
    }
    let again = peaks.0.iter().filter(|peak| peak.cause == Cause::Again);
    assert_eq!(again.count(), 3);
}

/// The measurement uses the memory of a step, so it allocates none.
#[test]
fn a_device_is_measured_in_allocated_memory() {
    let (_kept, data) = golden_rows();
    let model = golden_path("llama/tiny-trained");
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("data.files=[{data:?}]"));
    let resolved = resolve(&sources).expect("a config");
    let session = Session::open(&resolved, &Unobserved).expect("a session");
    let device = session.run.device.as_ref();
    let within = |bytes: u64| {
        let buffer = device.alloc(bytes, MemoryKind::DEVICE).expect("memory");
        let room = BufferRange {
            buffer,
            offset: 0,
            bytes,
        };
        gemm_rate_within(device, DType::F32, room).expect("a product")
    };
    assert!(within(8 << 20).is_some_and(|rate| rate > 1e6));
    assert_eq!(within(1 << 10), None);
}

/// A run with these shares on a machine with this record, as a page and in numbers.
fn report(shares: &[f64], machine: &Json) -> (String, Json) {
    let place = tempfile::tempdir().expect("a folder");
    let lines = shares.iter().enumerate().map(|(index, share)| {
        let line = json!({
            "step": index + 1, "loss": 3.0, "tokens_per_sec": 100.0, "step_secs": 1.0,
            "speed_of_light": share,
        });
        line.to_string()
    });
    let metrics = lines.collect::<Vec<_>>().join("\n");
    write(place.path(), "metrics.jsonl", &metrics);
    write(
        place.path(),
        "run.json",
        &json!({ "machine": machine }).to_string(),
    );
    let report = Report::of(place.path()).expect("a report");
    let numbers = serde_json::to_value(&report).expect("plain data");
    (report.to_html(), numbers)
}

fn write(place: &Path, name: &str, text: &str) {
    fs::write(place.join(name), text).expect("written");
}

/// An earlier program's record: one measurement, on a busy machine.
#[test]
fn an_older_run_above_its_peak_is_shown_with_a_note() {
    let machine = json!({"gemm_flops_per_sec": 50e9});
    let (page, numbers) = report(&[1.34, 1.01, 0.67], &machine);
    assert!(page.contains("75.4 % of peak"), "{page}");
    assert!(
        page.contains("reached 134.0 % of what had been measured"),
        "{page}"
    );
    assert!(page.contains("Share of peak") && !page.to_lowercase().contains("speed of light"));
    let median = numbers["headline"]["speed_of_light"]
        .as_f64()
        .expect("a share");
    assert!((median - 1.01 / 1.34).abs() < 1e-12, "{median}");
    let peak = numbers["peak"]["flops_per_sec"].as_f64().expect("a rate");
    assert!((peak / 67e9 - 1.0).abs() < 1e-12, "{peak}");
}

#[test]
fn the_report_states_how_and_when_the_peak_was_measured() {
    let machine = json!({"peak_rates": [
        {"from_step": 1, "flops_per_sec": 50e9, "cause": "start"},
        {"from_step": 2, "flops_per_sec": 100e9, "cause": "again"},
    ]});
    let (page, numbers) = report(&[0.8, 0.6, 0.4], &machine);
    for words in [
        "40.0 % of peak",
        "50 GFLOP&#x2f;s before step 1 (the best of 4 products of square matrices, grown until one takes 2 ms, and 16 of an eighth of the rows)",
        "100 GFLOP&#x2f;s measured again after step 2 had beaten that",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    assert_eq!(numbers["headline"]["speed_of_light"], 0.4);
}
