//! The Python package over the program, and the events that it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_torture::built::program;
use serde_json::Value as Json;

/// A path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Runs Python with the package, in `folder`; the variables `model` and `data` are defined.
fn python(folder: &Path, script: &str) -> Output {
    let script = format!(
        "import espalier_train as espalier\nmodel = {:?}\ndata = {:?}\n{script}",
        repository("tests/golden/llama/tiny"),
        repository("configs/quickstart/data/train.jsonl"),
    );
    let output = Command::new("python3")
        .args(["-B", "-c", &script])
        .current_dir(folder)
        .env("PYTHONPATH", repository("hosts/python"))
        .env("ESPALIER_HOST", program())
        .output();
    output.expect("python3")
}

/// The standard output of a script that must succeed.
fn printed(folder: &Path, script: &str) -> String {
    let output = python(folder, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

const SETTINGS: &str = "
settings = dict(plugins=['nf4', 'lora'], model=model, data=data, set={
    'run.max_steps': 6, 'data.max_seq_len': 64, 'data.batch_size': 2, 'data.max_lost': 1.0,
    'data.eval_split': 8, 'adapter.lora.targets': ['q_proj', 'v_proj'],
})
";

#[test]
fn a_training_calls_back_for_each_step_and_its_run_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "{SETTINGS}
steps, names = [], []
run = espalier.train(out='run', on_step=lambda step: steps.append(step['loss']),
                     on_event=lambda event: names.append(event['event']), **settings)
assert not run.stopped and len(steps) == 6, (run, steps)
assert [line['loss'] for line in run.metrics] == steps
assert run.evaluations and run.adapter.is_dir() and run.report.is_file() and run.model is None
assert {{'started', 'step', 'evaluation', 'saved', 'ended'}} <= set(names), names
planned = espalier.plan(**settings)
assert planned['memory']
found = espalier.evaluate(run='run', data=data)
assert found['loss'] > 0, found
text = espalier.generate('Once', run='run', max_tokens=3)
print(repr(text))"
    );
    printed(folder.path(), &script);
}

#[test]
fn a_callback_stops_a_run_which_goes_on_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "{SETTINGS}
run = espalier.train(out='run', on_step=lambda step: step['step'] < 2, **settings)
assert run.stopped and 2 <= len(run.metrics) < 6, (run, run.metrics)
class Mine(Exception): pass
def fail(step): raise Mine
try:
    espalier.train(out='other', on_step=fail, **settings)
    raise SystemExit('it went on')
except Mine:
    pass
run = espalier.train(out='run', resume=True, **settings)
assert not run.stopped and len(run.metrics) == 6, run.metrics"
    );
    printed(folder.path(), &script);
}

#[test]
fn exit_codes_are_exceptions_with_the_programs_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "{SETTINGS}
for change, expected, words in [
    (dict(plugins=['nf5', 'lora']), espalier.PluginError, 'nf5'),
    (dict(model='nowhere'), espalier.EspalierError, 'nowhere'),
    (dict(set={{'optim.learning_rat': 1}}), espalier.ConfigError, 'learning_rate'),
]:
    try:
        espalier.train(out='run', **(settings | change))
        raise SystemExit('it went on')
    except expected as error:
        assert words in str(error) and error.code > 0, (error, error.code)
        print(type(error).__name__, error)"
    );
    printed(folder.path(), &script);
}

#[test]
fn events_are_lines_of_json_for_any_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events.jsonl");
    let command = format!(
        "{} train --quiet --events 3 --plugins lora --model {} --data {} --out {} \
         --set run.max_steps=2 --set data.max_seq_len=64 --set data.max_lost=1.0 3>{}",
        program().display(),
        repository("tests/golden/llama/tiny").display(),
        repository("configs/quickstart/data/train.jsonl").display(),
        folder.path().join("run").display(),
        events.display()
    );
    let output = Command::new("sh").args(["-c", &command]).output();
    let output = output.expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = fs::read_to_string(&events).expect("events");
    let lines = lines.lines().map(serde_json::from_str);
    let lines: Vec<Json> = lines.collect::<Result<_, _>>().expect("JSON");
    let steps = lines.iter().filter(|line| line["event"] == "step");
    assert_eq!(steps.count(), 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| line["event"].is_string()),
        "{lines:?}"
    );

    let closed = Command::new(program())
        .args(["train", "--events", "77", "--plugins", "lora"])
        .output()
        .expect("the host starts");
    assert_eq!(closed.status.code(), Some(2), "{closed:?}");
    let said = String::from_utf8_lossy(&closed.stderr);
    assert!(
        said.contains("--events 77: expected a descriptor"),
        "{said}"
    );
}
