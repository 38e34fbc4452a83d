//! The declaration of the plugin `collective-threads`.

use espalier_interface::{Component, Instance, Role};

use crate::Threads;

const THREADS: Component = Component {
    name: "threads",
    role: Role::COLLECTIVE,
    doc: "joins the ranks of one process through its memory",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Collective(Box::new(Threads::default()))),
};

espalier_interface::declare_plugin! { name: "collective-threads", components: &[THREADS] }
