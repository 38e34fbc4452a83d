//! A newcomer's path, by commands that README or the last output shows: a model of the hub, rows
//! with faults, a run that is stopped, resumed, made longer, evaluated, asked and merged.
//!
//! `cargo xtask newcomer` walks it with the wheel in a clean environment, and loads the adapter
//! with PEFT; without it the program of this build stands in a folder on PATH.

mod hub_server;

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use espalier_torture::built::{golden, program};
use hub_server::{Faults, HubServer};
use serde_json::{Value as Json, json};

/// The folder of the installed program, and a Python with PEFT; set by `cargo xtask newcomer`.
const INSTALLED: &str = "ESPALIER_NEWCOMER_PROGRAMS";
const PYTHON: &str = "ESPALIER_NEWCOMER_PYTHON";
/// The program's name on PATH; README's `host` is what the build directory has.
const NAME: &str = "espalier";
/// Longest wait for a run's first steps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const ROWS: usize = 4000;
/// The answers.
const TREES: [&str; 4] = ["an oak", "a pine", "a fir", "the beech"];
/// The lines of the rows with faults.
const FAULTY: [usize; 3] = [7, 1200, 3999];
/// A template of tokens that the tokenizer has.
const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m['role'] + '\n' + m['content'] \
     + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}";

/// A hub, a folder to work in, one elsewhere, and the program on PATH.
struct Newcomer {
    folder: tempfile::TempDir,
    programs: PathBuf,
    hub: HubServer,
}

impl Newcomer {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["work", "elsewhere", "programs"] {
            fs::create_dir(path(name)).expect("created");
        }
        symlink(program(), path("programs").join(NAME)).expect("linked");
        let programs = env::var_os(INSTALLED).map_or_else(|| path("programs"), PathBuf::from);
        serve(&path("served/models/org/tiny"));
        write_rows(&path("work/train.jsonl"), ROWS, &FAULTY);
        write_rows(&path("work/held-out.jsonl"), 20, &[]);
        let hub = HubServer::start(&path("served"));
        Newcomer {
            folder,
            programs,
            hub,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `line` in a shell in `folder`, with what a user's machine has and no more.
    fn shell(&self, folder: &str, line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {line}")]).env_clear();
        let programs = self.programs.display();
        shell.env("PATH", format!("{programs}:/usr/bin:/bin"));
        shell.env("HOME", self.path("home"));
        shell.env("HF_ENDPOINT", self.hub.endpoint());
        shell.current_dir(self.path(folder));
        shell
    }

    fn run(&self, folder: &str, line: &str) -> Output {
        let output = self.shell(folder, line).output();
        output.expect("a shell")
    }

    /// The text of a command that must succeed.
    fn succeed(&self, folder: &str, line: &str) -> String {
        let output = self.run(folder, line);
        let text = all(&output);
        assert!(output.status.success(), "{line}: {text}");
        text
    }

    /// Large files came once: the first one in two parts, as its download was cut off.
    fn came_once(&self) {
        let requests = self.hub.requests().into_iter();
        let large = requests.filter(|one| one.path.starts_with("/elsewhere/") && !one.asks_size);
        let came: Vec<(String, u64)> = large.map(|one| (one.path, one.from.unwrap_or(0))).collect();
        let came: Vec<(&str, u64)> = came
            .iter()
            .map(|(path, from)| (file_name(path), *from))
            .collect();
        let [
            ("tokenizer.json", 0),
            ("tokenizer.json", rest),
            ("model.safetensors", 0),
        ] = came[..]
        else {
            panic!("{came:?}");
        };
        assert!(rest > 0);
    }

    /// Runs `line` until it has trained some steps, and presses Ctrl-C.
    fn interrupted(&self, line: &str) -> Output {
        let mut shell = self.shell("work", line);
        let run = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let run = run.expect("a shell");
        let metrics = self.path("work/runs/first/metrics.jsonl");
        let begin = Instant::now();
        while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < 3 {
            assert!(begin.elapsed() < PATIENCE, "no step in {PATIENCE:?}");
            sleep(Duration::from_millis(2));
        }
        let number = run.id().to_string();
        let sent = Command::new("kill").args(["-INT", &number]).status();
        assert!(sent.expect("a kill").success());
        run.wait_with_output().expect("it was started here")
    }
}

/// A model as the hub has them: with a chat template, in the file of its tokenizer.
fn serve(to: &Path) {
    fs::create_dir_all(to).expect("created");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(golden("llama/tiny-trained").join(name), to.join(name)).expect("copied");
    }
    let name = "tokenizer_config.json";
    let config = fs::read(golden("llama/tiny-trained").join(name)).expect("a file");
    let mut config: Json = serde_json::from_slice(&config).expect("JSON");
    config["chat_template"] = TEMPLATE.into();
    fs::write(to.join(name), config.to_string()).expect("written");
}

/// Conversations of one turn; the lines `faulty` break in three ways.
fn write_rows(path: &Path, count: usize, faulty: &[usize]) {
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let row = |line: usize| {
        let (question, answer) = (format!("tree {line}?"), TREES[line % TREES.len()]);
        let role = if faulty.first() == Some(&line) {
            "person"
        } else {
            "user"
        };
        let mut turns = json!([turn(role, &question), turn("assistant", answer)]);
        if faulty.get(1) == Some(&line) {
            turns[1]["content"] = 7.into();
        }
        let text = json!({"messages": turns}).to_string();
        let cut = usize::from(faulty.get(2) == Some(&line));
        format!("{}\n", &text[..text.len() - cut])
    };
    fs::write(path, (1..=count).map(row).collect::<String>()).expect("written");
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Standard error, then standard output.
fn all(output: &Output) -> String {
    let [errors, text] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    format!("{errors}{text}")
}

/// The command in README that begins with `start`, as a user of the package types it.
fn of_readme(start: &str) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("README");
    let mut lines = readme.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("README shows no `{start}`"));
    let command = line.split("  #").next().expect("a first part");
    let command = command.trim().replace("target/release/host", "host");
    let words = command.strip_prefix("host ").expect("our command");
    format!("{NAME} {}", words.replace("DIR", "org/tiny"))
}

/// The command that `text` shows, which has `part`.
fn of_output(text: &str, part: &str) -> String {
    let name = format!("{NAME} ");
    let shown = text.match_indices(&name).map(|(at, _)| &text[at..]);
    let mut lines = shown.filter_map(|rest| rest.lines().next());
    let line = lines.find(|line| line.contains(part));
    let line = line.unwrap_or_else(|| panic!("no command with `{part}` in {text}"));
    line.split(['`', ';'])
        .next()
        .expect("a first part")
        .to_owned()
}

/// The numbers of the lines of `train.jsonl` that `text` lists.
fn listed(text: &str) -> Vec<usize> {
    let lines = text.lines().map(str::trim);
    let numbers = lines.filter_map(|line| {
        let (number, _) = line.strip_prefix("train.jsonl:")?.split_once(':')?;
        number.parse().ok()
    });
    numbers.collect()
}

#[test]
fn a_newcomer_comes_from_a_name_on_the_hub_to_a_merged_model() {
    let newcomer = Newcomer::new();
    // The download is cut off once on the way.
    newcomer.hub.set(Faults {
        cut_off: 1,
        ..Faults::default()
    });
    let doctor = of_readme("host data doctor");
    let found = newcomer.run("work", &doctor);
    assert_eq!(found.status.code(), Some(3), "{}", all(&found));
    assert_eq!(listed(&all(&found)), FAULTY, "{}", all(&found));
    remove_lines(&newcomer.path("work/train.jsonl"), &FAULTY);
    newcomer.succeed("work", &doctor);

    let plan = newcomer.succeed("work", &of_readme("target/release/host plan "));
    assert!(plan.contains("MiB"), "{plan}");
    let stopped = newcomer.interrupted(&of_readme("target/release/host train --plugins nf4,lora"));
    let text = all(&stopped);
    assert_eq!(stopped.status.code(), Some(130), "{text}");
    let resumed = newcomer.succeed("elsewhere", &of_output(&text, " train --resume "));
    assert!(resumed.contains("note: continuing from"), "{resumed}");
    let longer = newcomer.succeed(
        "work",
        &of_readme("host train --resume runs/first --set run.epochs"),
    );
    assert!(longer.contains("run.epochs 1 -> 2"), "{longer}");
    assert!(
        longer.contains("\norg/tiny with llama, nf4, lora"),
        "{longer}"
    );

    let found = newcomer.succeed("work", &of_readme("host eval --run runs/first --data"));
    assert!(found.contains("loss"), "{found}");
    let ask = of_output(&longer, " generate --run ");
    assert!(ask.contains("--chat"), "rows were conversations: {ask}");
    let answer = newcomer.succeed("elsewhere", &ask.replace("...", "tree 8?"));
    assert!(TREES.iter().any(|tree| answer.contains(tree)), "{answer}");
    newcomer.succeed("work", &of_readme("host merge --run"));
    let merged = newcomer.path("work/models/mine");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert!(merged.join(name).is_file(), "no {name}");
    }
    let usages = usages(&newcomer.path("work/runs/first/report.json"));
    let load = usages.iter().find(|usage| usage.contains("peft"));
    newcomer.came_once();
    load_with_peft(
        &newcomer,
        load.expect("a report says how to load it"),
        &merged,
    );
}

/// The commands of a report.
fn usages(report: &Path) -> Vec<String> {
    let report = fs::read(report).expect("a report");
    let report: Json = serde_json::from_slice(&report).expect("JSON");
    let usages = report["usages"].as_array().expect("a list").iter();
    let command = |usage: &Json| usage["command"].as_str().expect("text").to_owned();
    usages.map(command).collect()
}

/// What a user does in an editor.
fn remove_lines(path: &Path, numbers: &[usize]) {
    let text = fs::read_to_string(path).expect("rows");
    let lines = (1..).zip(text.lines());
    let kept = lines.filter(|(number, _)| !numbers.contains(number));
    let kept: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    fs::write(path, kept).expect("written");
}

/// PEFT, with the adapter's tokenizer and template, answers as the program does with the same
/// base; transformers loads the merged model.
fn load_with_peft(newcomer: &Newcomer, load: &str, merged: &Path) {
    let Some(python) = env::var_os(PYTHON) else {
        return;
    };
    let script = format!(
        "{load}
turns = [{{'role': 'user', 'content': 'tree 8?'}}]
asked = tokenizer.apply_chat_template(
    turns, add_generation_prompt=True, return_tensors='pt', return_dict=True)
answer = model.generate(**asked, max_new_tokens=16, do_sample=False)[0]
answer = tokenizer.decode(answer[asked['input_ids'].shape[1]:], skip_special_tokens=True)
merged = AutoModelForCausalLM.from_pretrained({merged:?})
assert AutoTokenizer.from_pretrained({merged:?}).chat_template == tokenizer.chat_template
difference = (merged(**asked).logits - model(**asked).logits).abs().max().item()
assert difference < 0.1, difference
print(answer)"
    );
    let mut peft = newcomer.shell("elsewhere", "\"$PYTHON\" -B -c \"$SCRIPT\"");
    peft.env("PYTHON", python).env("SCRIPT", script);
    let output = peft.output().expect("a shell");
    assert!(output.status.success(), "{}", all(&output));
    let adapter = newcomer.path("work/runs/first/adapter");
    let line = format!(
        "{NAME} generate --quiet --model org/tiny --adapter {} --set model.compute=f32 --chat \
         --prompt 'tree 8?' --max-tokens 16",
        adapter.display()
    );
    let ours = newcomer.run("work", &line);
    assert!(ours.status.success(), "{}", all(&ours));
    let [ours, theirs] = [ours, output].map(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().to_owned()
    });
    assert!(!ours.is_empty() && ours == theirs, "{ours:?} | {theirs:?}");
}
