//! Conversations without a chosen trained part -> every answer; and special tokens that the
//! tokenizer splits.

use std::fs;
use std::path::Path;

use espalier_data::{DataOptions, Dataset, OnBadRow, OnEmpty, TrainOn, Vocabulary};
use espalier_tests::rows::{model_with, options, read};
use serde_json::{Value, json};

fn chatml(options: &mut DataOptions) {
    options.chat_template = Some("chatml".into());
}

fn turns(count: usize) -> Value {
    let roles = ["user", "assistant"].iter().cycle().take(count);
    let turns = roles.map(|role| json!({"role": role, "content": "word"}));
    json!({"messages": turns.collect::<Vec<_>>()})
}

#[test]
fn every_answer_of_a_conversation_is_trained_by_default() {
    let rows = format!("{}\n{}\n", turns(2), turns(6));
    let trained = |train_on: Option<TrainOn>| {
        let dataset = read("f.jsonl", &rows, |o| {
            chatml(o);
            o.train_on = train_on.unwrap_or(o.train_on);
        });
        let dataset = dataset.unwrap();
        let trained = |row| dataset.sequence(row).unwrap().trained_tokens;
        (trained(0), trained(1), dataset)
    };
    let (one, three, by_default) = trained(None);
    let (_, every, _) = trained(Some(TrainOn::Assistant));
    let (last_of_one, last, by_completion) = trained(Some(TrainOn::Completion));
    assert_eq!((three, one), (every, last_of_one));
    assert_eq!((three, last), (3 * last, one));
    let text = by_default.counts().trains.to_string();
    assert_eq!(text, "every answer of 2 conversations (4 answers)");
    let text = by_completion.counts().trains.to_string();
    assert_eq!(
        text,
        "the last answer of 2 conversations and none of 2 earlier answers"
    );
    assert_eq!(by_default.files()[0].train_on, TrainOn::Assistant);
    assert_eq!(by_completion.files()[0].train_on, TrainOn::Completion);
    // A prompt of turns stays a prompt.
    let [asked, answer] =
        ["user", "assistant"].map(|role| json!({"role": role, "content": "word"}));
    let lists = json!({"prompt": [asked, answer, asked], "completion": [answer]});
    let lists = read("f.jsonl", lists.to_string(), chatml).unwrap();
    assert_eq!(lists.sequence(0).unwrap().trained_tokens, last);
}

#[test]
fn a_template_that_hides_earlier_answers_trains_only_the_last_and_reports_it() {
    // The last answer is written differently from the earlier ones, as in reasoning templates.
    let unstable = "{% for m in messages %}{{ m.role }}:{% if loop.last and m.role == 'assistant' %}<think>{% endif %}\
                    {{ m.content }}<|end_of_text|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    let config = json!({"eos_token": "<|end_of_text|>", "chat_template": unstable});
    let model = model_with("tokenizer_config.json", Some(&config.to_string()));
    let path = model.path().join("rows.jsonl");
    fs::write(&path, format!("{}\n{}\n", turns(4), turns(2))).unwrap();
    let load = |train_on| {
        let mut options = options(&path);
        options.train_on = train_on;
        let vocabulary = Vocabulary::new(model.path(), 512);
        Dataset::load(&options.files.clone(), &options, &vocabulary, &mut |_| ())
    };
    let trains = load(TrainOn::Auto).unwrap().counts().trains;
    assert_eq!((trains.last_alone, trains.untrained_answers), (1, 1));
    let chosen = load(TrainOn::Assistant).err().expect("refused").to_string();
    assert!(chosen.contains("message 2 is not a prefix"), "{chosen}");
}

#[test]
fn special_tokens_that_the_tokenizer_splits_are_reported_with_counts() {
    let rows = format!("{}\n{}\n", turns(2), turns(4));
    let dataset = read("f.jsonl", &rows, chatml).unwrap();
    let split = dataset.split_tokens();
    let found: Vec<_> = split
        .iter()
        .map(|one| (one.token.as_str(), one.count, one.ends_answers))
        .collect();
    assert_eq!(found, [("<|im_end|>", 6, true), ("<|im_start|>", 6, false)]);
    assert!(split.iter().all(|one| one.pieces > 1), "{split:?}");
    // If the tokenizer has them, nothing is split.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/chat/bytes.json");
    let model = model_with("tokenizer.json", Some(&fs::read_to_string(golden).unwrap()));
    let path = model.path().join("rows.jsonl");
    fs::write(&path, rows).unwrap();
    fs::write(
        model.path().join("tokenizer_config.json"),
        json!({"eos_token": "<|im_end|>"}).to_string(),
    )
    .unwrap();
    let mut options = options(&path);
    chatml(&mut options);
    let vocabulary = Vocabulary::new(model.path(), 512);
    let dataset = Dataset::load(&options.files.clone(), &options, &vocabulary, &mut |_| ());
    assert_eq!(dataset.unwrap().split_tokens(), []);
}

#[test]
fn an_empty_answer_or_text_is_a_fault_of_its_row() {
    for (row, expected) in [
        (
            json!({"instruction": "a", "input": "", "output": ""}),
            "f.jsonl:1: field `output` is empty; expected an answer to train on",
        ),
        (
            json!({"prompt": "a", "completion": " \n"}),
            "f.jsonl:1: field `completion` is empty; expected an answer",
        ),
        (
            json!({"text": ""}),
            "f.jsonl:1: field `text` is empty; expected a text",
        ),
    ] {
        let message = read("f.jsonl", row.to_string(), |_| ())
            .err()
            .expect("refused");
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("data.on_bad_row = \"drop\""), "{message}");
        let good = row
            .to_string()
            .replace("\"\"}", "\"b\"}")
            .replace(" \\n", "b");
        let rows = format!("{good}\n{row}\n{good}\n");
        let dropped = read("f.jsonl", rows, |o| {
            o.on_bad_row = OnBadRow::Drop;
        });
        let counts = dropped.unwrap().counts();
        assert_eq!((counts.kept(), counts.dropped.empty), (2, 1));
        // An empty text loses nothing.
        assert_eq!(counts.lost.total(), 0);
    }
    let trained = read("f.jsonl", "{\"text\": \"\"}\n", |o| {
        o.on_empty = OnEmpty::Train
    });
    assert_eq!(trained.unwrap().sequence(0).unwrap().tokens, [0, 1]);
    // An empty answer of a conversation is reported.
    let empty = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]});
    let dataset = read("f.jsonl", empty.to_string(), chatml).unwrap();
    assert_eq!(dataset.counts().trains.empty_answers, 1);
}
