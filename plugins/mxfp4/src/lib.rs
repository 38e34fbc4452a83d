//! Block-scaled 4-bit floats: weights -> `mxfp4` and `nvfp4` segments, bit for bit as
//! compressed-tensors makes them.

mod block;
mod component;
mod e2m1;
mod e4m3;
mod e8m0;
mod encode;
mod packing;
mod quantizer;
mod saved;

pub use component::{MXFP4, NVFP4};

espalier_interface::declare_plugin! { name: "mxfp4", components: &[MXFP4, NVFP4] }
