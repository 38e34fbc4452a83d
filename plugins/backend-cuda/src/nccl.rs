//! The collective `nccl`: ranks with a card each, joined by NVIDIA's library of collective calls.
//!
//! It is a component of this library and no plugin of its own: its sums are kernels, which are
//! compiled, kept and shipped as the backend's, and the backend's streams report its calls that
//! fail (`lost_groups.rs`).
//!
//! Bytes are moved by NCCL. It promises no order of sums, so sums are its sends and receives and
//! then a kernel of this plugin's, which adds in the order of the members. Communicators do not
//! block: a member that waits can be given up.
#![allow(unsafe_code)] // Calls of NCCL.

mod communicator;
mod member;
mod place;
mod sums;

use std::sync::Arc;

use cudarc::nccl::sys::ncclUniqueId;
use espalier_interface::{
    Collective, CollectiveInfo, DType, ErrorCode, Group, JoinRequest, Members, Options,
    PluginError, Result, Services,
};

use crate::card::{self, Card};
use crate::functions;
use crate::libraries::{self, nccl_version};
use crate::settings::Settings;
use communicator::Communicator;
use member::Member;
use place::Place;
use sums::Sums;

/// The backend whose devices it joins.
const BACKEND: &str = "cuda";

/// Dtypes that are summed.
const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

/// The collective `nccl`.
pub struct Nccl {
    services: Arc<dyn Services>,
    settings: Settings,
}

impl Nccl {
    /// A collective with `options`. It opens no library.
    ///
    /// # Errors
    /// `INVALID` for a text that is no choice.
    pub fn new(options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        Ok(Nccl {
            services,
            settings: Settings::new(options)?,
        })
    }

    fn library(&self) -> Result<&'static functions::Nccl> {
        let opened = libraries::open_nccl(self.settings.libraries.as_deref());
        opened.map_err(|why| PluginError::new(ErrorCode::DEVICE, why))
    }
}

impl Collective for Nccl {
    fn describe(&self) -> Result<CollectiveInfo> {
        Ok(CollectiveInfo {
            members: Members::Processes,
            dtypes: DTYPES.to_vec(),
            memory: vec![BACKEND.to_owned()],
            max_bytes: u64::MAX,
            description: match self.library() {
                Ok(library) => {
                    let [major, minor, patch] = nccl_version(library);
                    format!("cards of NVIDIA, joined by NCCL {major}.{minor}.{patch}")
                }
                // A host without it lists the plugin.
                Err(missing) => missing.message,
            },
        })
    }

    fn device_bytes(&self) -> Result<u64> {
        Ok(sums::RECEIVED_BYTES as u64)
    }

    fn invite(&self) -> Result<Vec<u8>> {
        let library = self.library()?;
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: NCCL writes the id.
        let code = unsafe { (library.unique_id)(&raw mut id) };
        communicator::called(library, "a unique id", code)?;
        Ok(id.internal.map(|byte| byte as u8).to_vec())
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        let place = Place::of(request)?;
        let library = self.library()?;
        let driver = libraries::open(self.settings.libraries.as_deref())?;
        card::count(&driver)?;
        let card = Arc::new(Card::open(&driver, place.card)?);
        // Before the members meet: none waits for one that cannot sum.
        let modules = self.settings.modules(&driver, &card, &self.services);
        let sums = Sums::new(&modules, &card, place.members)?;
        let communicator = Communicator::join(library, &card, &place, &self.services)?;
        Ok(Box::new(Member::new(communicator, sums, &place)?))
    }
}
