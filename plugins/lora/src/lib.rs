//! LoRA, DoRA, IA3 and VeRA on linears, embeddings and the head, as PEFT computes and stores them.
//!
//! LoRA is `y = base(x) + s B A dropout(x)` with `A [R, M]`, `B [N, R]` and `s = alpha / R`, or
//! `alpha / sqrt(R)` for rsLoRA. DoRA (Liu et al. 2024) also trains the length of each row: `W' =
//! m / ||W + s B A|| (W + s B A)`, row by row, with `m [N]` beginning as `||W||`. IA3 trains a
//! factor for each channel. VeRA trains factors for the channels of two random matrices, which all
//! sites share.
//!
//! A LoRA's A and B begin as a random matrix and zeros, or from an SVD: that of the weight, whose
//! rest becomes the base (PiSSA, Meng et al. 2024), or that of what packing loses (LoftQ, Li et
//! al. 2023).

mod adapt;
mod component;
mod config_file;
mod fragment;
mod ia3;
mod init;
mod initialise;
mod patterns;
mod saved;
mod settings;
mod svd;
mod targets;
mod vera;
mod whole;

pub use component::{DORA, LORA, Lora};
pub use ia3::{IA3, Ia3};
pub use settings::{Settings, Variant};
pub use targets::Targets;
pub use vera::{VERA, Vera};

espalier_interface::declare_plugin! { name: "lora", components: &[LORA, DORA, IA3, VERA] }
