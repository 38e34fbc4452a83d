//! `host quantize --auto-bits` and `host plan --bits`: their files, and refusals.

mod place;

use place::RunFolder;

const CHOOSE: &str = "quantize --model dense --data rows.jsonl --auto-bits";
const REFUSED: [(&str, &str); 7] = [
    ("", "--memory"),
    (
        "new.json --memory 5KiB",
        "less than the smallest options need | --options",
    ),
    (
        "new.json --memory 5MiB --options lora",
        "expected a quantizer",
    ),
    (
        "taken.json --memory 5MiB",
        "taken.toml exists | not a choice",
    ),
    (
        "new.json --memory 5MiB --options nf4,hqq --out out",
        "packed by one quantizer | `nf4` and `hqq`",
    ),
    ("new.json --memory 5MiB --tokens 0", "--tokens"),
    (
        "new.json --memory 5MiB --set run.epochs=2",
        "run.epochs | changes nothing",
    ),
];

fn place() -> RunFolder {
    let place = RunFolder::new();
    place.packed("dense", "dense");
    place
}

#[test]
fn the_choice_is_a_config_a_plan_and_a_model() {
    let place = place();
    let choose = |more: &str| {
        place
            .host(&format!("{CHOOSE} bits.json {more}"))
            .succeeded()
    };
    choose("--memory 5MiB --options hqq:bits=2,hqq:bits=8,nf4,none");
    assert!(place.read("bits.toml").contains("quantizer = \"none\""));
    choose("--memory 40KiB --options hqq:bits=2,hqq:bits=8,nf4 --tokens 100");
    let chosen = place.read("bits.toml");
    assert!(
        chosen.contains("[[sites]]") && !chosen.contains("none"),
        "{chosen}"
    );
    place
        .host("plan --plugins lora --model dense --bits bits.json --memory 40KiB")
        .succeeded();
    place
        .host("train --plugins lora --model dense --data rows.jsonl --config bits.toml --out run")
        .succeeded();
    let compare = "compare --eval-only --bits bits.json --model dense --data rows.jsonl \
                   --set data.eval_split=0.5";
    place
        .host(&format!("{compare} --arms hqq:bits=2 --out compared"))
        .succeeded();
    let record = place.read("compared/compare.json");
    assert!(
        record.contains("\"same_memory_as\": \"hqq-bits=2\""),
        "{record}"
    );
    place
        .host(&format!("{compare} --arms hqq:bits=5 --out other"))
        .refused(
            "other",
            2,
            "no arm of --arms | as it is written there: hqq:bits=2",
        );
    choose("--memory 40KiB --options hqq:bits=2,hqq:bits=8 --out packed");
    place
        .host("eval --model packed --data rows.jsonl")
        .succeeded();
}

#[test]
fn a_refused_choice_leaves_no_files() {
    let place = place();
    place.write("taken.toml", "[run]\nseed = 1\n");
    let before = place.names(".");
    for (more, words) in REFUSED {
        let outcome = place.host(&format!("{CHOOSE} {more}"));
        outcome.refused(more, 2, words);
        assert_eq!(place.names("."), before, "{more}");
    }
    place
        .host("plan --plugins lora --model dense --bits bits.json --memory 5MiB")
        .refused("plan", 2, "there is no table bits.json");
}
