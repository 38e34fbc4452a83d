//! The engine's tables -> a backend.

use std::sync::Arc;

use espalier_interface::abi::call_site::CallSite;
use espalier_interface::abi::{BackendProxy, InstanceHandle};
use espalier_interface::{Backend, Options, Result, Services};

use crate::opened::Engine;

/// The name of the engine's one component.
const COMPONENT: &str = "tch";

/// Makes the engine's backend.
///
/// # Errors
/// Those of the engine.
pub fn create(
    engine: Engine,
    options: &Options,
    services: Arc<dyn Services>,
) -> Result<Box<dyn Backend>> {
    // The engine may keep its services for ever, as a plugin may keep the host's.
    let services: &'static dyn Services = Box::leak(Box::new(Shared(services)));
    let site = CallSite::new(COMPONENT, None);
    let (component, context) = (engine.component, engine.context);
    let handle = InstanceHandle::create(component, context, site, options, services)?;
    let backend = BackendProxy::new(handle, engine.backend)
        .lent_by(Some(engine.host_memory))
        .completed_by(Some(engine.completion))
        .named_by(Some(engine.native));
    Ok(Box::new(backend))
}

/// The host's services.
struct Shared(Arc<dyn Services>);

impl Services for Shared {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        self.0.parallel_for(count, body);
    }

    fn log(&self, level: espalier_interface::LogLevel, message: &str) {
        self.0.log(level, message);
    }

    fn progress(&self, task: &str, done: u64, total: u64) {
        self.0.progress(task, done, total);
    }

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
