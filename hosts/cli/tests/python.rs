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
    python_with(folder, script, &[])
}

/// As [`python`], with the modules of more folders.
fn python_with(folder: &Path, script: &str, more: &[PathBuf]) -> Output {
    let script = format!(
        "import espalier_train as espalier\nmodel = {:?}\ndata = {:?}\n{script}",
        repository("tests/golden/llama/tiny"),
        repository("configs/quickstart/data/train.jsonl"),
    );
    let folders = more.iter().cloned().chain([repository("hosts/python")]);
    let path = std::env::join_paths(folders).expect("paths without a colon");
    let output = Command::new("python3")
        .args(["-B", "-c", &script])
        .current_dir(folder)
        .env("PYTHONPATH", path)
        .env("ESPALIER_HOST", program())
        .output();
    output.expect("python3")
}

/// The standard output of a script that must succeed.
fn printed(folder: &Path, script: &str) -> String {
    printed_by(&python(folder, script))
}

fn printed_by(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
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
fn a_line_of_progress_is_shown_where_somebody_watches() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = |progress: &str| {
        let script = format!(
            "{SETTINGS}\nespalier.train(out='run{progress}', progress={progress}, **settings)"
        );
        let output = python(folder.path(), &script);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let line = shown("True");
    let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
    assert!(last.starts_with("step 6/6  loss "), "{line}");
    assert!(
        last.contains("  held-out loss ") && last.ends_with("tokens/s"),
        "{line}"
    );
    assert!(line.contains("warning: ") && line.ends_with('\n'), "{line}");
    for unseen in ["False", "None"] {
        assert_eq!(shown(unseen), "", "{unseen}");
    }
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

/// Stand-ins of wandb and mlflow keep their calls.
#[test]
fn metrics_are_logged_as_they_are_in_the_runs_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "{SETTINGS}
import json, mlflow, wandb
settings['set'] |= {{'run.eval_answers': 2, 'adapter.lora.rank_pattern': {{'^model.*q_proj': 4}}}}
lines = lambda run: [json.loads(line) for line in open(run.out / 'metrics.jsonl')]
def expected(run, first=0):
    numbers = lambda line: {{key: value for key, value in line.items()
                            if key != 'step' and isinstance(value, (int, float))}}
    return [(line['step'], numbers(line)) for line in lines(run) if line['step'] >= first]

seen = []
def on_step(step):
    seen.append((len(wandb.CALLS), len(mlflow.CALLS)))
    return step['step'] < 2
run = espalier.train(out='runs/first', log=['wandb', 'mlflow'], on_step=on_step, **settings)
assert run.stopped
ours, theirs = wandb.CALLS[:], mlflow.CALLS[:]
assert ours[0] == ('init', 'first', None, None) and ours[-1] == ('finish', 0), ours
assert theirs[0] == ('start_run', 'first', None) and theirs[-1] == ('end_run', 'KILLED'), theirs
assert [call[1:] for call in ours if call[0] == 'log'] == expected(run), ours
assert [call[1:] for call in theirs if call[0] == 'log_metrics'] == expected(run), theirs
# They are told while the run trains.
assert seen == sorted(set(seen)) and seen[0][0] < seen[-1][0], seen
[config] = [call[1] for call in ours if call[0] == 'config']
record = json.load(open(run.out / 'run.json'))['config']
assert config['run.max_steps'] == record['run']['max_steps'] == 6
assert config['optim.learning_rate'] == record['optim']['learning_rate']
params = {{}}
for call in theirs:
    if call[0] == 'log_params':
        params |= call[1]
assert params['run.max_steps'] == '6' and params['adapter.lora.rank_pattern._model._q_proj'] == '4'
assert len(params) == len([value for value in config.values() if str(value)]), params

# A resumed run goes on with those that are on record.
last = lines(run)[-1]['step']
wandb.CALLS.clear(), mlflow.CALLS.clear()
run = espalier.train(out='runs/first', log=['wandb', 'mlflow'], resume=True, **settings)
assert wandb.CALLS[0] == ('init', 'first', 'w1', 'allow'), wandb.CALLS
assert mlflow.CALLS[0] == ('start_run', 'first', 'm1'), mlflow.CALLS
assert not any(call[0] == 'log_params' for call in mlflow.CALLS), mlflow.CALLS
assert mlflow.CALLS[-1] == ('end_run', 'FINISHED'), mlflow.CALLS
logged = [call[1:] for call in wandb.CALLS if call[0] == 'log']
assert logged == expected(run, last + 1) and len(logged) >= 2, (logged, last)

# A run of the caller is used, and stays.
mlflow.CALLS.clear()
mlflow.start_run('mine')
espalier.train(out='runs/second', log='mlflow', **settings)
assert mlflow.active_run() and mlflow.CALLS[1][0] == 'log_params', mlflow.CALLS

# One that fails later does not end the run.
import warnings
mlflow.fault = OSError('no server')
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter('always')
    run = espalier.train(out='runs/third', log=['mlflow'], **settings)
assert len(run.metrics) == 6 and 'no server' in str(said[0].message), said"
    );
    let stand_ins = repository("hosts/cli/tests/stand_ins");
    printed_by(&python_with(folder.path(), &script, &[stand_ins]));
}

#[test]
fn a_logger_that_is_missing_or_unknown_is_named_before_a_run_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("wandb.py"), "import no_such_part\n").expect("written");
    let script = format!(
        "{SETTINGS}
import os, sys
sys.modules['mlflow'] = None
for log, expected, words in [
    ('mlflow', ModuleNotFoundError, 'pip install mlflow'),
    (['wandb'], ModuleNotFoundError, 'no_such_part'),
    (['tensorboard'], ValueError, 'expected mlflow, wandb'),
]:
    try:
        espalier.train(out='run', log=log, **settings)
        raise SystemExit('it went on')
    except expected as error:
        assert words in str(error), error
assert not os.path.exists('run')"
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
