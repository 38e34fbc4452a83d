//! NVIDIA's own compiler takes every kernel.

use espalier_backend_cuda::{KernelRecord, Recorder, Variant, code_variants};
use espalier_interface::format::DeviceCode;
use espalier_samples::leave_out;
use espalier_tests_gpu::third_party::sample;
use espalier_tests_gpu::{nvrtc, records};

#[test]
fn every_kernel_compiles_without_spills() {
    let Some(folder) = nvrtc() else {
        leave_out("no NVRTC in the target directory: `cargo xtask gpu compile` fetches it");
        return;
    };
    let records = records(&folder, [8, 0], 2).expect("every kernel compiles");
    for record in &records {
        assert_lean(&record.variant, &record.kernels);
    }
}

fn assert_lean(variant: &Variant, kernels: &[KernelRecord]) {
    for kernel in kernels {
        let (source, name) = (variant.source(), &variant.name);
        let within = "1 to 255 registers and no spills";
        assert!(
            (1..=255).contains(&kernel.registers) && kernel.spill_bytes == 0,
            "{source}, {name}: expected {within}, found {kernel:?}"
        );
    }
}

#[test]
fn the_device_code_of_a_sample_compiles_and_what_does_not_is_shown_with_its_lines() {
    let Some(folder) = nvrtc() else {
        leave_out("no NVRTC in the target directory: `cargo xtask gpu compile` fetches it");
        return;
    };
    let recorder = Recorder::new(&folder, [8, 0]).expect("NVRTC");
    let quantizer = sample("decode-only");
    let format = quantizer.format([64, 64]).expect("a shape that it takes");
    let code = quantizer.device_code().expect("it can say").expect("code");
    for variant in code_variants(&format, Some(&code)).expect("code") {
        let kernels = recorder.kernels(&variant).expect("it compiles");
        assert_lean(&variant, &kernels);
    }
    let broken = DeviceCode::cuda(&code.cuda.replace("first / 8 * 3;", "first / 8 * nothing;"));
    for variant in code_variants(&format, Some(&broken)).expect("code") {
        let failed = recorder.kernels(&variant).expect_err("an unknown name");
        let why = failed.message;
        for part in ["device code of quantizer decode-only(6)", "nothing"] {
            assert!(why.contains(part), "expected `{part}`, found {why}");
        }
    }
}
