//! Loading a configuration: defaults, file and environment are merged into a [`Config`].

use std::path::Path;

use config::{Config as Layers, File, FileFormat};
use serde::Deserialize;

use super::{
    Config, ConfigError,
    environment::Environment,
    error::with_suggestion,
    faults::{Fault, pass_over},
    paths,
    repair::without_broken_lines,
};

/// Reads the defaults, then `file`, then this process's `KVQUEUE_...` variables. Ranges and contradictions are
/// [`Config::validate`]'s, for flags may still change the result. Paths are absolute then: one in the file, or a default, is relative to
/// the file's directory, and one from a variable, or without a file, to the working directory.
pub fn load(file: Option<&Path>) -> Result<Config, ConfigError> {
    load_from(file, Environment::of_process(), None)
}

/// The same for a command that does not need all settings: faults in others are left out and returned. Keys that
/// determine where items are must be right.
pub(crate) fn load_leniently(file: Option<&Path>) -> Result<(Config, Vec<Fault>), ConfigError> {
    let mut faults = Vec::new();
    let config = load_from(file, Environment::of_process(), Some(&mut faults))?;
    Ok((config, faults))
}

fn load_from(
    file: Option<&Path>,
    environment: Environment,
    mut faults: Option<&mut Vec<Fault>>,
) -> Result<Config, ConfigError> {
    let mut text = file.map(read).transpose()?.unwrap_or_default();
    if let (Some(file), Some(faults)) = (file, &mut faults) {
        text = without_broken_lines(file, &text, faults)?;
    }
    let source = Source { file, environment };
    let mut merged = source.merge(&text)?;
    source.parse_handler_settings(&mut merged);
    paths::resolve(&mut merged, |key| source.base_of(key));
    loop {
        let error = match serde_path_to_error::deserialize(toml::Value::Table(merged.clone())) {
            Ok(config) => return Ok(source.with_owner(config)),
            Err(error) => error,
        };
        if source.parse_text(&mut merged, &error.path().to_string()) {
            continue;
        }
        let (problem, path) = (source.key_error(&error), error.path());
        let Some(faults) = &mut faults else { return Err(problem) };
        match pass_over(&mut merged, path) {
            Some(place) => faults.push(Fault { error: problem, place }),
            None => return Err(problem),
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

/// Where the layers above the defaults come from, for messages.
struct Source<'a> {
    file: Option<&'a Path>,
    environment: Environment,
}

impl Source<'_> {
    /// A service of systemd's keeps its database where systemd wants its data.
    fn defaults(&self) -> Config {
        let mut defaults = Config::default();
        if let Some(directory) = self.environment.state_directory() {
            defaults.database = format!("{}{directory}", fdb_embedded::SCHEME);
        }
        defaults
    }

    fn merge(&self, text: &str) -> Result<toml::Table, ConfigError> {
        Layers::builder()
            .add_source(Layers::try_from(&self.defaults()).expect("the defaults serialise"))
            .add_source(File::from_str(text, FileFormat::Toml))
            .add_source(self.environment.source())
            .build()
            .and_then(toml::Table::deserialize)
            .map_err(|error| ConfigError::Syntax {
                path: self.file.unwrap_or(Path::new("the environment")).to_owned(),
                problem: error.to_string().trim_end().to_owned(),
            })
    }

    /// Schedules of a file belong to the file, if it does not name another owner.
    fn with_owner(&self, mut config: Config) -> Config {
        let file = self.file.map(paths::without_steps_back);
        config.schedule_owner = config.schedule_owner.or(file.map(|file| file.display().to_string()));
        config
    }

    /// Variables hold texts. Where the configuration does not take the text of `key`, its variable's text is read as a
    /// TOML value: a number, a truth value, a list, a table. Returns whether there was such a text to read.
    fn parse_text(&self, merged: &mut toml::Table, key: &str) -> bool {
        let text = self.environment.values().find(|(set, _)| *set == key).map(|(_, text)| text);
        let Some((place, parsed)) = value_at(merged, key).zip(text.and_then(as_toml)) else { return false };
        let is_text = place.is_str() && !parsed.is_str();
        if is_text {
            *place = parsed;
        }
        is_text
    }

    /// A handler's own table takes any type, so nothing says which one is meant: its lists and tables are read as such.
    fn parse_handler_settings(&self, merged: &mut toml::Table) {
        for (key, text) in self.environment.values() {
            let is_setting = key.starts_with("queues.") && key.contains(".handler-config.");
            let parsed = as_toml(text).filter(|value| value.is_array() || value.is_table());
            if let Some((place, parsed)) = value_at(merged, key).zip(parsed).filter(|_| is_setting) {
                *place = parsed;
            }
        }
    }

    /// The directory that a path is relative to.
    fn base_of(&self, key: &str) -> &Path {
        let file = self.file.filter(|_| self.environment.variable_of(key).is_none());
        file.and_then(Path::parent).unwrap_or(Path::new(paths::WORKING_DIRECTORY))
    }

    fn key_error(&self, error: &serde_path_to_error::Error<toml::de::Error>) -> ConfigError {
        let key = error.path().to_string();
        let origin = match (self.environment.variable_of(&key), self.file) {
            (Some(variable), _) => format!("set by {variable}"),
            (None, Some(file)) => format!("in {}", file.display()),
            (None, None) => "from the environment".to_owned(),
        };
        let problem = plain(&with_suggestion(error.inner().message()));
        ConfigError::Key { problem, key, origin }
    }
}

/// A message of the parser in the words of the file.
fn plain(problem: &str) -> String {
    problem
        .replace("invalid type: unit variant, expected string only", "it is no text; write one of its names")
        .replace("expected a map", "expected a table")
}

/// The value of a dotted key that a variable can name.
fn value_at<'t>(table: &'t mut toml::Table, key: &str) -> Option<&'t mut toml::Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = table.get_mut(first)?;
    match rest {
        None => Some(value),
        Some(rest) => value_at(value.as_table_mut()?, rest),
    }
}

/// A text as the right-hand side of a TOML key.
fn as_toml(text: &str) -> Option<toml::Value> {
    format!("value = {text}").parse::<toml::Table>().ok().filter(|table| table.len() == 1)?.remove("value")
}

#[cfg(test)]
mod tests {
    use super::{super::faults::Place, *};
    use crate::config::ScheduleDefinition;

    fn loaded(text: &str, vars: &[(&str, &str)]) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kvqueue.toml");
        std::fs::write(&path, text).unwrap();
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let shown = |text: &str, name| text.replace(&directory.path().display().to_string(), name);
        let mut config = load_from(Some(&path), Environment::from_vars(vars), None)
            .map_err(|error| shown(&error.to_string(), "DIR"))?;
        config.database = shown(&config.database, ".");
        config.schedule_owner = config.schedule_owner.filter(|owner| *owner != path.display().to_string());
        Ok(config)
    }

    fn problem(text: &str, vars: &[(&str, &str)]) -> String {
        loaded(text, vars).expect_err("this configuration is wrong")
    }

    #[test]
    fn an_empty_configuration_equals_the_defaults() {
        assert_eq!(loaded("", &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_commented_file_is_equal_to_the_defaults() {
        let text = include_str!("../../config/kvqueue.toml");
        assert_eq!(loaded(text, &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_commented_file_shows_a_queue_that_can_be_used() {
        let text = include_str!("../../config/kvqueue.toml").replace("\n#| ", "\n");
        let mut config = loaded(&text, &[]).unwrap();
        config.schedule_owner = Some("production".to_owned());
        config.validate().unwrap();
        config.schedule_owner = None;
        let shown = config.queues.remove("emails").expect("the example queue");
        // But for the handler, its command and a schedule it is as it would be without the file.
        let mut expected = super::super::QueueConfig::new("exec");
        expected.spell_out();
        (expected.handler_config, expected.schedules) =
            (shown.handler_config.clone(), shown.schedules.clone());
        let mut spelled_out = shown.clone();
        spelled_out.spell_out();
        assert_eq!(spelled_out, expected);
        // What is optional in a schedule is commented out twice.
        let schedule = ScheduleDefinition {
            cron: Some("0 7 * * 1-5".to_owned()),
            zone: Some("Europe/Berlin".to_owned()),
            payload: Some("report".to_owned()),
            ..ScheduleDefinition::default()
        };
        assert_eq!(shown.schedules, [("daily-report".to_owned(), schedule)].into());
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config =
            loaded("database = 'a'\nshutdown-timeout = '1s'", &[("KVQUEUE_DATABASE", "/b")]).unwrap();
        assert_eq!(config.database, "/b");
        assert_eq!(config.shutdown_timeout, std::time::Duration::from_secs(1));
    }

    #[test]
    fn variables_set_numbers_lists_and_truth_values() {
        let text = "[queues.q]\nhandler = 'exec'";
        let vars = [
            ("KVQUEUE_PREFIX", "7"),
            ("KVQUEUE_HTTP__READ_ONLY", "true"),
            ("KVQUEUE_HTTP__MAX_CONNECTIONS", "99"),
            ("KVQUEUE_HTTP__ORIGINS", "['https://a.example', \"https://b.example\"]"),
            ("KVQUEUE_QUEUES__Q__CONSUMERS", "[{ k = 3, count = 2 }, { k = 5 }]"),
            ("KVQUEUE_QUEUES__Q__RETRY__MAX_ATTEMPTS", "4"),
            ("KVQUEUE_QUEUES__Q__RETRY__JITTER", "false"),
            ("KVQUEUE_QUEUES__Q__HANDLER_CONFIG__COMMAND", "['sort', '-n']"),
        ];
        let config = loaded(text, &vars).unwrap();
        assert_eq!(config.prefix, "7", "a text stays a text");
        assert!(config.http.read_only);
        assert_eq!(config.http.max_connections, 99);
        assert_eq!(config.http.origins, ["https://a.example", "https://b.example"]);
        let queue = &config.queues["q"];
        let groups: Vec<_> = queue.consumers.iter().map(|group| (group.k, group.count)).collect();
        assert_eq!(groups, [(Some(3), 2), (Some(5), 1)]);
        assert_eq!((queue.retry.max_attempts, queue.retry.jitter), (4, false));
        assert_eq!(queue.handler_config["command"], toml::Value::from(vec!["sort", "-n"]));
        // A later layer still wins, and what the variable says must fit.
        insta::assert_snapshot!(problem(text, &[("KVQUEUE_QUEUES__Q__RETRY__MAX_ATTEMPTS", "many")]), @r#"queues.q.retry.max-attempts: invalid type: string "many", expected a whole number of 1 or more (set by KVQUEUE_QUEUES__Q__RETRY__MAX_ATTEMPTS); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem(text, &[("KVQUEUE_HTTP__READ_ONLY", "[1]")]), @"http.read-only: invalid type: sequence, expected a boolean (set by KVQUEUE_HTTP__READ_ONLY); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem(text, &[("KVQUEUE_QUEUES__Q__CONSUMERS", "[{ kk = 1 }]")]), @"queues.q.consumers[0].kk: unknown field `kk`, expected `k` or `count` (set by KVQUEUE_QUEUES__Q__CONSUMERS); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("", &[("KVQUEUE_HTTP__X", "1\nvalue = 2")]), @"http.x: unknown field `x`, expected one of `listen`, `token-file`, `require-token`, `allow-plaintext`, `tls-certificate`, `tls-key`, `read-only`, `max-body`, `max-connections`, `keep-alive`, `origins` (set by KVQUEUE_HTTP__X); see kvqueue.toml(5), or run: kvqueue config manual");
    }

    #[test]
    fn the_database_of_a_service_defaults_to_its_state_directory() {
        let state = ("STATE_DIRECTORY", "/var/lib/kvqueue:/var/lib/other");
        assert_eq!(
            loaded("shutdown-timeout = '1s'", &[state]).unwrap().database,
            "embedded:/var/lib/kvqueue"
        );
        assert_eq!(loaded("database = 'a'", &[state]).unwrap().database, "./a");
        assert_eq!(loaded("", &[state, ("KVQUEUE_DATABASE", "/b")]).unwrap().database, "/b");
        assert_eq!(loaded("", &[("STATE_DIRECTORY", "")]).unwrap(), Config::default());
    }

    #[test]
    fn relative_paths_start_at_their_file_or_the_working_directory() {
        let text = "database = 'embedded:data'\nhttp.token-file = 'secret'\n[queues.q]\nhandler = 'exec'\nhandler-config.command = ['./a']";
        let here = |name: &str| std::env::current_dir().unwrap().join(name).display().to_string();
        assert_eq!(loaded(text, &[]).unwrap().database, "embedded:./data");
        let vars = [
            ("KVQUEUE_DATABASE", "embedded:data"),
            ("KVQUEUE_HTTP__TOKEN_FILE", "secret"),
            ("KVQUEUE_QUEUES__Q__HANDLER_CONFIG__COMMAND", "['./b', './c']"),
        ];
        let config = loaded(text, &vars).unwrap();
        assert_eq!(config.database, format!("embedded:{}", here("data")));
        assert_eq!(config.http.token_file, Some(here("secret").into()));
        assert_eq!(config.queues["q"].handler_config["command"], toml::Value::from(vec![&*here("b"), "./c"]));
    }

    #[test]
    fn a_queue_name_may_hold_dots() {
        assert!(loaded("[queues.'a.b']\nhandler = 'log'", &[]).unwrap().queues.contains_key("a.b"));
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        insta::assert_snapshot!(problem("databse = 'x'", &[]), @"databse: unknown field `databse`; did you mean `database`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[queues.emails]\nhandler = 'log'\nconsumer = 1", &[]), @"queues.emails.consumer: unknown field `consumer`; did you mean `consumers`? (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[queues.emails]\nconsumers = []", &[]), @"queues.emails: missing field `handler` (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("shutdown-timeout = 30", &[]), @r#"shutdown-timeout: invalid type: integer `30`, expected a duration such as "30s" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem("shutdown-timeout = '30'", &[]), @r#"shutdown-timeout: "30" is not a duration; write it as in "30s" or "500ms" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\nmax-payload = 100", &[]), @r#"queues.q.max-payload: invalid type: integer `100`, expected a size such as "8MiB" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\nmax-payload = '100'", &[]), @r#"queues.q.max-payload: "100" is not a size; write it as in "8MiB" or "64kB" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\ndelivery = 'once'", &[]), @"queues.q.delivery: unknown variant `once`, expected one of `at-least-once`, `at-most-once`, `exactly-once` (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\nretry.max-attempts = 5000000000", &[]), @"queues.q.retry.max-attempts: 5000000000 is too large (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\nretry = 3", &[]), @"queues.q.retry: invalid type: integer `3`, expected a table such as { max-attempts = 3 } (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[log]\nformat = 'xml'", &[]), @"log.format: unknown variant `xml`, expected one of `auto`, `human`, `json`, `journald` (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[queues.q]\nhandler='log'\nconsumers = [ { k = -1 } ]", &[]), @"queues.q.consumers[0].k: invalid value: integer `-1`, expected a whole number of 1 or more (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("[http]\nlisten = 'localhost:80'", &[]), @r#"http.listen: "localhost:80" is no address; write it as in "127.0.0.1:7420" or "unix:/run/kvqueue/http.sock", or "off" (in DIR/kvqueue.toml); see kvqueue.toml(5), or run: kvqueue config manual"#);
        insta::assert_snapshot!(problem("database", &[]), @r"
        DIR/kvqueue.toml is not valid TOML; fix the line shown: TOML parse error at line 1, column 9
          |
        1 | database
          |         ^
        key with no value, expected `=`
        ");
        insta::assert_snapshot!(problem("", &[("KVQUEUE_LOG__LEVL", "x")]), @"log.levl: unknown field `levl`; did you mean `level`? (set by KVQUEUE_LOG__LEVL); see kvqueue.toml(5), or run: kvqueue config manual");
        insta::assert_snapshot!(problem("", &[("KVQUEUE_LOG__FORMAT", "xml")]), @"log.format: unknown variant `xml`, expected one of `auto`, `human`, `json`, `journald` (set by KVQUEUE_LOG__FORMAT); see kvqueue.toml(5), or run: kvqueue config manual");
    }

    /// Each key with a value of each type.
    #[test]
    fn no_message_names_a_type_of_the_program() {
        fn keys(table: &toml::Table, above: &str, found: &mut Vec<String>) {
            for (key, value) in table {
                let path = format!("{above}{key}");
                if let toml::Value::Table(table) = value {
                    keys(table, &format!("{path}."), found);
                }
                found.push(path);
            }
        }
        let text = include_str!("../../config/kvqueue.toml").replace("\n#| ", "\n");
        let (whole, mut paths): (toml::Table, _) = (text.parse().unwrap(), Vec::new());
        keys(&whole, "", &mut paths);
        paths.push("queues.emails.retry".to_owned());
        assert!(paths.len() > 40 && paths.iter().any(|path| path == "queues.emails.schedules.daily-report"));
        let (mut wrong, mut bad) = (0, Vec::new());
        for path in &paths {
            for value in ["-7", "'x'", "true", "1.5", "[[7]]", "{ x = 7 }", "2026-01-01"] {
                let mut table = whole.clone();
                let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
                let place = match parent {
                    "" => Some(&mut table),
                    parent => value_at(&mut table, parent).and_then(toml::Value::as_table_mut),
                };
                place.unwrap().insert(last.to_owned(), as_toml(value).unwrap());
                let Err(problem) = loaded(&toml::to_string(&table).unwrap(), &[]) else { continue };
                wrong += 1;
                let words = [
                    "struct ", "enum ", "newtype", "a tuple", "unit ", "a map", "Option<", " i64", " u64",
                    " u32",
                ];
                if words.iter().any(|word| problem.contains(word)) {
                    bad.push(problem);
                }
            }
        }
        assert_eq!(bad, [""; 0]);
        assert!(wrong > 100, "{wrong}");
    }

    #[test]
    fn errors_in_unneeded_parts_of_a_configuration_are_collected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kvqueue.toml");
        let lenient = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut faults = Vec::new();
            let config = load_from(Some(&path), Environment::default(), Some(&mut faults))?;
            Ok::<_, ConfigError>((config, faults.into_iter().map(|it| it.place).collect::<Vec<_>>()))
        };
        let text = "database = 'embedded:x'\nshutdown-timeout = 3\n[http]\nlisten = 'nowhere'\n[queues.a]\nhandler = 'log'\n\
            retry.max-atempts = 1\nconsumers = [{ kk = 1 }]\n[queues.b]\nknd = 'recipe'\n[queues.'c.d']\nhandler = 'log'\nkind = 'recipe'";
        let (config, places) = lenient(text).unwrap();
        assert_eq!(config.database, format!("embedded:{}", directory.path().join("x").display()));
        assert_eq!(config.queues.len(), 3);
        let queue = Place::Queue("b".to_owned());
        for place in [Place::Daemon, Place::Http, queue] {
            assert!(places.contains(&place), "{place:?} of {places:?}");
        }
        assert_eq!(places.len(), 6, "{places:?}");
        for text in ["databse = 'x'", "database = 7", "prefx = 'a'", "queues = 1", "queues"] {
            assert!(lenient(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schedules_belong_to_their_file_unless_it_names_another_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kvqueue.toml");
        let owner = |text: &str| {
            std::fs::write(&path, text).unwrap();
            load_from(Some(&path), Environment::default(), None).unwrap().schedule_owner
        };
        assert_eq!(owner(""), Some(path.display().to_string()));
        assert_eq!(owner("schedule-owner = 'production'"), Some("production".to_owned()));
        assert_eq!(load_from(None, Environment::default(), None).unwrap().schedule_owner, None);
    }

    #[test]
    fn a_schedule_is_read_from_its_table_and_from_variables() {
        let text = "[queues.q]\nhandler = 'log'\n[queues.q.schedules.'Night.ly']\ncron = '@daily'\n\
            payload-json = { Name = 'x', at = 2026-01-01T00:00:00Z, list = [1, 2.0, true] }\nattributes = { Customer = 'ann' }\n\
            [queues.q.schedules.s]\nevery = '1s'";
        let vars = [
            ("KVQUEUE_QUEUES__Q__SCHEDULES__S__EVERY", "5m"),
            ("KVQUEUE_QUEUES__Q__SCHEDULES__S__MISSED_MAX", "7"),
            ("KVQUEUE_SCHEDULE_OWNER", "production"),
        ];
        let config = loaded(text, &vars).unwrap();
        let schedules = &config.queues["q"].schedules;
        let item = schedules["Night.ly"].schedule("x", None).unwrap().item;
        assert_eq!(item.payload, r#"{"Name":"x","at":"2026-01-01T00:00:00Z","list":[1,2.0,true]}"#);
        assert_eq!(item.attributes["Customer"], "ann");
        assert_eq!((schedules["s"].missed_max, config.schedule_owner.as_deref()), (7, Some("production")));
        assert_eq!(schedules["s"].every, Some(std::time::Duration::from_mins(5)));
        // As `kvqueue config show` prints it.
        let shown: Config = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(shown.queues, config.queues);
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let error =
            load_from(Some(Path::new("/nowhere/kvqueue.toml")), Environment::default(), None).unwrap_err();
        insta::assert_snapshot!(error, @"cannot read configuration /nowhere/kvqueue.toml (name a readable file with --config)");
    }
}
