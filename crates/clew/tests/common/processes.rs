//! Which processes of a test are still there.

/// Processes that have this text in their command line or map a file with it in its name.
pub fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let pids = all.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.parse::<u32>().is_ok());
    let has = |pid: &String| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        [line, maps].iter().any(|b| String::from_utf8_lossy(b).contains(text))
    };
    pids.filter(|pid| *pid != own).filter(has).collect()
}

/// Those of them that do not end within a few seconds: copies of an engine see by themselves that their host has gone.
pub fn left(text: &str) -> Vec<String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    // One that is ending may have started another just before.
    for _ in 0..20 {
        let now = processes_with(text);
        if now.is_empty() {
            break;
        }
        for pid in now {
            let pid = rustix::process::Pid::from_raw(pid.parse().expect("it is a number")).expect("it is one");
            // It may have ended by now.
            if let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
                let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
            }
        }
    }
    processes_with(text)
}
