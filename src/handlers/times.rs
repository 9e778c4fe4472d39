//! The times of a queue, compared with those of its handler.

use std::time::Duration;

use super::{Settings, exec};
use crate::config::{ConfigError, Delivery, QueueConfig, quoted};

/// Refuses a time limit that does not fit the handler's own times. The queue's settings are valid.
pub(crate) fn check(name: &str, queue: &QueueConfig, shutdown_timeout: Duration) -> Result<(), ConfigError> {
    let Some(timeout) = queue.handler_timeout else { return Ok(()) };
    let settings = Settings::new(queue.handler_config.clone()).with_handler_timeout(Some(timeout));
    let wrong = |problem: String, fix: &str| {
        Err(ConfigError::value(format!("queues.{name}.handler-timeout"), quoted(timeout), problem, fix))
    };
    match &*queue.handler {
        "exec" if queue.delivery == Delivery::AtMostOnce => {
            // An item may wait for a process before its time limit begins.
            let start = exec::start_timeout(&settings);
            if timeout.saturating_add(start) <= shutdown_timeout {
                return Ok(());
            }
            let problem = format!(
                "an item may take longer with the start of a process (start-timeout = {}) than a stop waits (shutdown-timeout = {}), so with at-most-once delivery a stop would lose it",
                quoted(start),
                quoted(shutdown_timeout)
            );
            wrong(problem, "raise shutdown-timeout, or lower the timeout or start-timeout")
        }
        // A target without an answer to connections would look like one that got the item.
        #[cfg(feature = "webhook")]
        "http" => match super::http::connect_timeout(&settings) {
            Some(connect) if timeout <= connect => {
                let problem = format!(
                    "it is not longer than connect-timeout of the handler ({}), so an unreachable target would cost attempts",
                    quoted(connect)
                );
                wrong(problem, "raise it, or lower connect-timeout")
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn problem(handler: &str, lines: &str) -> String {
        let config: Config =
            toml::from_str(&format!("[queues.emails]\nhandler = '{handler}'\n{lines}")).unwrap();
        config.validate().unwrap();
        let checked = check("emails", &config.queues["emails"], config.shutdown_timeout);
        checked.expect_err("these times do not fit").to_string()
    }

    #[test]
    fn messages_name_both_times_and_the_fix() {
        insta::assert_snapshot!(problem("exec", "delivery = 'at-most-once'\nhandler-timeout = '10s'\nhandler-config = { command = ['x'], mode = 'worker' }"), @r#"queues.emails.handler-timeout = "10s": an item may take longer with the start of a process (start-timeout = "30s") than a stop waits (shutdown-timeout = "30s"), so with at-most-once delivery a stop would lose it; raise shutdown-timeout, or lower the timeout or start-timeout"#);
        #[cfg(feature = "webhook")]
        insta::assert_snapshot!(problem("http", "handler-timeout = '5s'\nhandler-config = { url = 'https://example', connect-timeout = '5s' }"), @r#"queues.emails.handler-timeout = "5s": it is not longer than connect-timeout of the handler ("5s"), so an unreachable target would cost attempts; raise it, or lower connect-timeout"#);
    }
}
