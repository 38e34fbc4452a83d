//! Sections of options whose component is unknown, or has no such option.

use std::collections::BTreeMap;

use espalier_interface::abi::descriptor::OptionDescriptor;

use super::*;
use crate::registry::Probe;
use espalier_config::{Sources, resolve};

fn refused(assignments: &[&str]) -> Option<String> {
    let block_size = OptionDescriptor {
        name: "block_size".into(),
        kind: "integer".into(),
        default: 64.into(),
        range: "32..=4096".into(),
        doc: String::new(),
    };
    let listing = |component: &str, status: Status| Listing {
        component: component.into(),
        role: "quantizer".into(),
        doc: String::new(),
        plugin: "sample".into(),
        version: "1.0.0".into(),
        abi: None,
        file: None,
        sha256: None,
        options: vec![block_size.clone()],
        capabilities: BTreeMap::new(),
        status,
        probe: Probe::Linked,
    };
    let reason = "damaged".to_owned();
    let listings = [
        listing("nf4", Status::Available),
        listing("hqq", Status::Broken { reason }),
    ];
    let none = Sources::default();
    let sources = assignments
        .iter()
        .fold(none, |sources, text| sources.set(*text));
    let resolved = resolve(&sources).expect("the core has no objection");
    let error = check_against(&resolved, &listings).err()?;
    Some(error.to_string())
}

#[test]
fn sections_of_components_that_exist_pass() {
    assert_eq!(refused(&[]), None);
    assert_eq!(refused(&["quantizer.nf4.block_size=128"]), None);
    assert_eq!(refused(&["quantizer.hqq.anything=1"]), None);
}

#[test]
fn unknown_names_and_options_are_refused_with_their_origin() {
    let cases = [
        (
            "quantizer.nf44.block_size=64",
            "the nearest known key is `nf4`",
        ),
        (
            "adapter.nf4.block_size=64",
            "unknown key `nf4` in [adapter]",
        ),
        ("quantizer.nf4.block_sise=64", "the nearest is `block_size`"),
        ("quantizer.nf4.block_size=16", "found 16"),
    ];
    for (assignment, expected) in cases {
        let error = refused(&[assignment]).expect(assignment);
        assert!(error.contains(expected), "{assignment}: {error}");
        assert!(error.contains("--set"), "{assignment}: {error}");
    }
}
