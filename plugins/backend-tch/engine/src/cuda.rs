//! CUDA devices, where libtorch and the machine have them.
//!
//! Compiled, and never run on a card: see docs/write-a-backend.md.

mod driver;
mod shim;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use espalier_host_device::HostOptions;
use espalier_interface::{Device, DeviceInfo, ErrorCode, PluginError, Result, Services};
use espalier_tensor_ops::TensorKernels;

use crate::VERSION;
use espalier_driver_device::DriverDevice;
use crate::torch::Torch;
use driver::CudaDriver;
use shim::{Card, Shim, called, shim};

/// Bytes of logits in a chunk of the model's head. A card computes faster than it reads.
const HEAD_CHUNK_BYTES: u64 = 256 << 20;

/// What the user can do.
const NEXT_STEP: &str = "`nvidia-smi` lists the devices that the driver has; backend.tch.device = \"cpu\" computes on the processors";

/// CUDA, with at least one device.
#[derive(Clone, Copy)]
pub struct Cuda {
    shim: &'static Shim,
    devices: u32,
}

impl Cuda {
    /// CUDA by libtorch's libraries, which are open.
    ///
    /// # Errors
    /// `DEVICE` where the engine was built without CUDA, its shim cannot be opened, there is no
    /// driver, or it has no device.
    pub fn open() -> Result<Self> {
        let shim = shim()?;
        let mut devices = 0;
        let started = called(|text| (shim.start)(&raw mut devices, text));
        started.map_err(|error| PluginError {
            message: format!(
                "expected a CUDA device, found none: {}; {NEXT_STEP}",
                error.message
            ),
            ..error
        })?;
        match u32::try_from(devices) {
            Ok(devices @ 1..) => Ok(Cuda { shim, devices }),
            _ => Err(PluginError::new(
                ErrorCode::DEVICE,
                format!("expected a CUDA device, found none; {NEXT_STEP}"),
            )),
        }
    }

    /// Its devices; `options` may bound their memory.
    ///
    /// # Errors
    /// `DEVICE` where one of them gives no answer.
    pub fn devices(&self, options: &HostOptions) -> Result<Vec<DeviceInfo>> {
        let bound = options.device_memory.unwrap_or(u64::MAX);
        let described = |index: u32| {
            let card = self.card(index)?;
            Ok(DeviceInfo {
                name: format!("cuda:{index}"),
                description: format!("{}, libtorch {VERSION}", card.name()),
                memory_bytes: card.total_bytes.min(bound),
                free_bytes: card.free_bytes.min(bound),
                instruction_set: instruction_set(&card),
                shares_host_memory: false,
                // libtorch allocates the tensors of a launch itself.
                exact_memory: false,
                head_chunk_bytes: Some(HEAD_CHUNK_BYTES),
            })
        };
        (0..self.devices).map(described).collect()
    }

    /// Opens device number `index`.
    ///
    /// # Errors
    /// `INVALID` for one that there is not, `DEVICE` where it cannot be opened.
    pub fn device(
        &self,
        index: u32,
        services: Arc<dyn Services>,
        options: &HostOptions,
    ) -> Result<Box<dyn Device>> {
        if index >= self.devices {
            let last = self.devices - 1;
            return Err(PluginError::invalid(format!(
                "device {index} of backend `tch`: there are only devices 0 to {last}, `cuda:0` to `cuda:{last}`"
            )));
        }
        let later = self.card(index)?.reads_pageable_later != 0;
        let driver = CudaDriver::new(self.shim, index)?;
        let torch = Torch::on_card(tch::Device::Cuda(index as usize), services.threads(), later);
        let maker = Box::new(TensorKernels::new("tch", Arc::new(torch)));
        let device = DriverDevice::new(driver, maker, services, options.device_memory)?;
        Ok(Box::new(device))
    }

    fn card(&self, index: u32) -> Result<Card> {
        let mut card = Card::unknown();
        called(|text| (self.shim.card)(index as i32, &raw mut card, text))?;
        Ok(card)
    }
}

/// `libtorch-VERSION+cuda-RUNTIME+sm-CAPABILITY`.
fn instruction_set(card: &Card) -> String {
    let (major, minor) = (card.runtime / 1000, card.runtime % 1000 / 10);
    format!(
        "libtorch-{VERSION}+cuda-{major}.{minor}+sm-{}{}",
        card.major, card.minor
    )
}
