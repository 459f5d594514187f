//! Spans on their way to the collector: a bounded queue, and a task that sends what is in it. A call never
//! waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config;
use crate::metrics::table::TRACE_SPANS;
use crate::metrics::text::Text;
use crate::metrics::values::Counts;
use crate::supervisor::Supervisor;

/// Spans that may wait: some hundred turns, a few hundred bytes each. A collector that does not take them
/// costs the newest.
const QUEUE: usize = 8192;
/// Spans that are sent together, and how long the first of them waits for others.
const BATCH: usize = 512;
const GATHER: Duration = Duration::from_secs(1);
/// What one batch may take, with its repetitions.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to the collector. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Exporter>>);

#[derive(Debug)]
struct Exporter {
    orders: mpsc::Sender<Order>,
    counts: Arc<Counts<1>>,
    percent: u32,
}

#[derive(Debug)]
enum Order {
    Span(Box<SpanData>),
    /// Send what is here, then say so.
    Flush(oneshot::Sender<()>),
}

impl Telemetry {
    /// Begins to send, if a collector is named. `node`: who this is. `Err`: why that cannot be.
    pub fn start(
        settings: &config::Telemetry,
        node: &str,
        watch: &Supervisor,
    ) -> Result<Self, String> {
        if settings.endpoint.is_empty() {
            return Ok(Self::default());
        }
        let (orders, line) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::new(&TRACE_SPANS));
        let exporter = exporter(settings, node)?;
        let sending = run(exporter, line, Arc::clone(&counts));
        watch.once("the sender of traces", sending);
        Ok(Self(Some(Arc::new(Exporter {
            orders,
            counts,
            percent: settings.sample_percent,
        }))))
    }

    /// How many of a hundred calls are traced; `None`: traces are off.
    pub fn sample_percent(&self) -> Option<u32> {
        self.0.as_ref().map(|line| line.percent)
    }

    /// Queues spans. What does not fit is dropped and counted.
    pub fn send(&self, spans: impl IntoIterator<Item = SpanData>) {
        let Some(line) = &self.0 else { return };
        for span in spans {
            if line.orders.try_send(Order::Span(Box::new(span))).is_err() {
                line.counts.add(["dropped".into()], 1);
            }
        }
    }

    /// Sends what waits, at most for `patience`: the process ends.
    pub async fn flush(&self, patience: Duration) {
        let Some(line) = &self.0 else { return };
        let (done, told) = oneshot::channel();
        let flush = async {
            if line.orders.send(Order::Flush(done)).await.is_ok() {
                // An error means that the task is gone, and the spans with it.
                let _ = told.await;
            }
        };
        if timeout(patience, flush).await.is_err() {
            tracing::warn!("the last spans were not sent: the collector does not take them");
        }
    }

    pub fn write(&self, text: &mut Text) {
        if let Some(line) = &self.0 {
            line.counts.write(text);
        }
    }
}

fn exporter(settings: &config::Telemetry, node: &str) -> Result<SpanExporter, String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .user_agent(concat!("sidetone/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())?;
    let headers: HashMap<String, String> = settings
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.expose().clone()))
        .collect();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", settings.endpoint))
        .with_headers(headers)
        .with_timeout(PATIENCE)
        .build()
        .map_err(|error| error.to_string())?;
    let resource = Resource::builder_empty()
        .with_service_name("sidetone")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", node.to_owned()),
        ])
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

async fn run(exporter: SpanExporter, mut line: mpsc::Receiver<Order>, counts: Arc<Counts<1>>) {
    while let Some(first) = line.recv().await {
        let (mut batch, mut waiting) = (Vec::new(), None);
        let until = Instant::now() + GATHER;
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Span(span) => batch.push(*span),
                Order::Flush(done) => {
                    waiting = Some(done);
                    break;
                }
            }
            if batch.len() == BATCH {
                break;
            }
            next = timeout_at(until, line.recv()).await.unwrap_or(None);
        }
        let count = batch.len() as u64;
        if count > 0 {
            let outcome = match timeout(PATIENCE, exporter.export(batch)).await {
                Ok(Ok(())) => "exported",
                Ok(Err(error)) => {
                    tracing::warn!(%error, spans = count, "the collector did not take spans");
                    "failed"
                }
                Err(_) => {
                    tracing::warn!(spans = count, "the collector does not answer");
                    "failed"
                }
            };
            counts.add([outcome.into()], count);
        }
        if let Some(done) = waiting {
            // Whoever asked may have given up.
            let _ = done.send(());
        }
    }
}
