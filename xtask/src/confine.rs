//! Running programs as users run them: as an ordinary user, under a filter like that of container engines, on a
//! read-only file system and without /dev/shm.
//!
//! Each kind of confinement is a prefix of the command line, so the native run and the run under Clew are confined in the
//! same way. What the machine does not permit is reported, never silently left out.

use std::{ffi::OsString, fs, path::Path, process::Command, time::Duration};

use crate::{
    exec::{self, Job},
    guests::{Stage, has_program},
};

/// The user and group that own nothing.
pub const NOBODY: u32 = 65534;

/// How runs are confined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Confinement {
    /// Ordinary user instead of root.
    pub user: bool,
    /// Filtered system calls.
    pub filter: bool,
    /// Read-only file system except for the case's own folder, and no /dev/shm.
    pub mounts: bool,
}

/// Makes everything read-only but the folder given first, and replaces /dev by one without shm.
const MOUNT_SCRIPT: &str = r#"set -e
keep=$1; shift
mount --bind "$keep" "$keep"
mkdir -p "$keep/dev"
mount -t tmpfs -o mode=755,size=1m tmpfs "$keep/dev"
for d in null zero full random urandom tty; do : > "$keep/dev/$d"; mount --bind "/dev/$d" "$keep/dev/$d"; done
mkdir "$keep/dev/pts"; mount --rbind /dev/pts "$keep/dev/pts"
: > "$keep/dev/ptmx"; mount --bind /dev/ptmx "$keep/dev/ptmx"
ln -s /proc/self/fd "$keep/dev/fd"; ln -s fd/0 "$keep/dev/stdin"; ln -s fd/1 "$keep/dev/stdout"; ln -s fd/2 "$keep/dev/stderr"
mount --rbind "$keep/dev" /dev
umount -l "$keep/dev"
while read -r _ _ _ _ point _; do
  case "$point" in "$keep"|"$keep"/*|/dev|/dev/*|/proc|/proc/*|/sys|/sys/*) ;; *) mount -o remount,bind,ro "$point" 2>/dev/null || : ;; esac
done < /proc/self/mountinfo
mount -o remount,bind,ro /
cd "$keep/w"
exec "$@"
"#;

/// Says what is refused, one line each.
const PROBE: &str = "echo user $(id -u)
setarch -R true 2>/dev/null || echo personality refused
unshare -U true 2>/dev/null || echo unshare refused
touch /var/tmp/clew-probe 2>/dev/null && rm /var/tmp/clew-probe || echo read-only
test -e /dev/shm || echo no shm
echo data > file && rm file";

impl Confinement {
    /// Drops what this machine does not permit and says so.
    pub fn permitted(mut self, notes: &mut Vec<String>) -> Confinement {
        let root = rustix::process::geteuid().is_root();
        if self.user && !root {
            self.user = false;
            notes.push("runs are by the calling user, who is not root already".to_owned());
        }
        if self.user && !has_program("setpriv") {
            self.user = false;
            notes.push("not run as another user: setpriv (util-linux) is not installed".to_owned());
        }
        if self.mounts && !root {
            self.mounts = false;
            notes.push("not run on a read-only file system: that needs root here".to_owned());
        }
        if self.mounts && !may_unshare() {
            self.mounts = false;
            notes
                .push("not run on a read-only file system: a private mount namespace is not permitted here".to_owned());
        }
        self
    }

    /// Words to put before a command that runs in `folder/w`.
    pub fn prefix(self, folder: &Path, bin: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if self.mounts {
            words.extend(
                ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", MOUNT_SCRIPT, "sh"]
                    .map(Into::into),
            );
            words.push(folder.into());
        }
        if self.user {
            words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(Into::into));
        }
        if self.filter {
            words.push(bin.join("seccomp-launcher").into());
        }
        words
    }

    /// Makes sure that the confinement confines: a suite that passes without it would prove nothing.
    pub fn verify(self, stage: &Stage) -> Result<(), String> {
        if self == Confinement::default() {
            return Ok(());
        }
        let folder = stage.fresh("confinement").map_err(|e| e.to_string())?;
        self.give(&folder);
        let mut argv = self.prefix(&folder, &stage.bin());
        argv.extend(["sh", "-c", PROBE].map(Into::into));
        let (dir, env) = (folder.join("w"), stage.environment(&folder));
        let job =
            Job { argv, env, dir, stdin: None, capture: stage.captures("confinement"), limit: Duration::from_secs(20) };
        let outcome = exec::run(&job).map_err(|e| e.to_string())?;
        let expected = format!(
            "{}{}{}",
            if self.user { "user 65534\n" } else { "" },
            if self.filter { "personality refused\nunshare refused\n" } else { "" },
            if self.mounts { "read-only\nno shm\n" } else { "" }
        );
        let got = String::from_utf8_lossy(&outcome.stdout);
        match expected.lines().find(|line| !got.lines().any(|have| have == *line)) {
            Some(line) => Err(format!("the confinement does not work here: `{line}` was expected, got `{got}`")),
            None => Ok(()),
        }
    }

    /// Gives `path` and all below it to the user that will run there.
    pub fn give(self, path: &Path) {
        if !self.user {
            return;
        }
        // A file that cannot be given away shows up as a difference in the run itself.
        let _ = std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY));
        if path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                self.give(&entry.path());
            }
        }
    }
}

fn may_unshare() -> bool {
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "mount", "--bind", "/tmp", "/tmp"])
        .output()
        .is_ok_and(|o| o.status.success())
}
