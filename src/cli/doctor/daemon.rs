//! The daemon that runs, if one does: what it answers over HTTP, at the configured address.

use super::{deadline::Deadline, findings::Findings};
use crate::{
    cli::{
        api_client::{ApiClient, AskError, READ_TIMEOUT, rough},
        globals::Globals,
        status::{Figures, LONGEST_NAME, QueueFigures, fitting},
    },
    config::{Config, Listen},
};

const ABOUT: &str = "daemon";

/// Longer texts of a daemon are cut.
pub(super) const LONGEST_TEXT: usize = 400;

/// The most paused queues that are named.
const NAMED: usize = 5;

const START: &str = "start it if it should run, as with systemctl start kvqueue";

/// Asks the daemon, and returns its answer. Whether a daemon should run is not known here, so a
/// missing one is not a problem.
pub(super) fn look(
    globals: &Globals,
    config: &Config,
    deadline: Deadline,
    findings: &mut Findings,
) -> Option<Figures> {
    if config.http.listen == Listen::Off {
        findings.note(ABOUT, "not asked: http.listen is \"off\"", "give it an address there");
        return None;
    }
    let daemon = match ApiClient::of(globals, config) {
        Ok(daemon) => daemon.within(deadline.left(READ_TIMEOUT)),
        Err(error) => {
            findings.note(ABOUT, format!("not asked: {error}"), "ask it with kvqueue status --at");
            return None;
        }
    };
    match daemon.figures() {
        Ok((_, figures)) => {
            judge(&figures, &daemon.to_string(), findings);
            Some(figures)
        }
        Err(error) => {
            silent(&error, &daemon.to_string(), findings);
            None
        }
    }
}

/// The finding for a daemon that has not answered with its status.
fn silent(error: &anyhow::Error, at: &str, findings: &mut Findings) {
    match error.downcast_ref() {
        Some(AskError::Nobody { error, .. } | AskError::Broken { error, .. }) => {
            findings.note(ABOUT, format!("no daemon answers at {at}: {error}"), START);
        }
        Some(AskError::Silent { silence, .. }) => findings.note(
            ABOUT,
            format!("the daemon at {at} has not answered for {}", rough(*silence)),
            "its log may say why; if it is stuck, restart it, as with systemctl restart kvqueue",
        ),
        Some(AskError::Untrusted { error, .. }) => findings.note(
            ABOUT,
            format!("cannot trust what answers at {at}: {error}"),
            "give doctor the configuration of the daemon, whose http.tls-certificate it trusts",
        ),
        Some(AskError::Foreign { user, .. }) => findings.problem(
            ABOUT,
            format!("the user {user} listens at {at}, and may not read the operator's secret"),
            "look what listens there; http.listen gives the daemon another address",
        ),
        Some(AskError::Intermediary { status, .. }) => findings.note(
            ABOUT,
            format!("what answers at {at} is not a kvqueue, or does not reach it: its status is {status}"),
            "look what listens there; http.listen gives the daemon another address",
        ),
        Some(AskError::Garbled { problem, .. }) => findings.note(
            ABOUT,
            format!("the answer at {at} is not that of a kvqueue, or was cut off: {problem}"),
            "look what listens there; http.listen gives the daemon another address",
        ),
        Some(AskError::Refused { message, fix, .. }) => {
            let text = format!(
                "cannot read the status of the daemon at {at}: {}",
                fitting(message, LONGEST_TEXT)
            );
            findings.note(ABOUT, text, fitting(fix, LONGEST_TEXT));
        }
        Some(AskError::Elsewhere { theirs, ours, .. }) => findings.note(
            ABOUT,
            format!("the daemon at {at} uses the database {theirs}, not {ours}"),
            "give doctor the configuration of the daemon that is meant, and http.listen an address of its own",
        ),
        None => {
            findings.note(ABOUT, format!("the daemon at {at}: {error:#}"), "restart it with this version");
        }
    }
}

/// The findings from the status of a daemon.
fn judge(figures: &Figures, at: &str, findings: &mut Findings) {
    let Figures { pid, version, not_ready, .. } = figures;
    let who = format!("the daemon at {at}, process {pid}, version {}", fitting(version, 20));
    if not_ready.is_empty() {
        findings.fine(ABOUT, format!("{who}, is ready"));
    } else {
        let why: Vec<_> = not_ready.iter().map(|why| fitting(why, LONGEST_TEXT)).collect();
        let text = format!("{who}, is not ready: {}", why.join("; "));
        findings.note(ABOUT, text, "kvqueue status says more, and so do its messages");
    }
    if let Some(clock) = &figures.clock {
        let advice = "compare the clocks of all machines that run daemons, set the wrong one right, and have it kept right by NTP";
        findings.problem(ABOUT, fitting(clock, LONGEST_TEXT), advice);
    }
    if let Some(refused) = &figures.config.refused {
        let text = format!("it has not taken up its configuration: {}", fitting(refused, LONGEST_TEXT));
        findings.note(ABOUT, text, "correct it, and then: kvqueue reload");
    }
    for it in &figures.queues {
        let name = fitting(&it.queue, LONGEST_NAME);
        if let Some(unavailable) = &it.unavailable {
            let text = format!(
                "the handler of queue \"{name}\" cannot work: {}",
                fitting(&unavailable.reason, LONGEST_TEXT)
            );
            let advice = "check the command as the daemon's user, in its working directory and with its PATH; the daemon goes on trying, and the items wait";
            findings.problem(ABOUT, text, advice);
        }
        if let Some(error) = &it.fetch_error {
            let text = format!("fetches from queue \"{name}\" fail: {}", fitting(error, LONGEST_TEXT));
            findings.problem(ABOUT, text, "the daemon goes on trying; its log says more");
        }
    }
    for it in figures.queues.iter().filter(|it| it.is_frozen()).take(NAMED) {
        let text = format!(
            "frozen: {}: {}",
            fitting(&it.queue, LONGEST_NAME),
            fitting(it.pause_reason(), LONGEST_TEXT)
        );
        let advice = "use the queue in the database that it was moved to, and set `database` to that for daemons and producers; while it is \
                      being moved, wait";
        findings.note(ABOUT, text, advice);
    }
    if let Some(names) = paused(&figures.queues, |it| it.paused.is_some() && !it.is_frozen()) {
        findings.note(
            ABOUT,
            format!("paused: {names}"),
            "kvqueue resume QUEUE has a queue's items taken again",
        );
    }
    if let Some(names) = paused(&figures.queues, |it| it.paused_locally) {
        let advice = "kvqueue resume --local QUEUE has it take a queue's items again";
        findings.note(ABOUT, format!("paused for this daemon alone: {names}"), advice);
    }
}

/// Such queues, if there are some.
fn paused(queues: &[QueueFigures], is_paused: impl Fn(&QueueFigures) -> bool) -> Option<String> {
    let names: Vec<_> =
        queues.iter().filter(|it| is_paused(it)).map(|it| fitting(&it.queue, LONGEST_NAME)).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| names[..names.len().min(NAMED)].join(", ") + &more)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(figures: &Value) -> String {
        let mut findings = Findings::default();
        judge(&crate::cli::status::read(figures).unwrap(), "127.0.0.1:7420", &mut findings);
        assert!(findings.are_healthy());
        findings.lines()
    }

    #[test]
    fn a_working_daemon_is_reported_as_fine() {
        let figures = json!({ "pid": 7, "version": "1.2.3", "database": { "url": "embedded:/data" }, "queues": [{ "queue": "a" }] });
        insta::assert_snapshot!(judged(&figures), @"daemon    fine     the daemon at 127.0.0.1:7420, process 7, version 1.2.3, is ready");
    }

    #[test]
    fn pauses_refused_configurations_and_unreadiness_are_noted() {
        let pause = json!({ "reason": "", "frozen": false });
        let queues: Vec<_> = ["a", "b", "c", "d", "e\u{1b}[2J", "f"]
            .iter()
            .map(|name| json!({ "queue": name, "paused": pause, "paused_locally": *name == "b" }))
            .collect();
        let figures = json!({
            "pid": 7, "version": "1.2.3", "not_ready": ["the database does not answer", "it is stopping"],
            "config": { "refused": "shutdown-timeout = 0: too short" }, "queues": queues,
        });
        insta::assert_snapshot!(judged(&figures), @r"
        daemon    note     the daemon at 127.0.0.1:7420, process 7, version 1.2.3, is not ready: the database does not answer; it is stopping; kvqueue status says more, and so do its messages
        daemon    note     it has not taken up its configuration: shutdown-timeout = 0: too short; correct it, and then: kvqueue reload
        daemon    note     paused: a, b, c, d, e\u{1b}[2J and 1 more; kvqueue resume QUEUE has a queue's items taken again
        daemon    note     paused for this daemon alone: b; kvqueue resume --local QUEUE has it take a queue's items again
        ");
    }

    #[test]
    fn unavailable_handlers_and_failing_fetches_are_problems() {
        let figures = json!({ "pid": 7, "version": "1.2.3", "queues": [
            { "queue": "mails", "unavailable": { "since": 1, "reason": "its command cannot be started: no\u{1b}[2J", "tries": 3 } },
            { "queue": "bills", "fetch_error": "transaction too old" },
            { "queue": "fine", "unavailable": null, "fetch_error": null },
        ] });
        let mut findings = Findings::default();
        judge(&crate::cli::status::read(&figures).unwrap(), "127.0.0.1:7420", &mut findings);
        assert!(!findings.are_healthy());
        insta::assert_snapshot!(findings.lines(), @r#"
        daemon    fine     the daemon at 127.0.0.1:7420, process 7, version 1.2.3, is ready
        daemon    PROBLEM  the handler of queue "mails" cannot work: its command cannot be started: no\u{1b}[2J; check the command as the daemon's user, in its working directory and with its PATH; the daemon goes on trying, and the items wait
        daemon    PROBLEM  fetches from queue "bills" fail: transaction too old; the daemon goes on trying; its log says more
        "#);
    }

    #[test]
    fn a_frozen_queue_is_noted_with_the_database_it_moved_to() {
        let moved = json!({ "reason": "kvqueue migrate moved it to embedded:/new", "frozen": true });
        let figures = json!({
            "pid": 7, "version": "1.2.3", "database": { "url": "embedded:/data" },
            "queues": [{ "queue": "a", "paused": moved }, { "queue": "b" }],
        });
        let judged = judged(&figures);
        assert!(
            judged.contains("frozen: a: kvqueue migrate moved it to embedded:/new; use the queue"),
            "{judged}"
        );
        assert!(!judged.contains("resume"), "{judged}");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_noted() {
        let at = || "127.0.0.1:7420".to_owned();
        let refused = AskError::Refused {
            at: at(),
            status: 401,
            code: "unauthorized".to_owned(),
            message: "a secret is needed".to_owned(),
            fix: "send it".to_owned(),
        };
        let errors = [
            AskError::Nobody {
                at: at(),
                option: "--at",
                error: std::io::ErrorKind::ConnectionRefused.into(),
            }
            .into(),
            AskError::Silent { at: at(), silence: std::time::Duration::from_secs(15) }.into(),
            AskError::Garbled { at: at(), problem: "the answer is not HTTP" }.into(),
            AskError::Elsewhere {
                at: at(),
                option: "--at",
                theirs: "embedded:/other".to_owned(),
                ours: "embedded:/data".to_owned(),
            }
            .into(),
            refused.into(),
            anyhow::anyhow!("the daemon's figures cannot be read"),
        ];
        let mut findings = Findings::default();
        errors.iter().for_each(|error| silent(error, &at(), &mut findings));
        assert!(findings.are_healthy());
        insta::assert_snapshot!(findings.lines(), @r"
        daemon    note     no daemon answers at 127.0.0.1:7420: connection refused; start it if it should run, as with systemctl start kvqueue
        daemon    note     the daemon at 127.0.0.1:7420 has not answered for 15 s; its log may say why; if it is stuck, restart it, as with systemctl restart kvqueue
        daemon    note     the answer at 127.0.0.1:7420 is not that of a kvqueue, or was cut off: the answer is not HTTP; look what listens there; http.listen gives the daemon another address
        daemon    note     the daemon at 127.0.0.1:7420 uses the database embedded:/other, not embedded:/data; give doctor the configuration of the daemon that is meant, and http.listen an address of its own
        daemon    note     cannot read the status of the daemon at 127.0.0.1:7420: a secret is needed; send it
        daemon    note     the daemon at 127.0.0.1:7420: the daemon's figures cannot be read; restart it with this version
        ");
    }
}
