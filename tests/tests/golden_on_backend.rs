//! The tests with the peers' golden data in one program, for a machine without Rust:
//! `cargo xtask gpu pack` builds it, and `ESPALIER_TEST_BACKEND` names the backend. They run in the
//! suite as programs of their own.

#[path = "dora.rs"]
mod dora;
#[path = "families_golden.rs"]
mod families_golden;
#[path = "ia3.rs"]
mod ia3;
#[path = "llama_golden.rs"]
mod llama_golden;
#[path = "lora.rs"]
mod lora;
#[path = "optimizers.rs"]
mod optimizers;
#[path = "split.rs"]
mod split;
#[path = "vera.rs"]
mod vera;
