//! Ranks: each drives a device; together they train one model. World = processes x rank threads.

mod peers;
mod world;

pub use peers::{Among, Peers, Span};
pub use world::World;
