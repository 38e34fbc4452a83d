//! Descriptors read from ELF files, and files that are refused.

use espalier_interface::abi::descriptor::ComponentDescriptor;
use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MINOR};

use super::*;

/// The first bytes of an ELF file of the given class, byte order, type and machine.
fn elf(class: u8, order: u8, kind: u16, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
    (bytes[6], bytes[20]) = (1, 1); // versions
    bytes[16..18].copy_from_slice(&kind.to_le_bytes());
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).expect_err("no plugin").to_string()
}

#[test]
fn other_files_are_told_apart() {
    assert!(refusal(b"").contains("begins with nothing"));
    assert!(refusal(b"#!/bin/sh").contains("begins with `#!/b`"));
    assert!(refusal(b"\x7fELF\x02\x01").contains("truncated"));
    assert!(refusal(&elf(1, 1, 3, 3)).contains("a 32-bit machine"));
    assert!(refusal(&elf(2, 2, 3, 3)).contains("a big-endian machine"));
    assert!(refusal(&elf(2, 1, 3, 243)).contains("found one for machine 243"));
    assert!(refusal(&elf(2, 1, 1, MACHINE)).contains("ELF file of type 1"));
    assert!(refusal(&elf(2, 1, 3, MACHINE)).contains("no section `.espalier`"));
}

#[test]
fn another_interface_is_refused_with_both_versions() {
    let mut descriptor = Descriptor {
        abi: [ABI_MAJOR, ABI_MINOR],
        name: "sample".to_owned(),
        version: "1.0.0".to_owned(),
        components: vec![ComponentDescriptor {
            name: "sample-4".to_owned(),
            role: "quantizer".to_owned(),
            doc: String::new(),
            options: Vec::new(),
            capabilities: Default::default(),
        }],
    };
    for served in [ABI_OLDEST_MINOR, ABI_MINOR] {
        descriptor.abi = [ABI_MAJOR, served];
        check(&descriptor).expect("served");
    }
    let host = format!("this host has {ABI_MAJOR}.{ABI_MINOR}");
    for other in [
        [7, 9],
        [ABI_MAJOR, ABI_MINOR + 1],
        [ABI_MAJOR, ABI_OLDEST_MINOR.wrapping_sub(1)],
    ] {
        descriptor.abi = other;
        let message = check(&descriptor).expect_err("another").to_string();
        let built = format!("plugin interface {}.{}", other[0], other[1]);
        assert!(
            message.contains(&built) && message.contains(&host),
            "{message}"
        );
    }
    descriptor.abi = [ABI_MAJOR, ABI_MINOR];
    descriptor.components[0].name = "../evil".to_owned();
    assert!(
        check(&descriptor)
            .expect_err("a path")
            .to_string()
            .contains("`../evil`")
    );
}

#[test]
fn the_version_is_found_in_a_descriptor_of_a_later_form() {
    let text = br#"{"abi":[3,1],"named_otherwise":"x"}"#;
    let mut section = b"ESPALIER".to_vec();
    section.extend((text.len() as u32).to_le_bytes());
    section.extend(text);
    assert_eq!(version(&section), Some([3, 1]));
    assert_eq!(version(&section[..20]), None);
}
