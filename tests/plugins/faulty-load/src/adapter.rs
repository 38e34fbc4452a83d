//! The adapter `faulty-adapter`: adapts no site.

use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::{Adapter, Component, Instance, Options, PluginError, Result, Role};
use serde_json::Value as Json;

use crate::fault::{self, FaultPoint};

struct Idle;

impl Adapter for Idle {
    fn adapt(&self, _: &[Site]) -> Result<Adaptation> {
        fault::at(FaultPoint::ADAPT);
        Err(PluginError::invalid("it joins nothing"))
    }

    fn saved_config(&self, _: &[Site], _: &str) -> Result<Json> {
        Err(PluginError::unsupported("it is never saved"))
    }

    fn options_from_saved(&self, _: &Json) -> Result<Options> {
        Err(PluginError::unsupported("it is never saved"))
    }
}

pub const COMPONENT: Component = Component {
    name: "faulty-adapter",
    role: Role::ADAPTER,
    doc: "joins nothing",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Adapter(Box::new(Idle))),
};
