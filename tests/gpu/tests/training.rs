//! Trainings on the backend `cuda` over the mock libraries: the losses of backend `cpu`, and the
//! same bits in every order of the streams.

use std::path::Path;

use espalier_tests_gpu::{ALL_TRAININGS, CASES, ORDERS};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Without [`ALL_TRAININGS`] two steps of the first trainings, in f32 and bf16, in one order.
#[test]
fn trainings_have_the_losses_of_cpu_and_the_same_bits_in_every_order() {
    let (cases, orders, more) = if std::env::var_os(ALL_TRAININGS).is_some() {
        (&CASES[..], &ORDERS[..], "")
    } else {
        (&CASES[..2], &ORDERS[..1], "--set run.max_steps=2")
    };
    for case in cases {
        let training = case.training(more);
        let cpu = case.on_cpu(&training);
        let expected = case.on_cuda(&training, folder(), orders[0]);
        case.assert_near(&expected, &cpu);
        for order in &orders[1..] {
            let found = case.on_cuda(&training, folder(), order);
            assert_eq!(found, expected, "{}: {order}", case.name);
        }
    }
}
