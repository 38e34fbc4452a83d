//! The shipped plugins in both ways to load, and libraries with every kind of damage.

mod shipped;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR};
use espalier_interface::{ErrorCode, Role};
use espalier_registry::library::{LibraryFault, WorldWritable};
use espalier_registry::{Registry, RegistryError, Status};
use espalier_samples::patched;
use espalier_shipped as _;
use espalier_system::failure::Failure;
use serde_json::{Map, Value as Json, json};

#[cfg(feature = "embedded")]
use shipped::answers;
use shipped::{
    SERVICES, folder, loaded, of_another_abi, options, ours, put, request, search, shipped,
};

#[cfg(feature = "embedded")]
const PLUGINS: [&str; 5] = ["llama", "lora", "nf4", "single", "fsdp"];

#[cfg(feature = "embedded")]
#[test]
fn both_ways_to_load_give_the_same_answers() {
    let dir = folder(&PLUGINS);
    let loaded = loaded(&dir);
    assert_eq!(loaded.broken(), []);
    let linked = ours();
    assert_eq!(answers(&loaded), answers(&linked));
    let (_, identity) = linked
        .create_adapter("lora", &Map::new(), SERVICES)
        .expect("lora");
    assert_eq!((identity.file, identity.sha256), (None, None));
}

#[test]
fn a_loaded_plugin_is_identified_by_file_and_hash() {
    let dir = folder(&["lora"]);
    let registry = loaded(&dir);
    let (_, identity) = registry
        .create_adapter("lora", &Map::new(), SERVICES)
        .expect("lora");
    let file = fs::canonicalize(dir.path().join("liblora.so")).expect("just put there");
    assert_eq!(
        (identity.plugin.as_str(), identity.role.as_str()),
        ("lora", "adapter")
    );
    assert_eq!(identity.file, Some(file));
    assert_eq!(identity.sha256.expect("of a file").len(), 64);
}

#[test]
fn errors_keep_code_text_and_the_plugins_name() {
    let dir = folder(&["lora", "single"]);
    let registry = loaded(&dir);
    let (sharding, identity) = registry
        .create_sharding("single", &Map::new(), SERVICES)
        .expect("single");
    let error = sharding.schedule(&request(2)).expect_err("two ranks");
    assert_eq!(error.code, ErrorCode::INVALID);
    let message = identity.failed("schedule", error).to_string();
    assert!(
        message.contains("`single` (/") && message.contains("failed in schedule: "),
        "{message}"
    );
    let given = options(json!({"targets": "("}));
    let error = registry
        .create_adapter("lora", &given, SERVICES)
        .err()
        .expect("no expression");
    assert!(
        error.to_string().contains("failed in create: targets `(`"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
}

#[cfg(feature = "embedded")]
#[test]
fn the_first_plugin_of_a_name_is_used_and_the_others_are_listed() {
    let (first, second) = (folder(&["llama"]), folder(&["llama", "single"]));
    let registry = Registry::discover(&search(&[first.path(), second.path()]));
    let file = fs::canonicalize(first.path().join("libllama.so")).expect("just put there");
    let llamas: Vec<_> = registry
        .list()
        .into_iter()
        .filter(|one| one.component == "llama")
        .collect();
    let status: Vec<_> = llamas.iter().map(|one| one.status.clone()).collect();
    let shadowed = Status::Shadowed {
        by: file.display().to_string(),
    };
    assert_eq!(status, [Status::Available, shadowed.clone(), shadowed]);
    assert_eq!(llamas[2].location(), "linked");
    assert_eq!(registry.inspect("llama").expect("there").file, Some(file));
    let lora = registry.inspect("lora").expect("linked");
    assert_eq!((lora.file, lora.options.len()), (None, 12));
    assert_eq!(lora.capabilities["peft_types"], "LORA");
}

#[test]
fn broken_libraries_are_listed_and_block_no_others() {
    let good = fs::read(shipped("llama")).expect("built");
    let abi_there = of_another_abi(&good);
    let mut other_machine = good.clone();
    other_machine[18] = 183;
    let no_section = patched(&good, b".espalier\0", b".espalieR\0");
    let half = good.len() / 2;
    let versions =
        format!("built for plugin interface 9.{ABI_MINOR}, this host has {ABI_MAJOR}.{ABI_MINOR}");
    let cases: [(&str, &[u8], &str); 9] = [
        ("text", b"#!/bin/sh\n", "begins with `#!/b`"),
        ("empty", b"", "begins with nothing"),
        (
            "header",
            &good[..40],
            "truncated or damaged: an ELF header has 64 bytes",
        ),
        ("start", &good[..4096], "truncated or damaged: "),
        ("half", &good[..half], "truncated or damaged: "),
        ("tail", &good[..good.len() - 1], "truncated or damaged: "),
        ("sectionless", &no_section, "no section `.espalier`"),
        ("abi", &abi_there, &versions),
        ("machine", &other_machine, "found one for aarch64"),
    ];
    let dir = folder(&["single"]);
    for (name, bytes, _) in cases {
        put(dir.path(), name, bytes);
    }
    fs::write(dir.path().join("notes.txt"), "no library").expect("room");
    let registry = loaded(&dir);
    let listings = registry.list();
    for (name, _, reason) in cases {
        let file = format!("lib{name}.so");
        let of_file = |path: &PathBuf| path.ends_with(&file);
        let listing = listings
            .iter()
            .find(|one| one.file.as_ref().is_some_and(of_file));
        match &listing
            .unwrap_or_else(|| panic!("{file} is not listed"))
            .status
        {
            Status::Broken { reason: found } => assert!(found.contains(reason), "{file}: {found}"),
            other => panic!("{file} is {other:?}"),
        }
    }
    assert_eq!(listings.len(), cases.len() + 1);
    registry
        .create_sharding("single", &Map::new(), SERVICES)
        .expect("not broken");
}

#[test]
fn faults_outside_the_section_are_reported_when_the_library_is_opened() {
    let good = fs::read(shipped("llama")).expect("built");
    let cases: [(&[u8], &[u8], &str); 2] = [
        (
            b"\"name\":\"llama\",\"version\"",
            b"\"name\":\"lhama\",\"version\"",
            "no symbol `espalier_root_lhama`",
        ),
        // The dynamic linker's message, not only that it failed.
        (
            b"espalier_root_llama\0",
            b"espalier_rooT_llama\0",
            "undefined symbol: espalier_rooT",
        ),
    ];
    for (from, to, reason) in cases {
        let dir = folder(&[]);
        put(dir.path(), "llama", &patched(&good, from, to));
        let registry = loaded(&dir);
        let error = registry.create_family("llama", &Map::new(), SERVICES).err();
        let message = error.expect("it cannot be opened").to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_run_that_names_a_broken_library_is_refused_without_a_substitute() {
    let good = fs::read(shipped("llama")).expect("built");
    let dir = folder(&[]);
    put(dir.path(), "llama", &of_another_abi(&good));
    let registry = Registry::discover(&search(&[dir.path()]));
    let error = registry
        .create_family("llama", &Map::new(), SERVICES)
        .err()
        .expect("broken");
    assert!(matches!(error, RegistryError::Library(_)), "{error}");
    assert_eq!(error.exit_code(), 5);
    // A damaged file could have held any name: it is listed if a name is missing.
    let dir = folder(&[]);
    put(dir.path(), "aqlm", b"damaged");
    let registry = Registry::discover(&search(&[dir.path()]));
    let error = registry
        .create_quantizer("aqlm", &Map::new(), SERVICES)
        .err()
        .expect("unknown");
    let message = error.to_string();
    let known = if cfg!(feature = "embedded") {
        "unknown quantizer `aqlm`; known: hqq, int4, gptq, int4-clip, awq, mxfp4, nvfp4, nf4, fp4, int8"
    } else {
        "unknown quantizer `aqlm`"
    };
    assert!(message.contains(known), "{message}");
    assert!(
        message.contains("not usable: /") && message.contains("libaqlm.so"),
        "{message}"
    );
}

#[test]
fn a_world_writable_library_needs_permission() {
    let dir = folder(&["single"]);
    let file = dir.path().join("libsingle.so");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("our own file");
    let path = search(&[dir.path()]).without_linked();
    let registry = Registry::discover(&path);
    let error = registry
        .create_sharding("single", &Map::new(), SERVICES)
        .err()
        .expect("refused");
    assert!(
        error
            .to_string()
            .contains("any user may write to it (mode 666)"),
        "{error}"
    );
    assert!(error.next_step().contains("chmod o-w"));
    let registry = Registry::discover(&path.with(WorldWritable::Allowed));
    registry
        .create_sharding("single", &Map::new(), SERVICES)
        .expect("allowed");
}

#[test]
fn a_library_that_changed_after_it_was_found_is_not_opened() {
    let dir = folder(&["single"]);
    let registry = loaded(&dir);
    let mut bytes = fs::read(shipped("single")).expect("built");
    bytes.push(0);
    put(dir.path(), "single", &bytes);
    let error = registry
        .create_sharding("single", &Map::new(), SERVICES)
        .err()
        .expect("changed");
    let RegistryError::Library(error) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(error.fault, LibraryFault::Changed { .. }),
        "{error}"
    );
}

#[test]
fn options_are_checked_before_the_plugin_receives_them() {
    let registry = ours();
    let refused = |given: Json| {
        let error = registry
            .create_adapter("lora", &options(given), SERVICES)
            .err();
        let error = error.expect("not allowed");
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    };
    let message = refused(json!({"lora_rank": 8}));
    assert!(
        message.contains("known: rank, alpha, dropout, targets, rslora"),
        "{message}"
    );
    assert!(refused(json!({"drop_out": 0.1})).contains("the nearest is `dropout`"));
    assert!(refused(json!({"rank": 0})).contains("a whole number in 1..=65536, found 0"));
    assert!(refused(json!({"dropout": 1.0})).contains("a number in 0..1, found 1.0"));
    assert!(refused(json!({"targets": 3})).contains("a text or a list of texts, found 3"));
}

#[test]
fn names_map_to_one_component_per_role() {
    let registry = ours();
    let roles = registry
        .roles_of(&["nf4", "lora", "single"])
        .expect("one each");
    assert_eq!(roles[&Role::QUANTIZER], "nf4");
    assert_eq!(roles[&Role::ADAPTER], "lora");
    assert!(!roles.contains_key(&Role::FAMILY));
    let error = registry
        .roles_of(&["nf4", "lora", "fp4"])
        .expect_err("two quantizers");
    assert!(
        error
            .to_string()
            .contains("`nf4` and `fp4` are both of role quantizer"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
    let error = registry.roles_of(&["nf4", "lroa"]).expect_err("misspelt");
    assert!(
        error
            .to_string()
            .contains("`lroa`, the nearest is `lora`; known: "),
        "{error}"
    );
    assert_eq!(error.exit_code(), 5);
    let error = registry
        .create_adapter("nf4", &Map::new(), SERVICES)
        .err()
        .expect("a quantizer");
    assert!(
        error
            .to_string()
            .contains("`nf4` is a component of role quantizer"),
        "{error}"
    );
}

#[test]
fn files_find_their_readers() {
    let registry = ours();
    assert_eq!(registry.family_for("llama").expect("ours"), "llama");
    assert_eq!(
        registry.adapters_for("LORA").expect("ours"),
        ["lora", "dora"]
    );
    let message = registry.family_for("gpt2").expect_err("nobody").to_string();
    assert_eq!(
        message,
        "no family reads model_type `gpt2`; known: gemma2 (gemma2), gemma3_text (gemma3), gemma3 (gemma3), granite (granite), llama (llama), mistral (mistral), phi3 (phi3), qwen2 (qwen2), qwen3 (qwen3), starcoder2 (starcoder2)"
    );
    let message = registry
        .adapters_for("LOHA")
        .expect_err("nobody")
        .to_string();
    assert!(message.contains("peft_type `LOHA`"), "{message}");
}
