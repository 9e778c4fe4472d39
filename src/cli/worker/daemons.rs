//! The daemons that a worker may ask. They have the same database, so each of them will do.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    base::backoff,
    cli::{
        api_client::{
            Address, AskError, Endpoint, Expected, READ_TIMEOUT, address_of, endpoint, need_http, token,
        },
        globals::Globals,
        status,
    },
    config::{Config, Fault},
};

/// How long an answer to a worker may take, if the request does not wait for items.
pub(super) const PATIENCE: Duration = READ_TIMEOUT;

/// The option of [`Urls`].
const URL: &str = "--url";

/// The options of commands that ask daemons as a worker.
#[derive(Debug, clap::Args)]
pub(super) struct Urls {
    /// A daemon, as in https://queues.example:7420 or unix:PATH. Repeat it for daemons of the same
    /// database: if one does not answer, the next one is asked [default: the daemon whose URL is in place of the
    /// database, or else where the configuration's daemon listens]
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<Address>,
    /// Send the token in KVQUEUE_TOKEN to another machine although the connection is not encrypted
    #[arg(long)]
    plain_token: bool,
}

impl Urls {
    /// Whether the command line names a daemon.
    pub(super) fn are_given(&self) -> bool {
        !self.urls.is_empty()
    }

    /// The daemons that the command line or the configuration names. `agent` is what this program calls itself there.
    pub(super) fn daemons(
        &self,
        globals: &Globals,
        (config, faults): (Config, Vec<Fault>),
        agent: &'static str,
    ) -> anyhow::Result<Daemons> {
        let in_database = address_of(&config)?;
        let urls = if self.urls.is_empty() { in_database.as_slice() } else { &*self.urls };
        if urls.is_empty() {
            need_http(faults)?;
            let endpoint = endpoint(&config.http.listen, &config, URL)?.with_agent(agent);
            return Ok(Daemons::new(vec![endpoint], Some(Expected::of(globals, &config))));
        }
        let endpoint = |address: &Address| {
            let token = token(address, &config, self.plain_token, ", or allow it with --plain-token")?;
            Ok(Endpoint::new(address.clone(), token, URL)?.with_agent(agent))
        };
        let endpoints = urls.iter().map(endpoint).collect::<anyhow::Result<_>>()?;
        Ok(Daemons::new(endpoints, None))
    }
}

/// How long to go on if no daemon answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Each daemon has been asked once.
    RoundEnds,
    Time(Instant),
    /// There is an answer.
    Answer,
}

impl Until {
    fn left(self) -> Duration {
        match self {
            Self::Time(last) => last.saturating_duration_since(Instant::now()),
            Self::RoundEnds | Self::Answer => Duration::MAX,
        }
    }
}

/// One daemon or more of the same database.
#[derive(Debug)]
pub(super) struct Daemons {
    endpoints: Vec<Endpoint>,
    /// The one that is asked next, by its index.
    current: AtomicUsize,
    /// None of them answered the last request.
    is_silent: AtomicBool,
    /// The configuration that they must run with.
    expected: Option<Expected>,
}

impl Daemons {
    fn new(endpoints: Vec<Endpoint>, expected: Option<Expected>) -> Self {
        Self { endpoints, current: AtomicUsize::new(0), is_silent: AtomicBool::new(false), expected }
    }

    /// Asks for a change of a lease: its extension, or an acknowledgement.
    pub(super) async fn change(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
        until: Until,
    ) -> Result<Value, AskError> {
        Ok(self.ask("POST", path, Some(body), patience, until, is_change).await?.0)
    }

    /// Asks for a lease. Returns the answer, and when the request that got it was sent: earlier
    /// attempts may have waited for an absent daemon for longer than a lease.
    pub(super) async fn post_timed(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
        until: Until,
    ) -> Result<(Value, Instant), AskError> {
        self.ask("POST", path, Some(body), patience, until, |answer| answer["items"].is_array()).await
    }

    /// Checks that a daemon answers, and that it has the configuration's database.
    pub(super) async fn reach(&self, until: Until) -> Result<(), AskError> {
        let Some(expected) = &self.expected else {
            return self.ask("GET", "/livez", None, PATIENCE, until, Value::is_object).await.map(drop);
        };
        match self.ask("GET", status::STATUS, None, PATIENCE, until, Value::is_object).await {
            Ok((answer, _)) => match status::read(&answer) {
                Ok(figures) => expected.check(self.endpoint().1, &figures),
                Err(_) => Err(self.garbled("its status cannot be read")),
            },
            // A worker's token need not allow to read the status.
            Err(AskError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lets the next request go to the next daemon.
    pub(super) fn turn(&self) {
        let at = self.endpoint().0;
        self.turn_from(at);
    }

    /// The error for an answer that is not the API's.
    pub(super) fn garbled(&self, problem: &'static str) -> AskError {
        self.endpoint().1.garbled(problem)
    }

    fn endpoint(&self) -> (usize, &Endpoint) {
        let at = self.current.load(Ordering::Relaxed) % self.endpoints.len();
        (at, &self.endpoints[at])
    }

    /// Of several requests that fail at a daemon, one alone leads to the next.
    fn turn_from(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        // Another request has led to the next one already.
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends a request until a daemon answers. An answer that `is_answer` does not accept is not a daemon's.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
        until: Until,
        is_answer: fn(&Value) -> bool,
    ) -> Result<(Value, Instant), AskError> {
        let mut failures = 0;
        loop {
            let (at, endpoint) = self.endpoint();
            let asked_at = Instant::now();
            let error = match endpoint.ask(method, path, body, patience.min(until.left())).await {
                Err(error) if error.is_transient() => error,
                Ok(answer) if !is_answer(&answer) => {
                    endpoint.garbled("a field that it always has is missing")
                }
                answer => {
                    self.report_answer();
                    return answer.map(|answer| (answer, asked_at));
                }
            };
            self.turn_from(at);
            failures += 1;
            // All daemons are asked before the first pause.
            let rounds = failures / self.endpoints.len();
            let is_round_over = failures % self.endpoints.len() == 0;
            let pause = backoff::pause(u32::try_from(rounds).unwrap_or(u32::MAX));
            let pause = if is_round_over { pause } else { Duration::ZERO };
            let is_over = match until {
                Until::RoundEnds => is_round_over,
                Until::Time(_) | Until::Answer => pause >= until.left(),
            };
            if is_over {
                return Err(error);
            }
            self.report_silence(&error);
            sleep(pause).await;
        }
    }

    fn report_silence(&self, error: &AskError) {
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "daemon_unavailable",
                error = error as &dyn std::error::Error,
                "no answer from a daemon; trying again"
            );
        }
    }

    fn report_answer(&self) {
        if self.is_silent.swap(false, Ordering::Relaxed) {
            let daemon = self.endpoint().1;
            tracing::info!(event = "daemon_available", %daemon, "a daemon answers again");
        }
    }
}

/// Whether an answer is that to a change of a lease.
fn is_change(answer: &Value) -> bool {
    answer["open"].is_u64()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use serde_json::json;

    use super::*;
    use crate::{base::exit::Exit, cli::worker::runtime};

    /// A daemon that answers one request on each connection.
    fn daemon(status: &'static str, body: &'static str) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4_096]);
                let head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n");
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        Endpoint::new(address, None, URL).unwrap()
    }

    /// A daemon that is not there.
    fn absent_daemon() -> Endpoint {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Endpoint::new(address.to_string().parse().unwrap(), None, URL).unwrap()
    }

    const CHANGED: &str = r#"{"open":7}"#;
    const BUSY: &str = r#"{"error":{"code":"busy","message":"m","fix":"f"}}"#;
    const DENIED: &str = r#"{"error":{"code":"forbidden","message":"m","fix":"f"}}"#;

    #[test]
    fn the_next_daemon_is_asked_when_one_does_not_answer() {
        let endpoints = vec![absent_daemon(), daemon("429", BUSY), daemon("200", CHANGED)];
        let daemons = Daemons::new(endpoints, None);
        let answer = runtime().unwrap().block_on(async {
            let first = daemons.change("/", &json!({}), PATIENCE, Until::RoundEnds).await.unwrap();
            // From here on the one that answers is asked first.
            assert_eq!(daemons.endpoint().0, 2);
            daemons.turn();
            let second = daemons.change("/", &json!({}), PATIENCE, Until::Answer).await.unwrap();
            (first, second)
        });
        assert_eq!(answer, (json!({ "open": 7 }), json!({ "open": 7 })));
    }

    #[test]
    fn the_answer_of_a_gateway_is_no_answer() {
        let kong = r#"{"message":"failure to get a peer from the ring-balancer"}"#;
        let (nothing, page) = (json!({}), "<html><h1>502 Bad Gateway</h1></html>");
        for (status, body) in [
            ("503", kong),
            ("502", page),
            ("504", ""),
            ("200", page),
            ("200", kong),
            ("200", ""),
            ("407", kong),
            ("403", page),
        ] {
            let daemons = Daemons::new(vec![daemon(status, body)], None);
            let asked = daemons.change("/", &nothing, PATIENCE, Until::RoundEnds);
            let error = runtime().unwrap().block_on(asked).unwrap_err();
            assert!(error.is_transient() && error.exit() == Exit::Unavailable, "{status} {body}: {error}");
            // The next daemon is asked.
            let daemons = Daemons::new(vec![daemon(status, body), daemon("200", CHANGED)], None);
            let asked = daemons.change("/", &nothing, PATIENCE, Until::RoundEnds);
            assert_eq!(runtime().unwrap().block_on(asked).unwrap(), json!({ "open": 7 }), "{status} {body}");
        }
    }

    #[test]
    fn the_time_of_an_answer_is_that_of_its_own_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let busy_until = thread::spawn(move || {
            let mut busy_until = Instant::now();
            for (status, body) in [("429", BUSY), ("200", r#"{"lease":null,"items":[]}"#)] {
                let (mut stream, _) = listener.accept().unwrap();
                if status == "429" {
                    busy_until = Instant::now();
                }
                let _ = stream.read(&mut [0; 4_096]);
                let head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n");
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
            }
            busy_until
        });
        let daemons = Daemons::new(vec![Endpoint::new(address, None, URL).unwrap()], None);
        let body = json!({});
        let asked = daemons.post_timed("/", &body, PATIENCE, Until::Answer);
        let (answer, asked_at) = runtime().unwrap().block_on(asked).unwrap();
        assert!(answer["lease"].is_null());
        assert!(asked_at > busy_until.join().unwrap(), "it is the time of the first request");
    }

    #[test]
    fn a_refusal_is_not_repeated_and_silence_has_an_end() {
        let wait = |endpoints: Vec<Endpoint>| {
            let daemons = Daemons::new(endpoints, None);
            let until = Until::Time(Instant::now() + Duration::from_millis(250));
            runtime().unwrap().block_on(daemons.change("/", &json!({}), PATIENCE, until)).unwrap_err()
        };
        let refused = wait(vec![daemon("403", DENIED), daemon("200", CHANGED)]);
        assert!(matches!(refused, AskError::Refused { status: 403, .. }), "{refused}");
        let silent = wait(vec![absent_daemon(), absent_daemon()]);
        assert!(matches!(silent, AskError::Nobody { .. }), "{silent}");
    }
}
