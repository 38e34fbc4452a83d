//! `host merge --check`: how far the merged model's logits are from the adapter's.

mod place;

use place::{RunFolder, copy_directory};

/// What `merge --check` printed: largest and mean difference, and the divergence.
fn checked(place: &RunFolder, arguments: &str) -> [f64; 3] {
    let mut command = place.command();
    command.args(["merge", "--quiet"]);
    let output = command.args(arguments.split_whitespace()).output();
    let output = output.expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("logits of "));
    let line = line.unwrap_or_else(|| panic!("no check in {text}"));
    let number = |before: &str| {
        let rest = line.split(before).nth(1).expect("its words");
        let word = rest.split(' ').next().expect("a word");
        word.parse().unwrap_or_else(|_| panic!("{word} in {line}"))
    };
    [number("at most "), number("adapter's, "), number("KL ")]
}

#[test]
fn a_merge_reports_how_far_its_logits_are() {
    let place = RunFolder::new();
    place.packed("dense", "dense");
    place.packed("nf4", "packed");
    for (name, adapter) in [("lora", "dense-lora"), ("tables", "dense-tables")] {
        place.packed(adapter, name);
    }
    let own = [
        "--model dense --adapter lora --out a --check",
        "--model dense --adapter tables --out b --check",
        "--model packed --adapter lora --out c --check",
        "--model dense --plugins nf4 --adapter lora --base decoded --out d --check",
    ];
    for arguments in own {
        let [largest, mean, divergence] = checked(&place, arguments);
        assert!(largest <= 1e-4 && mean <= largest, "{arguments}: {largest}");
        assert!(
            (0.0..=1e-8).contains(&divergence),
            "{arguments}: {divergence}"
        );
    }
    // Rounded weights, and another base, are further away, by as much as they are.
    let [rounded, ..] = checked(
        &place,
        "--model dense --adapter lora --dtype bf16 --out e --check",
    );
    let other = "--model dense --plugins nf4 --adapter lora --base original --out f --check";
    let [quantized, mean, divergence] = checked(&place, other);
    assert!(
        1e-4 < rounded && rounded < quantized,
        "{rounded}, {quantized}"
    );
    assert!(
        mean < quantized && divergence > 1e-8,
        "{mean}, {divergence}"
    );
}

#[test]
fn rows_of_a_check_are_read_before_anything_is_written() {
    let place = RunFolder::new();
    copy_directory("tiny-trained", &place.path("dense"));
    copy_directory("adapter_init", &place.path("lora"));
    let before = place.names(".");
    let refused = "merge --model dense --adapter lora --out out --check nowhere.jsonl";
    place.host(refused).refused(refused, 3, "nowhere.jsonl");
    assert_eq!(place.names("."), before);
    let rows = "--model dense --adapter lora --out out --check rows.jsonl";
    let [largest, ..] = checked(&place, rows);
    assert!(largest <= 1e-3, "{largest}");
}
