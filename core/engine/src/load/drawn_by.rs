//! A device's ops and memory -> who draws its dense random params.

use espalier_compile::decompose::BackendOps;
use espalier_interface::DeviceInfo;

/// Who draws dense random params. The values are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawnBy {
    /// The device's op `init`.
    Device,
    /// The host, where the device lacks that op, or its kernels cannot write the memory.
    Host,
}

impl DrawnBy {
    /// Who draws into a device's own memory.
    pub fn on_device(ops: &BackendOps) -> Self {
        if ops.has("init", 1) {
            DrawnBy::Device
        } else {
            DrawnBy::Host
        }
    }

    /// Who draws into memory that the device was lent. It is for copies alone, unless the device's
    /// memory is the host's.
    pub fn on_lent_memory(ops: &BackendOps, device: &DeviceInfo) -> Self {
        if device.shares_host_memory {
            DrawnBy::on_device(ops)
        } else {
            DrawnBy::Host
        }
    }
}
