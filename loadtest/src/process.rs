//! Gateways as child processes: started from a command line with placeholders, pinned, watched
//! from outside, stopped by pid.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::blocking::pause;
use crate::runtime;

/// A command line in which `{name}` stands for values known only at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTemplate {
    words: Vec<String>,
}

/// Why a command line is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the command is empty")]
    Empty,
    #[error("a quote in '{0}' is not closed")]
    OpenQuote(String),
    #[error("'{0}' is not a placeholder of this command")]
    Unknown(String),
}

impl CommandTemplate {
    /// Splits at white space; '…' and "…" keep it.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        for c in text.chars() {
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => word.get_or_insert_default().push(c),
                None if c == '\'' || c == '"' => {
                    word.get_or_insert_default();
                    quote = Some(c);
                }
                None if c.is_whitespace() => words.extend(word.take()),
                None => word.get_or_insert_default().push(c),
            }
        }
        if quote.is_some() {
            return Err(TemplateError::OpenQuote(text.into()));
        }
        words.extend(word);
        if words.is_empty() {
            return Err(TemplateError::Empty);
        }
        Ok(Self { words })
    }

    /// Fills the placeholders in. A word that is one placeholder becomes as many words as it has
    /// values; inside a word the values are joined by commas.
    pub fn fill(&self, values: &[(&str, &[String])]) -> Result<Vec<String>, TemplateError> {
        let mut filled = Vec::new();
        for word in &self.words {
            let name = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            if let Some((_, several)) = values.iter().find(|(key, _)| Some(*key) == name) {
                filled.extend(several.iter().cloned());
                continue;
            }
            let mut text = word.clone();
            for (key, several) in values {
                text = text.replace(&format!("{{{key}}}"), &several.join(","));
            }
            if let (Some(from), Some(to)) = (text.find('{'), text.find('}'))
                && from < to
            {
                return Err(TemplateError::Unknown(text[from..=to].into()));
            }
            filled.push(text);
        }
        Ok(filled)
    }

    /// The program it starts.
    pub fn program(&self) -> &str {
        &self.words[0]
    }

    /// Whether a placeholder of this name is in it.
    pub fn mentions(&self, name: &str) -> bool {
        let placeholder = format!("{{{name}}}");
        self.words.iter().any(|word| word.contains(&placeholder))
    }
}

/// A started gateway. Dropping it stops it.
pub struct Running {
    child: Child,
    log: PathBuf,
}

/// How long a process may take to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

impl Running {
    /// Starts `words` on these CPUs (empty: anywhere), with its output in the file `log`. It dies
    /// with this thread.
    pub fn start(words: &[String], cpus: &[usize], log: &Path) -> io::Result<Self> {
        let output = File::create(log)?;
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: Ctrl-C in the terminal is for us to pass on.
            .process_group(0);
        let cpus = cpus.to_vec();
        // SAFETY: between fork and exec only system calls are made: no allocation, no locks. The
        // vector was allocated before.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if cpus.is_empty() { Ok(()) } else { runtime::pin_to(&cpus) }
            });
        }
        Ok(Self { child: command.spawn()?, log: log.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines it printed, for an error message.
    pub fn last_lines(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// CPU time of the process, its threads and its children so far, in nanoseconds, as the
    /// scheduler counts it.
    pub fn cpu_ns(&self) -> u64 {
        self.tree().into_iter().map(cpu_ns_of).sum()
    }

    /// Resident memory of the process and its children, in bytes. Shared pages count once per
    /// process.
    pub fn resident_bytes(&self) -> u64 {
        self.tree().into_iter().map(resident_bytes_of).sum()
    }

    /// Ends the process and its children at once, for when there is nothing left to drain.
    pub fn kill(mut self) {
        self.tree().into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
        let _ = self.child.wait();
    }

    fn tree(&self) -> Vec<u32> {
        let mut tree = vec![self.pid()];
        let mut next = 0;
        while let Some(pid) = tree.get(next).copied() {
            next += 1;
            for thread in tasks_of(pid) {
                let children = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
                tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            }
        }
        tree
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let tree = self.tree();
        signal(self.pid(), libc::SIGTERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.is_alive() && Instant::now() < deadline {
            pause(Duration::from_millis(20));
        }
        if self.is_alive() {
            tree.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
            let _ = self.child.wait();
        }
    }
}

/// Where distributions put servers, which the PATH of ordinary users leaves out.
const SERVER_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The path of a program named without one, looked for as a shell does, then where servers are.
/// Unchanged if it is nowhere.
pub fn find_program(program: &Path) -> PathBuf {
    if program.components().count() > 1 {
        return program.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = SERVER_DIRECTORIES.iter().map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(servers)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| program.to_owned())
}

/// What a program that ends by itself prints, to stdout or stderr, within this time.
pub fn output_of(words: &[String], timeout: Duration) -> io::Result<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    let log = std::env::temp_dir().join(format!("smg-output-{}-{count}", std::process::id()));
    let outcome = Running::start(words, &[], &log).map(|mut running| {
        let deadline = Instant::now() + timeout;
        while running.is_alive() && Instant::now() < deadline {
            pause(Duration::from_millis(5));
        }
        drop(running);
        String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned()
    });
    let _ = std::fs::remove_file(&log);
    outcome
}

/// A TCP port nobody listens on now.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn signal(pid: u32, signal: libc::c_int) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: plain system call; the pid is of our own child or of a child of it.
        unsafe { libc::kill(pid, signal) };
    }
}

fn tasks_of(pid: u32) -> Vec<PathBuf> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.filter_map(|task| Some(task.ok()?.path())).collect()
}

/// Sum of the first field of each thread's schedstat.
fn cpu_ns_of(pid: u32) -> u64 {
    let of_task = |task: PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks_of(pid).into_iter().filter_map(of_task).sum()
}

fn resident_bytes_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn commands_are_split_and_filled() {
        let template = CommandTemplate::parse(
            "gw --port {port} --worker-urls {workers} -x 'a b' --w={workers}",
        )
        .unwrap();
        assert_eq!(template.program(), "gw");
        let workers = words(&["http://a", "http://b"]);
        let filled = template.fill(&[("port", &words(&["80"])), ("workers", &workers)]).unwrap();
        assert_eq!(
            filled,
            words(&[
                "gw",
                "--port",
                "80",
                "--worker-urls",
                "http://a",
                "http://b",
                "-x",
                "a b",
                "--w=http://a,http://b"
            ])
        );
    }

    #[test]
    fn what_is_wrong_with_a_command_is_named() {
        assert_eq!(CommandTemplate::parse("  "), Err(TemplateError::Empty));
        assert!(matches!(CommandTemplate::parse("a 'b"), Err(TemplateError::OpenQuote(_))));
        let unknown = CommandTemplate::parse("gw {prot}").unwrap().fill(&[]);
        assert_eq!(unknown, Err(TemplateError::Unknown("{prot}".into())));
    }

    #[test]
    fn programs_are_found_and_their_output_read() {
        let shell = find_program(Path::new("sh"));
        assert!(shell.is_absolute() && shell.is_file());
        assert_eq!(find_program(Path::new("./sh")), Path::new("./sh"));
        assert_eq!(find_program(Path::new("no-such-program")), Path::new("no-such-program"));
        let script = words(&["sh", "-c", "echo 1.2; echo more >&2"]);
        assert_eq!(output_of(&script, Duration::from_secs(10)).unwrap(), "1.2\nmore\n");
        assert!(output_of(&words(&["no-such-program"]), Duration::from_secs(10)).is_err());
    }

    #[test]
    fn a_tree_is_measured_and_stopped() {
        let log = std::env::temp_dir().join(format!("smg-lt-{}.log", std::process::id()));
        let script = "echo started; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 60";
        let mut running = Running::start(&words(&["sh", "-c", script]), &[], &log).unwrap();
        let pid = running.pid();
        let busy = (0..500).any(|_| {
            pause(Duration::from_millis(10));
            running.cpu_ns() > 1_000_000 && running.last_lines() == "started"
        });
        assert!(busy);
        assert!(running.resident_bytes() > 100_000);
        assert!(running.is_alive());
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let deaf = words(&["sh", "-c", "trap '' TERM; sleep 60; true"]);
        let running = Running::start(&deaf, &[], &log).unwrap();
        let pid = running.pid();
        running.kill();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let _ = std::fs::remove_file(log);
    }
}
