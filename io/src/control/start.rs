//! Starts the control core: its thread, its runtime, its tasks.

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

use super::loads::LoadReports;
use super::on_glommio::{self, Glommio};
use super::on_monoio::Monoio;
use super::resolver::Resolver;
use super::scrape::{self, Asked, Page};
use super::seam::{Class, Runtime};
use super::{Command, Control, give_back, loads, pacing};
use crate::admin::probes;
use crate::config::IoDriver;
use crate::fleet::WorkerSpec;
use crate::metrics::exposition;
use crate::runtime::driver::{self, DriverReport};
use crate::runtime::{cpus, descriptors, guard};
use crate::shared::Shared;

/// Listening sockets the control core serves, bound before any thread starts.
pub struct ControlSockets {
    /// Metrics.
    pub metrics: TcpListener,
    /// Probes alone.
    pub probes: Option<TcpListener>,
}

/// Starts the thread and waits until it has its runtime. It ends only with the process: its end is
/// reported to `ended`.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    shared: Arc<Shared>,
    commands: async_channel::Receiver<Command>,
    sockets: ControlSockets,
    cpus: Option<Vec<usize>>,
    ended: impl FnOnce(&str) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let resolver = Resolver::start()?;
    let (reported, report) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("smg-control".into()).spawn(move || {
        if let Some(cpus) = cpus
            && let Err(error) = cpus::pin(&cpus)
        {
            error!(target: "smg::control", %error, ?cpus, "cannot pin the control core");
        }
        let why = run(shared, commands, sockets, resolver, reported);
        ended(&why);
    })?;
    // An error means that the thread has ended, which `ended` reports.
    let _ = report.recv();
    Ok(thread)
}

fn run(
    shared: Arc<Shared>,
    commands: async_channel::Receiver<Command>,
    sockets: ControlSockets,
    resolver: Resolver,
    reported: std::sync::mpsc::Sender<()>,
) -> String {
    let wanted = shared.config.runtime.io_driver;
    let glommio = driver::uring_available(wanted)
        .and_then(|()| on_glommio::available())
        .and_then(|()| on_glommio::executor());
    let outcome = match glommio {
        Ok(executor) => {
            report(&shared, "glommio", "best available".into(), reported);
            executor.run(guard::catch_panic(async {
                tasks(Glommio::create_queues(), shared, commands, sockets, resolver).await
            }))
        }
        Err(reason) => {
            report(&shared, "epoll", reason, reported);
            match driver::build(IoDriver::Epoll) {
                Ok((mut runtime, _)) => runtime.block_on(guard::catch_panic(async {
                    tasks(Monoio, shared, commands, sockets, resolver).await
                })),
                Err(error) => Err(error.to_string()),
            }
        }
    };
    match outcome {
        Ok(Ok(())) => "its tasks ended".into(),
        Ok(Err(error)) => format!("{error}{}", descriptors::remedy(&error)),
        Err(why) => why,
    }
}

fn report(
    shared: &Shared,
    driver: &'static str,
    reason: String,
    reported: std::sync::mpsc::Sender<()>,
) {
    shared.report_driver("control", DriverReport { driver, reason });
    // The starting thread waits for this.
    let _ = reported.send(());
}

async fn tasks<R: Runtime>(
    runtime: R,
    shared: Arc<Shared>,
    commands: async_channel::Receiver<Command>,
    sockets: ControlSockets,
    resolver: Resolver,
) -> io::Result<()> {
    let metrics_listener = runtime.listen(sockets.metrics)?;
    let probe_listener = sockets.probes.map(|listener| runtime.listen(listener)).transpose()?;
    let load_interval = Duration::from_secs(shared.config.load_monitor.interval_secs);
    let (loads, changed) = LoadReports::new(load_interval);
    let control = Control::new(shared.clone(), resolver, loads);
    let publication = loads::publish(runtime, shared.clone(), control.loads.clone(), changed);
    runtime.spawn(Class::Events, publication);
    control.registry.borrow_mut().publish();
    for url in &shared.config.worker_urls {
        if let Err(error) = control.add(runtime, WorkerSpec::new(url.clone())) {
            error!(target: "smg::workers", worker = %url, ?error, "worker not added");
        }
    }
    runtime.spawn(
        Class::Background,
        pacing::run(runtime, shared.clone(), control.registry.clone(), control.gauges.clone()),
    );
    runtime.spawn(Class::Background, give_back::run(runtime, shared.clone()));
    let scraped = control.clone();
    let metrics = move |asked: Asked<'_>| match asked.path {
        b"/metrics" | b"/metrics/" => exposition_page(&scraped, asked.open_metrics),
        _ => scrape::text(404, "not found; metrics are at /metrics"),
    };
    runtime.spawn(Class::Background, scrape::serve(runtime, metrics_listener, Rc::new(metrics)));
    if let Some(listener) = probe_listener {
        let probed = shared.clone();
        let page = move |asked: Asked<'_>| match probes::answer(&probed, asked.path) {
            Some((status, content_type, body)) => Page { status, content_type, body },
            None => scrape::text(404, "not found; probes are /liveness, /readiness and /health"),
        };
        runtime.spawn(Class::Background, scrape::serve(runtime, listener, Rc::new(page)));
    }
    control.serve(runtime, commands).await;
    Ok(())
}

fn exposition_page(control: &Control, open_metrics: bool) -> Page {
    let mut text = exposition::Text::new(open_metrics);
    exposition::write_all(
        &mut text,
        &control.shared,
        control.probes.get(),
        &control.gauges.borrow(),
        control.loads.borrow().table(),
    );
    Page { status: 200, content_type: text.content_type(), body: text.finish() }
}
