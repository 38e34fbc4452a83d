//! The order of the searched folders and the origin of each.

use super::*;

#[test]
fn order_is_kept_and_repetitions_are_not() {
    let dirs = [
        ("--plugin-dir", "/b"),
        ("HOST_PLUGIN_PATH", "/a"),
        ("HOST_PLUGIN_PATH", "/b"),
    ];
    let path = SearchPath::new(dirs.map(|(reason, dir)| (reason, PathBuf::from(dir))));
    let expected = [
        "/b (--plugin-dir, not there)",
        "/a (HOST_PLUGIN_PATH, not there)",
        "linked into this program",
    ];
    assert_eq!(path.shown(), expected);
    assert_eq!(path.without_linked().shown().len(), 2);
}

#[test]
fn the_order_is_fixed_and_a_folder_stands_once() {
    let folders = Folders {
        named: &["a".into()],
        by: Origin::Flag("--plugin-dir".to_owned()),
        environment: vec!["b".into(), "".into(), "a".into()],
        data_dir: Some(Path::new("/user/share/espalier")),
        executable_dir: Some(Path::new("/opt/bin")),
    };
    let order: Vec<PathBuf> = folders
        .order()
        .into_iter()
        .map(|folder| folder.path)
        .collect();
    let expected = ["a", "b", "/user/share/espalier/plugins", "/opt/bin/plugins"];
    assert_eq!(order, expected.map(PathBuf::from));
}

#[test]
fn a_folder_that_a_config_file_names_is_told_by_its_line() {
    let folders = Folders {
        named: &["a".into()],
        by: Origin::File("x/run.toml".into(), 3),
        environment: Vec::new(),
        data_dir: None,
        executable_dir: None,
    };
    let [folder] = &folders.order()[..] else {
        panic!("one folder was named")
    };
    let expected = ("run.plugin_dirs of x/run.toml:3", true);
    assert_eq!((folder.reason.as_str(), folder.by_config_file), expected);
}
