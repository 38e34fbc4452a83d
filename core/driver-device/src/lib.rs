//! A device whose memory the host cannot touch: buffers, streams and events over a [`Driver`], and
//! launches checked by `espalier-host-device`.
//!
//! A backend brings a [`Driver`] and a kernel maker; [`DriverDevice`] is the rest of its device.

mod device;
mod driver;

pub use device::DriverDevice;
pub use driver::{Driver, Route};
