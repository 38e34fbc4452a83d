//! Conversations -> the same ids and masks as transformers (`golden/chat`).

use std::fs;
use std::path::{Path, PathBuf};

use espalier_data::{
    ChatTemplate, DataOptions, Dataset, GenerationPrompt, Message, TrainOn, UNTRAINED, Vocabulary,
};
use espalier_tests::golden_bytes;
use espalier_tests::rows::options;
use serde_json::{Value, json};
use tempfile::TempDir;

const VOCAB_SIZE: usize = 512;

fn golden(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("golden/chat").join(name)
}

fn cases() -> Value {
    serde_json::from_slice(&golden_bytes("chat/cases.json.gz")).unwrap()
}

/// A model's directory: the case's tokenizer with its begin and end token and its template.
fn model(case: &Value, template: &Value) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = golden(&format!("{}.json", case["tokenizer"].as_str().unwrap()));
    fs::copy(tokenizer, directory.path().join("tokenizer.json")).unwrap();
    let config = json!({
        "bos_token": case["bos_token"],
        "eos_token": case["eos_token"],
        "chat_template": template,
    });
    let path = directory.path().join("tokenizer_config.json");
    fs::write(path, config.to_string()).unwrap();
    directory
}

/// Loads the conversations as rows of `messages`.
fn load(
    model: &TempDir,
    conversations: &[&Value],
    change: impl FnOnce(&mut DataOptions),
) -> Result<Dataset, String> {
    let rows = conversations
        .iter()
        .map(|c| json!({"messages": c}).to_string() + "\n");
    let path = model.path().join("rows.jsonl");
    fs::write(&path, rows.collect::<String>()).unwrap();
    let mut options = options(&path);
    options.train_on = TrainOn::Assistant;
    change(&mut options);
    let vocabulary = Vocabulary::new(model.path(), VOCAB_SIZE);
    Dataset::load(&options.files.clone(), &options, &vocabulary, &mut |_| ())
        .map_err(|e| e.to_string())
}

/// The conversations that the template accepts, with transformers' result for each.
fn taken<'a>(cases: &'a Value, case: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    let conversations = cases["conversations"].as_array().unwrap();
    let results = case["results"].as_array().unwrap();
    assert_eq!((conversations.len(), results.len()), (200, 200));
    let both = conversations.iter().zip(results);
    both.filter(|(_, result)| result["raises"].is_null())
        .collect()
}

fn numbers(value: &Value) -> Vec<i32> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|n| n.as_i64().unwrap() as i32).collect()
}

/// `[start, end)` of each run of trained tokens, by token position.
fn runs(labels: impl Iterator<Item = i32>) -> Vec<Vec<i32>> {
    let mut runs: Vec<Vec<i32>> = Vec::new();
    // A label is stored with the previous token, so index 0 belongs to token 1.
    for (index, _) in labels.enumerate().filter(|(_, label)| *label != UNTRAINED) {
        let token = index as i32 + 1;
        match runs.last_mut() {
            Some(run) if run[1] == token => run[1] += 1,
            _ => runs.push(vec![token, token + 1]),
        }
    }
    runs
}

/// Which answers of a conversation are trained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Every,
    Last,
}

fn check(dataset: &Dataset, expected: &[(&Value, &Value)], answers: Answers, name: &str) {
    assert_eq!(dataset.num_sequences(), expected.len(), "{name}");
    for (index, (conversation, result)) in expected.iter().enumerate() {
        let sequence = dataset.sequence(index).unwrap();
        assert_eq!(
            sequence.tokens,
            numbers(&result["ids"]),
            "{name}: {conversation}"
        );
        let trained = result["trained"].as_array().unwrap().iter().map(numbers);
        let mut trained: Vec<Vec<i32>> = trained.collect();
        if answers == Answers::Last {
            trained.drain(..trained.len() - 1);
        }
        assert_eq!(runs(sequence.labels()), trained, "{name}: {conversation}");
    }
}

#[test]
fn ids_and_masks_equal_those_of_transformers() {
    let cases = cases();
    for (name, case) in cases["templates"].as_object().unwrap() {
        let expected = taken(&cases, case);
        assert!(
            expected.len() > 100,
            "{name}: {} conversations",
            expected.len()
        );
        let conversations: Vec<&Value> = expected.iter().map(|(c, _)| *c).collect();
        for key in ["template", "tagged"] {
            let model = model(case, &case[key]);
            let every = load(&model, &conversations, |_| ()).unwrap();
            check(&every, &expected, Answers::Every, name);
            let last = |o: &mut DataOptions| o.train_on = TrainOn::Completion;
            check(
                &load(&model, &conversations, last).unwrap(),
                &expected,
                Answers::Last,
                name,
            );
        }
        let bare = model(case, &Value::Null);
        let shipped = |o: &mut DataOptions| o.chat_template = Some(name.clone());
        check(
            &load(&bare, &conversations, shipped).unwrap(),
            &expected,
            Answers::Every,
            name,
        );
        let all = |o: &mut DataOptions| {
            o.chat_template = Some(name.clone());
            o.train_on = TrainOn::All;
        };
        let all = load(&bare, &conversations, all).unwrap();
        for (index, (_, result)) in expected.iter().enumerate() {
            let ids = numbers(&result["ids"]);
            assert_eq!(all.sequence(index).unwrap().trained_tokens, ids.len() - 1);
        }
    }
}

#[test]
fn a_template_exception_names_the_row() {
    let cases = cases();
    let mut raised = 0;
    for (name, case) in cases["templates"].as_object().unwrap() {
        let model = model(case, &case["template"]);
        let conversations = cases["conversations"].as_array().unwrap().iter();
        let good = taken(&cases, case)[0].0;
        for (conversation, result) in conversations.zip(case["results"].as_array().unwrap()) {
            let Some(reason) = result["raises"].as_str() else {
                continue;
            };
            raised += 1;
            let refused = load(&model, &[good, conversation], |_| ());
            let message = refused.err().expect("refused");
            assert!(
                message.contains("rows.jsonl:2: ") && message.contains(reason),
                "{name}: {message}"
            );
        }
    }
    assert!(raised > 50, "{raised}");
}

#[test]
fn the_prompt_of_an_answer_equals_that_of_transformers() {
    let cases = cases();
    for (name, case) in cases["templates"].as_object().unwrap() {
        let model = model(case, &case["template"]);
        let template = ChatTemplate::open(model.path(), None).unwrap().unwrap();
        for (conversation, result) in taken(&cases, case) {
            let messages: Vec<Message> = serde_json::from_value(conversation.clone()).unwrap();
            let text = template
                .render(&messages, GenerationPrompt::Omitted)
                .unwrap();
            let prompt = template.render(&messages, GenerationPrompt::Added).unwrap();
            assert_eq!(
                prompt.strip_prefix(&text),
                result["prompt"].as_str(),
                "{name}"
            );
        }
    }
}

#[test]
fn sharegpt_and_message_lists_give_the_same_tokens() {
    let cases = cases();
    let case = &cases["templates"]["chatml"];
    let model = model(case, &case["template"]);
    let path = model.path().join("f.jsonl");
    let read = |row: Value, train_on| {
        fs::write(&path, row.to_string()).unwrap();
        let mut options = options(&path);
        options.train_on = train_on;
        let vocabulary = Vocabulary::new(model.path(), VOCAB_SIZE);
        let files = options.files.clone();
        let dataset = Dataset::load(&files, &options, &vocabulary, &mut |_| ()).unwrap();
        let sequence = dataset.sequence(0).unwrap();
        (
            sequence.tokens.clone(),
            sequence.labels().collect::<Vec<_>>(),
        )
    };
    let [system, asked, answer, again, last] = ["s", "a", "b", "c", "d"];
    let chat = json!({"messages": [
        {"role": "system", "content": system}, {"role": "user", "content": asked},
        {"role": "assistant", "content": answer}, {"role": "user", "content": again},
        {"role": "assistant", "content": [{"type": "text", "text": last}]}]});
    let sharegpt = json!({"conversations": [
        {"from": "system", "value": system}, {"from": "human", "value": asked},
        {"from": "gpt", "value": answer}, {"from": "human", "value": again},
        {"from": "gpt", "value": last, "weight": null}]});
    let lists = json!({
        "prompt": [
            {"role": "system", "content": system}, {"role": "user", "content": asked},
            {"role": "assistant", "content": answer}, {"role": "user", "content": again}],
        "completion": [{"role": "assistant", "content": last}]});
    for train_on in [TrainOn::Completion, TrainOn::Assistant, TrainOn::All] {
        let expected = read(chat.clone(), train_on);
        assert_eq!(read(sharegpt.clone(), train_on), expected);
        assert_eq!(read(lists.clone(), train_on), expected);
    }
}

#[test]
fn inconsistent_renderings_are_refused() {
    let cases = cases();
    let case = &cases["templates"]["chatml"];
    // The last answer is written differently from the earlier ones, as in reasoning templates.
    let unstable = "{% for m in messages %}{{ m.role }}:{% if loop.last %}<think>{% endif %}\
                    {{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    let model = model(case, &json!(unstable));
    let turns = |count: usize| {
        let roles = ["user", "assistant"].iter().cycle().take(count);
        let turns = roles.map(|role| json!({"role": role, "content": "x"}));
        Value::Array(turns.collect())
    };
    let message = load(&model, &[&turns(4)], |_| ()).err().expect("refused");
    assert!(
        message.contains("rows.jsonl:1: ") && message.contains("message 2 is not a prefix"),
        "{message}"
    );
    let all = |o: &mut DataOptions| o.train_on = TrainOn::All;
    assert_eq!(load(&model, &[&turns(4)], all).unwrap().num_sequences(), 1);
}
