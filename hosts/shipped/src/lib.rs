//! The plugins that ship with the program, and the components that serve a role by default. A
//! program links this crate; the declarations register themselves.

use espalier_interface::inventory;
use espalier_registry::Defaults;

#[cfg(feature = "embedded")]
use {
    espalier_backend_cpu as _, espalier_backend_cuda as _, espalier_collective_threads as _,
    espalier_ddp as _, espalier_fsdp as _, espalier_gemma2 as _, espalier_gemma3 as _,
    espalier_granite as _, espalier_hqq as _, espalier_int4 as _, espalier_llama as _,
    espalier_lora as _, espalier_mistral as _, espalier_mxfp4 as _, espalier_nf4 as _,
    espalier_phi3 as _, espalier_qwen2 as _, espalier_qwen3 as _, espalier_single as _,
    espalier_starcoder2 as _,
};

/// The options among which `host quantize --auto-bits` chooses by default.
pub const BIT_OPTIONS: [&str; 6] = [
    "hqq:bits=2",
    "hqq:bits=3",
    "nf4",
    "hqq:bits=4",
    "hqq:bits=8",
    "none",
];

inventory::submit! {
    Defaults {
        backend: "cpu",
        sharding: "single",
        threads: "threads",
        processes: "mpi",
        adapter: "lora",
    }
}
