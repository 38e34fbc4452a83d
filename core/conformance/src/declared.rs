//! The checks of a component's declaration, before it is made.

use std::collections::BTreeSet;

use espalier_interface::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use espalier_interface::range;
use serde_json::Value as Json;

use crate::checked::{Checked, Fault, calm, ensure};
use crate::{Subject, Suite, Threads};

/// Checks names, documentation and defaults.
pub fn check(component: &ComponentDescriptor, suite: &mut Suite) {
    suite.check(
        "declared",
        "names are unique, every option has a line of documentation and a default of its own type and range",
        || {
            ensure(!component.name.is_empty() && !component.doc.is_empty(), || {
                format!("component `{}` has no name or no documentation", component.name)
            })?;
            let mut names = BTreeSet::new();
            for option in &component.options {
                ensure(names.insert(&option.name), || {
                    format!("option `{}` is declared twice", option.name)
                })?;
                of_option(option).map_err(|fault| fault.at(&format!("option `{}`", option.name)))?;
            }
            Ok(())
        },
    );
}

/// Checks that the component can be made. Where it cannot, no further check is run.
pub fn created<T: ?Sized>(subject: &Subject<'_, T>, suite: &mut Suite) {
    let make = || {
        let defaults = &subject.option_sets()[0];
        let made = calm(|| Ok(subject.make(&defaults.options, Threads::new(1))));
        let at = |fault: Fault| fault.at(&format!("create with {}", defaults.label));
        made.map_err(at)?.map_err(|error| at(error.into()))
    };
    let made = make();
    let (hinders, outcome) = (made.is_err(), made.map(drop));
    suite.check("create", "its default options make a component", || outcome);
    if hinders {
        suite.skip_rest("the component cannot be made: see `create`");
    }
}

fn of_option(option: &OptionDescriptor) -> Checked {
    ensure(!option.doc.is_empty(), || "it has no documentation".into())?;
    let default = &option.default;
    let fits = match option.kind.as_str() {
        _ if default.is_null() => true,
        "bool" => default.is_boolean(),
        "integer" => default.is_i64() || default.is_u64(),
        "number" => default.is_number(),
        "text" => default.is_string(),
        "texts" => match default {
            Json::Array(list) => list.iter().all(Json::is_string),
            one => one.is_string(),
        },
        "integer_table" | "number_table" => default.is_object(),
        other => {
            return Err(format!("type `{other}` is none that this interface knows").into());
        }
    };
    ensure(fits, || {
        format!("its default {default} is no {}", option.kind)
    })?;
    ensure(range::allows(&option.range, default), || {
        format!("its default {default} is not in {}", option.range)
    })
}
