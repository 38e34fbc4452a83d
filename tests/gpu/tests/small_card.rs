//! Attention on a card whose multiprocessors have room for one block: the other way to cut its
//! work.

use std::path::Path;
use std::process::Command;

/// Shared memory of a multiprocessor that has no room for a second block of any head size, in
/// bytes.
const SHARED_BYTES: &str = "1024";

#[test]
fn attention_passes_where_shared_memory_is_scarce() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for op in ["op.attention", "op.attention_backward"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_check_op"));
        command.args([op, "bf16", "own"]);
        command.arg(espalier_tests_gpu::libraries(folder));
        command.arg(folder.join("mock-cuda-kernels"));
        command.env("MOCK_CUDA_SHARED", SHARED_BYTES);
        let output = command.output().expect("the check runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "passed", "{op}");
    }
}
