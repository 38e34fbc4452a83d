//! The table of ops: each is listed once, and is found.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_op_stands_once_and_is_found() {
    let mut seen = BTreeSet::new();
    for one in DEFINITIONS {
        assert!(seen.insert((one.name, one.version)), "{}", one.name);
        let found = definition(one.name, one.version).expect("it is in the table");
        assert!(std::ptr::eq(found, *one), "{}", one.name);
        let names = one.inputs.iter().chain(one.optional_inputs);
        let names = names.chain(one.scalars);
        let outputs = one.outputs.iter().map(|output| &output.name);
        let params = one.params.iter().map(|param| &param.name);
        let attributes = one.attributes.iter().map(|attribute| &attribute.name);
        let all: Vec<_> = names
            .chain(outputs)
            .chain(params)
            .chain(attributes)
            .collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "{}: {all:?}", one.name);
    }
    assert!(definition("linear", 5).is_none() && definition("conv2d", 1).is_none());
}

#[test]
fn scalars_are_given_by_name() {
    let step = definition("dropout", 1).expect("it is in the table");
    let of = |name: &str| (name != "site").then_some(name.len() as f64);
    let error = step.scalars_by(of).expect_err("no site");
    assert!(error.message.contains("`site`"), "{error}");
    let all = step.scalars_by(|name| Some(name.len() as f64));
    assert_eq!(all, Ok(vec![8.0, 9.0, 4.0, 4.0]));
}
