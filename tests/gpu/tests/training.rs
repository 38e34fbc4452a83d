//! Trainings on the backend `cuda` over the mock libraries: the losses of backend `cpu`, and the
//! same bits in every order of the streams.

use std::path::Path;

use espalier_tests_gpu::{CASES, ORDERS};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn a_short_training_has_the_losses_of_cpu() {
    let case = CASES[0];
    let training = case.training("--set run.max_steps=3");
    let cpu = case.on_cpu(&training);
    case.assert_near(&case.on_cuda(&training, folder(), "late"), &cpu);
}

#[test]
#[ignore = "minutes; `cargo xtask gpu emulate` runs it"]
fn every_training_has_the_same_bits_in_every_order() {
    for case in CASES {
        let training = case.training("");
        let cpu = case.on_cpu(&training);
        let [first, others @ ..] = ORDERS;
        let expected = case.on_cuda(&training, folder(), first);
        case.assert_near(&expected, &cpu);
        for order in others {
            let found = case.on_cuda(&training, folder(), order);
            assert_eq!(found, expected, "{}: {order}", case.name);
        }
        println!("{}: as on cpu, the same bits in {ORDERS:?}", case.name);
    }
}
