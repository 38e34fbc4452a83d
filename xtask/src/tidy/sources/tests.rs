//! Each fault of a source file is found, and a good file passes.

use super::*;

fn problems(file: &str, text: &str) -> Vec<String> {
    let mut findings = Findings::default();
    check_file(Path::new(file), text, &mut findings);
    findings.problems
}

#[test]
fn a_good_file_passes() {
    assert_eq!(
        problems("plugins/nf4/src/encode.rs", "//! Turns a into b.\n"),
        [""; 0]
    );
}

#[test]
fn the_median_is_bounded() {
    let problems = |lines: &[usize]| {
        let mut findings = Findings::default();
        check_median(lines.to_vec(), &mut findings);
        findings.problems
    };
    assert_eq!(problems(&[400, 119, 1, 380, 2]), [""; 0]);
    assert!(problems(&[400, 120, 1])[0].contains("has 120 lines"));
}

#[test]
fn each_fault_is_named() {
    let long = "//! Turns a into b.\n".repeat(MOST_LINES + 1);
    assert!(problems("a/src/b.rs", &long)[0].contains("401 lines"));
    let wide = |comment: &str| {
        let text = format!("//! A.\n{comment}{}\n", " word".repeat(20));
        problems("a/src/b.rs", &text)
    };
    assert!(wide("/// Says")[0].starts_with("a/src/b.rs:2: a comment of more than 100"));
    assert_eq!(wide("/// | a |"), [""; 0]);
    assert_eq!(wide("///     code"), [""; 0]);
    assert!(problems("a/src/b.rs", "fn a() {}\n")[0].contains("first line"));
    assert!(problems("a/src/utils.rs", "//! A.\n")[0].contains("utils.rs"));
    assert!(problems("a/common/b.rs", "//! A.\n")[0].contains("common"));
    for word in UNFINISHED {
        let text = format!("//! A.\nfn a() {{\n    {word}\n}}\n");
        assert!(
            problems("a/src/b.rs", &text)[0].starts_with("a/src/b.rs:3"),
            "{word}"
        );
    }
}

#[test]
fn no_test_loses_a_nan() {
    let call = |name, inside: &str| format!("//! A.\nfn a() {{\n    b.{name}({inside});\n}}\n");
    let fold = |inside: &str| call("fold", inside);
    for inside in [
        "0.0, f64::max",
        "\n        f32::INFINITY,\n        f32::min,\n    ",
        "0.0f32, |most, x| most.max(x.abs())",
        "0.0, |most: f64, &(a, b)| (a - b).abs().max(most)",
        "(1.0, 1.0), |[low, high], x| (low.min(x), high.max(x))",
    ] {
        let found = problems("tests/tests/b.rs", &fold(inside));
        assert_eq!(found.len(), 1, "{inside}: {found:?}");
        assert!(found[0].starts_with("tests/tests/b.rs:3: "), "{found:?}");
        let unit = fold(inside).replace("//! A.\n", "//! A.\n#[cfg(test)]\n");
        assert_eq!(problems("a/src/b.rs", &unit).len(), 1, "{inside}");
        // Code decides itself what a NaN means; so do plugins of third parties.
        assert_eq!(problems("a/src/b.rs", &fold(inside)).len(), 0, "{inside}");
        let theirs = "tests/plugins/c/src/lib.rs";
        assert_eq!(problems(theirs, &fold(inside)).len(), 0, "{inside}");
    }
    let reduced = call("reduce", DROPS_NAN[0]);
    assert_eq!(problems("tests/tests/b.rs", &reduced).len(), 1);
    for inside in [
        "0, usize::max",
        "0, |most, x| most.max(x)",
        "0.0, |sum, x| sum + x), c(f64::max",
    ] {
        let found = problems("tests/tests/b.rs", &fold(inside));
        assert_eq!(found, [""; 0], "{inside}");
    }
}

#[test]
fn unwrap_is_for_tests() {
    let code = format!("//! A.\nfn a() {{ b(){UNWRAP}; }}\n");
    assert_eq!(problems("a/src/b.rs", &code).len(), 1);
    assert_eq!(problems("tests/tests/b.rs", &code).len(), 0);
    let test = format!("//! A.\n#[cfg(test)]\nmod tests {{\n    fn a() {{ b(){UNWRAP}; }}\n}}\n");
    assert_eq!(problems("a/src/b.rs", &test).len(), 0);
}

#[test]
fn backends_on_libraries_compute_by_them() {
    let text = "//! A.\nfn a(out: &mut [f32]) {\n    out.iter_mut();\n}\n";
    for file in [
        "core/tensor-ops/src/op/add.rs",
        "plugins/backend-candle/src/a.rs",
        "plugins/backend-tch/engine/src/a.rs",
    ] {
        let found = problems(file, text);
        assert_eq!(found.len(), 2, "{file}: {found:?}");
        assert!(found[0].contains(":2: `&mut [f32]`"), "{found:?}");
    }
    assert_eq!(problems("plugins/backend-cpu/src/op/add.rs", text), [""; 0]);
    let test = "plugins/backend-tch/engine/tests/kit.rs";
    assert_eq!(problems(test, text), [""; 0]);
}
