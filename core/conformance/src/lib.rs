//! The conformance kit: a component -> a report of named checks that every component of its role
//! must pass.
//!
//! One line in an author's own tests runs all of it:
//!
//! ```text
//! #[test]
//! fn it_passes_the_kit() {
//!     espalier_conformance::check(&MY_QUANTIZER).assert_passed();
//! }
//! ```
//!
//! A component is tested with its defaults, and with the bounds and alternatives of every option
//! that it declares. No failed check stops the others, and a panic is a failed check. `host plugins
//! check FILE` runs the same checks on a built library, across the boundary between host and
//! plugin. It adds the checks that need the host: gradients and a training run.
#![deny(missing_docs)]

mod adapter;
mod backend;
mod checked;
mod collective;
mod declared;
mod difference;
mod family;
mod guarded;
pub mod ops;
mod option_sets;
mod process_group;
mod quantizer;
mod report;
mod sharding;
mod sites;
pub mod streams;
mod subject;
mod suite;
mod threads;
pub mod weights;

use espalier_interface::{Component, Role};

pub use adapter::adapter;
pub use backend::backend;
pub use checked::{Checked, Fault, within};
pub use collective::collective;
pub use difference::{largest, largest_difference};
pub use family::{SAMPLE_CONFIG, family, sample};
pub use option_sets::OptionSet;
pub use process_group::ProcessGroup;
pub use quantizer::{BOUNDS, device_code, quantizer};
pub use report::{Check, Outcome, Report};
pub use sharding::sharding;
pub use subject::Subject;
pub use suite::Suite;
pub use threads::{Order, Threads};

/// Runs the checks of the component's role.
pub fn check(component: &Component) -> Report {
    let mut suite = Suite::new(component.name);
    match component.role {
        Role::QUANTIZER => quantizer(&Subject::quantizer(component), &mut suite),
        Role::ADAPTER => adapter(&Subject::adapter(component), &mut suite),
        Role::FAMILY => family(&Subject::family(component), None, &mut suite),
        Role::SHARDING => sharding(&Subject::sharding(component), &mut suite),
        Role::BACKEND => backend(&Subject::backend(component), &mut suite),
        Role::COLLECTIVE => {
            let subject = Subject::collective(component);
            collective(&subject, ProcessGroup::ALONE, &mut suite);
        }
        role => suite.check("role", "the kit knows the role", || {
            Err(Fault::Failed(format!("no checks for a {role}")))
        }),
    }
    suite.finish()
}
