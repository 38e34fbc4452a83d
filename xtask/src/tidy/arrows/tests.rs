//! Allowed and refused dependencies between crates.

use super::*;

fn problems(name: &str, folder: &str, dependency: &str) -> Vec<String> {
    problems_in("dependencies", name, folder, dependency)
}

fn problems_in(section: &str, name: &str, folder: &str, dependency: &str) -> Vec<String> {
    let text = format!(
        "[package]\nversion.workspace = true\nedition.workspace = true\n\
         license.workspace = true\n[lints]\nworkspace = true\n[{section}]\n{dependency}\n"
    );
    let mut findings = Findings::default();
    let manifest = text.parse().expect("the text is TOML");
    check_manifest(name, Path::new(folder), &manifest, &mut findings);
    findings.problems
}

#[test]
fn arrows_point_one_way() {
    let uses = |what: &str| format!("{what}.workspace = true");
    let of = |name, folder, what: &str| problems(name, folder, &uses(what)).len();
    assert_eq!(of("espalier-nf4", "plugins/nf4", KERNELS), 0);
    assert_eq!(of("espalier-nf4", "plugins/nf4", INTERFACE), 0);
    assert_eq!(of("espalier-nf4", "plugins/nf4", TRAINER), 1);
    assert_eq!(of("espalier-nf4", "plugins/nf4", "espalier-lora"), 1);
    assert_eq!(of(TRAINER, "core/trainer", INTERFACE), 0);
    assert_eq!(of(TRAINER, "core/trainer", KERNELS), 1);
    assert_eq!(of(TRAINER, "core/trainer", "espalier-data"), 0);
    assert_eq!(of(TRAINER, "core/trainer", "espalier-report"), 1);
    assert_eq!(of("espalier-compare", "core/compare", "espalier-report"), 0);
    assert_eq!(of("espalier-report", "core/report", "espalier-compare"), 1);
    assert_eq!(of("espalier-data", "core/data", "espalier-system"), 0);
    assert_eq!(of("espalier-system", "core/system", "espalier-data"), 1);
    assert_eq!(of("espalier-data", "core/data", TRAINER), 1);
    assert_eq!(of(TRAINER, "core/trainer", "espalier-llama"), 1);
    assert_eq!(of(INTERFACE, "core/interface", KERNELS), 1);
    assert_eq!(of(HUB, "core/hub", "espalier-system"), 0);
    assert_eq!(of(HUB, "core/hub", "espalier-data"), 1);
    assert_eq!(of("espalier-data", "core/data", HUB), 1);
    assert_eq!(of("espalier-cli", "hosts/cli", HUB), 0);
    assert_eq!(of(DECODER, "core/decoder", INTERFACE), 0);
    assert_eq!(of(DECODER, "core/decoder", KERNELS), 1);
    assert_eq!(of("espalier-llama", "plugins/llama", DECODER), 0);
    assert_eq!(of(TRAINER, "core/trainer", DECODER), 1);
    assert_eq!(of(TRAINER, "core/trainer", CONFORMANCE), 0);
    assert_eq!(of(CONFORMANCE, "core/conformance", INTERFACE), 0);
    assert_eq!(of(CONFORMANCE, "core/conformance", TRAINER), 1);
    assert_eq!(of(KERNELS, "kernels", INTERFACE), 0);
    assert_eq!(of("espalier-cli", "hosts/cli", "espalier-llama"), 0);
    assert_eq!(of("xtask", "xtask", TRAINER), 1);
    assert_eq!(of("xtask", "xtask", INTERFACE), 0);
}

#[test]
fn tests_may_use_the_kit() {
    let uses = format!("{CONFORMANCE}.workspace = true");
    for (name, folder) in [(KERNELS, "kernels"), ("espalier-cli", "hosts/cli")] {
        let found = |section| problems_in(section, name, folder, &uses).len();
        assert_eq!(found("dev-dependencies"), 0, "{name}");
        assert_eq!(found("dependencies"), 1, "{name}");
    }
}

#[test]
fn versions_are_set_in_the_workspace() {
    assert_eq!(
        problems("espalier-cli", "hosts/cli", "half = \"2\"").len(),
        1
    );
}
