//! Quantizers calibrated on the backend `cuda` over the mock libraries: the packed weights and the
//! losses of backend `cpu`, within the rounding of sums, and a plan of the device's memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{Case, ORDERS};
use espalier_torture::built::{golden, program};
use espalier_torture::training::{Training, last_line};
use serde_json::Value as Json;

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Sums of statistics are in another order on a card. A weight that is halfway between two codes
/// then takes the other one, and so may a factor of `awq`.
const fn case(name: &'static str, words: &'static str) -> Case {
    Case {
        name,
        compute: "f32",
        words,
        ranks: 1,
        bound: 1e-3,
    }
}

/// By the mean magnitudes and Gram matrices of dense layers, and by Gram matrices of packed ones.
const CASES: [Case; 2] = [
    case(
        "awq",
        "--plugins awq,lora,single --set quantizer.awq.group_size=16",
    ),
    case(
        "gptq",
        "--plugins gptq,lora,single --set quantizer.gptq.group_size=16",
    ),
];

/// Largest relative difference of a weight's distance from the dense one.
const ERROR_BOUND: f64 = 1e-2;

/// The distance of each packed weight of a run from the dense one.
fn errors(out: &Path) -> Vec<(String, f64)> {
    let text = fs::read_to_string(out.join("run.json")).expect("a record");
    let run: Json = serde_json::from_str(&text).expect("JSON");
    let errors = run["packed_weights"]["errors"].as_array().expect("errors");
    let of = |one: &Json| {
        let name = one["weight"].as_str().expect("a name").to_owned();
        (name, one["error"].as_f64().expect("a number"))
    };
    errors.iter().map(of).collect()
}

#[test]
fn calibrated_trainings_have_the_weights_and_losses_of_cpu() {
    for case in CASES {
        let training: Training =
            case.training("--set run.max_steps=1 --set data.calibration_rows=3");
        let cpu = case.on_cpu(&training);
        let cuda = case.on_cuda(&training, folder(), ORDERS[0]);
        case.assert_near(&cuda, &cpu);
        let [expected, found] = ["cpu", ORDERS[0]].map(|out| errors(&training.path(out)));
        assert_eq!((expected.len(), found.len()), (14, 14), "{}", case.name);
        for ((name, expected), (other, found)) in expected.into_iter().zip(found) {
            assert_eq!(name, other);
            let difference = (found - expected).abs() / expected;
            assert!(
                difference <= ERROR_BOUND,
                "{}: `{name}` is {found} from its dense weight, on cpu {expected}",
                case.name
            );
        }
    }
}

#[test]
fn a_plan_tells_what_calibration_takes_of_the_device() {
    let rows = tempfile::tempdir().expect("a folder");
    let rows = rows.path().join("rows.jsonl");
    fs::write(&rows, "{\"input_ids\":[5,6,7,8,9]}\n").expect("written");
    let mut host = Command::new(program());
    host.args(["plan", "--json", "--set", "quantizer.gptq.group_size=16"]);
    host.args([
        "--plugins",
        "gptq,lora,single",
        "--set",
        "model.compute=f32",
    ]);
    host.args(["--set", "data.max_seq_len=64", "--model"]);
    host.arg(golden("llama/tiny")).arg("--data").arg(&rows);
    let output = CASES[1].mocked(&mut host, folder(), ORDERS[0]).output();
    let output = output.expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let plan: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let bytes = |key: &str| plan["calibration"][key].as_u64().expect("bytes");
    // The largest unit's weights in f32 are on both, its values on the device alone.
    assert!(bytes("device_bytes") > 0 && bytes("bytes") > 0, "{plan}");
    assert!(
        bytes("device_bytes")
            <= plan["memory"]["calibration_on_device"]
                .as_u64()
                .unwrap_or(0)
    );
}
