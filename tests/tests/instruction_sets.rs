//! The instruction sets that a processor reports compared with those that kernels are tested with
//! on it. Sets that cannot run are reported.

use std::fs;

use espalier_kernels::matmul::Isa;
use espalier_samples::leave_out;

/// The instruction sets, each with the processor features that it requires beside those of the sets
/// after it.
const NEEDS: [(Isa, &[&str]); 4] = [
    (Isa::AmxBf16, &["amx_bf16", "amx_tile"]),
    (Isa::Avx512Bf16, &["avx512_bf16"]),
    (
        Isa::Avx512,
        &["avx512f", "avx512bw", "avx512dq", "avx512vl"],
    ),
    (Isa::Avx2, &["avx2", "fma", "f16c"]),
];

/// Kernel tests use each of [`Isa::available`].
#[test]
#[cfg(target_arch = "x86_64")]
fn kernels_are_tested_with_every_instruction_set_of_this_processor() {
    let info = fs::read_to_string("/proc/cpuinfo").expect("Linux tells of its processors");
    let flags = info.lines().find(|line| line.starts_with("flags"));
    let flags: Vec<&str> = flags.expect("flags").split_whitespace().collect();
    let tested = Isa::available();
    assert!(tested.contains(&Isa::Portable));
    for (index, (isa, _)) in NEEDS.into_iter().enumerate() {
        let features = NEEDS[index..].iter().flat_map(|(_, features)| *features);
        let lacking: Vec<&str> = features
            .copied()
            .filter(|feature| !flags.contains(feature))
            .collect();
        let name = isa.name();
        let refused = Isa::unused().filter(|why| isa == Isa::AmxBf16 && why.contains("permit"));
        if let Some(why) = refused {
            leave_out(&format!("all kernels with {name}: {why}"));
            continue;
        }
        assert_eq!(
            tested.contains(&isa),
            lacking.is_empty(),
            "{name}: this processor lacks {lacking:?}"
        );
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            leave_out(&format!(
                "all kernels with {name}: this processor has no {lacking}"
            ));
        }
    }
}
