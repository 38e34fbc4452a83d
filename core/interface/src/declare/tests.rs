//! Errors and panics of a component on their way through its table.

use super::*;
use crate as espalier_interface;
use crate::abi::call_site::CallSite;
use crate::abi::{ComponentTable, InstanceHandle, ShardingProxy, TableRef};
use crate::role::Sharding;
use crate::schedule::{Schedule, ShardingRequest};
use crate::{Component, Instance, Options, Role};
use crate::{ErrorCode, PluginError, Serial};

struct Faulty;

impl Sharding for Faulty {
    fn schedule(&self, request: &ShardingRequest) -> crate::Result<Schedule> {
        assert!(request.world == 1, "world is {}", request.world);
        Err(PluginError::invalid("only a sample"))
    }
}

const FAULTY: Component = Component {
    name: "faulty",
    role: Role::SHARDING,
    doc: "panics for more than one rank",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Sharding(Box::new(Faulty))),
};

espalier_interface::declare_plugin! { name: "sample", components: &[FAULTY] }

#[allow(unsafe_code)]
fn made() -> ShardingProxy {
    let root = linked().next().expect("declared above")();
    // SAFETY: a linked root is static, and its table has the type of the name and version asked
    // for.
    let (root, table) = unsafe {
        let root = &*root;
        let TableRef { table, .. } = (root.query)("component".into(), 1);
        (root, *table.cast::<ComponentTable>())
    };
    let services: &'static Serial = &Serial;
    let options = Options::default();
    let site = CallSite::new("faulty", None);
    let handle = InstanceHandle::create(table, root.context, site, &options, services);
    ShardingProxy(handle.expect("it takes no options"))
}

#[test]
fn errors_and_panics_cross_as_words() {
    let sharding = made();
    let mut request = ShardingRequest {
        units: Vec::new(),
        world: 1,
        ranks_per_machine: 1,
        ..ShardingRequest::default()
    };
    let error = sharding.schedule(&request).expect_err("always");
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::INVALID, "only a sample")
    );
    request.world = 3;
    let error = sharding.schedule(&request).expect_err("a panic");
    assert_eq!(error.code, ErrorCode::PANIC);
    assert!(error.message.contains("world is 3"), "{error}");
}
