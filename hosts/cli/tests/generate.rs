//! `host generate`: the same text by every input path, conversations, and refusals.

mod place;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use place::{Outcome, RunFolder};
use serde_json::Value;

/// The shipped template without special tokens, after the token that begins a text. A prompt in
/// plain text, which the tokenizer prefixes with that token, can be equal to it.
const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' \
     + m['content'] + '<|im_end|>\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn generate(place: &RunFolder, arguments: &[&str], input: &str) -> Output {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/quickstart/model");
    let mut command: Command = place.command();
    command
        .args(["generate", "--quiet", "--model"])
        .arg(quickstart)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut running = command.spawn().expect("the program starts");
    let mut stdin = running.stdin.take().expect("a pipe");
    // A program that refuses its arguments does not read standard input.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    running.wait_with_output().expect("it was started here")
}

/// Its standard output without the final newline.
fn text(place: &RunFolder, arguments: &[&str], input: &str) -> String {
    let output = generate(place, arguments, input);
    Outcome::new(&output).succeeded();
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.strip_suffix('\n').expect("a newline").to_owned()
}

fn answers(place: &RunFolder, arguments: &[&str]) -> Vec<String> {
    let lines = text(place, arguments, "");
    let answer = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["answer"].as_str().expect("an answer").to_owned()
    };
    lines.lines().map(answer).collect()
}

#[test]
fn an_answer_depends_on_prompt_and_seed_alone() {
    let place = RunFolder::new();
    let prompts = ["And God said", "In the beginning", "Blessed are they that"];
    let short = ["--max-tokens", "24"];
    let greedy = |prompt: &str, threads: &str| {
        let arguments = [&short[..], &["--prompt", prompt, "--threads", threads]].concat();
        text(&place, &arguments, "")
    };
    let one = prompts.map(|prompt| greedy(prompt, "1"));
    assert_eq!(one, prompts.map(|prompt| greedy(prompt, "2")));
    assert!(one[0].split_whitespace().count() > 5, "{one:?}");
    assert_ne!(one[0], one[1]);
    place.write("prompts.txt", &prompts.join("\n"));
    let together = answers(
        &place,
        &[&short[..], &["--prompts", "prompts.txt"]].concat(),
    );
    assert_eq!(together, one);
    let piped = text(
        &place,
        &[&short[..], &["--prompt", "-"]].concat(),
        prompts[1],
    );
    assert_eq!(piped, one[1]);

    let drawn = |seed: &str, threads: &str| {
        let chosen = ["--temperature", "0.8", "--top-p", "0.9", "--seed", seed];
        let prompt = ["--prompt", prompts[0], "--threads", threads];
        text(&place, &[&short[..], &chosen, &prompt].concat(), "")
    };
    assert_eq!(drawn("5", "1"), drawn("5", "2"));
    assert_ne!(drawn("5", "1"), drawn("6", "1"));
}

#[test]
fn ranks_and_offloaded_weights_give_the_same_text() {
    let place = RunFolder::new();
    let prompts = ["And God said", "In the beginning", "Blessed are they that"];
    place.write("prompts.txt", &prompts.join("\n"));
    let drawn = ["--max-tokens", "12", "--temperature", "0.8", "--seed", "5"];
    let of = |more: &str| {
        let more: Vec<&str> = more.split_whitespace().collect();
        let words = |input: &[&'static str]| [&drawn[..], input, &more].concat();
        let one = text(&place, &words(&["--prompt", prompts[1], "--stop", ","]), "");
        (answers(&place, &words(&["--prompts", "prompts.txt"])), one)
    };
    let expected = of("");
    for more in [
        "--plugins fsdp --set sharding.fsdp.offload=params",
        "--plugins ddp --ranks 2",
        "--plugins fsdp --ranks 2 --set sharding.fsdp.offload=params",
        "--plugins fsdp --ranks 4 --set sharding.fsdp.strategy=shard_grad_op",
    ] {
        assert_eq!(of(more), expected, "{more}");
    }
}

#[test]
fn an_answer_ends_before_a_stop_text() {
    let place = RunFolder::new();
    let arguments = ["--prompt", "And God said", "--max-tokens", "24"];
    let whole = text(&place, &arguments, "");
    let (before, _) = whole.split_once(',').expect("a comma");
    let cut = text(&place, &[&arguments[..], &["--stop", ","]].concat(), "");
    assert_eq!(cut, before);
}

#[test]
fn turns_continue_the_templated_conversation() {
    let place = RunFolder::new();
    place.write("template.jinja", TEMPLATE);
    let limits = ["--max-tokens", "10", "--stop", "<|im_end|>"];
    let plain = |prompt: &str| text(&place, &[&limits[..], &["--prompt", prompt]].concat(), "");
    let turn = |role: &str, text: &str| format!("<|im_start|>{role}\n{text}<|im_end|>\n");
    let system = turn("system", "Speak as a king.");
    let answering = "<|im_start|>assistant\n";
    let first = format!("{system}{}", turn("user", "Who art thou?"));
    let one = plain(&format!("{first}{answering}"));
    let second = turn("assistant", &one) + &turn("user", "Whence comest thou?");
    let two = plain(&format!("{first}{second}{answering}"));

    let chat = [
        "--chat",
        "--system",
        "Speak as a king.",
        "--chat-template",
        "template.jinja",
    ];
    let chat = [&limits[..], &chat].concat();
    let single = text(
        &place,
        &[&chat[..], &["--prompt", "Who art thou?"]].concat(),
        "",
    );
    assert_eq!(single, one);
    place.write("prompts.txt", "In the beginning\nWho art thou?\n");
    let separate = answers(&place, &[&chat[..], &["--prompts", "prompts.txt"]].concat());
    assert_eq!(separate[1], one);
    let asked = "Who art thou?\nWhence comest thou?\n";
    assert_eq!(text(&place, &chat, asked), format!("{one}\n{two}"));
    // Input before a reset has no effect, and nothing is read after the end.
    let again = format!("In the beginning\n\n/reset\n{asked}/quit\nIn the beginning\n");
    let answered = text(&place, &chat, &again);
    assert!(answered.ends_with(&format!("\n{one}\n{two}")), "{answered}");
    assert!(!answered.starts_with(&one), "{answered}");
}

#[test]
fn invalid_prompts_are_refused() {
    let place = RunFolder::new();
    place.write("empty.txt", "\n");
    place.write("wrong.jsonl", "\"a\"\n{\"text\": \"b\"}\n");
    fs::create_dir(place.path("unfinished")).expect("created");
    place.write(
        "unfinished/run.json",
        r#"{"config": {"model": {"path": "m"}}}"#,
    );
    let long = "word ".repeat(600);
    let cases: [(&[&str], &str, i32, &str); 13] = [
        (&[], "", 2, "no prompt was given | --prompt TEXT | --chat"),
        (&["--prompt", ""], "", 2, "prompt 1 is empty"),
        (&["--prompt", "-"], "", 2, "prompt 1 is empty"),
        (&["--prompt", &long], "", 2, "and the context 512 | shorten"),
        (&["--prompt", "a", "--context", "513"], "", 2, "2 to 512"),
        (
            &["--prompt", "a", "--top-p", "0"],
            "",
            2,
            "--top-p | found 0",
        ),
        (&["--prompts", "none.txt"], "", 2, "none.txt"),
        (&["--prompts", "empty.txt"], "", 2, "has no prompt"),
        (
            &["--prompts", "wrong.jsonl"],
            "",
            2,
            "wrong.jsonl:2 | `prompt`",
        ),
        (&["--prompt", "a", "--run", "none"], "", 2, "run.json"),
        (
            &["--prompt", "a", "--run", "unfinished"],
            "",
            2,
            "not finished",
        ),
        (
            &["--chat", "--prompt", "a"],
            "",
            2,
            "no chat template | --chat-template | chatml | llama3",
        ),
        (
            &["--chat", "--chat-template", "chatml", "--context", "20"],
            "Tell me all that thou knowest of the kings of Israel\n",
            2,
            "and the context 20 | shorten",
        ),
    ];
    for (arguments, input, code, words) in cases {
        let refused = Outcome::new(&generate(&place, arguments, input));
        refused.refused(&arguments.join(" "), code, words);
    }
    place
        .host("generate --model nowhere --prompt a")
        .refused("no model", 2, "nowhere");
}
