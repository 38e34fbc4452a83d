//! Uses between files, in all spellings -> circles.

use super::*;

fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let circles = circles(&uses(&RustCrate::of(files)));
    let names = |circle: Vec<ModulePath>| circle.iter().map(|module| shown(module)).collect();
    circles
        .into_iter()
        .map(|(circle, _)| names(circle))
        .collect()
}

#[test]
fn files_that_use_each_other_are_a_circle_in_every_spelling() {
    let written = [
        (
            "use crate::b::B;\npub struct A(B);",
            "fn f(_: super::a::A) {}\npub struct B;",
        ),
        (
            "use super::B;\npub struct A(B);",
            "use crate::{a as other};\npub struct B;\nfn f(_: other::A) {}",
        ),
    ];
    for (a, b) in written {
        let root = "mod a;\nmod b;\npub use a::A;\npub use b::*;";
        assert_eq!(
            found(&[("", root), ("a", a), ("b", b)]),
            [["a", "b"]],
            "{a}"
        );
    }
}

#[test]
fn declaring_and_reexporting_is_no_use_and_tests_are_left_out() {
    let root = "mod a;\nmod b;\npub use a::A;\npub const C: u32 = 1;";
    let a = "use crate::C;\npub struct A([u8; C]);\n#[cfg(test)]\nmod tests { use crate::b::B; }";
    let b = "use crate::A;\nuse other::a::X;\npub struct B(A, X);";
    assert!(found(&[("", root), ("a", a), ("b", b)]).is_empty());
}

#[test]
fn a_module_and_its_parts_are_one_for_others() {
    let root = "mod a;\nmod c;";
    let a = "mod b;\npub struct A;\nfn f() { b::g(); }";
    let b = "use super::A;\npub fn g() { drop(A); crate::c::h(); }";
    let apart = "pub fn h() {}";
    assert!(found(&[("", root), ("a", a), ("a::b", b), ("c", apart)]).is_empty());
    let joined = "pub fn h() { drop(crate::a::A); }";
    let found = found(&[("", root), ("a", a), ("a::b", b), ("c", joined)]);
    assert_eq!(found, [["a", "c"]]);
}
