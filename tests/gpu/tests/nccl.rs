//! The collective `nccl` over the mock libraries.

use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{ORDERS, libraries};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn the_kit_of_a_collective_passes_in_every_order() {
    for order in ORDERS {
        let output = Command::new(env!("CARGO_BIN_EXE_check_collective"))
            .arg(libraries(folder()))
            .arg(folder().join("mock-cuda-kernels"))
            .env("MOCK_CUDA_DEVICES", "5")
            .env("MOCK_CUDA_ORDER", order)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{order}: {said} {words}");
        assert_eq!(said, "passed", "{order}: {words}");
    }
}
