//! Short trainings of several ranks that the mock NCCL joins.

use std::path::Path;

use crate::emulated::Case;
use crate::kernels;

/// The words that name the collective.
pub const BY_KEY: &str = "--set run.device_collective=nccl";

const FULL_SHARD: &str = "--plugins nf4,lora,fsdp";
const SHARD_GRAD_OP: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.strategy=shard_grad_op";
const HYBRID: &str =
    "--plugins nf4,lora,fsdp --set sharding.fsdp.strategy=hybrid --set sharding.fsdp.shard_ranks=2";
const DDP: &str = "--plugins nf4,lora,ddp";
const OFFLOAD: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=params+optimizer";

/// Those of every run of the tests come first.
pub const JOINED: [Case; 7] = [
    joined("full_shard of 2, f32", "f32", FULL_SHARD, 2),
    joined("ddp of 4, bf16", "bf16", DDP, 4),
    joined("ddp of 2, f32", "f32", DDP, 2),
    joined("full_shard of 4, bf16", "bf16", FULL_SHARD, 4),
    joined("shard_grad_op of 2, bf16", "bf16", SHARD_GRAD_OP, 2),
    joined("hybrid of 4, f32", "f32", HYBRID, 4),
    joined("full_shard of 2 with offload, f32", "f32", OFFLOAD, 2),
];

/// A training of several ranks, of a few steps.
const fn joined(
    name: &'static str,
    compute: &'static str,
    words: &'static str,
    ranks: usize,
) -> Case {
    Case {
        name,
        compute,
        words,
        ranks,
        bound: 0.0,
    }
}

/// The options of NCCL of the mock libraries, which keeps compiled kernels below `folder`.
pub fn options(libraries: &Path, folder: &Path) -> String {
    format!(
        "--set collective.nccl.libraries={} --set collective.nccl.cache_dir={}",
        libraries.display(),
        kernels(folder).display()
    )
}
