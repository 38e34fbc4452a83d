//! Traces -> functions and lines of this build.

use super::*;

/// An address in a separate frame.
#[inline(never)]
fn here() -> u64 {
    let address = here as fn() -> u64 as usize;
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    let own = std::env::current_exe().expect("a file");
    let first = maps
        .lines()
        .find(|line| line.ends_with(&*own.to_string_lossy()));
    let base = first
        .and_then(|line| line.split('-').next())
        .expect("it is mapped");
    address as u64 - u64::from_str_radix(base, 16).expect("an address")
}

#[test]
fn a_trace_becomes_functions_and_lines_where_the_build_is_the_same() {
    let own = std::env::current_exe().expect("a file");
    let folders = [own.parent().expect("a folder").to_owned()];
    let name = own.file_name().expect("a name").to_string_lossy();
    let id = build_id_of(&own).expect("its own file");
    let address = here();
    let line = format!(
        "error: it crashed; next: report; trace: {name}[{id}]+0x{address:x},+0x{:x} ?+0x7f00 ...12 more... gone.so[00ff]+0x1\n",
        address + 5
    );
    let shown = lines(&Trace::parse(&line).expect("a trace"), &folders).expect("addr2line");
    let shown = shown.join("\n");
    assert!(
        shown.contains(&format!("   0 {name}+0x{address:x} ")),
        "{shown}"
    );
    assert_eq!(
        shown.matches("symbolize::tests::here").count(),
        2,
        "{shown}"
    );
    assert!(shown.contains("xtask/src/symbolize/tests.rs:"), "{shown}");
    assert!(shown.contains("... 12 frames more"), "{shown}");
    assert!(shown.contains("gone.so: it is in none"), "{shown}");
    let other = line.replace(&id, "0123");
    let shown = lines(&Trace::parse(&other).expect("a trace"), &folders).expect("addr2line");
    assert!(
        shown[0].contains("expected 0123: build that version"),
        "{shown:?}"
    );
}

#[test]
fn lines_without_a_trace_are_refused() {
    for text in [
        "",
        "error: x; next: y",
        "; trace: host",
        "; trace: host+0xzz",
    ] {
        assert!(Trace::parse(text).is_err(), "{text:?} passed");
    }
    let none = Trace::parse("; trace:").expect("an empty one");
    assert_eq!(none, Trace(Vec::new()));
}
