//! Options and shapes that `hqq` refuses, and the sizes of its formats.

use espalier_interface::{Quantizer, Serial};
use serde_json::{Value as Json, json};

use super::*;

fn create(given: Json) -> Result<Box<dyn Quantizer>> {
    let mut options = Options::default();
    for spec in HQQ.options {
        let default = serde_json::from_str(spec.default).expect("JSON text");
        options.0.insert(spec.name.to_owned(), default);
    }
    let Json::Object(given) = given else {
        panic!("options are an object");
    };
    options.0.extend(given);
    match (HQQ.create)(&options, Arc::new(Serial))? {
        Instance::Quantizer(quantizer) => Ok(quantizer),
        _ => panic!("hqq is a quantizer"),
    }
}

#[test]
fn unsupported_options_are_refused_with_a_message() {
    for (given, words) in [
        (json!({"bits": 1.58}), "set bits = 2"),
        (json!({"bits": 7}), "found 7"),
        (json!({"bits": 0}), "8, 6, 5, 4, 3, 2 or 1, found 0"),
        (
            json!({"bits": 5, "profile": "2024-03"}),
            "set profile = \"0.2.8\"",
        ),
        (json!({"group_size": 60}), "a multiple of 8, found 60"),
        (json!({"group_size": 0}), "a multiple of 8, found 0"),
        (json!({"axis": 2}), "0 or 1, found 2"),
        (json!({"profile": "0.3"}), "found \"0.3\""),
        (json!({"meta": "f8"}), "bf16, zero-8bit or 8bit, found f8"),
        (json!({"meta": "8bit"}), "set profile = \"2024-03\""),
    ] {
        let Err(error) = create(given.clone()) else {
            panic!("{given} is taken");
        };
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_sizes_that_fit() {
    for (given, shape, words) in [
        (json!({"group_size": 128}), [5, 40], "40 and 200 do"),
        (json!({}), [3, 64], "shape [3, 64] has 3 groups of 64"),
        (
            json!({"bits": 1, "axis": 0, "group_size": 200}),
            [5, 40],
            "",
        ),
        (
            json!({"profile": "2024-03", "meta": "8bit"}),
            [64, 64],
            "\"zero-8bit\"",
        ),
    ] {
        let outcome = create(given).expect("options").format(shape);
        match words {
            "" => drop(outcome.expect("it fits")),
            words => {
                let error = outcome.expect_err(words);
                assert!(error.message.contains(words), "{error}");
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_options() {
    for (given, bits) in [
        (json!({}), 4.0 + 64.0 / 64.0),
        (json!({"meta": "bf16", "bits": 2}), 2.0 + 32.0 / 64.0),
        (json!({"bits": 6}), 8.0 + 1.0),
        (json!({"bits": 1, "axis": 0, "group_size": 128}), 1.0 + 0.5),
        (json!({"bits": 3, "axis": 0}), 32.0 * 7.0 / 64.0 + 1.0),
        (json!({"profile": "2024-03"}), 4.0 + 40.0 / 64.0),
        (
            json!({"profile": "2024-03", "meta": "8bit"}),
            4.0 + 16.5 / 64.0,
        ),
    ] {
        let format = create(given.clone()).expect("options").format([1024, 1024]);
        let format = format.expect("it fits");
        format.validate().expect("it agrees with itself");
        let found = 8.0 * format.bytes() as f64 / f64::from(1024 * 1024);
        assert!((found - bits).abs() < 2e-4, "{given}: {found} bits");
    }
}
