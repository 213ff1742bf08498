//! The program under test, in a process of its own on ports of its own.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::metrics::Metrics;
use super::{Certificate, Client, Worker, eventually};

/// Ports are looked for from here upwards, below where the kernel takes those of outgoing
/// connections from.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;
/// Starts, if another process takes a port between the look and the bind.
const ATTEMPTS: usize = 5;

/// Said once every thread serves.
const STARTED: &str = "gateway is listening";

/// How a gateway is started.
pub struct Launch {
    workers: Vec<String>,
    ready: usize,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    /// Resource, soft limit, and the hard one unless it is left alone.
    limits: Vec<(libc::__rlimit_resource_t, u64, Option<u64>)>,
    output: Output,
    /// Ports given by the test instead of free ones: main, metrics.
    ports: Option<(u16, u16)>,
    tls: bool,
}

/// Where its standard output goes.
#[derive(Clone, Copy, PartialEq)]
enum Output {
    /// A pipe that is read by a thread; standard error too.
    Read,
    /// A short pipe that nobody reads.
    Unread,
    /// A file: what is in it was written.
    File,
}

/// What a gateway that did not start left behind.
#[derive(Debug)]
pub struct Refusal {
    pub code: Option<i32>,
    pub output: String,
}

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    port: u16,
    metrics_port: u16,
    /// Where plain clients find the probes.
    probe_port: u16,
    lines: Receiver<String>,
    log: RefCell<String>,
    file: Option<Arc<File>>,
}

/// What a gateway writes its output to.
pub struct OutputFile(Arc<File>);

impl OutputFile {
    /// What is in it at this moment.
    pub fn text(&self) -> String {
        let length = self.0.metadata().expect("the file is open").len();
        let mut bytes = vec![0; usize::try_from(length).expect("it fits in memory")];
        self.0.read_exact_at(&mut bytes, 0).expect("the file only grows");
        String::from_utf8(bytes).expect("lines are UTF-8")
    }
}

impl Launch {
    /// Flags, separated by spaces.
    pub fn flags(mut self, flags: &str) -> Self {
        self.flags.extend(flags.split_whitespace().map(str::to_owned));
        self
    }

    /// Clients speak TLS; probes are answered on a port of their own.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = true;
        let (cert, key) = (certificate.cert_path(), certificate.key_path());
        self.flags(&format!("--tls-cert-path {cert} --tls-key-path {key}"))
    }

    /// One more worker by its URL, which does not become ready.
    pub fn and_unready(mut self, url: &str) -> Self {
        self.workers.push(url.to_owned());
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A resource limit of the process, soft and hard.
    pub fn limit(mut self, resource: libc::__rlimit_resource_t, limit: u64) -> Self {
        self.limits.push((resource, limit, Some(limit)));
        self
    }

    /// A soft resource limit of the process; the hard one stays.
    pub fn soft_limit(mut self, resource: libc::__rlimit_resource_t, limit: u64) -> Self {
        self.limits.push((resource, limit, None));
        self
    }

    /// Nobody reads what it prints; the pipes hold a page of it.
    pub fn output_unread(mut self) -> Self {
        self.output = Output::Unread;
        self
    }

    /// Its standard output then goes to [`Gateway::output_file`].
    pub fn output_to_file(mut self) -> Self {
        self.output = Output::File;
        self
    }

    pub fn ports(mut self, main: u16, metrics: u16) -> Self {
        self.ports = Some((main, metrics));
        self
    }

    /// Starts it and waits until every worker takes requests.
    #[track_caller]
    pub fn start(self) -> Gateway {
        for _ in 0..ATTEMPTS {
            let mut gateway = self.spawn();
            let mut exited = None;
            eventually("the gateway is ready", || {
                exited = gateway.child.try_wait().expect("a child of this process");
                exited.is_some()
                    || gateway.ready_workers() == Some(self.ready)
                        && (self.output != Output::Read || gateway.log().contains(STARTED))
            });
            match exited {
                None => return gateway,
                Some(_)
                    if self.ports.is_none()
                        && gateway.log().contains("another process has this port") => {}
                Some(status) => panic!("the gateway ended with {status}:\n{}", gateway.log()),
            }
        }
        panic!("no free port in {ATTEMPTS} attempts");
    }

    /// Starts it and waits for nothing.
    pub fn start_without_waiting(self) -> Gateway {
        self.spawn()
    }

    /// Runs it to its end, which must come by itself.
    #[track_caller]
    pub fn refused(self) -> Refusal {
        let mut gateway = self.spawn();
        let code = gateway.exit_status().code();
        Refusal { code, output: gateway.log() }
    }

    fn spawn(&self) -> Gateway {
        let (port, metrics_port) = self.ports.unwrap_or_else(|| (free_port(), free_port()));
        let probe_port = self.tls.then(free_port);
        let file = (self.output == Output::File).then(|| Arc::new(unnamed_file()));
        let stdout = file.as_ref().map_or_else(Stdio::piped, |file| {
            file.try_clone().expect("a descriptor is free").into()
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_smg"));
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args([
                "--prometheus-host",
                "127.0.0.1",
                "--prometheus-port",
                &metrics_port.to_string(),
            ])
            .args((!self.workers.is_empty()).then_some("--worker-urls"))
            .args(&self.workers)
            .args(&self.flags)
            .args(
                probe_port
                    .iter()
                    .flat_map(|port| ["--health-check-port".to_owned(), port.to_string()]),
            )
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped());
        let limits = self.limits.clone();
        // SAFETY: between fork and exec it makes system calls and nothing else; the list was
        // allocated before.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                limits.iter().try_for_each(|&(resource, soft, hard)| {
                    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::getrlimit(resource, &mut limit);
                    limit.rlim_cur = soft;
                    limit.rlim_max = hard.unwrap_or(limit.rlim_max);
                    match libc::setrlimit(resource, &limit) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                })
            });
        }
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        if self.output == Output::Read {
            collect(child.stdout.take(), sender.clone());
            collect(child.stderr.take(), sender);
        } else if self.output == Output::Unread {
            let pipe = child.stdout.as_ref().expect("the stream is piped");
            // SAFETY: a plain system call on a pipe that is open; it shortens the pipe.
            let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
            assert!(size > 0, "F_SETPIPE_SZ: {}", io::Error::last_os_error());
        }
        let probe_port = probe_port.unwrap_or(port);
        Gateway { child, port, metrics_port, probe_port, lines, log: RefCell::default(), file }
    }
}

impl Gateway {
    /// A gateway in front of these workers.
    pub fn before<'a>(workers: impl IntoIterator<Item = &'a Worker>) -> Launch {
        let workers: Vec<String> = workers.into_iter().map(Worker::url).collect();
        Launch {
            ready: workers.len(),
            workers,
            flags: Vec::new(),
            environment: Vec::new(),
            limits: Vec::new(),
            output: Output::Read,
            ports: None,
            tls: false,
        }
    }

    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn metrics_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.metrics_port).into()
    }

    fn probe_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.probe_port).into()
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let mut client = Client::connect_to(self.metrics_addr()).expect("a scrape");
        let page = client.get("/metrics").expect("a page of metrics");
        assert_eq!(page.status(), 200);
        Metrics::parse(&page.text())
    }

    /// Waits until no request is under way anywhere, nor a client connected, nor a body held.
    #[track_caller]
    pub fn is_at_rest(&self) {
        let gauges = [
            "smg_worker_requests_active",
            "smg_http_connections_active",
            "smg_client_connections",
            "smg_body_memory_bytes",
        ];
        for gauge in gauges {
            eventually(&format!("{gauge} is 0"), || self.metrics().is_zero(gauge));
        }
        assert!(self.metrics().is_zero("smg_connection_panics_total"), "a task has panicked");
    }

    /// Open descriptors of its process.
    pub fn descriptors(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(directory).expect("a running process").count()
    }

    /// Resident memory of its process in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.bytes("VmRSS:")
    }

    /// The most that was ever resident.
    pub fn peak_resident_bytes(&self) -> usize {
        self.bytes("VmHWM:")
    }

    fn bytes(&self, of: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(of));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        kib.expect("a size in kB") << 10
    }

    /// Status of `/readiness`; `None` when nobody answers.
    pub fn readiness(&self) -> Option<u16> {
        let mut client = Client::connect_to(self.probe_addr()).ok()?;
        client.get("/readiness").ok().map(|response| response.status())
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        let mut log = self.log.borrow_mut();
        for line in self.lines.try_iter() {
            log.push_str(&line);
            log.push('\n');
        }
        log.clone()
    }

    /// The file that it writes its output to.
    pub fn output_file(&self) -> OutputFile {
        OutputFile(self.file.clone().expect("started with output_to_file"))
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child has not been waited for, so its id is its own.
        let outcome = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        assert_eq!(outcome, 0, "kill: {}", io::Error::last_os_error());
    }

    /// Whether its process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    /// Waits for its end and for its last words.
    #[track_caller]
    pub fn exit_status(&mut self) -> ExitStatus {
        eventually("the gateway ends", || !self.is_running());
        while let Ok(line) = self.lines.recv_timeout(super::PATIENCE) {
            let mut log = self.log.borrow_mut();
            log.push_str(&line);
            log.push('\n');
        }
        self.child.wait().expect("a child of this process")
    }

    fn ready_workers(&self) -> Option<usize> {
        let mut client = Client::connect_to(self.probe_addr()).ok()?;
        let response = client.get("/readiness").ok()?;
        let body: serde_json::Value = serde_json::from_slice(&response.body).ok()?;
        let ready = usize::try_from(body["healthy_workers"].as_u64()?).ok()?;
        let starting = body["reason"] == "starting";
        assert_eq!(response.status() == 200, ready > 0 && !starting, "{body}");
        (!starting).then_some(ready)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.log());
        }
    }
}

fn unnamed_file() -> File {
    let path =
        std::env::temp_dir().join(format!("smg-hazards-{}-{}", std::process::id(), free_port()));
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::fs::remove_file(&path).expect("it was just made");
    file
}

/// A port nobody listens on now.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several runs of the tests at a time begin at different ports.
    let start = (std::process::id() % 60) as u16 * (PORTS / 60);
    for _ in 0..PORTS {
        let port = FIRST_PORT + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Passes a stream's lines on until it ends.
fn collect(stream: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    let stream = stream.expect("the stream is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // The test may be over.
            let _ = lines.send(line);
        }
    });
}
