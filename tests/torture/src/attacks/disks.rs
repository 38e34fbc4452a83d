//! Disks with too little room, too few files, or no write permission, in their own mount namespace.

use std::fs;
use std::process::{Command, Stdio};

use crate::ended::{Ended, PATIENCE, carried};
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};

/// A use on its own disk; then there is room, and it resumes. `$0` are the disk's options, `$1` its
/// folder.
const ON_A_DISK: &str = r#"
options=$0; disk=$1; shift
mount -t tmpfs -o "$options" none "$disk" || exit 99
"$@" 2> "$disk.stderr"; code=$?
cp -a "$disk/." "$disk.left/"
exit $code
"#;

/// All uses.
pub struct Disks(Vec<Scenario>);

impl Disks {
    /// Makes every use once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        let allowed = Command::new("unshare")
            .args(["-m", "sh", "-c", "mount -t tmpfs none /mnt"])
            .stderr(Stdio::null())
            .status();
        if !allowed.is_ok_and(|status| status.success()) {
            return Err("no namespace of mounts may be made here".into());
        }
        Ok(Box::new(Disks(Scenario::of_all())))
    }
}

impl Attack for Disks {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let of = random.of_all(&self.0);
        let options = match random.below(4) {
            0 => format!("nr_inodes={}", 2 + random.below(40)),
            1 => "ro".to_owned(),
            _ => format!("size={}k", 4 + random.below(4096)),
        };
        let case = format!("{} on a disk with {options}", of.of.name);
        let disk = a_try.name();
        for folder in [disk.clone(), format!("{disk}.left")] {
            fs::create_dir(of.path(&folder)).expect("created");
        }
        let mut unshare = Command::new("unshare");
        unshare
            .args(["-m", "sh", "-c", ON_A_DISK, &options])
            .arg(of.path(&disk));
        let mut command = carried(&of.command(&format!("{disk}/out"), ""), unshare);
        let mut ended = Ended::of(&mut command, PATIENCE);
        let stderr = of.path(&format!("{disk}.stderr"));
        ended.stderr = fs::read_to_string(stderr).unwrap_or(ended.stderr);
        assert_ne!(ended.code, Some(99), "{case}: no disk: {}", ended.stderr);
        ended.as_documented(&case);
        // Its files, copied to a disk with room.
        let out = format!("{disk}.left/out");
        if ended.succeeded() {
            of.is_whole(&out, &case);
        }
        of.recovers(&out, &case);
    }
}
