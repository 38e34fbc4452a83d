//! Chat templates of a model -> the same texts as in this process, or exit code 3 with the exceeded
//! limit.
#![allow(unsafe_code)] // What ended processes took, from the system.

mod place;

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

use espalier_data::{
    ChatTemplate, DataOptions, Dataset, GenerationPrompt, Message, TrainOn, Vocabulary,
};
use flate2::read::GzDecoder;
use serde_json::{Value as Json, json};

use place::{RunFolder, copy_directory};

/// Time limit of a refusal, which takes a few seconds of processor time on an idle machine.
const LONGEST: Duration = Duration::from_secs(60);
/// Memory limit of each process during a refusal.
const LARGEST_KIB: i64 = 400 << 10;

/// A row of one turn and its answer, and a model with the template `source`.
fn place(source: &str) -> RunFolder {
    let place = RunFolder::new();
    place.model("model");
    place.write("model/chat_template.jinja", source);
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let row = json!({"messages": [turn("user", "a"), turn("assistant", "b")]});
    place.write("chat.jsonl", &format!("{row}\n"));
    place
}

/// The largest memory of any process started here, directly or by one of them.
fn largest_kib() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is the system's to fill, and zeros are a value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss
}

/// Texts that are hostile by length or shape alone.
fn long_texts() -> Vec<(&'static str, String, &'static str)> {
    let chain = |link: &str| format!("\n{{{{ 'a'{} }}}}", link.repeat(60_000));
    let tag = "has a tag of more than 4096 names, values and signs (line 2 of the template)";
    let elif = format!(
        "{{% if a %}}{}{{% endif %}}",
        "{% elif a %}\n".repeat(20_000)
    );
    let blocks = "{% if a %}".repeat(30_000) + &"{% endif %}".repeat(30_000);
    let nested = format!("{{{{ {}1{} }}}}", "[".repeat(3000), "]".repeat(1000));
    vec![
        ("a sum", chain(" + 'a'"), tag),
        ("filters", chain("|trim"), tag),
        ("attributes", chain(".a"), tag),
        ("conditions", chain(" if 1 else 'a'"), tag),
        (
            "minus signs",
            format!("\n{{{{ {}1 }}}}", "-".repeat(100_000)),
            tag,
        ),
        (
            "elif",
            elif,
            "has more than 1000 elif tags (line 1001 of the template)",
        ),
        ("blocks", blocks, "exceeds maximum recursion limits (line 1"),
        ("lists", nested, "exceeds maximum recursion limits (line 1"),
        (
            "a literal",
            format!("{{{{ '{}' }}}}", "a".repeat(3 << 20)),
            "a chat template may have at most",
        ),
    ]
}

/// Short texts that use much time or memory, each on one line.
const GREEDY: [(&str, &str, &str); 16] = [
    (
        "replace",
        "{% set ns.x = ns.x | replace('a', 'aaaa') %}",
        "128 MiB of memory",
    ),
    (
        "doubling",
        "{% set ns.x = ns.x ~ ns.x %}",
        "128 MiB of memory",
    ),
    ("sums", "{% set ns.x = ns.x + ns.x %}", "128 MiB of memory"),
    (
        "join",
        "{% set ns.x = [ns.x, ns.x] | join(ns.x) %}",
        "128 MiB of memory",
    ),
    (
        "capture",
        "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}",
        "128 MiB of memory",
    ),
    (
        "method",
        "{% set ns.x = ns.x.replace('a', 'aaaa') %}",
        "128 MiB of memory",
    ),
    (
        "tojson",
        "{{ [1] | tojson(indent=8000000000) }}",
        "MiB of memory",
    ),
    (
        "indent",
        "{{ 'a\\nb' | indent(8000000000) }}",
        "MiB of memory",
    ),
    (
        "batch",
        "{{ [1] | batch(8000000000, 'a') | list }}",
        "MiB of memory",
    ),
    (
        "slice",
        "{{ [1] | slice(8000000000, 'a') | list }}",
        "MiB of memory",
    ),
    (
        "product",
        "{{ 'ab' * 8000000000 }}",
        "repeated string is too large (line 1 of the template)",
    ),
    (
        "largest",
        "{{ 'ab' * 9223372036854775807 }}",
        "(line 1 of the template)",
    ),
    (
        "format",
        "{{ '%8000000000d' | format(1) }}",
        "(line 1 of the template)",
    ),
    (
        "range",
        "{{ range(10 ** 9) | list }}",
        "(line 1 of the template)",
    ),
    (
        "macros",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "(line 1 of the template)",
    ),
    (
        "output",
        "{% for b in range(99999) %}{{ ns.x * 999 }}{% endfor %}",
        "MiB of text for a conversation (line 1",
    ),
];

/// A text that becomes 2^64 bytes.
const DOUBLING: &str = "{% set ns = namespace(x='a') %}{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";

#[test]
fn a_hostile_template_ends_with_its_line_and_bound() {
    let mut cases = long_texts();
    for (name, body, words) in GREEDY {
        let source = format!(
            "{{% set ns = namespace(x='a') %}}{{% for a in range(64) %}}{body}{{% endfor %}}"
        );
        cases.push((name, source, words));
    }
    let nested = "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% for b in range(99999) %}\
                  {% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    cases.push((
        "nested values",
        nested.to_owned(),
        "(line 1 of the template)",
    ));
    let slow = "{% set x = 'ab' * 9999999 %}{% for a in range(99999) %}{% set y = x | replace('a', 'b') %}{% endfor %}";
    cases.push((
        "slow",
        slow.to_owned(),
        "more than 3 s of processor time for a conversation (line 1",
    ));
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    cases.push(("endless", endless.to_owned(), "(line 1 of the template)"));
    for (name, source, words) in cases {
        let place = place(&source);
        let begin = Instant::now();
        let outcome = place.host("data show --model model --data chat.jsonl");
        outcome.refused(name, 3, &format!("model/chat_template.jinja | {words}"));
        assert!(begin.elapsed() < LONGEST, "{name}: {:?}", begin.elapsed());
        let kib = largest_kib();
        assert!(kib < LARGEST_KIB, "{name}: {kib} KiB");
    }
}

#[test]
fn the_reported_line_has_the_step_that_exceeds_the_limit() {
    // On a busy machine the search ends early, near the line: all its steps but a few are on it.
    let doubling = format!("{{% set y = 1 %}}\n\n{{{{ y }}}}\n{DOUBLING}\n{{% set z = 1 %}}\n");
    let place = place(&doubling);
    place
        .host("data show --model model --data chat.jsonl")
        .refused(
            "several lines",
            3,
            "chat.jsonl:1: | takes more than 128 MiB of memory for a conversation | line 4 of the template) | \
             choose another with data.chat_template",
        );
}

#[test]
fn every_command_that_renders_has_the_same_limits() {
    let place = place(DOUBLING);
    let words =
        "model/chat_template.jinja | 128 MiB of memory for a conversation (line 1 of the template)";
    let train = "train --plugins lora --model model --data chat.jsonl --threads 1 --out out";
    place.host(train).refused("train", 3, words);
    assert_eq!(place.names("out"), "");
    let chat = "generate --model model --chat --prompt a --max-tokens 2";
    place.host(chat).refused("generate", 3, words);
    // With the template in the place most models use, and as the user names it.
    fs::remove_file(place.path("model/chat_template.jinja")).expect("there");
    place.edit("model/tokenizer_config.json", |config| {
        config["chat_template"] = json!(DOUBLING);
    });
    let show = "data show --model model --data chat.jsonl";
    let words = words.replace("chat_template.jinja", "tokenizer_config.json");
    place.host(show).refused("tokenizer_config.json", 3, &words);
    place.write("own.jinja", DOUBLING);
    let words = words.replace("model/tokenizer_config.json", "own.jinja");
    place
        .host(&format!("{show} --chat-template own.jinja"))
        .refused("own", 3, &words);
}

#[test]
fn an_exceeded_limit_names_the_first_row_and_is_not_a_bad_row() {
    // 2^4 bytes for a row of one letter, 2^40 for one of ten.
    let growing = DOUBLING.replace("range(64)", "range(4 * messages[0].content | length)");
    let place = place(&format!("{growing}{{{{ messages[0].content }}}}"));
    let row =
        |text: &str| json!({"messages": [{"role": "assistant", "content": text}]}).to_string();
    let mut rows = vec![row("a"); 3000];
    rows[40] = "no row".to_owned();
    (rows[500], rows[2000]) = (row("0123456789"), row("0123456789"));
    place.write("chat.jsonl", &rows.join("\n"));
    let show = "data show --model model --data chat.jsonl --set data.on_bad_row=\"drop\"";
    let words = "chat.jsonl:501: | 128 MiB of memory for a conversation (line 1 of the template)";
    place.host(show).refused("bad rows", 3, words);
}

#[test]
fn a_separate_process_gives_the_same_tokens_as_this_process() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let cases = fs::File::open(tests.join("golden/chat/cases.json.gz")).expect("cases");
    let golden: Json = serde_json::from_reader(GzDecoder::new(cases)).expect("JSON");
    for (name, case) in golden["templates"].as_object().expect("templates") {
        let conversations = golden["conversations"].as_array().expect("a list").iter();
        let results = case["results"].as_array().expect("a list");
        let taken = conversations
            .zip(results)
            .filter(|(_, result)| result["raises"].is_null());
        let rows = taken.map(|(messages, _)| json!({"messages": messages}).to_string() + "\n");
        let rows: String = rows.take(60).collect();
        for template in ["template", "tagged"] {
            let place = RunFolder::new();
            copy_directory("tiny", &place.path("model"));
            let tokenizer = format!(
                "golden/chat/{}.json",
                case["tokenizer"].as_str().expect("a name")
            );
            fs::copy(tests.join(tokenizer), place.path("model/tokenizer.json")).expect("a copy");
            let config = json!({
                "bos_token": case["bos_token"], "eos_token": case["eos_token"], "chat_template": case[template],
            });
            place.write("model/tokenizer_config.json", &config.to_string());
            place.write("chat.jsonl", &rows);
            for train_on in [TrainOn::Assistant, TrainOn::Completion, TrainOn::All] {
                let expected = in_place(&place, train_on);
                let found = apart(&place, train_on);
                assert!(
                    expected.len() == 60 && found == expected,
                    "{name} {template} {train_on:?}"
                );
            }
        }
    }
}

/// Token ids of a row, and which are trained.
type Tokens = Vec<(i64, bool)>;

/// The rows as this process reads them, without a worker program.
fn in_place(place: &RunFolder, train_on: TrainOn) -> Vec<Tokens> {
    let options = DataOptions {
        files: vec![place.path("chat.jsonl")],
        train_on,
        ..DataOptions::default()
    };
    let vocabulary = Vocabulary::new(place.path("model"), 512);
    let rows = Dataset::load(&options.files, &options, &vocabulary, &mut |_| ()).expect("rows");
    let tokens = (0..rows.num_sequences()).map(|index| {
        let sequence = rows.sequence(index).expect("a row");
        let trained = sequence
            .labels()
            .map(|label| label != espalier_data::UNTRAINED);
        let trained = std::iter::once(false).chain(trained);
        sequence
            .tokens
            .iter()
            .map(|id| i64::from(*id))
            .zip(trained)
            .collect()
    });
    tokens.collect()
}

/// The rows as the program reads them, which renders their template in another process.
fn apart(place: &RunFolder, train_on: TrainOn) -> Vec<Tokens> {
    let mut command = place.command();
    let arguments = "data show --model model --data chat.jsonl --json --rows 1000 --set";
    command
        .args(arguments.split(' '))
        .arg(format!("data.train_on={}", json!(train_on)));
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let token = |token: &Json| {
        let id = token["id"].as_i64().expect("an id");
        (id, token["trained"] == true)
    };
    let tokens = |row: &Json| {
        row["tokens"]
            .as_array()
            .expect("tokens")
            .iter()
            .map(token)
            .collect()
    };
    shown["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(tokens)
        .collect()
}

#[test]
fn text_and_steps_are_limited_without_a_worker_program() {
    let place = place("\n{% for a in range(99999) %}{{ 'ab' * 1000 }}{% endfor %}");
    let template = ChatTemplate::open(&place.path("model"), None).expect("a template");
    let rendered = template
        .expect("the model's own")
        .render(&[Message::new("user", "a")], GenerationPrompt::Added);
    let refused = rendered.expect_err("too long").to_string();
    assert!(
        refused.contains("writes more than 1.0 MiB of text"),
        "{refused}"
    );
}
