//! Written files appear whole or not at all, for any interruption.
#![allow(clippy::print_stdout)] // A child process says that it did its part.

mod directories;

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    FileError, PartialFile, PendingDirectory, TensorSpec, TensorStore, write_adapter, write_json,
    write_model, write_safetensors,
};
use serde_json::json;

use directories::{golden, names, open_adapter, open_model, values};

/// Writes `tensors` of `specs` as f32 values.
fn write_values(path: &Path, specs: &[TensorSpec], tensors: &[Vec<f32>]) -> Result<(), FileError> {
    write_safetensors(path, &[("format", "pt")], specs, |i, sink| {
        sink.write_f32(&tensors[i])
    })
}

#[test]
fn a_failed_write_keeps_the_existing_file() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("weights.safetensors");
    let specs = [
        TensorSpec::new("a", DType::F32, [4]),
        TensorSpec::new("b", DType::F32, [2]),
    ];
    write_values(&path, &specs, &[vec![1.0; 4], vec![2.0; 2]]).unwrap();
    let before = fs::read(&path).unwrap();
    for lengths in [(4, 1), (4, 3), (5, 2), (0, 2)] {
        let tensors = [vec![3.0; lengths.0], vec![4.0; lengths.1]];
        let error = write_values(&path, &specs, &tensors).unwrap_err();
        assert!(matches!(error, FileError::Announced { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(names(temp.path()), ["weights.safetensors"]);
    }
    let panicked = std::panic::catch_unwind(|| {
        write_safetensors::<FileError>(&path, &[], &specs, |_, _| panic!("a backend died"))
    });
    assert!(panicked.is_err());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(temp.path()), ["weights.safetensors"]);
}

#[test]
fn a_directory_appears_whole_or_not_at_all() {
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("step-1");
    let write = |pending: &PendingDirectory, value: u32| {
        fs::create_dir(pending.path().join("inner")).unwrap();
        write_json(&pending.path().join("inner/state.json"), &json!(value)).unwrap();
    };
    let value = || fs::read_to_string(target.join("inner/state.json")).unwrap();
    {
        let abandoned = PendingDirectory::begin(&target).unwrap();
        write(&abandoned, 0);
    }
    assert_eq!(names(temp.path()), [""; 0]);
    // The next attempt removes the files of a killed process.
    fs::create_dir_all(temp.path().join("step-1.partial/inner/deep")).unwrap();
    let first = PendingDirectory::begin(&target).unwrap();
    write(&first, 1);
    assert!(!target.exists());
    first.commit().unwrap();
    assert_eq!(value(), "1\n");

    let refused = PendingDirectory::begin(&target).unwrap();
    write(&refused, 2);
    assert!(matches!(refused.commit(), Err(FileError::Exists { .. })));
    assert_eq!(value(), "1\n");
    let second = PendingDirectory::begin(&target).unwrap();
    write(&second, 3);
    second.commit_replacing().unwrap();
    assert_eq!(value(), "3\n");
    assert_eq!(names(temp.path()), ["step-1"]);

    // A file of that name is replaced as well.
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    PendingDirectory::begin(&file)
        .unwrap()
        .commit_replacing()
        .unwrap();
    assert!(file.is_dir() && names(temp.path()) == ["file", "step-1"]);

    // A replacement interrupted between its two steps is undone.
    fs::rename(&target, temp.path().join("step-1.replaced.partial")).unwrap();
    drop(PendingDirectory::begin(&target).unwrap());
    assert_eq!(value(), "3\n");
}

#[test]
fn an_output_is_written_by_one_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let in_use = |error: FileError| {
        assert_eq!(error.exit_class().code(), 2);
        assert!(
            error.to_string().contains("is in use by another process"),
            "{error}"
        );
    };
    let (directory, file) = (temp.path().join("model"), temp.path().join("report.html"));
    let first = PendingDirectory::begin(&directory).unwrap();
    write_json(&first.path().join("config.json"), &json!(1)).unwrap();
    in_use(PendingDirectory::begin(&directory).unwrap_err());
    assert!(first.path().join("config.json").exists());
    first.commit().unwrap();

    let mut first = PartialFile::create(&file, 1).unwrap();
    in_use(PartialFile::create(&file, 1).unwrap_err());
    first.write(b"1").unwrap();
    first.commit().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    assert_eq!(names(temp.path()), ["model", "report.html"]);

    // Many at once: each one writes it whole, or reports that it exists or that another process
    // writes it.
    let (whole, target) = (
        std::sync::atomic::AtomicU32::new(0),
        temp.path().join("many"),
    );
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (target, whole) = (&target, &whole);
            scope.spawn(move || {
                for turn in 0..50 {
                    let Ok(pending) = PendingDirectory::begin(target) else {
                        continue;
                    };
                    let value = json!(thread * 100 + turn);
                    write_json(&pending.path().join("value.json"), &value).unwrap();
                    match pending.commit() {
                        Ok(()) => whole.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                        Err(FileError::Exists { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    assert_eq!(whole.into_inner(), 1);
    assert_eq!(names(&target), ["value.json"]);
    assert_eq!(names(temp.path()), ["many", "model", "report.html"]);
}

/// The test process runs itself again under a limit on the file size, which any user can set; the
/// writer sees a full disk.
#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    const DIRECTORY: &str = "ESPALIER_TEST_FULL_DISK";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write_beyond_the_limit(Path::new(&directory));
    }
    let temp = tempfile::tempdir().unwrap();
    let specs = [TensorSpec::new("a", DType::F32, [2])];
    let file = temp.path().join("weights.safetensors");
    write_values(&file, &specs, &[vec![1.0, 2.0]]).unwrap();
    let adapter = temp.path().join("adapter");
    write_adapter::<FileError>(&adapter, &json!({"r": 1}), &specs, |_, s| {
        s.write_f32(&[3.0, 4.0])
    })
    .and_then(PendingDirectory::commit_replacing)
    .unwrap();

    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg("a_full_disk_is_reported_and_loses_nothing")
        .env(DIRECTORY, temp.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("wrote until the disk was full"),
        "the child did its part: {text}"
    );

    assert_eq!(names(temp.path()), ["adapter", "weights.safetensors"]);
    let store = TensorStore::open(&file).unwrap();
    assert_eq!(values(&store)["a"], [1.0, 2.0]);
    assert_eq!(values(open_adapter(&adapter).tensors())["a"], [3.0, 4.0]);
}

fn write_beyond_the_limit(directory: &Path) {
    let specs = [TensorSpec::new("a", DType::F32, [1_000_000])];
    let check = |file: &str, error: FileError| {
        assert_eq!(error.exit_class().code(), 8, "{error}");
        let FileError::DiskFull {
            path, needed_bytes, ..
        } = &error
        else {
            panic!("{error}")
        };
        assert!(path.ends_with(file), "{error}");
        assert!((4_000_000..4_000_200).contains(needed_bytes), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("needs {needed_bytes} bytes")),
            "{error}"
        );
    };
    let tensors = [vec![5.0; 1_000_000]];
    let file = directory.join("weights.safetensors");
    check(
        "weights.safetensors",
        write_values(&file, &specs, &tensors).unwrap_err(),
    );
    let adapter = write_adapter(
        &directory.join("adapter"),
        &json!({"r": 2}),
        &specs,
        |_, sink| sink.write_f32(&tensors[0]),
    );
    check("adapter_model.safetensors", adapter.unwrap_err());
    let source = open_model(&golden("tiny"));
    let target = directory.join("model");
    let config = source.config().clone();
    let model = write_model(&target, &config, &source, &specs, u64::MAX, |_, sink| {
        sink.write_f32(&tensors[0])
    });
    check("model.safetensors", model.unwrap_err());
    println!("wrote until the disk was full");
}

#[test]
fn a_write_larger_than_the_free_space_is_refused_before_it_starts() {
    let temp = tempfile::tempdir().unwrap();
    let specs = [TensorSpec::new("a", DType::F32, [1 << 58])];
    let path = temp.path().join("huge.safetensors");
    let error = write_safetensors(&path, &[], &specs, |_, _| -> Result<(), FileError> {
        panic!("nothing is to be written")
    })
    .unwrap_err();
    assert!(
        matches!(
            error,
            FileError::DiskFull {
                free_bytes: Some(_),
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(names(temp.path()), [""; 0]);
}
