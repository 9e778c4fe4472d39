//! One daemon and the connections to it.

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT},
};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    AskError,
    address::Address,
    connection::{self, Answer, Connection, Failure, NO_HEAD, WholeRequest},
    listener::{self, Receiver},
    secret::Secret,
    tls,
};
use crate::{base::users, cli::status::fitting, database::item_history::this_process};

/// The most characters that are shown of an error's message, and of its fix.
const LONGEST_MESSAGE: usize = 4_000;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The most connections that wait for the next request.
const MOST_IDLE: usize = 16;

/// A daemon that requests are sent to. Connections are kept for further requests.
pub(in crate::cli) struct Endpoint {
    pub(super) address: Address,
    secret: Option<Secret>,
    /// The option of the command that names an address.
    pub(super) option: &'static str,
    /// With TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// The program, which a daemon shows of a worker.
    agent: &'static str,
    idle: Mutex<Vec<Connection>>,
}

impl Endpoint {
    pub(in crate::cli) fn new(
        address: Address,
        secret: Option<Secret>,
        option: &'static str,
    ) -> anyhow::Result<Self> {
        let tls = address.is_https().then(tls::of_url).transpose()?;
        Ok(Self { address, secret, option, tls, agent: "kvqueue", idle: Mutex::default() })
    }

    /// The same daemon, to which this program has another name.
    pub(in crate::cli) fn with_agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    /// The same daemon by TLS with these settings.
    pub(super) fn with_tls(self, tls: Arc<ClientConfig>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sends a request, and once more if a connection breaks that was kept: so the request has to have the same effect if it is done twice. Dropping
    /// the future closes the connection, by which the daemon notices that nobody waits.
    pub(in crate::cli) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, AskError> {
        let request = self.request(method, path, body)?;
        let kept = self.idle().pop();
        if let Some(connection) = kept {
            match self.exchange(connection, request.clone(), patience).await? {
                Ok(answer) => return self.read(&answer),
                // The daemon may have closed it meanwhile, or be another process by now.
                Err(Failure::Broken(_) | Failure::Garbled(NO_HEAD)) => self.idle().clear(),
                Err(Failure::Garbled(problem)) => return Err(self.garbled(problem)),
            }
        }
        let connection = self.connect(patience).await?;
        match self.exchange(connection, request, patience).await? {
            Ok(answer) => self.read(&answer),
            Err(Failure::Broken(error)) => Err(self.no_daemon(error)),
            Err(Failure::Garbled(problem)) => Err(self.garbled(problem)),
        }
    }

    /// Sends a request that is not to be done twice.
    pub(super) async fn ask_once(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, AskError> {
        let connection = self.connect(patience).await?;
        match self.exchange(connection, self.request(method, path, body)?, patience).await? {
            Ok(answer) => self.read(&answer),
            Err(Failure::Broken(error)) => Err(AskError::Broken { at: self.to_string(), error }),
            Err(Failure::Garbled(NO_HEAD)) => {
                Err(AskError::Broken { at: self.to_string(), error: io::ErrorKind::UnexpectedEof.into() })
            }
            Err(Failure::Garbled(problem)) => Err(self.garbled(problem)),
        }
    }

    async fn connect(&self, patience: Duration) -> Result<Connection, AskError> {
        let opened = timeout(CONNECT.min(patience), connection::open(&self.address, self.tls.as_ref())).await;
        let error = match opened {
            Ok(Ok((connection, peer))) => return self.check_receiver(peer).map(|()| connection),
            Ok(Err(error)) if tls::is_refusal(&error) => {
                return Err(AskError::Untrusted { at: self.to_string(), error });
            }
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed.into(),
        };
        Err(self.no_daemon(error))
    }

    fn no_daemon(&self, error: io::Error) -> AskError {
        AskError::Nobody { at: self.to_string(), option: self.option, error }
    }

    /// An error if another user would get the operator's secret. With TLS the certificate tells who listens.
    fn check_receiver(&self, peer: Option<u32>) -> Result<(), AskError> {
        let Some(Secret { readers: Some(readers), .. }) = self.secret.as_ref().filter(|_| self.tls.is_none())
        else {
            return Ok(());
        };
        match listener::receiver(&self.address, peer, *readers) {
            Receiver::Expected => Ok(()),
            Receiver::Foreign(uid) => Err(AskError::Foreign {
                at: self.to_string(),
                user: users::name_or_number(uid),
                owner: users::name_or_number(readers.owner),
                option: self.option,
            }),
            Receiver::Gone => Err(self.no_daemon(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        request: WholeRequest,
        patience: Duration,
    ) -> Result<Result<Answer, Failure>, AskError> {
        let answer = timeout(patience, connection.exchange(request)).await;
        let Ok(answer) = answer else {
            // The others may lead nowhere, too.
            self.idle().clear();
            return Err(AskError::Silent { at: self.to_string(), silence: patience });
        };
        if answer.is_ok() && connection.is_open() {
            let mut idle = self.idle();
            if idle.len() < MOST_IDLE {
                idle.push(connection);
            }
        }
        Ok(answer)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<WholeRequest, AskError> {
        let process = this_process().replace(|char: char| !char.is_ascii_graphic(), "?");
        let agent = format!("{}/{} {process}", self.agent, env!("CARGO_PKG_VERSION"));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.base()))
            .header(HOST, self.address.host())
            .header(USER_AGENT, agent);
        if let Some(Secret { token, .. }) = &self.secret {
            request = request.header(AUTHORIZATION, token.header());
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        // Also without a body: some proxies refuse a POST that has no length.
        let request = request.header(CONTENT_LENGTH, body.len()).body(Full::from(body));
        request.map_err(|_| self.garbled("a name in the request is too long, or cannot be sent"))
    }

    /// The body of an answer. An error if it reports one, or if the daemon did not write it.
    fn read(&self, Answer { status, body }: &Answer) -> Result<Value, AskError> {
        let body =
            serde_json::from_slice::<Value>(body).ok().or_else(|| body.is_empty().then_some(Value::Null));
        if (200..300).contains(status) {
            return body.ok_or_else(|| self.garbled("the answer is not JSON"));
        }
        // Every refusal of a daemon has a code. Proxies have bodies of their own, or none.
        let Some(body) = body.filter(|body| body["error"]["code"].is_string()) else {
            return Err(AskError::Intermediary { at: self.to_string(), status: *status });
        };
        let text = |key: &str| fitting(body["error"][key].as_str().unwrap_or_default(), LONGEST_MESSAGE);
        let (code, message, mut fix) = (text("code"), text("message"), text("fix"));
        if matches!(status, 401 | 403) && self.secret.as_ref().is_some_and(Secret::is_of_environment) {
            fix = format!("the token is that of KVQUEUE_TOKEN; {fix}");
        } else if *status == 401 && self.secret.is_none() {
            "set KVQUEUE_TOKEN to an access token, which `kvqueue token new` makes".clone_into(&mut fix);
        } else if *status == 401 && self.secret.is_some() {
            fix = format!(
                "if this is the daemon of another database, give yours another address in http.listen and restart it; or name the \
                 daemon that you mean with {}",
                self.option
            );
        }
        Err(AskError::Refused { at: self.to_string(), status: *status, code, message, fix })
    }

    /// Its URL; none on a Unix socket.
    pub(super) fn url(&self) -> Option<String> {
        match &self.address {
            Address::Tcp(address) if self.tls.is_some() => Some(format!("https://{address}")),
            Address::Tcp(address) => Some(format!("http://{address}")),
            Address::Url(_) => Some(self.address.to_string()),
            Address::Unix(_) => None,
        }
    }

    /// The error for an answer that is not the API's.
    pub(in crate::cli) fn garbled(&self, problem: &'static str) -> AskError {
        AskError::Garbled { at: self.to_string(), problem }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.address).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use serde_json::json;
    use tokio::runtime;

    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// A server that answers this many requests on each connection and then closes it.
    fn server(requests: usize) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for connection in 1.. {
                let mut stream = listener.accept().unwrap().0;
                for _ in 0..requests {
                    // A request without a body comes in one piece here.
                    if stream.read(&mut [0; 4_096]).unwrap_or(0) == 0 {
                        break;
                    }
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
                    stream.write_all(format!("{head}{connection}").as_bytes()).unwrap();
                }
            }
        });
        Address::Tcp(address)
    }

    #[test]
    fn a_connection_is_used_again_and_replaced_when_it_has_ended() {
        let endpoint = Endpoint::new(server(2), None, "--url").unwrap();
        let patience = Duration::from_secs(60);
        let answers = wait(async {
            let mut answers = Vec::new();
            for _ in 0..4 {
                answers.push(endpoint.ask("POST", "/", None, patience).await.unwrap());
            }
            answers
        });
        assert_eq!(answers, [json!(1), json!(1), json!(2), json!(2)]);
    }

    #[test]
    fn a_silent_daemon_and_a_missing_one_are_different_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let endpoint = Endpoint::new(Address::Unix(path.clone()), None, "--at").unwrap();
        let ask = || wait(endpoint.ask("GET", "/", None, Duration::from_millis(50)));
        assert!(matches!(ask(), Err(AskError::Nobody { .. })));
        let _connections_wait_in_its_queue = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let silent = ask().unwrap_err();
        assert!(matches!(silent, AskError::Silent { .. }), "{silent}");
        let silent =
            AskError::Silent { at: "127.0.0.1:7420".to_owned(), silence: super::super::READ_TIMEOUT };
        insta::assert_snapshot!(silent, @"the daemon at 127.0.0.1:7420 has not answered for 15 s; its log may show why");
    }
}
