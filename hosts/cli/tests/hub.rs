//! Models, adapters and rows by the names of the hub, from a server on this machine that speaks its
//! protocol.

mod hub_server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hub_server::{COMMIT, Faults, HubServer};
use serde_json::Value;

/// A hub, and a user's folder and cache.
struct Place {
    folder: tempfile::TempDir,
    hub: HubServer,
}

impl Place {
    /// A hub with the model `org/tiny`, the same one in `closed/tiny`, and the rows `org/rows`.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let served = folder.path().join("served");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
        for model in ["models/org/tiny", "models/closed/tiny"] {
            let to = served.join(model);
            fs::create_dir_all(&to).expect("a folder");
            for name in [
                "config.json",
                "generation_config.json",
                "model.safetensors",
                "tokenizer.json",
                "tokenizer_config.json",
            ] {
                fs::copy(golden.join(name), to.join(name)).expect("copied");
            }
            fs::write(to.join("README.md"), "not needed").expect("written");
            fs::write(to.join("pytorch_model.bin"), vec![0; 9000]).expect("written");
        }
        let rows = served.join("datasets/org/rows");
        fs::create_dir_all(rows.join("data")).expect("a folder");
        let line = "{\"prompt\": \"In the\", \"completion\": \" beginning\"}\n";
        fs::write(rows.join("data/train.jsonl"), line.repeat(200)).expect("written");
        fs::write(rows.join("data/test.jsonl"), line).expect("written");
        fs::write(rows.join("data/train.csv"), "not read").expect("written");
        fs::create_dir(folder.path().join("user")).expect("a folder");
        let hub = HubServer::start(&served);
        Place { folder, hub }
    }

    fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    fn cache(&self) -> PathBuf {
        self.user().join("hf/hub")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.prepared(Command::new(env!("CARGO_BIN_EXE_host")));
        command.args(line.split_whitespace());
        command
    }

    /// The command with this place's hub, cache and folder.
    fn prepared(&self, mut command: Command) -> Command {
        command.current_dir(self.user());
        let of_proxies = |name: &str| name.to_lowercase().ends_with("_proxy");
        let proxies = std::env::vars().map(|(name, _)| name);
        let hub = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE"].map(str::to_owned);
        for name in proxies.filter(|name| of_proxies(name)).chain(hub) {
            command.env_remove(name);
        }
        command.env("HF_HOME", self.user().join("hf"));
        command.env("HF_ENDPOINT", self.hub.endpoint());
        command.env("HF_HUB_OFFLINE", "0");
        command
    }

    fn host(&self, line: &str) -> Output {
        self.command(line).output().expect("the program starts")
    }

    /// The files that were asked for since the last call, but for questions about their size.
    fn fetched(&self) -> Vec<String> {
        let requests = self.hub.requests().into_iter();
        let files = requests.filter(|one| one.path.contains("/resolve/") && !one.asks_size);
        let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
        files.map(|one| name(one.path)).collect()
    }
}

const EVAL: &str = "eval --model org/tiny --data org/rows --threads 1 --set model.compute=f32";
const SHOW: &str = "data show --model org/tiny --data org/rows --rows 1";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

/// Ended with `code`, and with all of `words` in the last line.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    let line = text.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(line.contains(word), "no {word:?} in {line}");
    }
}

#[test]
fn a_command_fetches_what_it_reads_into_the_cache_that_other_tools_share() {
    let place = Place::new();
    let shown = place.host(SHOW);
    succeeded(&shown);
    let told = stderr(&shown);
    assert!(
        told.contains("of org/rows (0123456789ab) from http://127.0.0.1"),
        "{told}"
    );
    let fetched = place.fetched();
    assert_eq!(
        fetched,
        [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "test.jsonl",
            "train.jsonl"
        ]
    );
    let model = place.cache().join("models--org--tiny");
    assert_eq!(
        fs::read_to_string(model.join("refs/main")).expect("a commit"),
        COMMIT
    );
    let refs = fs::read_dir(model.join("refs")).expect("a folder").count();
    assert_eq!(refs, 1);
    let config = model.join("snapshots").join(COMMIT).join("config.json");
    let target = fs::read_link(&config).expect("a link");
    assert!(target.starts_with("../../blobs"), "{}", target.display());
    assert!(config.exists() && !config.with_file_name("README.md").exists());

    // What is there is not asked for again.
    succeeded(&place.host(SHOW));
    assert!(place.hub.requests().is_empty());
    // Nor is anything where the hub must not be asked.
    let offline = place
        .command(SHOW)
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .expect("it starts");
    succeeded(&offline);
}

#[test]
fn a_run_records_the_commits() {
    let place = Place::new();
    let trained = place.host(
        "train --model org/tiny --data org/rows --plugins lora --out out --threads 1 \
         --set model.compute=f32 --set run.max_steps=1 --set data.max_seq_len=64 --quiet",
    );
    succeeded(&trained);
    assert!(place.fetched().contains(&"model.safetensors".to_owned()));
    let record = fs::read(place.user().join("out/run.json")).expect("a record");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    let of = |repository: &str| serde_json::json!({"repository": repository, "commit": COMMIT});
    assert_eq!(record["model"]["revision"], of("org/tiny"));
    assert_eq!(
        record["data"]["revisions"],
        serde_json::json!([of("org/rows")])
    );
    assert_eq!(record["config"]["model"]["path"], "org/tiny");
}

#[test]
fn a_download_goes_on_where_it_was_cut_off() {
    let place = Place::new();
    succeeded(&place.host(SHOW));
    place.hub.requests();
    place.hub.set(Faults {
        cut_off: 2,
        ..Faults::default()
    });
    succeeded(&place.host(EVAL));
    let from: Vec<u64> = downloads(&place, "model.safetensors");
    assert_eq!(from.len(), 3, "{from:?}");
    assert_eq!(from[0], 0);
    assert!(from[1] > 0 && from[1] < from[2], "{from:?}");
    let weights = fs::read(weights(&place)).expect("the file");
    let served = place
        .folder
        .path()
        .join("served/models/org/tiny/model.safetensors");
    assert!(weights == fs::read(served).expect("the file"));
}

#[test]
fn a_stopped_program_leaves_a_part_and_the_next_one_goes_on() {
    let place = Place::new();
    succeeded(&place.host(SHOW));
    place.hub.requests();
    place.hub.set(Faults {
        silent: true,
        ..Faults::default()
    });
    let mut running = place.command(EVAL);
    let running = running.stderr(Stdio::piped()).spawn().expect("it starts");
    let blobs = place.cache().join("models--org--tiny/blobs");
    wait_for_part(&blobs);
    interrupt(&running);
    let ended = running.wait_with_output().expect("it ends");
    refused(
        &ended,
        130,
        &["stopped by signal 2", "goes on where it ended"],
    );
    place.hub.set(Faults::default());
    place.hub.requests();
    succeeded(&place.host(EVAL));
    let from = downloads(&place, "model.safetensors");
    assert!(from.len() == 1 && from[0] > 0, "{from:?}");
}

#[test]
fn another_content_than_announced_is_refused_and_a_server_without_ranges_is_not() {
    let place = Place::new();
    succeeded(&place.host(SHOW));
    place.hub.set(Faults {
        wrong: true,
        ..Faults::default()
    });
    let wrong = place.host(EVAL);
    refused(
        &wrong,
        4,
        &[
            "model.safetensors arrives with another content",
            "HF_ENDPOINT",
        ],
    );
    assert!(!weights(&place).exists());
    place.hub.set(Faults {
        cut_off: 1,
        whole: true,
        ..Faults::default()
    });
    succeeded(&place.host(EVAL));
}

#[test]
fn refusals_say_what_was_tried_and_what_to_do() {
    let place = Place::new();
    let show = |model: &str| place.host(&format!("data show --model {model} --data org/rows"));
    let hub = format!("it was not fetched from {}", place.hub.endpoint());
    let unknown = show("org/tyni");
    refused(
        &unknown,
        2,
        &["no directory `org/tyni`", &hub, "404", "HF_TOKEN"],
    );
    let closed = show("closed/tiny");
    refused(
        &closed,
        2,
        &["no directory `closed/tiny`", "401", "set HF_TOKEN"],
    );
    let mut with_token = place.command("data show --model closed/tiny --data org/rows");
    let wrong = with_token
        .env("HF_TOKEN", "hf_other")
        .output()
        .expect("it starts");
    refused(
        &wrong,
        2,
        &["the token that was sent does not open it", "403"],
    );
    // A word, and a path, are no names of the hub.
    place.hub.requests();
    refused(&show("tiny"), 2, &["no directory `tiny`"]);
    refused(&show("./org/tiny"), 2, &["./org/tiny is not a directory"]);
    assert!(place.hub.requests().is_empty());
    let mut offline = place.command("data show --model org/tiny --data org/rows");
    let offline = offline
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .expect("it starts");
    refused(
        &offline,
        2,
        &["HF_HUB_OFFLINE is set", "hf download org/tiny"],
    );
    let rows = place.host("data show --model org/tiny --data org/rwos");
    refused(&rows, 2, &["no directory `org/rwos`", "404"]);
    let mut away = place.command(SHOW);
    let away = away
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .output()
        .expect("it starts");
    refused(&away, 8, &["from http://127.0.0.1:9", "check the network"]);
}

#[test]
fn the_user_s_token_is_sent_from_the_variable_or_the_file() {
    let place = Place::new();
    let line = "data show --model closed/tiny --data org/rows";
    fs::create_dir_all(place.user().join("hf")).expect("a folder");
    fs::write(place.user().join("hf/token"), "hf_secret\n").expect("written");
    succeeded(&place.host(line));
    fs::write(place.user().join("hf/token"), "hf_other").expect("written");
    fs::remove_dir_all(place.cache()).expect("removed");
    let mut named = place.command(line);
    succeeded(
        &named
            .env("HF_TOKEN", "hf_secret")
            .output()
            .expect("it starts"),
    );
}

#[test]
fn a_local_directory_wins_over_a_name() {
    let place = Place::new();
    let served = place.folder.path().join("served");
    fs::create_dir(place.user().join("org")).expect("a folder");
    let link = std::os::unix::fs::symlink;
    link(
        served.join("models/org/tiny"),
        place.user().join("org/tiny"),
    )
    .expect("linked");
    link(
        served.join("datasets/org/rows"),
        place.user().join("org/rows"),
    )
    .expect("linked");
    let line = "data show --model org/tiny --data org/rows/data/train.jsonl";
    succeeded(&place.host(line));
    assert!(place.hub.requests().is_empty());
}

#[test]
fn a_disk_without_room_ends_the_download_with_its_own_code() {
    let place = Place::new();
    succeeded(&place.host(SHOW));
    // Blocks of 512 bytes; the weights are larger.
    let script = format!("ulimit -f 200; exec \"$0\" {EVAL}");
    let mut limited = place.prepared(Command::new("sh"));
    limited
        .arg("-c")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_host"));
    let ended = limited.output().expect("it starts");
    refused(&ended, 8, &["models--org--tiny/blobs", "check that disk"]);
    assert!(!weights(&place).exists());
    succeeded(&place.host(EVAL));
}

/// The first bytes of the downloads of a large file, in their order.
fn downloads(place: &Place, name: &str) -> Vec<u64> {
    let requests = place.hub.requests().into_iter();
    let of_file = |path: &str| path.starts_with("/elsewhere/") && path.ends_with(name);
    let downloads = requests.filter(|one| of_file(&one.path) && !one.asks_size);
    downloads.map(|one| one.from.unwrap_or(0)).collect()
}

fn weights(place: &Place) -> PathBuf {
    let snapshots = place.cache().join("models--org--tiny/snapshots");
    snapshots.join(COMMIT).join("model.safetensors")
}

/// Waits until a part of a file has arrived.
fn wait_for_part(blobs: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    let is_part = |path: &Path| {
        let bytes = path.metadata().map_or(0, |found| found.len());
        path.extension().is_some_and(|end| end == "part") && bytes > 0
    };
    while Instant::now() < end {
        let entries = fs::read_dir(blobs).expect("a folder").flatten();
        if entries.map(|entry| entry.path()).any(|path| is_part(&path)) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("no part of a file arrives");
}

/// Sends what Ctrl-C sends.
fn interrupt(running: &Child) {
    let number = running.id().to_string();
    let sent = Command::new("kill").args(["-INT", &number]).status();
    assert!(sent.expect("kill starts").success());
}
