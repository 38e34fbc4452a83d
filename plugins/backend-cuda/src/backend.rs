//! The options -> the cards of the machine, and their opening.

use std::sync::Arc;

use espalier_driver_device::DriverDevice;
use espalier_interface::{
    Backend, Device, DeviceInfo, ErrorCode, LogLevel, OpId, Options, PluginError, Result, Services,
};

use crate::card::{self, Card};
use crate::driver::CudaDriver;
use crate::fault::FaultPlace;
use crate::host_decode::HostDecode;
use crate::kernels::CudaKernels;
use crate::kit::Kit;
use crate::libraries::{self, Libraries};
use crate::op;
use crate::product_library::{Installed, ProductLibrary};
use crate::settings::{ProductChoice, Settings};

/// Bytes of logits in a chunk of the model's head. A card computes faster than it reads.
const HEAD_CHUNK_BYTES: u64 = 256 << 20;

/// The least compute capability that the kernels are written for.
const LEAST_CAPABILITY: [i32; 2] = [8, 0];

/// The backend `cuda`.
pub struct CudaBackend {
    services: Arc<dyn Services>,
    settings: Settings,
}

impl CudaBackend {
    /// A backend with `options`. It opens no library.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size.
    pub fn new(options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        Ok(CudaBackend {
            services,
            settings: Settings::new(options)?,
        })
    }

    fn libraries(&self) -> Result<Libraries> {
        libraries::open(self.settings.libraries.as_deref())
    }

    /// cuBLASLt for a card's driver, not started, or why products are by kernels of the backend's
    /// own.
    fn cublaslt(&self, card: &Card) -> Result<std::result::Result<Installed, String>> {
        if self.settings.products == ProductChoice::Own {
            return Ok(Err("as backend.cuda.products asks".to_owned()));
        }
        let major = card.cuda_version()? / 1000;
        let opened = libraries::open_cublaslt(self.settings.libraries.as_deref(), major);
        let opened = opened.map_err(str::to_owned);
        Ok(opened.and_then(|library| Installed::of(library).map_err(|error| error.message)))
    }

    /// cuBLASLt for a card that is opened, where products are its. One that does not start is an
    /// error: the card is listed with its products.
    fn products(&self, card: &Arc<Card>) -> Result<Option<Arc<ProductLibrary>>> {
        match (self.cublaslt(card)?, self.settings.products) {
            (Ok(installed), _) => {
                let started = ProductLibrary::new(card.clone(), installed);
                Ok(Some(Arc::new(started?)))
            }
            (Err(_), ProductChoice::Own) => Ok(None),
            (Err(why), ProductChoice::Auto) => {
                let what = format!("products of bf16 are by kernels of the backend's own: {why}");
                self.services.log(LogLevel::WARN, &what);
                Ok(None)
            }
            (Err(why), ProductChoice::CublasLt) => {
                let what = format!("backend.cuda.products = \"cublaslt\": {why}");
                Err(PluginError::new(ErrorCode::DEVICE, what))
            }
        }
    }

    /// The version of the compiler of kernels.
    ///
    /// # Errors
    /// `DEVICE` where there is none, with how to get it.
    pub fn compiler_version(&self) -> Result<[i32; 2]> {
        let nvrtc = self.libraries()?.nvrtc;
        let missing = |why: &str| PluginError::new(ErrorCode::DEVICE, why);
        nvrtc.map(libraries::version_of).map_err(missing)
    }

    fn described(&self, libraries: &Libraries, index: u32) -> Result<DeviceInfo> {
        let card = Arc::new(Card::open(libraries, index)?);
        let bound = self.settings.device_memory.unwrap_or(u64::MAX);
        let [total, free] = card.memory()?;
        let ([major, minor], version) = (card.capability, card.cuda_version()?);
        let mut instruction_set = format!("sm_{major}{minor}");
        let products = match self.cublaslt(&card)? {
            Ok(Installed { version, .. }) => {
                // Its products have other bits, those of f32 have not.
                instruction_set += &format!("+cublaslt{version}-bf16");
                format!("products of bf16 by cuBLASLt {version}")
            }
            Err(why) => format!("products of bf16 by kernels of the backend's own: {why}"),
        };
        Ok(DeviceInfo {
            name: format!("cuda:{index}"),
            description: format!(
                "{}, compute capability {major}.{minor}, driver for CUDA {}.{}, {}, {products}",
                card.name()?,
                version / 1000,
                version % 1000 / 10,
                libraries.compiler()
            ),
            memory_bytes: total.min(bound),
            free_bytes: free.min(bound),
            instruction_set,
            shares_host_memory: false,
            exact_memory: true,
            head_chunk_bytes: Some(HEAD_CHUNK_BYTES),
        })
    }
}

impl Backend for CudaBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let libraries = self.libraries()?;
        let count = card::count(&libraries)?;
        (0..count)
            .map(|index| self.described(&libraries, index))
            .collect()
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(op::ids()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        let libraries = self.libraries()?;
        let count = card::count(&libraries)?;
        if index >= count {
            return Err(PluginError::invalid(format!(
                "device {index} of backend `cuda`: expected one of {count}, counted from 0"
            )));
        }
        let card = Arc::new(Card::open(&libraries, index)?);
        if card.capability < LEAST_CAPABILITY {
            let [major, minor] = card.capability;
            return Err(PluginError::unsupported(format!(
                "device {index} of backend `cuda`: {} has compute capability {major}.{minor}, expected 8.0 or later (GeForce 30, A100 and newer)",
                card.name()?
            )));
        }
        let faults = Arc::new(FaultPlace::new(card.clone())?);
        let modules = self.settings.modules(&libraries, &card, &self.services);
        let host_decode = self.settings.host_decode;
        let host_decode = host_decode.then(|| HostDecode::new(card.clone(), self.services.clone()));
        let kit = Kit {
            modules: Arc::new(modules),
            faults: faults.clone(),
            products: self.products(&card)?,
            host_decode: host_decode.map(Arc::new),
            decoders: Vec::new(),
        };
        let driver = CudaDriver::new(card, faults, self.services.clone())?;
        let maker = Box::new(CudaKernels { kit });
        let bound = self.settings.device_memory;
        let device = DriverDevice::new(driver, maker, self.services.clone(), bound)?;
        Ok(Box::new(device))
    }
}
