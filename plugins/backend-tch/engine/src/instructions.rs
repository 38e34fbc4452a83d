//! What a result depends on beside its operands: libtorch's version, its number of threads, and
//! the instructions that it chooses by the processor.

use crate::VERSION;

/// `libtorch-VERSION+threads-N+ISA`. Sums of libtorch are split by its number of threads, so that
/// is part of it.
pub fn instruction_set(threads: usize) -> String {
    let mut parts = vec![
        format!("libtorch-{VERSION}"),
        format!("threads-{threads}"),
        vectors().to_owned(),
    ];
    // It is recorded for runs in bf16 alone.
    parts.extend(products_of_bf16().map(str::to_owned));
    parts.join("+")
}

/// The instructions of libtorch's loops.
fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        // As `at::get_cpu_capability` decides.
        let avx512 = is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("fma");
        if avx512 {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "avx2";
        }
    }
    "baseline"
}

/// The instructions of oneDNN's products of bf16.
fn products_of_bf16() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        /// Leaf 7: tiles of bf16 products.
        const AMX_BF16: u32 = 1 << 22;
        let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
        if features & AMX_BF16 != 0 {
            return Some("amx-bf16");
        }
        if is_x86_feature_detected!("avx512bf16") {
            return Some("bf16");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_threads_are_part_of_the_instruction_set() {
        let of_three = instruction_set(3);
        assert!(
            of_three.starts_with("libtorch-2.13.0+threads-3+"),
            "{of_three}"
        );
        assert_ne!(of_three, instruction_set(2));
    }
}
