//! NVIDIA's own compiler takes every kernel.

use espalier_samples::leave_out;
use espalier_tests_gpu::{nvrtc, records};

#[test]
fn every_kernel_compiles_without_spills() {
    let Some(folder) = nvrtc() else {
        leave_out("no NVRTC in the target directory: `cargo xtask gpu compile` fetches it");
        return;
    };
    let records = records(&folder, [8, 0], 2).expect("every kernel compiles");
    for record in &records {
        for kernel in &record.kernels {
            let (source, name) = (record.variant.source(), &record.variant.name);
            let within = "1 to 255 registers and no spills";
            assert!(
                (1..=255).contains(&kernel.registers) && kernel.spill_bytes == 0,
                "{source}, {name}: expected {within}, found {kernel:?}"
            );
        }
    }
}
