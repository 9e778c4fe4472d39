//! Spans to a collector, by OTLP over HTTP, where `OTEL_EXPORTER_OTLP_ENDPOINT` names one. The environment variables are OpenTelemetry's own, and so are their meanings.
//!
//! The exporter's own threads gather and send spans. If it cannot keep up, or the collector does
//! not answer, spans are dropped, and items are not delayed.

use std::{env, sync::OnceLock, time::Duration};

use opentelemetry::{
    Context, KeyValue,
    trace::{SpanContext, TraceContextExt, TraceFlags, TraceState, TracerProvider},
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::{Span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::Layer;

use super::{Boxed, traceparent::TraceParent};

/// Either variable names the collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// How long the end of the process waits for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_secs(3);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that exports this process's spans; none if no collector is named.
pub(super) fn layer() -> Option<Boxed> {
    if !ENDPOINTS.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return None;
    }
    // The exporter's client has TLS if the handler's has.
    #[cfg(feature = "webhook")]
    crate::base::tls::install_provider();
    let exporter = match SpanExporter::builder().with_http().build() {
        Ok(exporter) => exporter,
        Err(error) => {
            // The log has not begun.
            super::note(&format!("kvqueue: cannot export traces: {error}; check the OTEL_... variables"));
            return None;
        }
    };
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
    let tracer = provider.tracer("kvqueue");
    let provider = PROVIDER.set(provider);
    // Logging starts once in a process; a second attempt leaves the first one's.
    provider.is_ok().then(|| {
        let layer =
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        layer.with_filter(LevelFilter::INFO).boxed()
    })
}

/// The name of the service: from the environment, or `kvqueue`.
fn resource() -> Resource {
    let resource =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    match env::var_os("OTEL_SERVICE_NAME") {
        Some(name) if !name.is_empty() => resource.build(),
        _ => resource.with_service_name("kvqueue").build(),
    }
}

/// Sends the last spans, and ends.
pub(super) fn finish() {
    if let Some(Err(error)) = PROVIDER.get().map(|provider| provider.shutdown_with_timeout(LAST_SPANS)) {
        tracing::warn!(event = "spans_not_sent", %error, "cannot send the last spans");
    }
}

/// The kind of all spans of items, if spans are exported.
pub(super) fn kind() -> Option<&'static str> {
    PROVIDER.get().map(|_| "consumer")
}

/// Makes the span a part of this trace.
pub(super) fn go_on(span: &Span, parent: TraceParent) {
    // It fails where nothing is exported, or not this span.
    let _ = span.set_parent(Context::new().with_remote_span_context(context(parent)));
}

/// The current span, to continue its trace. `None` if no spans are exported.
pub(super) fn here() -> Option<TraceParent> {
    let context = Span::current().context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| TraceParent {
        trace: u128::from_be_bytes(context.trace_id().to_bytes()),
        parent: u64::from_be_bytes(context.span_id().to_bytes()),
        flags: context.trace_flags().to_u8(),
    })
}

/// Links the span to this trace.
pub(super) fn link(span: &Span, parent: TraceParent) {
    span.add_link(context(parent));
}

fn context(TraceParent { trace, parent, flags }: TraceParent) -> SpanContext {
    SpanContext::new(trace.into(), parent.into(), TraceFlags::new(flags), true, TraceState::default())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kvqueue_queue::Item;
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        trace::{SpanData, SpanExporter},
    };
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::{
        telemetry::{span, trace_parent},
        testing::Sample,
    };

    #[derive(Clone, Debug, Default)]
    struct Memory(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Memory {
        async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(spans);
            Ok(())
        }
    }

    /// The span that is exported for a call with these items.
    fn exported(items: &[Item]) -> Vec<SpanData> {
        exported_of(items, || tracing::info!("hello"))
    }

    fn exported_of(items: &[Item], handle: impl FnOnce()) -> Vec<SpanData> {
        let memory = Memory::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(memory.clone()).build();
        let layer: Boxed = tracing_opentelemetry::layer().with_tracer(provider.tracer("test")).boxed();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(vec![layer]), || {
            let span = span::of("q", "log", items);
            span.in_scope(handle);
            span::outcome(|| span.clone(), "done");
        });
        memory.0.lock().unwrap().clone()
    }

    fn item(number: u16, flags: &str) -> Item {
        let parent = format!("00-{:032x}-{:016x}-{flags}", 0xabc, number);
        Sample::new("").place(number).trace_parent(parent).build()
    }

    #[test]
    fn one_item_continues_its_trace() {
        let spans = exported(&[item(7, "01")]);
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(span.span_context.trace_id(), 0xabc_u128.into());
        assert_eq!(span.parent_span_id, 7_u64.into());
        assert!(span.attributes.iter().any(|it| it.key.as_str() == "outcome" && it.value.as_str() == "done"));
    }

    #[test]
    fn requests_of_a_handler_continue_the_item_s_trace() {
        let item = item(7, "01");
        assert_eq!(trace_parent(&item), item.meta.as_ref().unwrap().trace_parent, "nothing is exported");
        let mut said = None;
        let spans = exported_of(std::slice::from_ref(&item), || said = trace_parent(&item));
        let [span] = &spans[..] else { panic!("{spans:?}") };
        let parent = TraceParent::parse(&said.unwrap()).unwrap();
        assert_eq!(
            span.span_context,
            SpanContext::new(
                parent.trace.into(),
                parent.parent.into(),
                TraceFlags::new(parent.flags),
                false,
                TraceState::default(),
            )
        );
    }

    #[test]
    fn several_items_are_linked_to_their_traces() {
        let spans = exported(&[item(7, "01"), Sample::new("").build(), item(8, "01")]);
        let [span] = &spans[..] else { panic!("{spans:?}") };
        let linked: Vec<_> = span.links.iter().map(|link| link.span_context.span_id()).collect();
        assert_eq!(linked, [7_u64.into(), 8_u64.into()]);
        assert_ne!(span.span_context.trace_id(), 0xabc_u128.into());
    }

    #[test]
    fn an_item_with_an_unsampled_trace_is_not_traced() {
        assert!(exported(&[item(7, "00")]).is_empty());
    }
}
